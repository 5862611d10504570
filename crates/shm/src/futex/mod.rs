//! Sleeping on a word of memory, across processes.
//!
//! The protocols of the lease and of parking use the kernel through [`Futex`] only, so the same
//! code runs under loom.

#[cfg(not(loom))]
mod kernel;
#[cfg(all(test, loom))]
pub(crate) mod model;

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, fence};
#[cfg(not(loom))]
pub(crate) use kernel::now_ns;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

/// Wakes all sleepers: the kernel counts in `int`.
pub(crate) const ALL: u32 = i32::MAX as u32;

/// How waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The thread slept, and was woken or interrupted.
    Slept,
    /// The word already differed; the thread did not sleep.
    Different,
    /// The time was reached.
    TimedOut,
}

/// A word that threads of several processes sleep on.
pub(crate) trait Futex {
    /// The word.
    fn word(&self) -> &AtomicU32;
    /// Sleeps if the word is `expected`, until woken or until a time on the monotonic clock. With
    /// respect to [`Futex::wake`], the kernel compares the word and queues the thread in one step.
    fn wait(&self, expected: u32, until_ns: Option<u64>) -> Waited;
    /// Wakes at most `threads` threads, the longest sleepers first. Returns their number.
    fn wake(&self, threads: u32) -> usize;
    /// Asks the engine to check the process that keeps this thread waiting.
    fn plead(&self) {}
    /// Stops this process, number `me` of its node, if the engine has asked for that.
    fn halt(&self, _me: u32) {}
}
