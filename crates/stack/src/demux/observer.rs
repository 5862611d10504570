//! Who looks on while a strategy looks up.

use crate::counters::DemuxCounters;

/// Is told of what a look-up does. Strategies are compiled for each kind, so that
/// nobody pays for what [`Unobserved`] is told.
pub trait Observer {
    /// So many tuples are looked up.
    #[inline]
    fn look_up(&mut self, _tuples: u64) {}

    /// An entry's tuple is compared with the one looked up: a line of its record is read.
    #[inline]
    fn examine(&mut self) {}

    /// The entry in a one-entry cache was the one.
    #[inline]
    fn hit(&mut self) {}

    /// A line of the strategy's own is read.
    #[inline]
    fn touch(&mut self) {}
}

/// Nobody looks on.
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
