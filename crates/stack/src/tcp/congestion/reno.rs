//! Reno with appropriate byte counting: RFC 5681, RFC 6582, RFC 3465.

use super::{Ack, Congestion, Controller, MAX_WINDOW};

pub(super) struct Reno;

impl Controller for Reno {
    fn on_ack(window: &mut Congestion, ack: &Ack) {
        //= RFC 7661 §4.3 (a window that is not used is not validated, and does not grow)
        if !ack.cwnd_limited {
            return;
        }
        let mut acked = ack.acked_bytes;
        if window.in_slow_start() {
            //= RFC 5681 §3.1 (slow start: by what was acknowledged, up to a limit)
            //= RFC 3465 §2.2
            acked = window.slow_start(acked, ack.mss);
        }
        if acked > 0 {
            avoid(window, acked, ack.mss);
        }
    }

    fn reduce(window: &mut Congestion, mss: u32, flight: u32) -> u32 {
        window.cwnd_prior = window.operating_window();
        //= RFC 5681 §3.1 (equation 4: max(FlightSize / 2, 2 SMSS))
        (flight / 2).max(mss.saturating_mul(2))
    }
}

/// Congestion avoidance: one segment for every window acknowledged.
//= RFC 5681 §3.1 (at most one segment a round trip, by counting acknowledged bytes)
//= RFC 3465 §2.1
fn avoid(window: &mut Congestion, acked: u32, mss: u32) {
    window.acked = window.acked.saturating_add(acked);
    if window.acked >= window.cwnd {
        window.acked = (window.acked - window.cwnd).min(window.cwnd.saturating_sub(1));
        window.cwnd = window.cwnd.saturating_add(mss).min(MAX_WINDOW);
    }
}
