//! How the two ends of a way begin, and begin anew when one of them was restarted or
//! nonsense was found: only words here, so that the very same code runs under loom.
//!
//! The receiver *offers* a session: a random number, with the present lives of both ends.
//! The sender takes it up by putting the ring's beginning in order and repeating the number.
//! From then on both begin at position 0. Whatever lay in the ring before is never looked
//! at again: the receiver looks for records only behind the number that it offered last,
//! and that is stored after the first place was made empty.
//!
//! A sender takes up no offer that was made to, or by, an earlier life of a member: it
//! would repeat a number whose records are not its own.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::super::protocol::AtomicU64;

/// The words of a way that sessions are about.
#[derive(Clone, Copy)]
pub(super) struct Session<'a> {
    /// The session that the sender is in, or 0; the sender's.
    pub(super) session: &'a AtomicU64,
    /// The header of the ring's first record; the sender's.
    pub(super) first: &'a AtomicU64,
    /// The ring's consumer's position; the receiver's, as all that follows.
    pub(super) consumed: &'a AtomicU64,
    /// The session that the receiver is ready for.
    pub(super) offer: &'a AtomicU64,
    /// Which life of the receiver made the offer.
    pub(super) by: &'a AtomicU64,
    /// And for which life of the sender.
    pub(super) to: &'a AtomicU64,
}

impl Session<'_> {
    /// The receiver's: a session that nobody was in before.
    pub(super) fn offer(self, number: u64, by: u64, to: u64) {
        self.consumed.store(0, Relaxed);
        self.by.store(by, Relaxed);
        self.to.store(to, Relaxed);
        self.offer.store(number, Release);
    }

    /// The receiver's: whether the sender is in this session, so that whatever is in the
    /// ring is of it.
    pub(super) fn is_taken_up(self, number: u64) -> bool {
        self.session.load(Acquire) == number
    }

    /// The sender's: an offer that is not the session it was in last, which the receiver may
    /// still think it is in, somewhere behind the beginning.
    pub(super) fn offered(self, last: u64, by: u64, to: u64) -> Option<u64> {
        let number = self.offer.load(Acquire);
        let is_meant = self.by.load(Relaxed) == by && self.to.load(Relaxed) == to;
        (number != last && number != 0 && is_meant).then_some(number)
    }

    /// The sender's: takes an offer up. Its state begins anew.
    pub(super) fn begin(self, number: u64) {
        self.first.store(0, Relaxed);
        self.session.store(number, Release);
    }

    /// The sender's: it is in no session any more.
    pub(super) fn end(self) {
        self.session.store(0, Release);
    }
}
