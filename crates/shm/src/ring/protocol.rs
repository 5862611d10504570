//! The words of a ring: when a record is there, when its space is free again, who
//! sleeps. No bytes of records are touched here, so that the very same code runs
//! under loom.
//!
//! Every word has one writer. The three ways in which one side waits for the other:
//!
//! - A record becomes visible when its header is stored (release) over zero; the
//!   consumer loads it (acquire). Everything of a burst is stored before the
//!   header of its first record, so the consumer finds all of it.
//! - Space becomes free when the consumer stores its position (release); the
//!   producer loads it (acquire) when it seems out of space.
//! - A sleeper makes its word odd, fences, and looks once more. Whoever has
//!   something for it stores that, fences, and looks at the sleeper's word. The
//!   fences are sequentially consistent (or the sleeper makes one for both, see
//!   [`super::barrier`]): of two sides that both have fenced, at
//!   least one sees what the other stored before. (Release and acquire alone lose
//!   wake-ups.) The word is a count, so that each sleep is rung for once only.

#[cfg(not(loom))]
pub(super) use core::sync::atomic::{AtomicU64, fence};
#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU64, fence};

use super::Corrupt;
use super::incoming::Incoming;
use super::layout::RECORD_ALIGN;
use super::outgoing::Outgoing;
use super::state::{ConsumerState, ProducerState};

/// Where the words of one direction lie.
pub(super) trait Words {
    /// Header of the record at `position`, a multiple of [`RECORD_ALIGN`]; written
    /// by the producer.
    fn header(&self, position: u64) -> &AtomicU64;
    /// The consumer's position; written by the consumer.
    fn consumed(&self) -> &AtomicU64;
    /// Odd while the consumer sleeps; written by the consumer.
    fn sleeping(&self) -> &AtomicU64;
    /// Odd while the producer waits for space; written by the producer.
    fn starving(&self) -> &AtomicU64;
}

/// The next odd number: a sleep that nobody has rung for yet, even if the one
/// before was never taken back.
#[inline]
pub(super) fn next_sleep(sleeps: u64) -> u64 {
    sleeps.wrapping_add(1) | 1
}

/// An even number after two counts of sleeps, of which one may be ahead of the other: nobody
/// sleeps, and the next sleep is one that nobody has rung for.
#[inline]
pub(super) fn after_all(one: u64, other: u64) -> u64 {
    one.max(other).wrapping_add(1) & !1
}

/// Why there is no space for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// The consumer has to make room first.
    #[error("the ring is full")]
    Full,
    /// Longer than any record of this ring.
    #[error("the record is longer than the ring allows")]
    TooLong,
    /// The other side broke the rules; the ring is of no use any more.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// Which side makes the fences of both when it is about to sleep or to wait, see
/// [`super::barrier`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Fences {
    /// This side does.
    pub(super) own: bool,
    /// The other side does.
    pub(super) other: bool,
}

/// One direction, as this process sees it. All that changes is in the words, which
/// the other side sees, and in a state, which this side keeps to itself.
#[derive(Debug)]
pub(super) struct Ring<W> {
    pub(super) words: W,
    pub(super) capacity: u64,
    pub(super) fences: Fences,
}

impl<W: Words> Ring<W> {
    /// The producer, whose state is zero while all words are.
    #[inline]
    pub(super) fn outgoing<'a>(&'a self, state: &'a mut ProducerState) -> Outgoing<'a, W> {
        Outgoing { ring: self, state }
    }

    /// The consumer, whose state is zero while all words are.
    #[inline]
    pub(super) fn incoming<'a>(&'a self, state: &'a mut ConsumerState) -> Incoming<'a, W> {
        Incoming { ring: self, state }
    }

    /// Bytes from the place of `position` to the end of the ring: never 0.
    #[inline]
    pub(super) fn to_end(&self, position: u64) -> u64 {
        self.capacity - (position & (self.capacity - 1) & !(RECORD_ALIGN - 1))
    }
}
