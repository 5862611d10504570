//! A tape in a region: records of bytes that whoever holds the lease appends, and
//! one thread, which needs no lease, plays back.
//!
//! The writer never waits, and wakes nobody: what there is no room for is dropped
//! and counted. While nobody plays, all that a writer does is to look at one word,
//! and the pages of the tape are never touched.

#[cfg(not(loom))]
mod ends;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(any(not(loom), test))]
mod positions;

#[cfg(not(loom))]
pub use ends::{Label, Tape, TapeReader};
