//! Received acknowledgements: they free data, update estimates and end states.

use toehold_shm::NONE;
use toehold_wire::tcp::Seq;

use super::congestion;
use super::pcb::{Pcb, Repair, State, flag};
use super::progress::Progress;
use super::segment::Segment;
use super::{Context, Tcp};
use crate::socket::Change;
use crate::time::Instant;

impl Tcp {
    /// Handles the acknowledgement field of an acceptable segment. Returns `false` if the segment
    /// must be dropped.
    #[inline]
    pub(super) fn ack_input(&mut self, cx: &mut Context<'_>, index: u32, segment: &Segment<'_>) -> bool {
        let pcb = &mut self.pcbs[index];
        let ack = segment.ack;
        if ack.gt(pcb.snd_nxt) {
            //= RFC 9293 §3.10.7.4 (an ACK of something not yet sent: acknowledge, drop)
            cx.counters.tcp_bad_acks += 1;
            self.challenge(cx, index);
            return false;
        }
        if ack.lt(pcb.oldest_ack()) {
            //= RFC 5961 §5.2 (an ACK older than the largest window: challenge, drop)
            cx.counters.tcp_bad_acks += 1;
            self.challenge(cx, index);
            return false;
        }
        let window_before = pcb.snd_wnd;
        let window_changed = pcb.note_window(segment);
        let highest_before = self.scoreboard.highest_sacked(&self.pcbs[index]);
        let mut progress = Progress {
            highest_before,
            ..Progress::default()
        };
        let pcb = &self.pcbs[index];
        let outstanding = pcb.outstanding() > 0;
        if pcb.has(flag::SACK) && !segment.options.sack.is_empty() {
            self.scoreboard
                .sack_input(cx.now, &mut self.pcbs[index], segment, &mut progress);
        }
        if ack.gt(self.pcbs[index].snd_una) {
            self.advance(cx, index, ack, &mut progress);
            self.pcbs[index].measure(cx.now, segment, &progress);
        }
        // The last acknowledgement may have ended the connection.
        if self.pcbs[index].flight != NONE {
            let duplicate = progress.acked == 0
                && ack == self.pcbs[index].snd_una
                && segment.payload.is_empty()
                && segment.len() == 0
                && !window_changed;
            self.scoreboard
                .tail_probe_input(cx.now, &mut self.pcbs[index], segment, &progress, duplicate);
            if outstanding {
                self.repair_input(cx, index, segment, &mut progress, duplicate);
            }
        }
        let reopened = window_before == 0 && self.pcbs[index].snd_wnd > 0;
        if progress.acked > 0 || reopened {
            self.pcbs[index].waiting_since = if self.pcbs[index].outstanding() > 0 {
                cx.now
            } else {
                Instant::NEVER
            };
        }
        if reopened {
            self.pcbs[index].end_backoff();
        }
        if outstanding || reopened {
            self.arm_retransmit(cx.now, index);
        }
        if progress.reordered {
            self.count(index, |tally| &mut tally.reorderings);
        }
        if progress.duplicate_end.is_some() {
            self.count(index, |tally| &mut tally.duplicate_reports);
        }
        if progress.acked > 0 {
            self.count_delivered(cx.now, index);
        }
        self.scoreboard.drop_empty_flight(&mut self.pcbs[index]);
        let pcb = &self.pcbs[index];
        if pcb.unsent() > 0 || pcb.lost > 0 || pcb.has(flag::FIN_QUEUED) && !pcb.has(flag::FIN_SENT) {
            self.mark_ready(index);
        }
        true
    }

    /// Moves the left edge of the send window.
    #[inline]
    pub(super) fn advance(&mut self, cx: &mut Context<'_>, index: u32, ack: Seq, progress: &mut Progress) {
        self.scoreboard
            .release(cx.now, &mut self.pcbs[index], ack, progress);
        if progress.repaired {
            //= RFC 6298 §3 (what had arrived behind a gap waited for its repair: no measure of the path)
            progress.rtt_ns = None;
        }
        let pcb = &mut self.pcbs[index];
        progress.acked = ack.distance(pcb.snd_una);
        let data = ack.distance(pcb.queue_start()).min(pcb.send_queue.len() as u32);
        pcb.send_queue.consume(&mut self.payload, data as usize);
        pcb.bytes_acked = pcb.bytes_acked.wrapping_add(data.into());
        pcb.snd_una = ack;
        if pcb.has(flag::URGENT_OUT) && ack.ge(pcb.snd_up) {
            pcb.clear(flag::URGENT_OUT);
        }
        if let Some(rtt) = progress.rtt_ns {
            pcb.rtt.sample(cx.now, rtt);
        }
        if data > 0 {
            self.tell_of_room(index);
        }
        let pcb = &self.pcbs[index];
        if pcb.has(flag::FIN_SENT) && ack == pcb.snd_nxt {
            self.fin_acknowledged(cx, index);
        }
        let path = self.pcbs[index].path;
        //= RFC 4861 §7.3.1 (forward progress confirms reachability)
        cx.ip.confirm(cx.now, &path);
    }

    /// Handles the acknowledgement of this side's FIN.
    fn fin_acknowledged(&mut self, cx: &mut Context<'_>, index: u32) {
        let pcb = &mut self.pcbs[index];
        match pcb.state() {
            State::FinWait1 => {
                pcb.set_state(State::FinWait2);
                self.mark_event(index, Change::STATE);
                self.start_fin_wait_2(index, cx.now);
            }
            State::Closing => self.enter_time_wait(cx, index),
            State::LastAck => self.finish(index, None),
            _ => {}
        }
    }

    /// Reports progress outside of recovery to congestion control.
    #[inline]
    pub(super) fn grow_window(&mut self, cx: &Context<'_>, index: u32, progress: &Progress) {
        let pcb = &mut self.pcbs[index];
        if progress.acked == 0 {
            return;
        }
        // In slow start half of the window is use enough: a retransmission that is all of the window
        // after a timeout, for one, lets it grow.
        //= RFC 7661 §4.3 (a window is validated if at least half of it was used)
        //= RFC 7661 §4.2 (what counts is the most that was in flight in a round trip)
        let peak = self.scoreboard.peak(pcb);
        let used = pcb.outstanding().saturating_add(progress.acked).max(peak);
        let half = pcb.congestion.in_slow_start() && pcb.congestion.cwnd() / 2 < used;
        pcb.congestion.on_ack(congestion::Ack {
            now: cx.now,
            acked_bytes: progress.delivered,
            rtt_ns: progress.rtt_ns.unwrap_or(0),
            min_rtt_ns: pcb.rtt.min_ns(),
            cwnd_limited: half || pcb.has(flag::WINDOW_LIMITED),
            mss: pcb.mss.into(),
            in_recovery: pcb.repair() == Repair::Recovery,
        });
        self.grow_send_buffer(index);
    }
}

impl Pcb {
    /// The lowest acknowledgement number that the peer may have sent lately: one window below the
    /// acknowledged data, and never below the first number sent.
    //= RFC 5961 §5.2 (SND.UNA - MAX.SND.WND <= SEG.ACK)
    pub(super) fn oldest_ack(&self) -> Seq {
        if self.bytes_acked < self.max_snd_wnd.into() {
            self.iss + 1
        } else {
            self.snd_una - self.max_snd_wnd
        }
    }

    /// Takes the peer's window if the segment is not older than the last one. Returns whether the
    /// window changed.
    //= RFC 9293 §3.10.7.4 (SND.WL1 and SND.WL2 keep old segments from updating the window)
    #[inline]
    pub(super) fn note_window(&mut self, segment: &Segment<'_>) -> bool {
        let fresh = self.snd_wl1.lt(segment.seq)
            || (self.snd_wl1 == segment.seq && self.snd_wl2.le(segment.ack))
            || segment.ack.gt(self.snd_una);
        if !fresh || segment.ack.lt(self.snd_una) {
            return false;
        }
        let window = u32::from(segment.window).wrapping_shl(self.snd_wscale.into());
        self.snd_wl1 = segment.seq;
        self.snd_wl2 = segment.ack;
        let changed = window != self.snd_wnd;
        self.snd_wnd = window;
        self.max_snd_wnd = self.max_snd_wnd.max(window);
        changed
    }
}
