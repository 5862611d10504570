//! The words of a ring: the presence of records, free space, and sleepers. This file touches no
//! bytes of records, so that the same code runs under loom.
//!
//! Every word has one writer. The sides synchronise in three ways:
//!
//! - A record becomes visible when the producer stores its header (release) over zero; the consumer
//!   loads it (acquire). The producer stores everything of a burst before the header of its first
//!   record, so the consumer finds all of it.
//! - Space becomes free when the consumer stores its position (release). The producer loads it
//!   (acquire) when it seems out of space.
//! - A sleeper makes its word odd, fences, and checks once more. A side with news for the sleeper
//!   stores it, fences, and reads the sleeper's word. The fences are sequentially consistent (or
//!   the sleeper makes one for both, see [`super::barrier`]). If both sides have fenced, at least
//!   one sees the other's earlier store. (Release and acquire alone lose wake-ups.) The word is a
//!   count, so each sleep is rung for only once.

#[cfg(not(loom))]
pub(super) use core::sync::atomic::{AtomicU64, fence};
#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU64, fence};

use super::Corrupt;
use super::incoming::Incoming;
use super::layout::RECORD_ALIGN;
use super::outgoing::Outgoing;
use super::state::{ConsumerState, ProducerState};

/// The addresses of the words of one direction.
pub(super) trait Words {
    /// Header of the record at `position`, a multiple of [`RECORD_ALIGN`]; written by the producer.
    fn header(&self, position: u64) -> &AtomicU64;
    /// The consumer's position; written by the consumer.
    fn consumed(&self) -> &AtomicU64;
    /// Odd while the consumer sleeps; written by the consumer.
    fn sleeping(&self) -> &AtomicU64;
    /// Odd while the producer waits for space; written by the producer.
    fn starving(&self) -> &AtomicU64;
}

/// The next odd number: a sleep that was never rung for, even if the sleep before was never
/// withdrawn.
#[inline]
pub(super) fn next_sleep(sleeps: u64) -> u64 {
    sleeps.wrapping_add(1) | 1
}

/// An even number after two counts of sleeps, of which one may be ahead. It means that no thread
/// sleeps, and that the next sleep was never rung for.
#[inline]
pub(super) fn after_all(one: u64, other: u64) -> u64 {
    one.max(other).wrapping_add(1) & !1
}

/// The reason why there is no space for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// The consumer has to make room first.
    #[error("the ring is full")]
    Full,
    /// Longer than any record of this ring.
    #[error("the record is longer than the ring allows")]
    TooLong,
    /// The peer broke the rules; the ring is unusable.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// The side that fences for both before it sleeps or waits, see [`super::barrier`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Fences {
    /// Whether this side does.
    pub(super) own: bool,
    /// Whether the other side does.
    pub(super) other: bool,
}

/// One direction, as this process sees it. The words, which the other side sees, and this side's
/// private state hold everything that changes.
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
