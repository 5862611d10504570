//! Received data and FINs: trimming, placement, order, and when to acknowledge.

use toehold_wire::tcp::{Flags, Seq};

use super::memory::room_of;
use super::pcb::{Pcb, State, flag, urgent as urgent_state};
use super::segment::{Data, Segment};
use super::{Context, Tcp};
use crate::socket::{Change, DirectReceive, SocketError, setting};
use crate::time::Instant;
use core::time::Duration;
use toehold_shm::NONE;

/// A reply this soon after data shows that requests and replies alternate.
pub(super) const INTERACTIVE_NS: u64 = 40_000_000;

/// The part of a segment that is new and within the window.
pub(super) struct Fresh {
    pub(super) start: Seq,
    /// Offset of the part in the segment's payload.
    pub(super) offset: usize,
    pub(super) len: usize,
    pub(super) fin: bool,
}

impl Tcp {
    /// Whether an acknowledgement is delayed without need.
    #[inline]
    pub(crate) fn has_delayed_acks(&self) -> bool {
        self.state[0].delayed_acks.is_any()
    }

    /// Sends the delayed acknowledgements with the next round.
    pub(crate) fn flush_delayed_acks(&mut self, cx: &Context<'_>) {
        for index in self.state[0].delayed_acks.take() {
            if !self.pcbs.is_live(index) {
                continue;
            }
            self.touch(index);
            let pcb = &mut self.pcbs[index];
            if pcb.ack_at.is_set() && pcb.ack_at > cx.now && !pcb.has(flag::INTERACTIVE) {
                pcb.ack_at = Instant::NEVER;
                pcb.set(flag::ACK_NOW);
                self.mark_ready(index);
            }
        }
    }

    //= RFC 9293 §3.10.7.4 (seventh, process the segment text; eighth, check the FIN bit)
    pub(super) fn data_input(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        segment: &Segment<'_>,
        direct_receive: Option<&mut DirectReceive<'_>>,
    ) {
        if !self.pcbs[index].state().may_receive() {
            self.data_after_fin(cx, index, segment);
            return;
        }
        let pcb = &self.pcbs[index];
        let orphan = pcb.has(flag::RELEASED) && !pcb.has(flag::IN_ACCEPT_QUEUE);
        let end = segment.data_start() + segment.payload.len() as u32;
        let has_shut_both =
            pcb.has(flag::READ_SHUT) && matches!(pcb.state(), State::FinWait1 | State::FinWait2);
        if (orphan || has_shut_both) && end.gt(pcb.rcv_nxt) {
            //= RFC 9293 §3.6.1 (data for a program that has closed: reset)
            if pcb.backoff > 0 {
                // The peer has not received the FIN, which was retransmitted.
                self.reply_reset(cx, segment);
            } else {
                self.reply_abort(cx, index);
            }
            self.finish(index, has_shut_both.then_some(SocketError::ConnectionReset));
            return;
        }
        let Some(fresh) = self.trim(cx, index, segment) else {
            return;
        };
        if fresh.start.gt(self.pcbs[index].rcv_nxt) {
            let part = (fresh.offset, fresh.len);
            self.count(index, |tally| &mut tally.out_of_order);
            self.keep_ahead(cx, index, fresh.start, &segment.payload, part, fresh.fin);
            //= RFC 5681 §4.2 (acknowledge out-of-order data at once)
            self.pcbs[index].set(flag::ACK_NOW);
            return;
        }
        let had_gap = self.pcbs[index].ranges != NONE;
        if had_gap && fresh.offset == 0 {
            self.note_overlap(cx, index, fresh.start, fresh.start + fresh.len as u32);
        }
        let (taken, direct) = self.take_in_order(cx, index, &segment.payload, &fresh, direct_receive);
        let mut fin = fresh.fin && taken == fresh.len;
        if had_gap {
            fin |= self.ranges.join(&mut self.pcbs[index]);
        }
        self.find_urgent_byte(index);
        if fin {
            self.fin_input(cx, index);
        }
        self.schedule_ack(cx.now, index, taken as u32, had_gap || fin);
        if !direct || fin {
            self.mark_event(index, Change::DATA);
        }
    }

    /// Handles data behind the peer's FIN. They can only be a retransmission; anything else is
    /// ignored.
    //= RFC 9293 §3.10.7.4 (seventh, CLOSE-WAIT to TIME-WAIT: ignore the segment text)
    fn data_after_fin(&mut self, cx: &mut Context<'_>, index: u32, segment: &Segment<'_>) {
        if segment.seq.lt(self.pcbs[index].rcv_nxt) {
            self.note_duplicate(cx, index, segment);
            self.pcbs[index].set(flag::ACK_NOW);
        } else {
            cx.counters.tcp_out_of_window += 1;
        }
    }

    /// Cuts off bytes that were received before and bytes beyond the window.
    #[inline]
    fn trim(&mut self, cx: &mut Context<'_>, index: u32, segment: &Segment<'_>) -> Option<Fresh> {
        let pcb = &self.pcbs[index];
        let (rcv_nxt, edge) = (pcb.rcv_nxt, pcb.rcv_adv);
        let mut start = segment.data_start();
        let (mut offset, mut len) = (0, segment.payload.len());
        let mut fin = segment.has(Flags::FIN);
        let end = start + len as u32;
        if (end + u32::from(fin)).le(rcv_nxt) {
            self.note_duplicate(cx, index, segment);
            self.pcbs[index].set(flag::ACK_NOW);
            return None;
        }
        if start.lt(rcv_nxt) {
            let old = rcv_nxt.distance(start);
            if end.gt(rcv_nxt) {
                //= RFC 2883 §4.2 (a part that lies below the acknowledgement came twice)
                self.pcbs[index].report_duplicate(start, rcv_nxt, cx.counters);
            }
            offset = old as usize;
            len -= offset.min(len);
            start = rcv_nxt;
        }
        if end.gt(edge) {
            //= RFC 9293 §3.10.7.4 (trim to the window, FIN included)
            cx.counters.tcp_out_of_window += 1;
            let room = edge.after(start) as usize;
            self.pcbs[index].set(flag::ACK_NOW);
            if room == 0 {
                self.probed(index);
                return None;
            }
            len = len.min(room);
            fin = false;
        }
        Some(Fresh {
            start,
            offset,
            len,
            fin,
        })
    }

    /// Stores in-order bytes: in the waiting program's buffer, and the rest in the queue. Returns
    /// their number, and whether all went to the buffer.
    #[inline]
    pub(super) fn take_in_order(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        payload: &Data<'_>,
        fresh: &Fresh,
        direct_receive: Option<&mut DirectReceive<'_>>,
    ) -> (usize, bool) {
        let pcb = &mut self.pcbs[index];
        let Fresh { offset, len, .. } = *fresh;
        pcb.rcv_mss = pcb.rcv_mss.max(len.min(pcb.mss.into()) as u16);
        let mut direct = 0;
        if let Some(direct_receive) = direct_receive.filter(|p| places(pcb, p, index)) {
            let room = &mut direct_receive.buffer[direct_receive.filled..];
            let wanted = len.min(room.len());
            direct = payload.copy_to(offset, &mut room[..wanted]);
            direct_receive.filled += direct;
        }
        let mut taken = direct;
        if direct < len {
            let rest = len - direct;
            let queued = match self.may_keep(index) {
                true => self.append_payload(index, payload, (offset + direct, rest)),
                false => 0,
            };
            if queued < rest {
                cx.counters.payload_memory_out += 1;
                self.drop_what_is_ahead();
                self.touch(index);
            }
            taken += queued;
        }
        let pcb = &mut self.pcbs[index];
        pcb.rcv_nxt += taken as u32;
        pcb.bytes_received = pcb.bytes_received.wrapping_add(taken as u64);
        (taken, direct == len)
    }

    /// Handles the peer's FIN.
    fn fin_input(&mut self, cx: &mut Context<'_>, index: u32) {
        let pcb = &mut self.pcbs[index];
        pcb.rcv_nxt += 1;
        pcb.set(flag::FIN_RECEIVED | flag::ACK_NOW);
        self.drop_ranges(index);
        let pcb = &mut self.pcbs[index];
        match pcb.state() {
            State::Established => pcb.set_state(State::CloseWait),
            State::FinWait1 => pcb.set_state(State::Closing),
            State::FinWait2 => self.enter_time_wait(cx, index),
            _ => {}
        }
        self.mark_event(index, Change::STATE);
    }

    /// The time for which an acknowledgement may wait for data to carry it.
    #[inline]
    pub(crate) fn ack_delay(&self, index: u32) -> Duration {
        match self.tuning(index).map_or(0, |tuning| tuning.ack_delay_us) {
            0 => self.config.delayed_ack,
            us => self.config.delayed_ack.min(Duration::from_micros(us.into())),
        }
    }

    //= RFC 9293 §3.8.6.3 (an acknowledgement at least for every second full segment, and within 0.5 s)
    #[inline]
    pub(super) fn schedule_ack(&mut self, now: Instant, index: u32, taken: u32, at_once: bool) {
        let delay = self.ack_delay(index);
        let segments = self.config.ack_every.saturating_sub(1).max(1);
        let pcb = &mut self.pcbs[index];
        if pcb.state() == State::Closed {
            return;
        }
        pcb.unacked_received = pcb.unacked_received.saturating_add(taken);
        // A window of few segments would fill before this many arrive.
        let most = (segments * u32::from(pcb.rcv_mss)).min(pcb.settings.receive_buffer / 4);
        let begins =
            pcb.quick_acks > 0 && !pcb.has(flag::INTERACTIVE) && !pcb.settings.has(setting::LATE_ACK);
        let quick = begins || pcb.settings.has(setting::QUICK_ACK);
        if at_once || quick || taken == 0 || pcb.unacked_received > most {
            pcb.set(flag::ACK_NOW);
        } else if !pcb.ack_at.is_set() {
            pcb.ack_at = now + delay;
            if !pcb.has(flag::INTERACTIVE) {
                self.state[0].delayed_acks.note(index);
            }
        }
    }

    /// Tells the peer of the room that the program's reading made, if that is worth a segment.
    //= RFC 9293 §3.8.6.2.2 (the window moves when half the buffer or a segment can be offered)
    pub(crate) fn window_opened(&mut self, index: u32) {
        let pcb = &self.pcbs[index];
        if !pcb.state().may_receive() {
            return;
        }
        let standing = pcb.rcv_adv.after(pcb.rcv_nxt);
        let buffer = self.receive_limit(pcb);
        let room = room_of(pcb, buffer).min(pcb.largest_window());
        let gain = room.saturating_sub(standing);
        let worth = gain >= 2 * u32::from(pcb.rcv_mss) && (gain >= buffer / 4 || standing <= buffer / 8);
        if worth || 2 * gain >= buffer {
            self.pcbs[index].set(flag::ACK_NOW);
            self.mark_ready(index);
        }
    }

    /// Notes the urgent byte when it has arrived.
    #[inline]
    fn find_urgent_byte(&mut self, index: u32) {
        let pcb = &mut self.pcbs[index];
        if pcb.urgent_state != urgent_state::AHEAD || pcb.rcv_up.ge(pcb.rcv_nxt) {
            return;
        }
        let head = pcb.rcv_nxt - pcb.receive_queue.len() as u32;
        let mut byte = [0];
        if pcb.rcv_up.ge(head) {
            let offset = pcb.rcv_up.distance(head) as usize;
            pcb.receive_queue.peek(&self.payload, offset, &mut byte);
            pcb.urgent_byte = byte[0];
            pcb.urgent_state = urgent_state::HERE;
        } else {
            pcb.urgent_state = urgent_state::NONE;
        }
    }
}

/// Whether a connection's bytes may go straight into a program's buffer.
#[inline]
fn places(pcb: &Pcb, direct_receive: &DirectReceive<'_>, index: u32) -> bool {
    direct_receive.connection.index == index
        && direct_receive.connection.generation == pcb.generation
        && pcb.receive_queue.is_empty()
        && pcb.ranges == NONE
        && pcb.urgent_state == urgent_state::NONE
}
