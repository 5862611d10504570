//! Segments of a connection and their order: retransmissions, new data as the windows allow, a FIN,
//! probes, and last a bare acknowledgement.

use toehold_link::{TransmitError, Transmitter};
use toehold_shm::NONE;
use toehold_wire::tcp::Flags;

use super::emit::Emission;
use super::pcb::{Pcb, Repair, State, flag};
use super::segmentation::{data_flags, ends_push, whole_segments};
use super::timers::fin_unsent;
use super::{Context, Tcp};
use crate::socket::setting;
use crate::time::Instant;

/// Most frames that the link may refuse before a transmission round ends. A link is full for one
/// peer at a time. Peers that do not read must neither delay others nor cost a round more than
/// this.
pub(super) const MOST_REFUSED: u32 = 16;

/// Why a connection's turn to transmit ended early.
pub(super) enum Stopped {
    /// The link is full, at least for this connection's peer.
    LinkFull,
    /// This connection cannot go on, for a reason of its own.
    Connection,
}

impl From<TransmitError> for Stopped {
    fn from(error: TransmitError) -> Self {
        match error {
            TransmitError::Full => Self::LinkFull,
            TransmitError::Unreachable | TransmitError::TooLong => Self::Connection,
        }
    }
}

impl Tcp {
    /// Lets every connection with segments to send do so.
    pub(crate) fn poll_transmit(&mut self, cx: &mut Context<'_>, out: &mut dyn Transmitter) {
        if self.state[0].deferred_head != NONE {
            self.sweep_deferred_free(out);
        }
        if self.memory_is_back() {
            self.wake_memory_waiters();
        }
        self.transmit_replies(cx, out);
        let mut refused = 0;
        let mut first_refused = NONE;
        while refused < MOST_REFUSED && self.state[0].ready_head != first_refused {
            let Some(index) = self.next_ready() else {
                return;
            };
            self.touch(index);
            let result = self.transmit_connection(cx, index, out);
            self.arm_retransmit(cx.now, index);
            self.rearm(index);
            if let Err(Stopped::LinkFull) = result {
                cx.counters.link_full += 1;
                // Goes behind the others, which may be for other peers.
                self.mark_ready(index);
                refused += 1;
                if first_refused == NONE {
                    first_refused = index;
                }
            } else {
                self.free_if_done(index);
            }
        }
    }

    #[inline]
    fn transmit_connection(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        out: &mut dyn Transmitter,
    ) -> Result<(), Stopped> {
        let pcb = &self.pcbs[index];
        if pcb.state() == State::Closed {
            return self.transmit_closed(cx, index, out);
        }
        if !self.refresh_path(cx, index) {
            return Err(Stopped::Connection);
        }
        if self.pcbs[index].has(flag::SYN_PENDING) {
            self.transmit_syn(cx, index, out)?;
        }
        if matches!(self.pcbs[index].state(), State::SynSent | State::SynReceived) {
            return self.transmit_ack(cx, index, out);
        }
        if self.pcbs[index].lost > 0 && self.paced_until(cx.now, index).is_none() {
            self.transmit_lost(cx, index, out)?;
        }
        //= RFC 6675 §4 (what is lost goes first: new data must not use up the window it needs)
        if self.pcbs[index].state().may_transmit() && self.pcbs[index].lost == 0 {
            let sent = self.transmit_new(cx, index, out);
            self.count_limit(cx.now, index);
            sent?;
        }
        if self.pcbs[index].settings.unsent_low_water > 0 {
            self.tell_of_room(index);
        }
        let pcb = &mut self.pcbs[index];
        pcb.clear(flag::MORE);
        if pcb.has(flag::TAIL_PROBE | flag::PROBE) {
            self.transmit_probes(cx, index, out)?;
        }
        self.transmit_ack(cx, index, out)
    }

    /// Sends a bare acknowledgement, if one is due that no other segment has carried.
    fn transmit_ack(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        out: &mut dyn Transmitter,
    ) -> Result<(), Stopped> {
        if self.pcbs[index].has(flag::ACK_NOW) {
            self.emit(
                cx,
                index,
                out,
                &Emission::bare(Flags::ACK, self.pcbs[index].snd_nxt),
            )?;
        }
        Ok(())
    }

    /// Sends the last segments of a closed connection, and sets the fence behind its bytes.
    fn transmit_closed(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        out: &mut dyn Transmitter,
    ) -> Result<(), Stopped> {
        if self.pcbs[index].has(flag::RESET) && self.refresh_path(cx, index) {
            let pcb = &self.pcbs[index];
            //= RFC 9293 §3.10.5 (ABORT: <SEQ=SND.NXT><CTL=RST>)
            let mut places = [Some(pcb.snd_nxt), None];
            if pcb.snd_una.gt(pcb.snd_nxt) {
                // A repaired connection, which cannot know which of the two numbers its peer
                // expects.
                places[1] = Some(pcb.snd_una);
            }
            for place in places.into_iter().flatten() {
                let reset = Emission::bare(Flags::RST | Flags::ACK, place);
                match self.emit(cx, index, out, &reset) {
                    Err(TransmitError::Full) => return Err(Stopped::LinkFull),
                    Ok(()) => cx.counters.tcp_resets_sent += 1,
                    Err(_) => {}
                }
            }
        }
        let pcb = &mut self.pcbs[index];
        if !pcb.has(flag::ON_NEIGHBOR) {
            pcb.clear(flag::RESET);
        }
        if pcb.has(flag::FENCE_WANTED) {
            self.defer_free(index, out);
        }
        Ok(())
    }

    fn transmit_syn(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        out: &mut dyn Transmitter,
    ) -> Result<(), Stopped> {
        let pcb = &self.pcbs[index];
        let answering = pcb.state() != State::SynSent;
        let mut flags = if answering {
            Flags::SYN | Flags::ACK
        } else {
            Flags::SYN
        };
        if answering && pcb.has(flag::ECN) {
            flags |= Flags::ECE;
        } else if !answering && self.config.ecn && pcb.syn_count == 0 {
            //= RFC 3168 §6.1.1.1 (a retransmitted SYN offers no ECN, lest a middlebox drops it for that)
            flags |= Flags::ECE | Flags::CWR;
        }
        let first = pcb.iss;
        let len = self.data_of_syn(index);
        self.emit(cx, index, out, &Emission::data(flags, first, 0, len))?;
        if len > 0 {
            self.note_data_of_syn(cx.now, index, len);
        }
        let pcb = &mut self.pcbs[index];
        pcb.clear(flag::SYN_PENDING);
        if pcb.syn_count == 0 {
            // The time for which the link was full tells nothing about the path.
            pcb.backoff = 0;
        }
        if pcb.snd_nxt == pcb.iss {
            pcb.snd_nxt = pcb.iss + 1;
        }
        pcb.syn_count = pcb.syn_count.saturating_add(1);
        if !pcb.waiting_since.is_set() || pcb.syn_count == 1 {
            pcb.waiting_since = cx.now;
        }
        Ok(())
    }

    /// Retransmits data considered lost, oldest first, as the window allows.
    fn transmit_lost(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        out: &mut dyn Transmitter,
    ) -> Result<(), Stopped> {
        let mut at = self.pcbs[index].sent_head;
        let mut first = self.pcbs[index].repair() != Repair::Open;
        let mut steps = self.scoreboard.steps();
        while at != NONE && self.pcbs[index].lost > 0 {
            steps.count();
            if !self.scoreboard[at].is_lost() {
                at = self.scoreboard[at].next;
                continue;
            }
            let pcb = &self.pcbs[index];
            let room = pcb.congestion.cwnd().saturating_sub(pcb.in_flight());
            let mss = u32::from(pcb.mss);
            if room < mss.min(self.scoreboard[at].len()) && !(first && pcb.in_flight() == 0) {
                self.pcbs[index].set(flag::WINDOW_LIMITED);
                return Ok(());
            }
            first = false;
            self.retransmit(cx, index, at, room.max(mss), out)?;
            if self.paced_until(cx.now, index).is_some() {
                return Ok(());
            }
            at = self.scoreboard[at].next;
        }
        Ok(())
    }

    /// Retransmits one record, at most `limit` bytes of it.
    pub(super) fn retransmit(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        at: u32,
        limit: u32,
        out: &mut dyn Transmitter,
    ) -> Result<(), Stopped> {
        let record = self.scoreboard[at];
        let pcb = &self.pcbs[index];
        let offset = record.start.distance(pcb.queue_start()) as usize;
        let in_queue = (pcb.send_queue.len()).saturating_sub(offset) as u32;
        let data = record.len().min(in_queue);
        let take = data
            .min(self.largest_chunk(pcb))
            .min(whole_segments(limit, pcb.mss));
        if take < data
            && !self
                .scoreboard
                .split(&mut self.pcbs[index], at, record.start + take)
        {
            cx.counters.context_memory_out += 1;
            return Err(Stopped::Connection);
        }
        let fin = take == data && data < record.len();
        let pcb = &self.pcbs[index];
        let pushed = take == data && record.is_pushed() || ends_push(pcb, record.start + take);
        let flags = data_flags(pcb, take, fin, pushed);
        self.emit(
            cx,
            index,
            out,
            &Emission::data(flags, record.start, offset, take as usize),
        )?;
        self.count_retransmitted(index, take);
        let was_lost = self.scoreboard[at].is_lost();
        let len = self.scoreboard[at].len();
        self.scoreboard[at].mark_retransmitted(cx.now);
        let now_ts = self.pcbs[index].timestamp(cx.now);
        let (pcb, flight) = self.flying(index);
        if was_lost {
            pcb.lost = pcb.lost.saturating_sub(len);
        }
        if pcb.repair() != Repair::Open {
            flight.prr.sent(len);
            flight.repaired = 1;
            if flight.repair_ts == 0 && flight.judged == 0 && pcb.has(flag::TIMESTAMPS) {
                flight.repair_ts = now_ts.max(1);
            }
        }
        pcb.retransmits = pcb.retransmits.wrapping_add(1);
        cx.counters.tcp_retransmits += 1;
        Ok(())
    }

    /// Sends data, and the FIN behind them, for the first time.
    fn transmit_new(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        out: &mut dyn Transmitter,
    ) -> Result<(), Stopped> {
        // Acknowledgements that arrive together all see where the last round stopped: each grows
        // the window.
        self.pcbs[index].clear(flag::WINDOW_LIMITED);
        loop {
            let pcb = &self.pcbs[index];
            let unsent = pcb.unsent();
            if unsent == 0 && !fin_unsent(pcb) {
                return Ok(());
            }
            if self.paced_until(cx.now, index).is_some() {
                return Ok(());
            }
            let take = self.next_chunk(index, unsent);
            let take = self.paced_chunk(index, take);
            if take == 0 && (unsent > 0 || !fin_fits(&self.pcbs[index], 0)) {
                return Ok(());
            }
            self.transmit_chunk(cx, index, take, take == unsent, out)?;
        }
    }

    pub(super) fn transmit_chunk(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        take: u32,
        last: bool,
        out: &mut dyn Transmitter,
    ) -> Result<(), Stopped> {
        if !self.scoreboard.has_room() {
            // Data without a record would never be retransmitted.
            cx.counters.context_memory_out += 1;
            return Err(Stopped::Connection);
        }
        let pcb = &self.pcbs[index];
        let start = pcb.snd_nxt;
        let offset = start.distance(pcb.queue_start()) as usize;
        let fin = last && fin_unsent(pcb) && fin_fits(pcb, take);
        let pushed = self.record_ends.ends_at(pcb, start + take)
            || ends_push(pcb, start + take)
            || pcb.has(flag::PROBE) && !last
            || self.scoreboard.fills_half_window(pcb, start + take);
        let flags = data_flags(pcb, take, fin, pushed);
        let end = start + take + u32::from(fin);
        self.restart_after_idle(cx.now, index);
        self.note_sending(index, end);
        self.emit(
            cx,
            index,
            out,
            &Emission::data(flags, start, offset, take as usize),
        )?;
        self.push_sent(cx.now, index, (start, end), pushed);
        let (pcb, flight) = self.flying(index);
        if pcb.snd_una == pcb.snd_nxt {
            pcb.waiting_since = cx.now;
            if !pcb.settings.has(setting::BACKOFF_KEPT) {
                // The time for which the link was full tells nothing about the path.
                pcb.backoff = 0;
            }
        }
        pcb.snd_nxt = end;
        if pcb.snd_una.ge(flight.peak_end) || pcb.outstanding() > flight.peak {
            (flight.peak, flight.peak_end) = (pcb.outstanding(), end);
        }
        if flags.contains(Flags::PSH) {
            flight.pushed = end;
        }
        if !take.is_multiple_of(pcb.mss.max(1).into()) {
            flight.small_end = end;
        }
        if fin {
            pcb.set(flag::FIN_SENT);
        }
        if pcb.repair() != Repair::Open {
            flight.prr.sent(take);
        }
        pcb.clear(flag::PROBE);
        self.record_ends.drop_sent(&mut self.pcbs[index]);
        Ok(())
    }

    /// Restarts the window after idle time of at least a retransmission timeout. Its floor lies far
    /// above the round trips of a local link. A program that pauses for a millisecond between
    /// messages therefore keeps its window. After a longer pause, the queues on the path have
    /// drained.
    //= RFC 5681 §4.1 (restart from the initial window after an idle retransmission timeout)
    fn restart_after_idle(&mut self, now: Instant, index: u32) {
        let pcb = &self.pcbs[index];
        if pcb.outstanding() > 0 || now.nanos_since(pcb.last_sent) < pcb.rtt.rto(&self.rto_bounds, 0) {
            return;
        }
        let window = self.config.initial_window * u32::from(pcb.mss);
        self.pcbs[index].congestion.restart_after_idle(window);
    }
}

/// Whether a FIN behind `take` more bytes lies in the peer's window.
//= RFC 9293 §3.8.6 (nothing is sent beyond the window; a FIN takes a number, too)
fn fin_fits(pcb: &Pcb, take: u32) -> bool {
    (pcb.snd_una + pcb.snd_wnd).after(pcb.snd_nxt) > take
}
