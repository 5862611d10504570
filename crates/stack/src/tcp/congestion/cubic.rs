//! CUBIC (RFC 9438), in integers.
//!
//! Windows are in bytes. Time on the cubic curve is in ticks of 2^20 ns, about a millisecond. A
//! shift turns nanoseconds into ticks, and cubes of the longest relevant span fit 64 bits.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

use super::hystart::HyStart;
use super::{Ack, Congestion, Controller, MAX_WINDOW, UNLIMITED, flag};
use crate::time::Instant;

/// Multiplicative decrease, beta_cubic, as a fraction.
//= RFC 9438 §4.6 (beta_cubic = 0.7)
const BETA: (u64, u64) = (7, 10);

/// Additive increase in the Reno-friendly region, alpha_cubic = 3 (1 - beta) / (1 + beta).
//= RFC 9438 §4.3 (figure 4's alpha_cubic, 9/17 for beta_cubic = 0.7)
const ALPHA: (u64, u64) = (9, 17);

/// Nanoseconds are ticks shifted by this.
const TICK_SHIFT: u32 = 20;

/// 1 / C for C = 0.4 segments/s^3, in ticks^3 a segment: 10^27 / 2^60 / 0.4.
//= RFC 9438 §5.1 (C = 0.4)
const TICKS_CUBED_PER_SEGMENT: u64 = 2_168_404_345;

/// Spans on the curve beyond this many ticks, 137 s, change nothing: the
/// window has reached its bound long before.
const MAX_SPAN: u64 = 1 << 17;

pub(super) struct Cubic;

/// A stage of congestion avoidance. Kept in [`Congestion`]'s `phase`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Epoch {
    /// When the stage began, in nanoseconds.
    start_ns: u64,
    /// Ticks from then until the curve reaches W_max.
    k: u32,
    /// W_est: the window Reno would have.
    w_est: u32,
    /// Acknowledged bytes that have not yet made `w_est` grow.
    est_acked: u32,
    /// Start of the time in which the window is not the limit, in ticks after `start_ns`, plus 1;
    /// 0: it is the limit.
    paused: u32,
}

impl Controller for Cubic {
    fn on_ack(window: &mut Congestion, ack: &Ack) {
        let mut acked = ack.acked_bytes;
        if window.in_slow_start() {
            if !ack.cwnd_limited {
                return;
            }
            acked = slow_start(window, ack);
        }
        if acked > 0 {
            avoid(window, ack, acked);
        }
    }

    fn reduce(window: &mut Congestion, mss: u32, flight: u32) -> u32 {
        let cwnd = window.operating_window();
        //= RFC 9438 §4.7 (fast convergence: release the share that newcomers need)
        window.w_max = if cwnd < window.w_max {
            scale(cwnd, (17, 20))
        } else {
            cwnd
        };
        window.cwnd_prior = cwnd;
        //= RFC 9438 §4.6 (ssthresh = flight_size * beta_cubic, at least two segments)
        scale(flight, BETA).max(mss.saturating_mul(2))
    }
}

/// Slow start, with HyStart++ the first time. Returns the bytes left for congestion avoidance.
//= RFC 9438 §4.10 (slow start with HyStart++)
fn slow_start(window: &mut Congestion, ack: &Ack) -> u32 {
    //= RFC 9406 §4.3 (only for the first slow start)
    if window.ssthresh != UNLIMITED {
        return window.slow_start(ack.acked_bytes, ack.mss);
    }
    let mut hystart: HyStart = transmute!(window.phase);
    let advice = hystart.on_ack(ack.acked_bytes, window.cwnd, ack.rtt_ns);
    window.phase = transmute!(hystart);
    if advice.exit {
        window.ssthresh = window.cwnd;
        window.forget_phase();
        return 0;
    }
    window.slow_start(
        ack.acked_bytes.min(window.stretch(ack.mss)) / advice.divisor,
        ack.mss,
    );
    0
}

/// Congestion avoidance.
fn avoid(window: &mut Congestion, ack: &Ack, acked: u32) {
    let mut epoch = current_epoch(window, ack.now, ack.mss);
    if !ack.cwnd_limited {
        //= RFC 9438 §5.8 (no growth while the application is the limit)
        epoch.pause(ack.now);
        window.phase = transmute!(epoch);
        return;
    }
    epoch.resume(ack.now);
    epoch.grow_estimate(window, acked, ack.mss);
    let mss = ack.mss.max(1);
    let t = epoch.ticks(ack.now);
    if w_cubic(&epoch, window.w_max, t, mss) < u64::from(epoch.w_est) {
        //= RFC 9438 §4.3 (Reno-friendly region: cwnd = W_est)
        window.cwnd = window.cwnd.max(epoch.w_est);
    } else {
        let rtt_ns = if ack.rtt_ns > 0 {
            ack.rtt_ns
        } else {
            ack.min_rtt_ns
        };
        let ahead = t + (rtt_ns >> TICK_SHIFT).min(MAX_SPAN);
        approach(window, w_cubic(&epoch, window.w_max, ahead, mss), acked);
    }
    window.phase = transmute!(epoch);
}

/// Moves the window towards `target` by the share of it that was acknowledged.
//= RFC 9438 §4.4 (concave region)
//= RFC 9438 §4.5 (convex region: (target - cwnd) / cwnd for each segment acknowledged)
fn approach(window: &mut Congestion, target: u64, acked: u32) {
    let cwnd = u64::from(window.cwnd);
    //= RFC 9438 §4.2 (the target is held between cwnd and 1.5 cwnd)
    let distance = target.clamp(cwnd, cwnd + cwnd / 2) - cwnd;
    window.acked = window.acked.saturating_add(acked).min(window.cwnd);
    let step = distance * u64::from(window.acked) / cwnd.max(1);
    if step > 0 {
        window.cwnd = (cwnd + step).min(u64::from(MAX_WINDOW)) as u32;
        window.acked = 0;
    }
}

/// The present stage of congestion avoidance; begins one if there is none.
fn current_epoch(window: &mut Congestion, now: Instant, mss: u32) -> Epoch {
    if window.flags & flag::EPOCH != 0 {
        return transmute!(window.phase);
    }
    let mut epoch = Epoch {
        start_ns: now.0,
        k: 0,
        w_est: window.cwnd,
        est_acked: 0,
        paused: 0,
    };
    if window.flags & flag::AFTER_TIMEOUT != 0 {
        //= RFC 9438 §4.8 (the first stage after a timeout: K = 0, W_max = cwnd)
        window.w_max = window.cwnd;
    } else if window.cwnd < window.w_max {
        //= RFC 9438 §4.2 (K = cubic root of (W_max - cwnd_epoch) / C)
        epoch.k = curve_ticks(window.w_max - window.cwnd, mss);
    } else if window.flags & flag::RESUME != 0 && window.w_max > 0 {
        //= RFC 9438 §4.9.1 (the curve goes on where a spurious reduction broke it off)
        let behind = curve_ticks(window.cwnd - window.w_max, mss);
        epoch.start_ns = now.0.saturating_sub(u64::from(behind) << TICK_SHIFT);
    } else {
        window.w_max = window.cwnd;
    }
    window.flags = (window.flags & flag::IN_RECOVERY) | flag::EPOCH;
    epoch
}

impl Epoch {
    /// Ticks since the stage began.
    fn ticks(&self, now: Instant) -> u64 {
        now.0.saturating_sub(self.start_ns) >> TICK_SHIFT
    }

    fn pause(&mut self, now: Instant) {
        if self.paused == 0 {
            self.paused = u32::try_from(self.ticks(now))
                .unwrap_or(u32::MAX)
                .saturating_add(1);
        }
    }

    /// Excludes the time since `pause` from the stage.
    //= RFC 9438 §4.2 (t excludes periods in which cwnd was not updated)
    fn resume(&mut self, now: Instant) {
        if self.paused != 0 {
            let idle = self.ticks(now).saturating_sub(u64::from(self.paused - 1));
            self.start_ns += idle << TICK_SHIFT;
            self.paused = 0;
        }
    }

    /// Grows W_est as Reno would, with an increase that compensates the gentler decrease.
    //= RFC 9438 §4.3 (W_est += alpha_cubic * segments_acked / cwnd)
    fn grow_estimate(&mut self, window: &Congestion, acked: u32, mss: u32) {
        //= RFC 9438 §4.3 (alpha_cubic = 1 once W_est has reached cwnd_prior)
        let alpha = if self.w_est < window.cwnd_prior {
            ALPHA
        } else {
            (1, 1)
        };
        let segment_costs = scale(window.cwnd, (alpha.1, alpha.0)).max(1);
        let acked = self.est_acked.saturating_add(acked);
        let segments = acked / segment_costs;
        self.est_acked = acked % segment_costs;
        self.w_est = self
            .w_est
            .saturating_add(segments.saturating_mul(mss))
            .min(MAX_WINDOW);
    }
}

/// The cubic curve after `t` ticks, in bytes.
//= RFC 9438 §4.2 (W_cubic(t) = C * (t - K)^3 + W_max)
fn w_cubic(epoch: &Epoch, w_max: u32, t: u64, mss: u32) -> u64 {
    let k = u64::from(epoch.k);
    let span = t.abs_diff(k).min(MAX_SPAN);
    // 2^51 >> 10, times 2^16, fits.
    let cube = (span * span * span) >> 10;
    let change = cube * u64::from(mss.min(1 << 16)) / (TICKS_CUBED_PER_SEGMENT >> 10);
    if t >= k {
        u64::from(w_max) + change
    } else {
        u64::from(w_max).saturating_sub(change)
    }
}

/// Ticks the curve takes to change by `bytes` next to W_max.
fn curve_ticks(bytes: u32, mss: u32) -> u32 {
    // 2^30 times 2^31.01 fits.
    cube_root(u64::from(bytes.min(MAX_WINDOW)) * TICKS_CUBED_PER_SEGMENT / u64::from(mss.max(1)))
}

/// Integer cubic root, rounded down: a bit of the root at a time.
fn cube_root(mut value: u64) -> u32 {
    let mut root: u64 = 0;
    for shift in (0..=63).rev().step_by(3) {
        root *= 2;
        // (root + 1)^3 - root^3
        let next = 3 * root * (root + 1) + 1;
        if value >> shift >= next {
            value -= next << shift;
            root += 1;
        }
    }
    root as u32
}

/// `bytes` times a fraction, rounded down.
fn scale(bytes: u32, (numerator, denominator): (u64, u64)) -> u32 {
    u32::try_from(u64::from(bytes) * numerator / denominator).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cube_root_of_cube_is_exact() {
        for root in (0..2_642_245_u64).step_by(997) {
            let cube = root * root * root;
            assert_eq!(u64::from(cube_root(cube)), root);
            if root > 0 {
                assert_eq!(u64::from(cube_root(cube - 1)), root - 1);
            }
        }
        assert_eq!(cube_root(u64::MAX), 2_642_245);
    }

    proptest! {
        #[test]
        fn cube_root_is_rounded_down(value: u64) {
            let root = u128::from(cube_root(value));
            prop_assert!(root.pow(3) <= value.into() && (root + 1).pow(3) > value.into());
        }

        /// K and the curve in floating point.
        #[test]
        fn integer_curve_matches_formula(bytes in 0..MAX_WINDOW, t in 0..200_000_u64, mss in 100..9000_u32) {
            //= RFC 9438 §4.2
            let tick = (1_u64 << TICK_SHIFT) as f64 / 1e9;
            let epoch = Epoch { start_ns: 0, k: curve_ticks(bytes, mss), w_est: 0, est_acked: 0, paused: 0 };
            let k = (f64::from(bytes) / f64::from(mss) / 0.4).cbrt();
            prop_assert!((f64::from(epoch.k) * tick - k).abs() <= 1.01 * tick);
            let span = (t as f64 - f64::from(epoch.k)).clamp(-(MAX_SPAN as f64), MAX_SPAN as f64) * tick;
            let exact = (f64::from(bytes) + f64::from(mss) * 0.4 * span.powi(3)).max(0.0);
            let integer = w_cubic(&epoch, bytes, t, mss) as f64;
            prop_assert!((integer - exact).abs() <= 2.0 + 1e-5 * exact.max(f64::from(bytes)), "{integer} {exact}");
        }
    }
}
