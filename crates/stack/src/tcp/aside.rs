//! Records beside a control block: settings that few programs change, and counts for TCP_INFO.
//!
//! Each block has a record at the same index, which is empty until needed. A connection without
//! data and with default settings does not touch it.

use super::Tcp;
use super::pcb::{Pcb, Repair, State, flag};
use super::tally::{Aside, Limit, Tally};
use crate::socket::{Settings, Tuning, setting};
use crate::time::Instant;

/// A paced connection sends at once the bytes that its rate allows in this time, as on Linux.
const PACED_BURST_NS: u64 = 1_000_000;

/// A paced connection makes up for at most this lateness of its driver.
const PACED_CREDIT_NS: u64 = 2_000_000;

/// Shortest sample of the delivery rate: segments of a stack to itself take no time.
const LEAST_SAMPLE_NS: u64 = 1000;

const NS_PER_S: u64 = 1_000_000_000;

impl Tcp {
    /// The settings that a program has changed, if any.
    #[inline]
    pub(crate) fn tuning(&self, index: u32) -> Option<&Tuning> {
        let is_tuned = self.pcbs[index].settings.has(setting::TUNED);
        is_tuned.then(|| &self.asides[index as usize].tuning)
    }

    /// The largest window that a connection may advertise.
    #[inline]
    pub(super) fn clamp(&self, index: u32) -> u32 {
        self.tuning(index).map_or(u32::MAX, Tuning::clamp)
    }

    /// All settings of a connection.
    pub(crate) fn all_settings(&self, index: u32) -> Settings {
        Settings {
            common: self.pcbs[index].settings,
            tuning: self.tuning(index).copied().unwrap_or_default(),
        }
    }

    /// Gives a connection its settings.
    pub(crate) fn set_all(&mut self, index: u32, settings: &Settings) {
        self.pcbs[index].settings = settings.common;
        self.tune(index, settings);
    }

    /// Stores the settings that [`Tcp::new_pcb`] has no place for.
    pub(super) fn tune(&mut self, index: u32, settings: &Settings) {
        if settings.has(setting::TUNED) {
            self.asides[index as usize].tuning = settings.tuning;
        }
    }

    /// The counts of a connection; `None` before it has carried data.
    pub(crate) fn counted(&self, index: u32) -> Option<&Tally> {
        let is_counted = self.pcbs[index].settings.has(setting::TALLIED);
        is_counted.then(|| &self.asides[index as usize].tally)
    }

    /// The counts of a connection, or those at the end of a handshake.
    pub(crate) fn tally_of(&self, index: u32) -> Tally {
        self.counted(index)
            .copied()
            .unwrap_or_else(|| Tally::of(&self.pcbs[index]))
    }

    #[inline]
    fn tally(&mut self, index: u32) -> &mut Tally {
        let pcb = &mut self.pcbs[index];
        if !pcb.settings.has(setting::TALLIED) {
            pcb.settings.set(setting::TALLIED, true);
            self.asides[index as usize].tally = Tally::of(pcb);
        }
        &mut self.asides[index as usize].tally
    }

    /// Counts a rare event.
    pub(super) fn count(&mut self, index: u32, which: impl FnOnce(&mut Tally) -> &mut u32) {
        let counter = which(self.tally(index));
        *counter = counter.wrapping_add(1);
    }

    /// Counts a received segment of `len` bytes.
    #[inline]
    pub(super) fn count_in(&mut self, now: Instant, index: u32, len: usize) {
        let pcb = &self.pcbs[index];
        if len == 0 && !pcb.settings.has(setting::TALLIED) {
            return;
        }
        let segments = segments_of(len, pcb.rcv_mss);
        let tally = self.tally(index);
        tally.segments_in = tally.segments_in.wrapping_add(segments);
        if len > 0 {
            tally.data_segments_in = tally.data_segments_in.wrapping_add(segments);
            tally.last_data_received = now;
        }
    }

    /// Counts a sent segment of `len` bytes.
    #[inline]
    pub(super) fn count_out(&mut self, now: Instant, index: u32, len: usize) {
        let pcb = &self.pcbs[index];
        if len == 0 && !pcb.settings.has(setting::TALLIED) {
            return;
        }
        let segments = segments_of(len, pcb.mss);
        let is_tuned = pcb.settings.has(setting::TUNED);
        let tally = self.tally(index);
        tally.segments_out = tally.segments_out.wrapping_add(segments);
        if len > 0 {
            tally.data_segments_out = tally.data_segments_out.wrapping_add(segments);
            if is_tuned {
                self.pace(now, index, len);
            }
        }
    }

    /// Counts `len` retransmitted bytes.
    pub(super) fn count_retransmitted(&mut self, index: u32, len: u32) {
        let tally = self.tally(index);
        tally.bytes_retransmitted = tally.bytes_retransmitted.wrapping_add(len.into());
    }

    /// Notes that a connection has its first segment in flight.
    #[inline]
    pub(super) fn count_flight(&mut self, now: Instant, index: u32) {
        let acked = self.pcbs[index].bytes_acked;
        let tally = self.tally(index);
        (tally.busy_since, tally.rate_since, tally.rate_from) = (now, now, acked);
    }

    /// Notes an acknowledgement. A sample of the delivery rate ends with a round trip, or with the
    /// data in flight.
    #[inline]
    pub(super) fn count_delivered(&mut self, now: Instant, index: u32) {
        let pcb = &self.pcbs[index];
        if !pcb.settings.has(setting::TALLIED) {
            return;
        }
        let is_over = pcb.sent_head == toehold_shm::NONE;
        let (acked, round_ns) = (pcb.bytes_acked, pcb.rtt.srtt_ns());
        let tally = &mut self.asides[index as usize].tally;
        let elapsed_ns = now.nanos_since(tally.rate_since).max(LEAST_SAMPLE_NS);
        if !is_over && elapsed_ns < round_ns {
            return;
        }
        let bytes = acked.wrapping_sub(tally.rate_from);
        // A sample that ran out of data gives only a lower bound of the path's rate.
        let is_faster = bytes.saturating_mul(tally.rate_ns) >= tally.rate_bytes.saturating_mul(elapsed_ns);
        if bytes > 0 && (!is_over || is_faster) {
            (tally.rate_bytes, tally.rate_ns) = (bytes, elapsed_ns);
            tally.rate_app_limited = is_over.into();
        }
        (tally.rate_since, tally.rate_from) = (now, acked);
        if is_over {
            tally.busy_ns = tally.busy_ns.wrapping_add(now.nanos_since(tally.busy_since));
        }
    }

    /// Notes the connection's limit after a round of transmission.
    #[inline]
    pub(super) fn count_limit(&mut self, now: Instant, index: u32) {
        let pcb = &self.pcbs[index];
        if !pcb.settings.has(setting::TALLIED) {
            return;
        }
        let limit = limit_of(pcb) as u32;
        let tally = &mut self.asides[index as usize].tally;
        if tally.limit == limit {
            return;
        }
        let elapsed_ns = now.nanos_since(tally.limited_since);
        if tally.limit == Limit::Window as u32 {
            tally.window_limited_ns = tally.window_limited_ns.wrapping_add(elapsed_ns);
        } else if tally.limit == Limit::Buffer as u32 {
            tally.buffer_limited_ns = tally.buffer_limited_ns.wrapping_add(elapsed_ns);
        }
        (tally.limit, tally.limited_since) = (limit, now);
    }

    /// Counts an expiry of the retransmission timer; `first`: the first one in this repair.
    pub(super) fn count_timeout(&mut self, now: Instant, index: u32, first: bool) {
        let tally = self.tally(index);
        tally.timeouts = tally.timeouts.wrapping_add(1);
        if first {
            tally.timeout_since = now;
        }
    }

    /// Counts the end of a repair.
    pub(super) fn count_repaired(&mut self, now: Instant, index: u32) {
        if self.pcbs[index].repair() != Repair::Loss {
            return;
        }
        let tally = self.tally(index);
        tally.timeout_recoveries = tally.timeout_recoveries.wrapping_add(1);
        tally.timeout_ns = tally
            .timeout_ns
            .wrapping_add(now.nanos_since(tally.timeout_since));
    }

    /// The time before which a paced connection sends no data; `None` if it may send now.
    #[inline]
    pub(super) fn paced_until(&self, now: Instant, index: u32) -> Option<Instant> {
        let rate = self.tuning(index)?.pacing_rate;
        let until = self.counted(index)?.paced_until;
        (rate > 0 && until > now).then_some(until)
    }

    /// The bytes of a chunk that a paced connection sends at once: whole segments, and at least
    /// one.
    #[inline]
    pub(super) fn paced_chunk(&self, index: u32, chunk: u32) -> u32 {
        let Some(Tuning { pacing_rate: 1.., .. }) = self.tuning(index) else {
            return chunk;
        };
        let rate = self.asides[index as usize].tuning.pacing_rate;
        let burst = u128::from(rate) * u128::from(PACED_BURST_NS) / u128::from(NS_PER_S);
        let mss = u32::from(self.pcbs[index].mss).max(1);
        let burst = u32::try_from(burst).unwrap_or(u32::MAX).max(mss);
        chunk.min(burst - burst % mss)
    }

    /// Notes that `len` bytes of a connection that may be paced have left.
    fn pace(&mut self, now: Instant, index: u32, len: usize) {
        let Aside { tally, tuning } = &mut self.asides[index as usize];
        if tuning.pacing_rate == 0 {
            return;
        }
        let span_ns = len as u128 * u128::from(NS_PER_S) / u128::from(tuning.pacing_rate);
        let earliest = Instant(now.0.saturating_sub(PACED_CREDIT_NS));
        let span_ns = u64::try_from(span_ns).unwrap_or(u64::MAX);
        tally.paced_until = tally.paced_until.max(earliest).plus_nanos(span_ns);
    }

    /// Ends the wait of a paced connection whose rate has changed.
    pub(crate) fn forget_pace(&mut self, index: u32) {
        if self.counted(index).is_some() {
            self.asides[index as usize].tally.paced_until = Instant(0);
        }
        self.mark_ready(index);
    }
}

/// The number of segments of at most `mss` bytes in a frame of `len` bytes.
#[inline]
fn segments_of(len: usize, mss: u16) -> u32 {
    // Before the handshake is done the segment size is unknown: a SYN is one segment.
    match len <= usize::from(mss) || mss == 0 {
        true => 1,
        false => len.div_ceil(usize::from(mss.max(1))) as u32,
    }
}

fn limit_of(pcb: &Pcb) -> Limit {
    if !matches!(pcb.state(), State::Established | State::CloseWait) {
        return Limit::None;
    }
    let unsent = pcb.unsent();
    if unsent == 0 {
        return match pcb.has(flag::WRITER_WAITS) && pcb.outstanding() > 0 {
            true => Limit::Buffer,
            false => Limit::None,
        };
    }
    let window = (pcb.snd_una + pcb.snd_wnd).after(pcb.snd_nxt);
    let is_open = pcb.congestion.cwnd() > pcb.in_flight();
    match is_open && window < unsent.min(pcb.mss.into()) {
        true => Limit::Window,
        false => Limit::None,
    }
}
