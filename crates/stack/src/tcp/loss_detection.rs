//! Detection of losses: RACK-TLP (RFC 8985) with SACK, and NewReno (RFC 6582) without. Needless
//! recoveries are detected (RFC 3522).

use toehold_shm::NONE;

use super::congestion::Prr;
use super::pcb::{Pcb, Repair, RetransmitTimer, flag};
use super::progress::Progress;
use super::scoreboard::Scoreboard;
use super::segment::Segment;
use super::sent::Sent;
use crate::time::Instant;

/// Number of duplicate acknowledgements that indicate a loss.
//= RFC 5681 §3.2
pub(crate) const DUPLICATE_THRESHOLD: u32 = 3;

impl Pcb {
    //= RFC 8985 §6.2 (step 4: duplicates reported mean that the window was too small)
    pub(super) fn widen_reordering_window(&mut self, progress: &Progress) {
        if progress.duplicate_end.is_some() && self.has(flag::REORDERING) {
            self.reorder_steps = self.reorder_steps.saturating_add(1).min(20);
        }
    }

    fn reordering_window_ns(&self) -> u64 {
        if !self.has(flag::REORDERING)
            && (self.repair() != Repair::Open || self.sacked >= DUPLICATE_THRESHOLD * u32::from(self.mss))
        {
            return 0;
        }
        let window = u64::from(self.reorder_steps) * (self.rtt.min_ns() / 4);
        window.min(self.rtt.srtt_ns())
    }
}

impl Scoreboard {
    /// Marks as lost the segments sent long enough before a delivered one.
    //= RFC 8985 §6.2 (step 5)
    pub(super) fn rack_detect(&mut self, now: Instant, pcb: &mut Pcb) {
        let flight = self.flight_mut(pcb);
        if pcb.sacked == 0 && pcb.repair() == Repair::Open {
            return;
        }
        let (rack_xmit, rack_end, rtt) = (flight.rack_xmit, flight.rack_end, flight.rack_rtt_ns);
        let mut at = pcb.sent_head;
        let window = pcb.reordering_window_ns();
        let mut wait = 0u64;
        let mut steps = self.steps();
        while at != NONE {
            steps.count();
            let record = self[at];
            let before = record.xmit < rack_xmit || (record.xmit == rack_xmit && record.end.lt(rack_end));
            if before && !record.is_sacked() && !record.is_lost() {
                let due = record.xmit.plus_nanos(rtt.saturating_add(window));
                if due <= now {
                    self.mark_lost(pcb, at);
                } else {
                    wait = wait.max(due.nanos_since(now));
                }
            }
            at = record.next;
        }
        if wait > 0 {
            pcb.timer_raw = RetransmitTimer::Reordering as u8;
            pcb.retransmit_at = now.plus_nanos(wait);
        } else if pcb.timer() == RetransmitTimer::Reordering {
            pcb.timer_raw = RetransmitTimer::Off as u8;
        }
    }

    /// Fast retransmit and recovery for peers without SACK.
    //= RFC 6582 §3.2
    pub(super) fn new_reno(&mut self, pcb: &mut Pcb, progress: &Progress, duplicate: bool) {
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
            self.mark_first_lost(pcb);
        } else if duplicate && pcb.repair() == Repair::Open {
            pcb.dup_acks = pcb.dup_acks.saturating_add(1);
            if u32::from(pcb.dup_acks) >= DUPLICATE_THRESHOLD && pcb.snd_una.ge(self.flight_mut(pcb).recover)
            {
                self.mark_first_lost(pcb);
            }
        }
    }

    /// Marks the first segment in flight as lost.
    fn mark_first_lost(&mut self, pcb: &mut Pcb) {
        let head = pcb.sent_head;
        let mss = u32::from(pcb.mss);
        let record = self[head];
        if record.is_retransmitted() && !record.is_lost() {
            self[head].clear_marks();
        }
        if record.len() > mss {
            self.split(pcb, head, record.start + mss);
        }
        self.mark_lost(pcb, head);
    }

    /// Handles an acknowledgement's report about a tail loss probe: whether the original had
    /// arrived too. A report about one of the originals alone is not enough.
    //= RFC 8985 §7.4.2 (detection of a single loss that the probe repaired)
    pub(super) fn tail_probe_input(
        &mut self,
        now: Instant,
        pcb: &mut Pcb,
        segment: &Segment<'_>,
        progress: &Progress,
        duplicate: bool,
    ) {
        let flight = self.flight_mut(pcb);
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
                pcb.congestion.on_loss_event(now, pcb.mss.into(), flight);
                pcb.congestion.on_recovery_exit(now, pcb.mss.into(), flight);
            }
        } else if duplicate && segment.options.sack.is_empty() {
            // A peer without D-SACK has received both.
            pcb.clear(flag::TAIL_PROBE_OUT);
        }
    }

    /// Begins fast recovery at an acknowledgement that reports `delivered` bytes.
    pub(super) fn enter_recovery(&mut self, now: Instant, pcb: &mut Pcb, delivered: u32) {
        let flight = self.flight_mut(pcb);
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
        pcb.congestion.on_loss_event(now, pcb.mss.into(), flight_size);
    }

    /// Limits the data in flight during recovery by proportional rate reduction.
    //= RFC 9937 §6
    pub(super) fn pace_recovery(
        &mut self,
        pcb: &mut Pcb,
        progress: &Progress,
        entered: bool,
        safe_ack: bool,
    ) {
        let flight = self.flight_mut(pcb);
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

    /// Undoes a repair of data that were not lost. Returns whether it did.
    pub(super) fn undo_if_spurious(
        &mut self,
        pcb: &mut Pcb,
        segment: &Segment<'_>,
        progress: &Progress,
    ) -> bool {
        // The data considered lost arrived before any retransmission.
        let is_untouched = self.flight_mut(pcb).repaired == 0;
        let all_came = pcb.repair() == Repair::Recovery && pcb.lost == 0 && is_untouched;
        let is_spurious = all_came || self.answers_original(pcb, segment, progress);
        if is_spurious {
            self.undo_repair(pcb);
        }
        is_spurious
    }

    /// Whether an acknowledgement shows that a repair was not needed. Only the first one counts.
    //= RFC 3522 §3.2 (an acknowledgement that echoes a timestamp older than the retransmission is for the original)
    fn answers_original(&mut self, pcb: &Pcb, segment: &Segment<'_>, progress: &Progress) -> bool {
        let flight = self.flight_mut(pcb);
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

    fn undo_repair(&mut self, pcb: &mut Pcb) {
        if pcb.repair() == Repair::Recovery {
            // The data considered lost had been overtaken.
            pcb.set(flag::REORDERING);
        }
        pcb.congestion.undo();
        pcb.set_repair(Repair::Open);
        pcb.lost = 0;
        self.clear_marks_where(pcb, Sent::is_lost);
    }

    /// Discards SACK reports after a timeout. A peer that had kept the first segment in flight
    /// would have acknowledged it, so its other reports are not reliable.
    //= RFC 2018 §8 (after a timeout, segments reported by SACK may have been thrown away)
    pub(super) fn doubt_sack(&mut self, pcb: &mut Pcb) {
        if pcb.has(flag::SACK) {
            let head = pcb.sent_head;
            if head == NONE || !self[head].is_sacked() {
                return;
            }
            self.clear_marks_where(pcb, Sent::is_sacked);
        }
        // Without SACK, the bytes that duplicates stood for are among those now considered lost.
        pcb.sacked = 0;
    }
}
