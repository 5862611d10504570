//! The positions that divide a capture ring between its two ends. This file touches atomics only,
//! so that the same code runs under loom.

#[cfg(not(loom))]
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
#[cfg(loom)]
use loom::sync::atomic::AtomicU64;

/// The positions of the writer and of the reader. They count bytes since the ring was made, and
/// never go back.
#[derive(Clone, Copy)]
pub(super) struct Positions<'a> {
    pub(super) written: &'a AtomicU64,
    pub(super) taken: &'a AtomicU64,
}

impl Positions<'_> {
    /// For the writer: its position, and the position up to which the reader has finished. Bytes
    /// one ring's length before the latter belong to the writer again.
    #[inline]
    pub(super) fn to_write(self) -> (u64, u64) {
        (self.written.load(Relaxed), self.taken.load(Acquire))
    }

    /// For the writer: passes the bytes before `position` to the reader.
    #[inline]
    pub(super) fn publish(self, position: u64) {
        self.written.store(position, Release);
    }

    /// For the reader: the position up to which there are records.
    #[inline]
    pub(super) fn readable(self) -> u64 {
        self.written.load(Acquire)
    }

    /// For the reader: returns the bytes before `position` to the writer.
    #[inline]
    pub(super) fn take(self, position: u64) {
        self.taken.store(position, Release);
    }
}
