//! The counts of a server whose run the client ends: everything after the server's own warm-up.

use std::time::{Duration, Instant};

use super::kind::Pace;
use super::meter::Meter;
use crate::samples::Side;

/// Counts from the end of its warm-up on.
#[derive(Debug)]
pub(super) struct Served {
    began: Instant,
    warm_up: Duration,
    look_every: u64,
    whole: Meter,
    total: Tally,
    /// The tally of the warm-up, and the meter since then.
    warm: Option<(Tally, Meter)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    exchanges: u64,
    messages: u64,
    bytes: u64,
}

impl Served {
    /// Begins the warm-up, in which the server reads the clock once in `look_every` exchanges.
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

    /// Counts an exchange of `messages` messages with `bytes` bytes in all.
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

    /// Ends the count when the client has ended.
    pub(super) fn end(self) -> Side {
        // A server without processor time may see the end before its warm-up is over. It then
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
    fn run_ending_in_warm_up_counts_completely() {
        let mut served = Served::begin(&pace(Duration::MAX), 4);
        for _ in 0..10 {
            served.exchanged(2, 100);
        }
        let side = served.end();
        assert_eq!((side.messages, side.bytes, side.total_bytes), (20, 1000, 1000));
    }

    #[test]
    fn run_ending_with_warm_up_counts_completely() {
        let mut served = Served::begin(&pace(Duration::ZERO), 8);
        for _ in 0..8 {
            served.exchanged(2, 100);
        }
        let side = served.end();
        assert_eq!((side.messages, side.bytes, side.total_bytes), (16, 800, 800));
        assert!(side.span_ns > 0);
    }
}
