//! Congestion control: how much a connection may have in flight.
//!
//! [`Congestion`] is the state of one connection, a part of its control block. Each algorithm has a
//! file and implements [`Controller`]; this file holds the shared parts. All values are integers,
//! in bytes. The module never sends, retransmits or keeps time.

mod cubic;
mod hystart;
mod prr;
mod reno;
#[cfg(test)]
mod tests;

pub(crate) use prr::Prr;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use self::cubic::Cubic;
use self::reno::Reno;
use crate::config::CongestionAlgorithm;
use crate::time::Instant;

/// A slow start threshold that was never set.
//= RFC 5681 §3.1 (the initial value should be arbitrarily high)
const UNLIMITED: u32 = u32::MAX;

/// Windows never grow beyond the largest possible receive window (RFC 7323 §2.3).
const MAX_WINDOW: u32 = 1 << 30;

/// Segments a stretched acknowledgement may add to the window in slow start.
//= RFC 9406 §4.3 (L = 8 without pacing)
const STRETCH_SEGMENTS: u32 = 8;

/// A super-frame of this many bytes leaves as one and is acknowledged as one. Its acknowledgement
/// is not stretched in the sense of RFC 3465 §2.1. It releases a burst no larger than the one that
/// crossed the path before.
const STRETCH_BYTES: u32 = 1 << 16;

/// Boolean facts about a window.
mod flag {
    /// `phase` holds a [`super::cubic::Epoch`].
    pub(super) const EPOCH: u8 = 1 << 0;
    /// The next epoch continues the curve that a spurious reduction interrupted.
    pub(super) const RESUME: u8 = 1 << 1;
    /// The next epoch is the first after a timeout.
    pub(super) const AFTER_TIMEOUT: u8 = 1 << 2;
    /// In fast recovery: `cwnd` follows proportional rate reduction.
    pub(super) const IN_RECOVERY: u8 = 1 << 3;
}

/// The content of an acknowledgement for congestion control.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ack {
    pub(crate) now: Instant,
    /// Newly acknowledged bytes of the stream.
    pub(crate) acked_bytes: u32,
    /// Round trip measured by this acknowledgement in nanoseconds; 0: none.
    pub(crate) rtt_ns: u64,
    /// Smallest round trip of the last minutes in nanoseconds; 0: none.
    pub(crate) min_rtt_ns: u64,
    /// Whether the congestion window was the limit.
    pub(crate) cwnd_limited: bool,
    /// Sender's maximum segment size in bytes.
    pub(crate) mss: u32,
    /// In fast recovery, where proportional rate reduction decides.
    pub(crate) in_recovery: bool,
}

/// An algorithm of congestion control.
trait Controller {
    /// Handles an acknowledgement of new data outside of fast recovery.
    fn on_ack(window: &mut Congestion, ack: &Ack);

    /// A congestion event: returns the new slow start threshold in bytes, for
    /// `flight` bytes in flight.
    fn reduce(window: &mut Congestion, mss: u32, flight: u32) -> u32;
}

/// Congestion control of a connection.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Congestion {
    cwnd: u32,
    ssthresh: u32,
    /// `cwnd` before the last reduction; 0: no reduction can be undone.
    undo_cwnd: u32,
    undo_ssthresh: u32,
    /// Acknowledged bytes that have not yet made the window grow.
    acked: u32,
    /// Bytes that were in flight at a timeout and are not yet acknowledged.
    ambiguous: u32,
    /// CUBIC's W_max; 0: none.
    w_max: u32,
    undo_w_max: u32,
    /// CUBIC's cwnd_prior: the window before the last reduction.
    cwnd_prior: u32,
    /// A [`hystart::HyStart`] in the first slow start, a [`cubic::Epoch`] in
    /// congestion avoidance: the two never coincide.
    phase: [u32; 6],
    algorithm: u8,
    flags: u8,
    reserved: u16,
}

const _: () = assert!(size_of::<Congestion>() == 64);

impl Congestion {
    /// A window of `initial_window` bytes (RFC 6928) in slow start.
    pub(crate) fn new(algorithm: CongestionAlgorithm, initial_window: u32, mss: u32) -> Self {
        let mut new = Self::new_zeroed();
        new.algorithm = algorithm as u8;
        new.cwnd = initial_window.clamp(mss.max(1), MAX_WINDOW);
        new.ssthresh = UNLIMITED;
        new
    }

    /// Congestion window in bytes.
    #[inline]
    pub(crate) fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// Slow start threshold in bytes; `u32::MAX` before the first congestion event.
    #[inline]
    pub(crate) fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    /// Whether the window grows by slow start.
    #[inline]
    pub(crate) fn in_slow_start(&self) -> bool {
        //= RFC 5681 §3.1 (slow start while cwnd < ssthresh)
        self.cwnd < self.ssthresh
    }

    /// Sets the window during fast recovery, by proportional rate reduction.
    #[inline]
    pub(crate) fn set_cwnd(&mut self, bytes: u32) {
        self.cwnd = bytes.min(MAX_WINDOW);
    }

    /// Handles an acknowledgement of new data.
    #[inline]
    pub(crate) fn on_ack(&mut self, ack: Ack) {
        if ack.acked_bytes == 0 || ack.in_recovery {
            return;
        }
        if self.is_reno() {
            Reno::on_ack(self, &ack);
        } else {
            Cubic::on_ack(self, &ack);
        }
        self.ambiguous = self.ambiguous.saturating_sub(ack.acked_bytes);
    }

    /// Handles a loss found by acknowledgements: fast recovery begins. `flight` is the bytes sent
    /// and not acknowledged (FlightSize), including those reported by SACK and those considered
    /// lost.
    //= RFC 5681 §3.2 (step 2: ssthresh by equation 4)
    pub(crate) fn on_loss_event(&mut self, now: Instant, mss: u32, flight: u32) {
        self.congestion_event(now, mss, flight);
        self.flags |= flag::IN_RECOVERY;
    }

    /// Handles an echoed congestion mark. The caller makes sure that this happens at most once a
    /// round trip.
    //= RFC 3168 §6.1.2 (react as to a lost packet, without retransmission)
    pub(crate) fn on_ecn(&mut self, now: Instant, mss: u32, flight: u32) {
        if self.flags & flag::IN_RECOVERY != 0 {
            // The reaction to a loss in the same window of data was enough.
            return;
        }
        self.congestion_event(now, mss, flight);
        // Unlike timeouts, marks are never spurious.
        self.undo_cwnd = 0;
    }

    fn congestion_event(&mut self, _now: Instant, mss: u32, flight: u32) {
        self.remember();
        self.ssthresh = self.reduced(mss, flight);
        self.cwnd = self.ssthresh;
    }

    /// Handles an expiry of the retransmission timer with `flight` bytes outstanding;
    /// `first_of_series` unless the same data had timed out before.
    pub(crate) fn on_timeout(&mut self, _now: Instant, mss: u32, flight: u32, first_of_series: bool) {
        //= RFC 5681 §3.1 (ssthresh is held constant when the same segment times out again)
        if first_of_series {
            self.remember();
            self.ssthresh = self.reduced(mss, flight);
        }
        //= RFC 5681 §3.1 (the loss window is one segment, whatever the initial window)
        self.cwnd = mss.max(1);
        self.ambiguous = flight;
        self.flags = (self.flags & !flag::IN_RECOVERY) | flag::AFTER_TIMEOUT;
    }

    /// Handles the acknowledgement of all data sent before fast recovery began.
    pub(crate) fn on_recovery_exit(&mut self, _now: Instant, mss: u32, _flight: u32) {
        //= RFC 9937 §6.4 (cwnd = ssthresh at the end of recovery)
        self.cwnd = self.ssthresh.clamp(mss.max(1), MAX_WINDOW);
        self.flags &= !flag::IN_RECOVERY;
        self.acked = 0;
    }

    /// Undoes the last reduction, which was spurious: the data had not been lost.
    //= RFC 9438 §4.9.1 (restore the window, the threshold and W_max)
    //= RFC 4015 §3 (reversing congestion control state)
    pub(crate) fn undo(&mut self) {
        if self.undo_cwnd == 0 {
            return;
        }
        self.cwnd = self.cwnd.max(self.undo_cwnd);
        self.ssthresh = self.undo_ssthresh;
        self.w_max = self.undo_w_max;
        self.undo_cwnd = 0;
        self.ambiguous = 0;
        self.flags = flag::RESUME;
    }

    /// Handles a pause in sending of more than a retransmission timeout.
    //= RFC 5681 §4.1 (restart window: the smaller of the initial window and cwnd)
    pub(crate) fn restart_after_idle(&mut self, initial_window: u32) {
        self.cwnd = self.cwnd.min(initial_window.max(1));
        self.acked = 0;
        self.forget_phase();
    }

    /// Handles a change of the path's segment size. The window keeps its size (RFC 8201 §5.4), but
    /// holds at least a segment.
    pub(crate) fn set_mss(&mut self, mss: u32) {
        self.cwnd = self.cwnd.max(mss);
    }

    /// Handles slow start. Returns the acknowledged bytes left over when the window reached the
    /// threshold.
    fn slow_start(&mut self, acked: u32, mss: u32) -> u32 {
        let step = acked.min(self.stretch(mss));
        let room = self.ssthresh.min(MAX_WINDOW).saturating_sub(self.cwnd);
        self.cwnd += step.min(room);
        step.saturating_sub(room)
    }

    /// Most bytes that one acknowledgement adds to the window in slow start.
    fn stretch(&self, mss: u32) -> u32 {
        if self.ambiguous > 0 {
            // Data that the peer stored ahead of a gap are acknowledged at once when the gap
            // closes, which tells nothing about the rate of delivery.
            //= RFC 3465 §2.3 (L = 1 after a timeout)
            mss
        } else {
            mss.saturating_mul(STRETCH_SEGMENTS).max(STRETCH_BYTES)
        }
    }

    fn is_reno(&self) -> bool {
        self.algorithm == CongestionAlgorithm::Reno as u8
    }

    fn reduced(&mut self, mss: u32, flight: u32) -> u32 {
        let ssthresh = if self.is_reno() {
            Reno::reduce(self, mss, flight)
        } else {
            Cubic::reduce(self, mss, flight)
        };
        self.acked = 0;
        self.ambiguous = 0;
        self.forget_phase();
        ssthresh.min(MAX_WINDOW)
    }

    fn remember(&mut self) {
        self.undo_cwnd = self.operating_window();
        self.undo_ssthresh = self.ssthresh;
        self.undo_w_max = self.w_max;
    }

    /// The window without the temporary changes of recovery.
    fn operating_window(&self) -> u32 {
        if self.flags & flag::IN_RECOVERY != 0 {
            self.cwnd.max(self.ssthresh)
        } else {
            self.cwnd
        }
    }

    fn forget_phase(&mut self) {
        self.phase = [0; 6];
        self.flags &= flag::IN_RECOVERY | flag::AFTER_TIMEOUT;
    }
}
