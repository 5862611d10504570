//! What a server counts of a run whose end its client decides: all that comes after a warm-up
//! of its own.

use std::time::{Duration, Instant};

use super::Pace;
use super::meter::Meter;
use crate::samples::Side;

/// Starts to count where its warm-up ends.
#[derive(Debug)]
pub(super) struct Served {
    began: Instant,
    warm_up: Duration,
    look_every: u64,
    whole: Meter,
    total: Tally,
    /// What the warm-up took, and the meter of what came since.
    warm: Option<(Tally, Meter)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    exchanges: u64,
    messages: u64,
    bytes: u64,
}

impl Served {
    /// In its warm-up the server looks at the clock once in `look_every` exchanges.
    pub(super) fn begin(pace: &Pace, look_every: u64) -> Self {
        Self {
            began: Instant::now(),
            warm_up: pace.warm_up,
            look_every,
            whole: Meter::start(),
            total: Tally::default(),
            warm: None,
        }
    }

    /// An exchange of `messages` messages with `bytes` bytes in all is over.
    #[inline]
    pub(super) fn exchanged(&mut self, messages: u64, bytes: u64) {
        self.total.exchanges += 1;
        self.total.messages += messages;
        self.total.bytes += bytes;
        if self.warm.is_none()
            && self.total.exchanges.is_multiple_of(self.look_every)
            && self.began.elapsed() >= self.warm_up
        {
            self.warm = Some((self.total, Meter::start()));
        }
    }

    /// The client has said that it is over.
    pub(super) fn end(self) -> Side {
        // A server that was so starved of its core that all was over before its warm-up was
        // counts everything.
        let after = |(warm, _): &(Tally, Meter)| warm.exchanges < self.total.exchanges;
        let (warm, meter) = self.warm.filter(after).unwrap_or((Tally::default(), self.whole));
        Side {
            total_bytes: self.total.bytes,
            ..meter.stop(self.total.messages - warm.messages, self.total.bytes - warm.bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(warm_up: Duration) -> Pace {
        Pace {
            warm_up,
            span: Duration::ZERO,
            overlap: Duration::ZERO,
        }
    }

    #[test]
    fn the_warm_up_does_not_count() {
        let mut served = Served::begin(&pace(Duration::ZERO), 4);
        for _ in 0..10 {
            served.exchanged(2, 100);
        }
        let side = served.end();
        assert_eq!((side.messages, side.bytes, side.total_bytes), (12, 600, 1000));
    }

    #[test]
    fn a_run_that_ends_in_the_warm_up_counts_whole() {
        let mut served = Served::begin(&pace(Duration::MAX), 4);
        for _ in 0..10 {
            served.exchanged(2, 100);
        }
        let side = served.end();
        assert_eq!((side.messages, side.bytes, side.total_bytes), (20, 1000, 1000));
    }

    #[test]
    fn a_run_that_ends_with_the_warm_up_counts_whole() {
        let mut served = Served::begin(&pace(Duration::ZERO), 8);
        for _ in 0..8 {
            served.exchanged(2, 100);
        }
        let side = served.end();
        assert_eq!((side.messages, side.bytes, side.total_bytes), (16, 800, 800));
        assert!(side.span_ns > 0);
    }
}
