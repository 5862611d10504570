//! Repair of losses: what follows from their detection (`loss_detection`), and the retransmission
//! timeout (RFC 6298).

use toehold_shm::NONE;
use toehold_wire::tcp::Seq;

use super::pcb::{Pcb, Repair, RetransmitTimer, flag};
use super::progress::Progress;
use super::segment::Segment;
use super::sent::Flight;
use super::{Context, Tcp};
use crate::time::Instant;

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
        let pcb = &mut self.pcbs[index];
        if self.scoreboard.undo_if_spurious(pcb, segment, progress) {
            cx.counters.tcp_spurious_recoveries += 1;
        }
        self.leave_repair(cx, index, progress);
        let pcb = &mut self.pcbs[index];
        let lost_before = pcb.lost;
        if pcb.has(flag::SACK) {
            pcb.widen_reordering_window(progress);
            self.scoreboard.rack_detect(cx.now, pcb);
        } else {
            self.scoreboard.new_reno(pcb, progress, duplicate);
        }
        let news = pcb.lost > lost_before;
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
            Repair::Recovery => {
                let (pcb, safe_ack) = (&mut self.pcbs[index], !news && progress.acked > 0);
                self.scoreboard.pace_recovery(pcb, progress, entered, safe_ack);
            }
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
            let pcb = &mut self.pcbs[index];
            self.scoreboard
                .pace_recovery(pcb, &Progress::default(), true, false);
        }
        self.mark_ready(index);
    }

    /// Begins fast recovery at an acknowledgement that reports `delivered` bytes.
    fn enter_recovery(&mut self, cx: &mut Context<'_>, index: u32, delivered: u32) {
        cx.counters.tcp_recoveries += 1;
        let pcb = &mut self.pcbs[index];
        self.scoreboard.enter_recovery(cx.now, pcb, delivered);
    }

    /// A connection with segments in flight, and its flight record.
    #[inline]
    pub(super) fn flying(&mut self, index: u32) -> (&mut Pcb, &mut Flight) {
        let pcb = &mut self.pcbs[index];
        let flight = self.scoreboard.flight_mut(pcb);
        (pcb, flight)
    }

    /// Notes that `start..end` was sent for the first time. Returns `false` without memory for it.
    #[inline]
    pub(super) fn push_sent(&mut self, now: Instant, index: u32, range: (Seq, Seq), pushed: bool) -> bool {
        let pcb = &mut self.pcbs[index];
        let is_first = pcb.flight == NONE;
        let is_noted = self.scoreboard.push(now, pcb, range, pushed);
        if is_first && is_noted {
            self.count_flight(now, index);
        }
        is_noted
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
        let pcb = &mut self.pcbs[index];
        self.scoreboard.doubt_sack(pcb);
        //= RFC 6298 §5.4 (retransmit the earliest segment); RFC 8985 §6.3 marks the rest lost with it
        self.scoreboard.mark_lost_where(pcb, |_| true);
        pcb.timer_raw = RetransmitTimer::Off as u8;
        self.mark_ready(index);
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
            self.finish(
                index,
                Some(self.cold[index as usize].timeout_error(&self.pcbs[index])),
            );
        }
        over
    }
}
