//! What each end of a ring has to remember: plain data, so that it can lie in a
//! region and whichever process of the node drives goes on where another stopped.
//!
//! All zero is the beginning of a ring. Nothing in here is believed so far that
//! memory outside of the ring could be touched.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What the sending end remembers: a cache line.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub struct ProducerState {
    /// End of the last committed record.
    pub(super) position: u64,
    /// End of the last record the consumer can see; the header there is zero.
    pub(super) published: u64,
    /// Header for the place at `published`, once something is committed.
    pub(super) first: u64,
    /// The consumer's position, as last seen.
    pub(super) consumed: u64,
    /// The consumer's sleep that was rung for last.
    pub(super) rung: u64,
    /// Number of times the starving word was changed.
    pub(super) waits: u64,
    /// [`Corrupt::code`](super::Corrupt::code) of the rule that the consumer broke, or 0.
    pub(super) fault: u64,
    reserved: u64,
}

/// What the receiving end remembers: a cache line.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub struct ConsumerState {
    /// Where the next record is expected.
    pub(super) position: u64,
    /// The position the producer knows of.
    pub(super) released: u64,
    /// Number of times the sleeping word was changed.
    pub(super) sleeps: u64,
    /// The producer's wait that was rung for last.
    pub(super) rung_wait: u64,
    /// The position it was told then.
    pub(super) rung_position: u64,
    /// Where the next record was expected when this side announced a sleep last.
    pub(super) slept_at: u64,
    /// Sleeps in a row that not many records had come before.
    pub(super) short_turns: u32,
    /// 1: whatever the producer publishes, it has seen before that it has to fence itself.
    pub(super) is_understood: u32,
    pub(super) reserved: u64,
}

impl ProducerState {
    /// End of the last committed record, in bytes since the beginning.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }
}

impl ConsumerState {
    /// End of the last record passed, in bytes since the beginning.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }
}

const _: () = assert!(size_of::<ProducerState>() == 64 && size_of::<ConsumerState>() == 64);
