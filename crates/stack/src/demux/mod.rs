//! Which connection a segment is for.
//!
//! One strategy a file, behind [`Demux`]; [`Demultiplexer`] is the one the
//! configuration chose. A strategy holds ids and nothing else: the tuples stay
//! in the records that the ids stand for, and strategies look at them through
//! [`Tuples`]. Every strategy tells an [`Observer`] what it looks at, so that they
//! can be compared.

mod bsd;
mod bucket;
mod chains;
mod choice;
mod demultiplexer;
mod flow_index;
mod flow_table;
mod generation;
mod hashed_move_to_front;
mod keyed_chains;
mod move_to_front;
mod observer;
mod sequent;
#[cfg(test)]
mod tests;

pub use bsd::Bsd;
pub use choice::{DEFAULT_CHAINS, DemuxStrategy, MAX_CHAINS, NoStrategy};
pub use demultiplexer::{Chosen, Demultiplexer};
pub(crate) use flow_index::FlowIndex;
pub use flow_index::MAX_FLOWS;
pub use flow_table::FlowTable;
pub use hashed_move_to_front::HashedMoveToFront;
pub use move_to_front::MoveToFront;
pub use observer::{Observer, Unobserved};
pub use sequent::Sequent;

use toehold_shm::{NONE, Plain, Slab, prefetch};

use crate::sip::halves;
use crate::tuple::{Address, FourTuple};

/// There is no room for another tuple: the id is not below the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the demultiplexer is full")]
pub struct Full;

/// Where the tuples of ids lie.
pub trait Tuples {
    /// The tuple of an id that is in the table: the same as when it was entered.
    fn tuple(&self, id: u32) -> &FourTuple;

    /// Says that it will be asked for the tuple of an id soon.
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

/// A demultiplexing strategy: ids below a fixed capacity by four-tuple.
///
/// The `tuples` given to the calls are always the same ones, and know the
/// tuple of every id in the table.
pub trait Demux {
    /// The id of a tuple.
    fn lookup<T: Tuples + ?Sized>(
        &mut self,
        tuple: &FourTuple,
        tuples: &T,
        observer: &mut impl Observer,
    ) -> Option<u32>;

    /// The ids of several tuples, [`toehold_shm::NONE`] for those there are not:
    /// the same as of so many look-ups, one after the other. A strategy that can lets
    /// the waits for memory overlap.
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

    /// Tells `guessed` the ids that look-ups of these tuples will probably find, as far as that
    /// can be told without records that would have to be waited for. By default of none.
    fn guess_burst(&self, wanted: &[FourTuple], guessed: impl FnMut(u32)) {
        let _ = (wanted, guessed);
    }

    /// Enters an id that is not in the table, and whose tuple is not either.
    fn insert<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> Result<(), Full>;

    /// Takes an id out, whose tuple is still known. Says whether it was there.
    fn remove<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> bool;

    /// Takes all ids out, whatever somebody who died in the middle of a change has left.
    fn forget(&mut self);

    /// Number of ids.
    fn len(&self) -> u32;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Whether two tuples are the same: five words, and one branch instead of one a part.
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
