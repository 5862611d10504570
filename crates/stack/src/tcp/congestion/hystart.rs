//! HyStart++ (RFC 9406): leaves the first slow start when round trips begin to
//! grow, before the queue that makes them grow overflows.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Least growth of round trips that counts, in microseconds.
//= RFC 9406 §4.3 (MIN_RTT_THRESH, MAX_RTT_THRESH, MIN_RTT_DIVISOR)
const MIN_RTT_THRESH_US: u32 = 4_000;
const MAX_RTT_THRESH_US: u32 = 16_000;
const MIN_RTT_DIVISOR: u32 = 8;

/// Samples that a round needs before it is judged.
//= RFC 9406 §4.3 (N_RTT_SAMPLE)
const N_RTT_SAMPLE: u16 = 8;

/// Divisor of the growth in conservative slow start.
//= RFC 9406 §4.3 (CSS_GROWTH_DIVISOR)
const CSS_GROWTH_DIVISOR: u32 = 4;

/// Rounds of conservative slow start before congestion avoidance.
//= RFC 9406 §4.3 (CSS_ROUNDS)
const CSS_ROUNDS: u16 = 5;

/// State of the first slow start. All zeroes: its beginning. Round trips are
/// in microseconds, 0 meaning none yet.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct HyStart {
    last_round_min: u32,
    current_round_min: u32,
    /// Smallest round trip when conservative slow start began; 0: not in it.
    css_baseline: u32,
    /// Bytes still to be acknowledged before the round is over.
    round_left: u32,
    samples: u16,
    css_rounds: u16,
    reserved: u32,
}

/// The meaning of an acknowledgement for the first slow start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Advice {
    /// The window grows by the `1/divisor`th of slow start's step.
    pub(super) divisor: u32,
    /// Slow start has ended: congestion avoidance from this window on.
    pub(super) exit: bool,
}

impl HyStart {
    /// Handles an acknowledgement of `acked` bytes with a window of `cwnd` bytes; `rtt_ns` 0: no
    /// sample.
    pub(super) fn on_ack(&mut self, acked: u32, cwnd: u32, rtt_ns: u64) -> Advice {
        let mut exit = false;
        // A round ends when the data outstanding at its beginning are acknowledged. That is a
        // window's worth of bytes: this phase counts acknowledgements only while the window is
        // full.
        if self.round_left == 0 {
            exit = self.next_round(cwnd);
        }
        self.round_left = self.round_left.saturating_sub(acked);
        if rtt_ns > 0 {
            self.sample(u32::try_from(rtt_ns / 1_000).unwrap_or(u32::MAX).max(1));
        }
        Advice {
            divisor: if self.css_baseline != 0 {
                CSS_GROWTH_DIVISOR
            } else {
                1
            },
            exit,
        }
    }

    //= RFC 9406 §4.2 (at the start of each round)
    fn next_round(&mut self, cwnd: u32) -> bool {
        self.round_left = cwnd;
        self.last_round_min = self.current_round_min;
        self.current_round_min = 0;
        self.samples = 0;
        if self.css_baseline == 0 {
            return false;
        }
        //= RFC 9406 §4.2 (congestion avoidance after CSS_ROUNDS)
        self.css_rounds += 1;
        self.css_rounds > CSS_ROUNDS
    }

    //= RFC 9406 §4.2 (for each arriving ACK)
    fn sample(&mut self, rtt_us: u32) {
        self.samples = self.samples.saturating_add(1);
        if self.current_round_min == 0 || rtt_us < self.current_round_min {
            self.current_round_min = rtt_us;
        }
        if self.samples < N_RTT_SAMPLE {
            return;
        }
        if self.css_baseline != 0 {
            if self.current_round_min < self.css_baseline {
                // The round trip shrank again: slow start continues.
                self.css_baseline = 0;
                self.css_rounds = 0;
            }
        } else if self.last_round_min != 0 {
            let threshold =
                (self.last_round_min / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH_US, MAX_RTT_THRESH_US);
            if self.current_round_min >= self.last_round_min.saturating_add(threshold) {
                self.css_baseline = self.current_round_min;
                self.css_rounds = 1;
            }
        }
    }
}
