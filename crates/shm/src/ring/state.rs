//! The state of each end of a ring: plain data, so that it can lie in a region. Each process of the
//! node that drives continues where another stopped.
//!
//! All zero is the beginning of a ring. No value in here can cause an access to memory outside of
//! the ring.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The state of the sending end: a cache line.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub struct ProducerState {
    /// End of the last committed record.
    pub(super) position: u64,
    /// End of the last record the consumer can see; the header there is zero.
    pub(super) published: u64,
    /// Header for the place at `published`, once something is committed.
    pub(super) first: u64,
    /// The consumer's position at the last read.
    pub(super) consumed: u64,
    /// The last sleep of the consumer that this end rang for.
    pub(super) rung: u64,
    /// Number of times the starving word was changed.
    pub(super) waits: u64,
    /// [`Corrupt::code`](super::Corrupt::code) of the rule that the consumer broke, or 0.
    pub(super) fault: u64,
    reserved: u64,
}

/// The state of the receiving end: a cache line.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub struct ConsumerState {
    /// Where the next record is expected.
    pub(super) position: u64,
    /// The position that the producer knows.
    pub(super) released: u64,
    /// Number of times the sleeping word was changed.
    pub(super) sleeps: u64,
    /// The last wait of the producer that this end rang for.
    pub(super) rung_wait: u64,
    /// The position that the producer was told then.
    pub(super) rung_position: u64,
    /// The position of the next record when this side last announced a sleep.
    pub(super) slept_at: u64,
    /// Consecutive sleeps with few records before them.
    pub(super) short_turns: u32,
    /// 1: the producer has seen, before it publishes anything more, that it has to fence itself.
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
