//! Round-trip time: the smoothed estimate, its variation, the retransmission timeout derived from
//! them, and the minimum of the last minutes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::round::Round;
use crate::config::TcpConfig;
use crate::time::Instant;

/// Upper bound of a sample; no supported path is longer.
const MAX_SAMPLE_NS: u64 = 600_000_000_000;

/// Granularity of the timers: the wheel is exact, and drivers poll within microseconds.
const GRANULARITY_NS: u64 = 1_000;

/// Linux's floor. A long path crosses other links with delays of their own. Its timeout exceeds the
/// round trip by as much again, up to this.
const LONG_PATH_FLOOR_NS: u64 = 200_000_000;

/// Unit of the smallest round trip, in nanoseconds: 32 bits reach to 68 s.
const MIN_UNIT_NS: u64 = 16;

/// Length of a window of the minimum, in units of 2^30 ns: two and a half minutes. The minimum
/// covers the present window and the one before.
const MIN_WINDOW: u32 = 140;

/// Bounds of the retransmission timeout, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RtoBounds {
    /// Timeout before the first measurement.
    pub(crate) initial_ns: u64,
    /// Shortest timeout.
    pub(crate) min_ns: u64,
    /// Longest timeout, whatever the backoff.
    pub(crate) max_ns: u64,
}

impl RtoBounds {
    /// The bounds of a configuration.
    pub(crate) fn new(config: &TcpConfig) -> Self {
        Self {
            initial_ns: config.rto_initial.as_nanos() as u64,
            min_ns: config.rto_min.as_nanos() as u64,
            max_ns: config.rto_max.as_nanos() as u64,
        }
    }

    /// The number of timeouts of unanswered segments within `seconds`, at most 255.
    pub(crate) fn timeouts_within(&self, seconds: u32) -> u32 {
        let (mut left_ns, mut timeouts) = (u64::from(seconds) * 1_000_000_000, 0);
        while left_ns > 0 && timeouts < u8::MAX {
            let span_ns = Rtt::default().rto(self, timeouts);
            left_ns = left_ns.saturating_sub(span_ns);
            timeouts += 1;
        }
        timeouts.into()
    }
}

/// Round-trip time of a connection. All zeroes: nothing measured yet.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Rtt {
    /// SRTT in eighths of nanoseconds.
    srtt_eighths: u64,
    /// RTTVAR in quarters of nanoseconds.
    rttvar_quarters: u64,
    /// Smallest sample of the present window, in `MIN_UNIT_NS`, rounded up; 0: none.
    min: u32,
    /// Smallest sample of the window before; 0: none.
    previous_min: u32,
    /// When the present window began, in units of 2^30 ns.
    window_start: u32,
    /// The program's position in the stream when the present round trip began.
    pub(super) round: Round,
}

impl Rtt {
    /// Takes a measurement. The caller follows Karn's rule: no sample of a retransmitted segment,
    /// unless timestamps tell which copy was answered (RFC 6298 §3).
    pub(crate) fn sample(&mut self, now: Instant, rtt_ns: u64) {
        let rtt = rtt_ns.clamp(1, MAX_SAMPLE_NS);
        if self.has_sample() {
            //= RFC 6298 §2.3 (alpha = 1/8, beta = 1/4; the variation first)
            let error = self.srtt_ns().abs_diff(rtt);
            self.rttvar_quarters = self.rttvar_quarters - self.rttvar_quarters / 4 + error;
            self.srtt_eighths = self.srtt_eighths - self.srtt_eighths / 8 + rtt;
        } else {
            //= RFC 6298 §2.2
            self.srtt_eighths = rtt * 8;
            self.rttvar_quarters = rtt / 2 * 4;
        }
        self.sample_min(now, rtt);
    }

    //= RFC 8985 §6.2 (RACK.min_RTT: a windowed minimum, for paths that grow longer)
    fn sample_min(&mut self, now: Instant, rtt_ns: u64) {
        let units = u32::try_from(rtt_ns.div_ceil(MIN_UNIT_NS)).unwrap_or(u32::MAX);
        let present = (now.0 >> 30) as u32;
        let age = present.wrapping_sub(self.window_start);
        if self.min == 0 || age >= MIN_WINDOW {
            self.previous_min = if age < 2 * MIN_WINDOW { self.min } else { 0 };
            self.min = units;
            self.window_start = present;
        } else {
            self.min = self.min.min(units);
        }
    }

    /// Whether there was a measurement.
    #[inline]
    pub(crate) fn has_sample(&self) -> bool {
        self.srtt_eighths != 0
    }

    /// Smoothed round-trip time in nanoseconds; 0 before the first sample.
    #[inline]
    pub(crate) fn srtt_ns(&self) -> u64 {
        self.srtt_eighths / 8
    }

    /// Variation of the round-trip time in nanoseconds.
    #[inline]
    pub(crate) fn rttvar_ns(&self) -> u64 {
        self.rttvar_quarters / 4
    }

    /// Smallest sample of the last two and a half to five minutes in
    /// nanoseconds, rounded up to 16 ns; 0 before the first sample.
    #[inline]
    pub(crate) fn min_ns(&self) -> u64 {
        let units = if self.previous_min == 0 {
            self.min
        } else {
            self.min.min(self.previous_min)
        };
        u64::from(units) * MIN_UNIT_NS
    }

    /// Retransmission timeout in nanoseconds after `backoff` timeouts in a row.
    pub(crate) fn rto(&self, bounds: &RtoBounds, backoff: u8) -> u64 {
        let base = if self.has_sample() {
            //= RFC 6298 §2.3 (RTO = SRTT + max(G, 4 RTTVAR))
            //= RFC 6298 §2.4 (never below the floor)
            // As on Linux, the floor bounds the variation's part. With less for the peer's delays,
            // most timeouts would be spurious.
            let floor = bounds.min_ns.max(self.srtt_ns().min(LONG_PATH_FLOOR_NS));
            self.srtt_ns()
                .saturating_add(self.rttvar_quarters.max(GRANULARITY_NS).max(floor))
        } else {
            //= RFC 6298 §2.1
            bounds.initial_ns
        };
        //= RFC 6298 §5.5 (doubled with every timeout)
        //= RFC 6298 §2.5 (up to the ceiling)
        base.saturating_mul(1 << backoff.min(32)).min(bounds.max_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;
    const BOUNDS: RtoBounds = RtoBounds {
        initial_ns: SECOND,
        min_ns: 0,
        max_ns: 60 * SECOND,
    };

    #[test]
    fn seconds_convert_to_timeouts_as_on_linux() {
        let bounds = RtoBounds {
            max_ns: 120 * SECOND,
            ..BOUNDS
        };
        let counted =
            [0, 1, 2, 3, 4, 7, 8, 30, 127, 128, 247, 248].map(|seconds| bounds.timeouts_within(seconds));
        assert_eq!(counted, [0, 1, 2, 2, 3, 3, 4, 5, 7, 8, 8, 9]);
        assert_eq!(bounds.timeouts_within(u32::MAX), 255);
        let short = RtoBounds {
            initial_ns: SECOND / 5,
            ..bounds
        };
        assert_eq!(short.timeouts_within(1), 3);
    }

    #[test]
    fn timeout_before_first_sample_is_initial() {
        //= RFC 6298 §2.1
        let rtt = Rtt::default();
        assert!(!rtt.has_sample());
        assert_eq!(rtt.rto(&BOUNDS, 0), SECOND);
        assert_eq!((rtt.srtt_ns(), rtt.min_ns()), (0, 0));
    }

    #[test]
    fn first_sample_sets_estimate_and_variation() {
        //= RFC 6298 §2.2
        let mut rtt = Rtt::default();
        rtt.sample(Instant(0), 100 * MS);
        assert_eq!((rtt.srtt_ns(), rtt.rttvar_ns()), (100 * MS, 50 * MS));
        assert_eq!(rtt.rto(&BOUNDS, 0), 300 * MS);
    }

    #[test]
    fn timeout_has_floor_ceiling_and_backoff() {
        let mut rtt = Rtt::default();
        rtt.sample(Instant(0), MS);
        //= RFC 6298 §2.4
        let bounds = RtoBounds {
            min_ns: 200 * MS,
            ..BOUNDS
        };
        assert_eq!(
            rtt.rto(&bounds, 0),
            201 * MS,
            "the floor is the least the peer is given"
        );
        //= RFC 6298 §5.5
        assert_eq!(rtt.rto(&bounds, 1), 402 * MS);
        assert_eq!(rtt.rto(&bounds, 3), 1608 * MS);
        //= RFC 6298 §2.5
        assert_eq!(rtt.rto(&bounds, 9), 60 * SECOND);
        assert_eq!(rtt.rto(&bounds, u8::MAX), 60 * SECOND);
        // A path without variation gets as much again, but not more than on Linux.
        for _ in 0..200 {
            rtt.sample(Instant(0), MS);
        }
        assert_eq!(rtt.rto(&BOUNDS, 0), 2 * MS);
        for _ in 0..200 {
            rtt.sample(Instant(0), 400 * MS);
        }
        assert_eq!(rtt.rto(&BOUNDS, 0) / MS, 600);
    }

    #[test]
    fn smallest_round_trip_expires_after_minutes() {
        //= RFC 8985 §6.2
        let mut rtt = Rtt::default();
        let at = |seconds: u64| Instant(seconds * SECOND);
        rtt.sample(at(1000), 1_000);
        assert_eq!(rtt.min_ns(), 1_008, "in units of 16 ns");
        for seconds in (1001..1150).step_by(10) {
            rtt.sample(at(seconds), 5 * MS);
            assert_eq!(rtt.min_ns(), 1_008);
        }
        for seconds in (1155..1290).step_by(10) {
            rtt.sample(at(seconds), 5 * MS);
            assert_eq!(rtt.min_ns(), 1_008, "of the window before");
        }
        rtt.sample(at(1310), 5 * MS);
        assert_eq!(rtt.min_ns(), 5 * MS);
        // After a long silence neither window counts.
        rtt.sample(at(90_000), 7 * MS);
        assert_eq!(rtt.min_ns(), 7 * MS);
    }

    proptest! {
        /// The estimate against RFC 6298 §2 in floating point.
        #[test]
        fn estimate_follows_formula(samples in prop::collection::vec(1..20 * SECOND, 1..200)) {
            //= RFC 6298 §2.3
            let mut rtt = Rtt::default();
            let (mut srtt, mut rttvar) = (0.0_f64, 0.0_f64);
            for (n, &sample) in samples.iter().enumerate() {
                rtt.sample(Instant(n as u64), sample);
                let r = sample as f64;
                (srtt, rttvar) = if n == 0 {
                    (r, r / 2.0)
                } else {
                    (0.875 * srtt + 0.125 * r, 0.75 * rttvar + 0.25 * (srtt - r).abs())
                };
                prop_assert!((rtt.srtt_ns() as f64 - srtt).abs() <= 2.0);
                prop_assert!((rtt.rttvar_ns() as f64 - rttvar).abs() <= 6.0);
            }
        }

        #[test]
        fn any_samples_keep_timeout_in_bounds(samples in prop::collection::vec((any::<u64>(), any::<u64>()), 1..50)) {
            let mut rtt = Rtt::default();
            for (now, sample) in samples {
                rtt.sample(Instant(now), sample);
                prop_assert!(rtt.has_sample());
                prop_assert!(rtt.min_ns() > 0);
                prop_assert!((1..=BOUNDS.max_ns).contains(&rtt.rto(&BOUNDS, 0)));
            }
        }
    }
}
