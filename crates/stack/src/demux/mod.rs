//! Which connection a segment is for.
//!
//! One strategy a file, behind [`Demux`]; [`Demultiplexer`] is the one the
//! configuration chose. A strategy holds ids and nothing else: the tuples stay
//! in the records that the ids stand for, and strategies look at them through
//! [`Tuples`]. Every strategy counts what it looks at, so that they can be
//! compared.

mod flow_index;
mod flow_table;
mod sequent;
#[cfg(test)]
mod tests;

pub(crate) use flow_index::FlowIndex;
pub use flow_table::FlowTable;
pub use sequent::Sequent;

use toehold_shm::{Carver, OutOfMemory, Plain, Slab};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::config::DemuxStrategy;
use crate::tuple::{Address, FourTuple};

/// There is no room for another tuple: the id is not below the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the demultiplexer is full")]
pub struct Full;

/// What a strategy has done since its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DemuxCounters {
    /// Tuples looked up.
    pub lookups: u64,
    /// Entries whose tuple was compared with the one looked up, those in caches included.
    pub examined: u64,
    /// Look-ups that a one-entry cache answered.
    pub cache_hits: u64,
}

/// Where the tuples of ids lie.
pub trait Tuples {
    /// The tuple of an id that is in the table: the same as when it was entered.
    fn tuple(&self, id: u32) -> &FourTuple;
}

impl Tuples for [FourTuple] {
    #[inline]
    fn tuple(&self, id: u32) -> &FourTuple {
        &self[id as usize]
    }
}

/// A record that is found by its four-tuple.
pub(crate) trait HasTuple: Plain {
    fn tuple(&self) -> &FourTuple;
}

impl<T: HasTuple> Tuples for Slab<T> {
    #[inline]
    fn tuple(&self, id: u32) -> &FourTuple {
        self[id].tuple()
    }
}

/// A demultiplexing strategy: ids below a fixed capacity by four-tuple.
///
/// The `tuples` given to the calls are always the same ones, and know the
/// tuple of every id in the table.
pub trait Demux {
    /// The id of a tuple.
    fn lookup<T: Tuples + ?Sized>(&mut self, tuple: &FourTuple, tuples: &T) -> Option<u32>;

    /// The ids of several tuples, [`toehold_shm::NONE`] for those there are not.
    /// The waits for memory overlap.
    ///
    /// # Panics
    ///
    /// If `wanted` and `ids` differ in length.
    fn lookup_burst<T: Tuples + ?Sized>(&mut self, wanted: &[FourTuple], ids: &mut [u32], tuples: &T);

    /// Enters an id that is not in the table, and whose tuple is not either.
    fn insert<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> Result<(), Full>;

    /// Takes a tuple out and returns the id it had.
    fn remove<T: Tuples + ?Sized>(&mut self, tuple: &FourTuple, tuples: &T) -> Option<u32>;

    /// Number of ids.
    fn len(&self) -> u32;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was done so far.
    fn counters(&self) -> DemuxCounters;
}

/// The strategy that was chosen.
#[derive(Debug)]
pub enum Demultiplexer {
    /// Hash chains with a cache each.
    Sequent(Sequent),
    /// Buckets of a cache line.
    FlowTable(FlowTable),
}

impl Demultiplexer {
    /// Bytes of a region that a strategy takes for ids below `capacity`.
    pub fn bytes_needed(strategy: DemuxStrategy, capacity: u32) -> usize {
        match strategy {
            DemuxStrategy::Sequent { chains } => Sequent::bytes_needed(chains, capacity),
            DemuxStrategy::FlowTable => FlowTable::bytes_needed(capacity),
        }
    }

    /// Makes an empty table, or attaches to the one there is.
    pub fn create(
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
    fn lookup<T: Tuples + ?Sized>(&mut self, tuple: &FourTuple, tuples: &T) -> Option<u32> {
        chosen!(self, strategy => strategy.lookup(tuple, tuples))
    }

    fn lookup_burst<T: Tuples + ?Sized>(&mut self, wanted: &[FourTuple], ids: &mut [u32], tuples: &T) {
        chosen!(self, strategy => strategy.lookup_burst(wanted, ids, tuples));
    }

    fn insert<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> Result<(), Full> {
        chosen!(self, strategy => strategy.insert(id, tuples))
    }

    fn remove<T: Tuples + ?Sized>(&mut self, tuple: &FourTuple, tuples: &T) -> Option<u32> {
        chosen!(self, strategy => strategy.remove(tuple, tuples))
    }

    fn len(&self) -> u32 {
        chosen!(self, strategy => strategy.len())
    }

    fn counters(&self) -> DemuxCounters {
        chosen!(self, strategy => strategy.counters())
    }
}

/// Whether two tuples are the same: five words, and one branch instead of one a part.
#[inline]
fn same(a: &FourTuple, b: &FourTuple) -> bool {
    let half =
        |address: &Address, at: usize| u64::from_le_bytes(core::array::from_fn(|byte| address.0[at + byte]));
    let ports = |tuple: &FourTuple| u32::from(tuple.local_port) << 16 | u32::from(tuple.remote_port);
    let difference = (half(&a.local, 0) ^ half(&b.local, 0))
        | (half(&a.local, 8) ^ half(&b.local, 8))
        | (half(&a.remote, 0) ^ half(&b.remote, 0))
        | (half(&a.remote, 8) ^ half(&b.remote, 8))
        | u64::from(ports(a) ^ ports(b));
    difference == 0
}
