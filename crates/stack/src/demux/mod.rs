//! Demultiplexing: finds the connection of a segment.
//!
//! Each strategy implements [`Demux`]: those of the demux paper in `chained`, the flow table in
//! `flow_table`. [`Demultiplexer`] is the strategy chosen in the configuration. A strategy holds ids only. The tuples stay in the records that the ids
//! stand for, and strategies read them through [`Tuples`]. Every strategy reports its work to an
//! [`Observer`], so that strategies can be compared.

mod bucket;
mod chained;
mod chains;
mod choice;
mod demultiplexer;
mod flow_index;
mod flow_table;
mod generation;
mod observer;
#[cfg(test)]
mod tests;

pub use chained::{
    Bsd, CachedSearch, ChainChoice, ChainSearch, ChainedDemux, HashedChain, HashedMoveToFront, MoveToFront,
    MovingSearch, OneChain, Sequent,
};
pub use chains::Chains;
pub use choice::{DEFAULT_CHAINS, DemuxStrategy, MAX_CHAINS, NoStrategy};
pub use demultiplexer::{Chosen, Demultiplexer};
pub(crate) use flow_index::FlowIndex;
pub use flow_index::MAX_FLOWS;
pub use flow_table::FlowTable;
pub use observer::{Observer, Unobserved};

use toehold_shm::{NONE, Plain, Slab, prefetch};

use crate::sip::halves;
use crate::tuple::{Address, FourTuple};

/// The table has no room for another tuple: the id is not below the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the demultiplexer is full")]
pub struct Full;

/// Access to the tuples of ids.
pub trait Tuples {
    /// The tuple of an id in the table, unchanged since its insertion.
    fn tuple(&self, id: u32) -> &FourTuple;

    /// Announces that the tuple of an id will be read soon.
    #[inline]
    fn prefetch(&self, id: u32) {
        prefetch(self.tuple(id));
    }
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

/// A demultiplexing strategy: finds ids below a fixed capacity by four-tuple.
///
/// The `tuples` argument of all calls is always the same object, and knows the tuple of every id in
/// the table.
pub trait Demux {
    /// The id of a tuple.
    fn lookup<T: Tuples + ?Sized>(
        &mut self,
        tuple: &FourTuple,
        tuples: &T,
        observer: &mut impl Observer,
    ) -> Option<u32>;

    /// The ids of several tuples, [`toehold_shm::NONE`] for unknown tuples. The result equals that
    /// of one look-up after the other. A strategy may overlap the memory accesses.
    ///
    /// # Panics
    ///
    /// If `wanted` and `ids` differ in length.
    fn lookup_burst<T: Tuples + ?Sized>(
        &mut self,
        wanted: &[FourTuple],
        ids: &mut [u32],
        tuples: &T,
        observer: &mut impl Observer,
    ) {
        assert_eq!(wanted.len(), ids.len());
        for (tuple, id) in wanted.iter().zip(ids) {
            *id = self.lookup(tuple, tuples, observer).unwrap_or(NONE);
        }
    }

    /// Calls `guessed` with the ids that look-ups of these tuples will probably find. It reads no
    /// record that is not cached. The default makes no guess.
    fn guess_burst(&self, wanted: &[FourTuple], guessed: impl FnMut(u32)) {
        let _ = (wanted, guessed);
    }

    /// Inserts an id that is not in the table, and whose tuple is not either.
    fn insert<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> Result<(), Full>;

    /// Removes an id whose tuple is still known. Returns whether it was there.
    fn remove<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> bool;

    /// Removes all ids. It may be called after a process died in the middle of a change.
    fn forget(&mut self);

    /// Number of ids.
    fn len(&self) -> u32;

    /// Whether the table holds no ids.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Whether two tuples are equal: compares five words with one branch, not one for each field.
#[inline]
fn same(a: &FourTuple, b: &FourTuple) -> bool {
    let differ = |a: &Address, b: &Address| {
        let ([a, b], [c, d]) = (halves(a), halves(b));
        a ^ c | b ^ d
    };
    let ports = |tuple: &FourTuple| u32::from(tuple.local_port) << 16 | u32::from(tuple.remote_port);
    let ports = u64::from(ports(a) ^ ports(b));
    differ(&a.local, &b.local) | differ(&a.remote, &b.remote) | ports == 0
}
