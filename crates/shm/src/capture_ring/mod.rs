//! A capture ring in a region. The holder of the lease appends records of bytes; one thread, which
//! needs no lease, reads them.
//!
//! The writer never waits, and wakes no thread: it drops and counts records that do not fit.
//! Without a reader, a writer only reads one word, and never touches the pages of the ring.

#[cfg(not(loom))]
mod ends;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(any(not(loom), test))]
mod positions;

#[cfg(not(loom))]
pub use ends::{Label, Tape, TapeReader, TapeStatus};
