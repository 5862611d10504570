//! Repair of losses: RACK-TLP (RFC 8985) with SACK, NewReno (RFC 6582) without, and the
//! retransmission timeout (RFC 6298). Needless recoveries are detected (RFC 3522).

use toehold_shm::{NONE, Steps};

use super::ack::Progress;
use super::congestion::Prr;
use super::pcb::{Repair, RetransmitTimer};
use super::segment::Segment;
use super::sent::{Flight, Sent};
use super::{Context, Pcb, Tcp, flag};
use crate::time::Instant;

/// Number of duplicate acknowledgements that indicate a loss.
//= RFC 5681 §3.2
pub(crate) const DUPLICATE_THRESHOLD: u32 = 3;

impl Tcp {
    /// Handles an acknowledgement's meaning for repair and for congestion control.
    pub(super) fn repair_input(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        segment: &Segment<'_>,
        progress: &mut Progress,
        duplicate: bool,
    ) {
        if !self.pcbs[index].has(flag::SACK) && progress.acked > 0 {
            // The bytes that duplicates stood for were counted as delivered before.
            progress.delivered = progress.delivered.saturating_sub(self.pcbs[index].sacked);
        }
        let progress = &*progress;
        if self.pcbs[index].repair() == Repair::Open && progress.acked > 0 && !progress.sack_news {
            self.pcbs[index].dup_acks = 0;
            if self.pcbs[index].sacked == 0 {
                self.grow_window(cx, index, progress);
                return;
            }
        }
        self.undo_if_spurious(cx, index, segment, progress);
        self.leave_repair(cx, index, progress);
        let lost_before = self.pcbs[index].lost;
        if self.pcbs[index].has(flag::SACK) {
            self.widen_reordering_window(index, progress);
            self.rack_detect(cx.now, index);
        } else {
            self.new_reno(index, progress, duplicate);
        }
        let news = self.pcbs[index].lost > lost_before;
        let entered = news && self.pcbs[index].repair() == Repair::Open;
        if self.pcbs[index].repair() == Repair::Open {
            if news {
                self.enter_recovery(cx, index, progress.delivered);
            } else {
                self.grow_window(cx, index, progress);
                self.mark_ready_if_unsent(index);
                return;
            }
        }
        match self.pcbs[index].repair() {
            Repair::Recovery => self.pace_recovery(index, progress, entered, !news && progress.acked > 0),
            Repair::Loss => self.grow_window(cx, index, progress),
            Repair::Open => {}
        }
        self.mark_ready(index);
    }

    fn mark_ready_if_unsent(&mut self, index: u32) {
        if self.pcbs[index].unsent() > 0 {
            //= RFC 3042 §2 (limited transmit: new data while duplicates come in)
            self.mark_ready(index);
        }
    }

    /// Handles losses found by the reordering timer.
    pub(super) fn losses_found(&mut self, cx: &mut Context<'_>, index: u32) {
        if self.pcbs[index].repair() == Repair::Open {
            self.enter_recovery(cx, index, 0);
            self.pace_recovery(index, &Progress::default(), true, false);
        }
        self.mark_ready(index);
    }

    /// Begins fast recovery at an acknowledgement that reports `delivered` bytes.
    fn enter_recovery(&mut self, cx: &mut Context<'_>, index: u32, delivered: u32) {
        cx.counters.tcp_recoveries += 1;
        let (pcb, flight) = self.flying(index);
        let outstanding = pcb.outstanding();
        pcb.set_repair(Repair::Recovery);
        flight.recover = pcb.snd_nxt;
        flight.repair_ts = 0;
        flight.judged = 0;
        flight.repaired = 0;
        // Without SACK the count of delivered bytes is a guess in both places.
        let recover_fs = if pcb.has(flag::SACK) {
            outstanding.saturating_add(delivered).saturating_sub(pcb.sacked)
        } else {
            outstanding
        };
        let room = pcb.fresh_room().saturating_sub(delivered);
        flight.prr = Prr::new(recover_fs.saturating_add(room), room);
        let flight_size = pcb.flight_size();
        pcb.congestion.on_loss_event(cx.now, pcb.mss.into(), flight_size);
    }

    /// Ends a repair when all data sent before it are acknowledged.
    fn leave_repair(&mut self, cx: &mut Context<'_>, index: u32, progress: &Progress) {
        let (pcb, flight) = self.flying(index);
        if pcb.repair() == Repair::Open || progress.acked == 0 || pcb.snd_una.lt(flight.recover) {
            return;
        }
        if pcb.repair() == Repair::Recovery {
            pcb.congestion
                .on_recovery_exit(cx.now, pcb.mss.into(), pcb.outstanding());
        }
        self.count_repaired(cx.now, index);
        let (pcb, flight) = self.flying(index);
        pcb.set_repair(Repair::Open);
        pcb.dup_acks = 0;
        flight.repair_ts = 0;
    }

    /// Limits the data in flight during recovery by proportional rate reduction.
    //= RFC 9937 §6
    fn pace_recovery(&mut self, index: u32, progress: &Progress, entered: bool, safe_ack: bool) {
        let (pcb, flight) = self.flying(index);
        let in_flight = pcb.in_flight();
        let target = pcb.congestion.ssthresh();
        let duplicate = if progress.delivered == 0 && !pcb.has(flag::SACK) {
            u32::from(pcb.mss)
        } else {
            0
        };
        let delivered = progress.delivered + duplicate;
        let sendable = flight
            .prr
            .on_ack(delivered, in_flight, target, pcb.mss.into(), safe_ack);
        // The first retransmission leaves at once, whatever the window.
        let sendable = if entered {
            sendable.max(pcb.mss.into())
        } else {
            sendable
        };
        pcb.congestion
            .set_cwnd(in_flight.saturating_add(sendable).max(pcb.mss.into()));
    }

    /// Undoes a repair of data that were not lost.
    fn undo_if_spurious(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        segment: &Segment<'_>,
        progress: &Progress,
    ) {
        let (pcb, flight) = self.flying(index);
        // The data considered lost arrived before any retransmission.
        let all_came = pcb.repair() == Repair::Recovery && pcb.lost == 0 && flight.repaired == 0;
        if all_came || self.answers_original(index, segment, progress) {
            self.undo_repair(cx, index);
        }
    }

    /// Whether an acknowledgement shows that a repair was not needed. Only the first one counts.
    //= RFC 3522 §3.2 (an acknowledgement that echoes a timestamp older than the retransmission is for the original)
    fn answers_original(&mut self, index: u32, segment: &Segment<'_>, progress: &Progress) -> bool {
        let (pcb, flight) = self.flying(index);
        if pcb.repair() == Repair::Open
            || flight.repair_ts == 0
            || progress.acked == 0
            || !pcb.has(flag::TIMESTAMPS)
        {
            return false;
        }
        let Some(timestamps) = segment.options.timestamps else {
            return false;
        };
        let original = (timestamps.echo.wrapping_sub(flight.repair_ts) as i32) < 0;
        // Only the first one counts: later ones answer earlier retransmissions.
        flight.repair_ts = 0;
        flight.judged = 1;
        original
    }

    fn undo_repair(&mut self, cx: &mut Context<'_>, index: u32) {
        cx.counters.tcp_spurious_recoveries += 1;
        let pcb = &mut self.pcbs[index];
        if pcb.repair() == Repair::Recovery {
            // The data considered lost had been overtaken.
            pcb.set(flag::REORDERING);
        }
        pcb.congestion.undo();
        pcb.set_repair(Repair::Open);
        pcb.lost = 0;
        let mut at = pcb.sent_head;
        let mut steps = Steps::along(self.sent.capacity());
        while at != NONE {
            steps.count();
            if self.sent[at].is_lost() {
                self.sent[at].clear_marks();
            }
            at = self.sent[at].next;
        }
    }

    //= RFC 8985 §6.2 (step 4: duplicates reported mean that the window was too small)
    fn widen_reordering_window(&mut self, index: u32, progress: &Progress) {
        let pcb = &mut self.pcbs[index];
        if progress.duplicate_end.is_some() && pcb.has(flag::REORDERING) {
            pcb.reorder_steps = pcb.reorder_steps.saturating_add(1).min(20);
        }
    }

    fn reordering_window_ns(&self, index: u32) -> u64 {
        let pcb = &self.pcbs[index];
        if !pcb.has(flag::REORDERING)
            && (pcb.repair() != Repair::Open || pcb.sacked >= DUPLICATE_THRESHOLD * u32::from(pcb.mss))
        {
            return 0;
        }
        let window = u64::from(pcb.reorder_steps) * (pcb.rtt.min_ns() / 4);
        window.min(pcb.rtt.srtt_ns())
    }

    /// Marks as lost the segments sent long enough before a delivered one.
    //= RFC 8985 §6.2 (step 5)
    pub(super) fn rack_detect(&mut self, now: Instant, index: u32) {
        let (pcb, flight) = self.flying(index);
        if pcb.sacked == 0 && pcb.repair() == Repair::Open {
            return;
        }
        let (rack_xmit, rack_end, rtt) = (flight.rack_xmit, flight.rack_end, flight.rack_rtt_ns);
        let mut at = pcb.sent_head;
        let window = self.reordering_window_ns(index);
        let mut wait = 0u64;
        let mut steps = Steps::along(self.sent.capacity());
        while at != NONE {
            steps.count();
            let record = self.sent[at];
            let before = record.xmit < rack_xmit || (record.xmit == rack_xmit && record.end.lt(rack_end));
            if before && !record.is_sacked() && !record.is_lost() {
                let due = record.xmit.plus_nanos(rtt.saturating_add(window));
                if due <= now {
                    self.mark_lost(index, at);
                } else {
                    wait = wait.max(due.nanos_since(now));
                }
            }
            at = record.next;
        }
        let pcb = &mut self.pcbs[index];
        if wait > 0 {
            pcb.timer_raw = RetransmitTimer::Reordering as u8;
            pcb.retransmit_at = now.plus_nanos(wait);
        } else if pcb.timer() == RetransmitTimer::Reordering {
            pcb.timer_raw = RetransmitTimer::Off as u8;
        }
    }

    /// Fast retransmit and recovery for peers without SACK.
    //= RFC 6582 §3.2
    fn new_reno(&mut self, index: u32, progress: &Progress, duplicate: bool) {
        let (pcb, flight) = self.flying(index);
        let head = pcb.sent_head;
        if head == NONE {
            return;
        }
        // Every duplicate stands for a segment that has left the network.
        //= RFC 3042 §2
        let mss = u32::from(pcb.mss);
        if duplicate {
            let rest = pcb.outstanding().saturating_sub(pcb.lost + mss);
            pcb.sacked = (pcb.sacked + mss).min(rest);
        } else if progress.acked > 0 {
            let open = pcb.repair() == Repair::Open;
            let gone = progress.acked.saturating_sub(mss);
            pcb.sacked = if open {
                0
            } else {
                pcb.sacked.saturating_sub(gone).min(pcb.outstanding())
            };
        }
        if pcb.repair() == Repair::Recovery && progress.acked > 0 {
            //= RFC 6582 §3.2 (step 3: a partial acknowledgement: the next segment is lost too)
            self.mark_first_lost(index);
        } else if duplicate && pcb.repair() == Repair::Open {
            pcb.dup_acks = pcb.dup_acks.saturating_add(1);
            if u32::from(pcb.dup_acks) >= DUPLICATE_THRESHOLD && pcb.snd_una.ge(flight.recover) {
                self.mark_first_lost(index);
            }
        }
    }

    /// Marks the first segment in flight as lost.
    fn mark_first_lost(&mut self, index: u32) {
        let head = self.pcbs[index].sent_head;
        let mss = u32::from(self.pcbs[index].mss);
        let record = self.sent[head];
        if record.is_retransmitted() && !record.is_lost() {
            self.sent[head].clear_marks();
        }
        if record.len() > mss {
            self.split_sent(index, head, record.start + mss);
        }
        self.mark_lost(index, head);
    }

    /// Handles an acknowledgement's report about a tail loss probe: whether the original had
    /// arrived too. A report about one of the originals alone is not enough.
    //= RFC 8985 §7.4.2 (detection of a single loss that the probe repaired)
    pub(super) fn tail_probe_input(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        segment: &Segment<'_>,
        progress: &Progress,
        duplicate: bool,
    ) {
        let (pcb, flight) = self.flying(index);
        if !pcb.has(flag::TAIL_PROBE_OUT) || segment.ack.lt(flight.tail_probe_end) {
            return;
        }
        let retransmits = pcb.has(flag::TAIL_PROBE_RETRANSMITS);
        let is_needless = progress.duplicate_end == Some(flight.tail_probe_end);
        if !retransmits || is_needless {
            pcb.clear(flag::TAIL_PROBE_OUT);
        } else if segment.ack.gt(flight.tail_probe_end) {
            pcb.clear(flag::TAIL_PROBE_OUT);
            // A later segment arrived first: the original was lost.
            if pcb.repair() == Repair::Open {
                let flight = flight.tail_probe_flight;
                pcb.congestion.on_loss_event(cx.now, pcb.mss.into(), flight);
                pcb.congestion.on_recovery_exit(cx.now, pcb.mss.into(), flight);
            }
        } else if duplicate && segment.options.sack.is_empty() {
            // A peer without D-SACK has received both.
            pcb.clear(flag::TAIL_PROBE_OUT);
        }
    }

    /// Handles an expiry of the retransmission timer.
    pub(super) fn retransmission_timeout(&mut self, cx: &mut Context<'_>, index: u32) {
        let timeouts = self.pcbs[index].backoff;
        if self.gives_up(cx, index) {
            return;
        }
        self.suspect_path(cx, index, timeouts, false);
        cx.counters.tcp_timeouts += 1;
        self.grow_for_idle_peer(index);
        if self.pcbs[index].sent_head == NONE {
            return;
        }
        let (pcb, flight) = self.flying(index);
        let first = pcb.repair() != Repair::Loss;
        //= RFC 6298 §5.5 (back the timer off)
        pcb.backoff = pcb.backoff.saturating_add(1);
        pcb.clear(flag::TAIL_PROBE_OUT | flag::TAIL_PROBE);
        let outstanding = pcb.outstanding();
        pcb.congestion
            .on_timeout(cx.now, pcb.mss.into(), outstanding, first);
        if first {
            flight.recover = pcb.snd_nxt;
            flight.repair_ts = 0;
            flight.judged = 0;
            flight.repaired = 0;
        }
        pcb.set_repair(Repair::Loss);
        pcb.dup_acks = 0;
        self.count_timeout(cx.now, index, first);
        self.doubt_sack(index);
        //= RFC 6298 §5.4 (retransmit the earliest segment); RFC 8985 §6.3 marks the rest lost with it
        let mut at = self.pcbs[index].sent_head;
        let mut steps = Steps::along(self.sent.capacity());
        while at != NONE {
            steps.count();
            self.mark_lost(index, at);
            at = self.sent[at].next;
        }
        self.pcbs[index].timer_raw = RetransmitTimer::Off as u8;
        self.mark_ready(index);
    }

    /// Discards SACK reports after a timeout. A peer that had kept the first segment in flight
    /// would have acknowledged it, so its other reports are not reliable.
    //= RFC 2018 §8 (after a timeout, segments reported by SACK may have been thrown away)
    fn doubt_sack(&mut self, index: u32) {
        if !self.pcbs[index].has(flag::SACK) {
            // The bytes that duplicates stood for are among those now considered lost.
            self.pcbs[index].sacked = 0;
            return;
        }
        let mut at = self.pcbs[index].sent_head;
        if at == NONE || !self.sent[at].is_sacked() {
            return;
        }
        let mut steps = Steps::along(self.sent.capacity());
        while at != NONE {
            steps.count();
            if self.sent[at].is_sacked() {
                self.sent[at].clear_marks();
            }
            at = self.sent[at].next;
        }
        self.pcbs[index].sacked = 0;
    }

    /// Checks whether the peer has been silent for too long, and ends the connection if so.
    pub(super) fn gives_up(&mut self, cx: &mut Context<'_>, index: u32) -> bool {
        let pcb = &self.pcbs[index];
        let rto_max = self.rto_bounds.max_ns;
        let over = if pcb.settings.user_timeout_ms > 0 {
            // The program's own limit has a separate deadline, see `timers`.
            false
        } else if pcb.snd_wnd == 0 && cx.now.nanos_since(pcb.last_received) < 2 * rto_max {
            //= RFC 9293 §3.8.6 (a peer that took its window back is not given up as long as it answers)
            false
        } else {
            //= RFC 9293 §3.8.3 (R2: give up after so many retransmissions)
            pcb.backoff >= self.config.retries
        };
        if over {
            cx.counters.tcp_aborted_on_timeout += 1;
            self.finish(index, Some(self.timeout_error(index)));
        }
        over
    }
}

impl Flight {
    /// Handles the delivery of a segment, which may be the latest sent so far.
    //= RFC 8985 §6.2 (steps 1 and 2)
    #[inline]
    pub(super) fn rack_update(&mut self, now: Instant, pcb: &Pcb, record: &Sent) {
        let rtt = now.nanos_since(record.xmit);
        if record.is_retransmitted() && rtt < pcb.rtt.min_ns() {
            // The original arrived, most likely, not the retransmission.
            return;
        }
        // As on Linux, the round trip is that of the last segment examined. An acknowledgement
        // delayed by a gap then does not make other segments look lost.
        self.rack_rtt_ns = rtt;
        if record.xmit > self.rack_xmit || (record.xmit == self.rack_xmit && record.end.gt(self.rack_end)) {
            self.rack_xmit = record.xmit;
            self.rack_end = record.end;
        }
    }
}
