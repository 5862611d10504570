//! Round trips of segments that were sent more than once. If the timeout is shorter than the path,
//! every segment is retransmitted, and Karn's rule measures none. Timestamps then measure the path,
//! so that the timeout grows.

use super::pcb::{Pcb, flag};
use super::progress::Progress;
use super::segment::Segment;
use crate::socket::setting;
use crate::time::Instant;

const MS: u64 = 1_000_000;

impl Pcb {
    /// Handles an acknowledgement of new data whose segments gave no sample. The timeout stays
    /// backed off until a round trip is measured.
    //= RFC 6298 §5 (a new measurement collapses the timeout after it was backed off)
    #[inline]
    pub(super) fn measure(&mut self, now: Instant, segment: &Segment<'_>, progress: &Progress) {
        let measured = progress.rtt_ns.is_some() || self.measure_repaired(now, segment);
        if measured {
            self.end_backoff();
        } else if self.backoff > 0 {
            self.settings.set(setting::BACKOFF_KEPT, true);
        }
    }

    /// Ends the backoff: the timeout follows the measurements.
    #[inline]
    pub(super) fn end_backoff(&mut self) {
        self.backoff = 0;
        self.settings.set(setting::BACKOFF_KEPT, false);
    }

    /// Measures a round trip from timestamps. Returns whether it could.
    #[cold]
    fn measure_repaired(&mut self, now: Instant, segment: &Segment<'_>) -> bool {
        let echoed = self.echoed_ns(now, segment);
        if let Some(sample) = echoed {
            self.rtt.sample(now, sample);
        } else if !self.rtt.has_sample() && self.waiting_since.is_set() {
            // An overestimate is better than no sample.
            self.rtt.sample(now, now.nanos_since(self.waiting_since));
        }
        echoed.is_some()
    }

    /// Measures the handshake, whose SYN or SYN-ACK may have been sent more than once.
    pub(super) fn measure_handshake(&mut self, now: Instant, segment: &Segment<'_>) {
        let since_first = now.nanos_since(self.waiting_since);
        let echo = segment.options.timestamps.map(|timestamps| timestamps.echo);
        let is_first = echo == Some(self.timestamp(self.waiting_since));
        if self.has(flag::TIMESTAMPS) && is_first {
            // The segment was not lost: the retransmission was needless, and the window need not
            // shrink.
            //= RFC 3522 §3.2
            self.syn_count = 1;
        }
        let sample = match self.syn_count {
            1 => None,
            _ => self.echoed_ns(now, segment),
        };
        self.rtt.sample(now, sample.unwrap_or(since_first));
    }

    /// Notes the peer's answer to the SYN-ACK. If it arrives again with data, it is no measure any
    /// more.
    pub(super) fn await_data(&mut self) {
        self.waiting_since = Instant::NEVER;
    }

    /// Whether a connection in SYN-RECEIVED waits for data only.
    pub(super) fn is_awaited(&self) -> bool {
        self.has(flag::PASSIVE) && self.syn_count == 1 && !self.waiting_since.is_set()
    }

    /// The round trip of the segment that the peer echoes, in whole milliseconds. `None` if it is
    /// less than one millisecond, or there are no timestamps.
    //= RFC 7323 §4.1 (the echoed value gives the round trip of a segment that was sent again, too)
    fn echoed_ns(&self, now: Instant, segment: &Segment<'_>) -> Option<u64> {
        let timestamps = segment.options.timestamps?;
        let elapsed = self.timestamp(now).wrapping_sub(timestamps.echo);
        let plausible = self.has(flag::TIMESTAMPS) && timestamps.echo != 0 && elapsed as i32 > 0;
        plausible.then_some(u64::from(elapsed) * MS)
    }
}
