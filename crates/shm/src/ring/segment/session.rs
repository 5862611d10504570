//! How the two ends of a way begin, and begin again after a restart or nonsense. This file touches
//! words only, so that the same code runs under loom.
//!
//! The receiver *offers* a session: a random number, with the present lives of both ends. The
//! sender accepts it: it initialises the ring's beginning, and then repeats the number. From then
//! on both begin at position 0. Neither side reads older contents of the ring. The receiver looks
//! for records only after the sender has repeated the last offered number, which follows the store
//! that empties the first place.
//!
//! A sender accepts no offer to, or by, an earlier life of a member: it would repeat a number whose
//! records are not its own.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::super::protocol::AtomicU64;

/// The words of a way's session.
#[derive(Clone, Copy)]
pub(super) struct Session<'a> {
    /// The sender's session, or 0; the sender writes it.
    pub(super) session: &'a AtomicU64,
    /// The header of the ring's first record; the sender writes it.
    pub(super) first: &'a AtomicU64,
    /// The consumer's position in the ring; the receiver writes it, and the following words.
    pub(super) consumed: &'a AtomicU64,
    /// The session that the receiver is ready for.
    pub(super) offer: &'a AtomicU64,
    /// The life of the receiver that made the offer.
    pub(super) by: &'a AtomicU64,
    /// The life of the sender that the offer is for.
    pub(super) to: &'a AtomicU64,
}

impl Session<'_> {
    /// For the receiver: offers a session with an unused number.
    pub(super) fn offer(self, number: u64, by: u64, to: u64) {
        self.consumed.store(0, Relaxed);
        self.by.store(by, Relaxed);
        self.to.store(to, Relaxed);
        self.offer.store(number, Release);
    }

    /// For the receiver: whether the sender is in this session, so that the ring's contents belong
    /// to it.
    pub(super) fn is_taken_up(self, number: u64) -> bool {
        self.session.load(Acquire) == number
    }

    /// For the sender: a new offer. An offer of its last session does not count, since the receiver
    /// may still take the sender to be in the middle of it.
    pub(super) fn offered(self, last: u64, by: u64, to: u64) -> Option<u64> {
        let number = self.offer.load(Acquire);
        let is_meant = self.by.load(Relaxed) == by && self.to.load(Relaxed) == to;
        (number != last && number != 0 && is_meant).then_some(number)
    }

    /// For the sender: accepts an offer. The sender has to reset its state.
    pub(super) fn begin(self, number: u64) {
        self.first.store(0, Relaxed);
        self.session.store(number, Release);
    }

    /// For the sender: ends its session.
    pub(super) fn end(self) {
        self.session.store(0, Release);
    }
}
