//! Which connection a segment is for.
//!
//! One strategy a file, behind [`Demux`]; [`Demultiplexer`] is the one the
//! configuration chose. A strategy knows four-tuples and ids, nothing of what
//! the ids stand for. Every strategy counts what it looks at, so that they can
//! be compared.

mod flow_index;
mod flow_table;
mod sequent;
#[cfg(test)]
mod tests;

pub(crate) use flow_index::{FlowIndex, Tuples};

use toehold_shm::{Carver, OutOfMemory};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use self::flow_table::FlowTable;
use self::sequent::Sequent;
use crate::config::DemuxStrategy;
use crate::tuple::FourTuple;

/// There is no room for another tuple: the id is not below the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the demultiplexer is full")]
pub(crate) struct Full;

/// What a strategy has done since its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct DemuxCounters {
    /// Tuples looked up.
    pub(crate) lookups: u64,
    /// Entries whose tuple was compared with the one looked up, those in caches included.
    pub(crate) examined: u64,
    /// Look-ups that a one-entry cache answered.
    pub(crate) cache_hits: u64,
}

/// A demultiplexing strategy: ids below a fixed capacity by four-tuple.
pub(crate) trait Demux {
    /// The id of a tuple.
    fn lookup(&mut self, tuple: &FourTuple) -> Option<u32>;

    /// The ids of several tuples, [`toehold_shm::NONE`] for those there are not.
    /// Overlaps what memory takes for each.
    ///
    /// # Panics
    /// If the two slices differ in length.
    fn lookup_burst(&mut self, tuples: &[FourTuple], ids: &mut [u32]);

    /// Enters a tuple that is not in the table under an id that is not.
    fn insert(&mut self, tuple: FourTuple, id: u32) -> Result<(), Full>;

    /// Takes a tuple out and returns the id it had.
    fn remove(&mut self, tuple: &FourTuple) -> Option<u32>;

    /// Number of tuples.
    fn len(&self) -> u32;

    /// What was done so far.
    fn counters(&self) -> DemuxCounters;
}

/// The strategy that was chosen.
#[derive(Debug)]
pub(crate) enum Demultiplexer {
    Sequent(Sequent),
    FlowTable(FlowTable),
}

impl Demultiplexer {
    /// Bytes of a region that a strategy takes for ids below `capacity`.
    pub(crate) fn bytes_needed(strategy: DemuxStrategy, capacity: u32) -> usize {
        match strategy {
            DemuxStrategy::Sequent { chains } => Sequent::bytes_needed(chains, capacity),
            DemuxStrategy::FlowTable => FlowTable::bytes_needed(capacity),
        }
    }

    /// Makes an empty table, or attaches to the one there is.
    pub(crate) fn create(
        carver: &mut Carver,
        strategy: DemuxStrategy,
        capacity: u32,
        secret: &[u8; 16],
    ) -> Result<Self, OutOfMemory> {
        Ok(match strategy {
            DemuxStrategy::Sequent { chains } => {
                Self::Sequent(Sequent::create(carver, chains, capacity, secret)?)
            }
            DemuxStrategy::FlowTable => Self::FlowTable(FlowTable::create(carver, capacity, secret)?),
        })
    }
}

/// Does the same with whichever strategy it is.
macro_rules! chosen {
    ($self:ident, $strategy:ident => $call:expr) => {
        match $self {
            Self::Sequent($strategy) => $call,
            Self::FlowTable($strategy) => $call,
        }
    };
}

impl Demux for Demultiplexer {
    #[inline]
    fn lookup(&mut self, tuple: &FourTuple) -> Option<u32> {
        chosen!(self, strategy => strategy.lookup(tuple))
    }

    fn lookup_burst(&mut self, tuples: &[FourTuple], ids: &mut [u32]) {
        chosen!(self, strategy => strategy.lookup_burst(tuples, ids));
    }

    fn insert(&mut self, tuple: FourTuple, id: u32) -> Result<(), Full> {
        chosen!(self, strategy => strategy.insert(tuple, id))
    }

    fn remove(&mut self, tuple: &FourTuple) -> Option<u32> {
        chosen!(self, strategy => strategy.remove(tuple))
    }

    fn len(&self) -> u32 {
        chosen!(self, strategy => strategy.len())
    }

    fn counters(&self) -> DemuxCounters {
        chosen!(self, strategy => strategy.counters())
    }
}

/// Whether two tuples are the same, without a branch for each part.
#[inline]
fn same(a: &FourTuple, b: &FourTuple) -> bool {
    let a: &[u8; size_of::<FourTuple>()] = zerocopy::transmute_ref!(a);
    let b: &[u8; size_of::<FourTuple>()] = zerocopy::transmute_ref!(b);
    a == b
}
