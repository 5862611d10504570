//! Which bytes of a tape are whose: all that its two ends tell each other. Written over
//! atomics only, so that the very same code runs under loom.

#[cfg(not(loom))]
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
#[cfg(loom)]
use loom::sync::atomic::AtomicU64;

/// How far the writer has written, and the reader taken. They count bytes since the tape
/// was made, and never go back.
#[derive(Clone, Copy)]
pub(super) struct Positions<'a> {
    pub(super) written: &'a AtomicU64,
    pub(super) taken: &'a AtomicU64,
}

impl Positions<'_> {
    /// The writer's: where it goes on, and the position up to which the reader has taken
    /// what it wanted. What lies a tape's length before the latter is the writer's again.
    #[inline]
    pub(super) fn to_write(self) -> (u64, u64) {
        (self.written.load(Relaxed), self.taken.load(Acquire))
    }

    /// The writer's: what lies before `position` is the reader's from now on.
    #[inline]
    pub(super) fn publish(self, position: u64) {
        self.written.store(position, Release);
    }

    /// The reader's: the position up to which there is something to be read.
    #[inline]
    pub(super) fn readable(self) -> u64 {
        self.written.load(Acquire)
    }

    /// The reader's: it will not look any more at what lies before `position`.
    #[inline]
    pub(super) fn take(self, position: u64) {
        self.taken.store(position, Release);
    }
}
