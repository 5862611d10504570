//! Observers of look-ups, which count their work.

use crate::counters::DemuxCounters;

/// Receives the work of a look-up. Strategies are compiled for each observer, so that
/// [`Unobserved`] costs nothing.
pub trait Observer {
    /// This many tuples are looked up.
    #[inline]
    fn look_up(&mut self, _tuples: u64) {}

    /// An entry's tuple is compared with the one looked up: a line of its record is read.
    #[inline]
    fn examine(&mut self) {}

    /// The entry in a one-entry cache was the right one.
    #[inline]
    fn hit(&mut self) {}

    /// A line of the strategy's own memory is read.
    #[inline]
    fn touch(&mut self) {}
}

/// An observer that ignores all events.
#[derive(Debug, Clone, Copy)]
pub struct Unobserved;

impl Observer for Unobserved {}

impl Observer for DemuxCounters {
    #[inline]
    fn look_up(&mut self, tuples: u64) {
        self.demux_lookups += tuples;
    }

    #[inline]
    fn examine(&mut self) {
        self.demux_examined += 1;
        self.demux_lines += 1;
    }

    #[inline]
    fn hit(&mut self) {
        self.demux_cache_hits += 1;
    }

    #[inline]
    fn touch(&mut self) {
        self.demux_lines += 1;
    }
}
