//! The end of a connection: shutdown, close, linger, abort, TIME-WAIT.

use super::pcb::{Pcb, State, flag};
use super::time_wait::TimeWait;
use super::{Context, Tcp};
use crate::socket::{Change, Shutdown, SocketError, setting};
use crate::time::Instant;
use toehold_shm::NONE;

impl Tcp {
    /// Handles the program's shutdown of one or both directions.
    pub(crate) fn shutdown(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        how: Shutdown,
    ) -> Result<(), SocketError> {
        // Waiting threads are woken in any case, as on Linux, even if nothing changes.
        self.mark_event(index, Change::STATE);
        let pcb = &mut self.pcbs[index];
        if pcb.state() == State::Closed || pcb.state() == State::SynSent {
            return Err(SocketError::NotConnected);
        }
        if how != Shutdown::Write {
            pcb.set(flag::READ_SHUT);
        }
        if how != Shutdown::Read {
            self.close_sending(cx, index);
        }
        Ok(())
    }

    /// Queues a FIN behind the data.
    //= RFC 9293 §3.10.4 (CLOSE: segmentize what is queued, then FIN)
    fn close_sending(&mut self, cx: &mut Context<'_>, index: u32) {
        let pcb = &mut self.pcbs[index];
        if pcb.has(flag::FIN_QUEUED) {
            return;
        }
        match pcb.state() {
            //= RFC 9293 §3.10.4 (SYN-RECEIVED: queued for processing after entering ESTABLISHED)
            // Even with no data queued before it: a peer that has not seen the SYN-ACK cannot
            // handle a FIN.
            State::SynReceived => {}
            State::Established => pcb.set_state(State::FinWait1),
            State::CloseWait => pcb.set_state(State::LastAck),
            _ => return,
        }
        pcb.set(flag::FIN_QUEUED);
        if !pcb.waiting_since.is_set() {
            pcb.waiting_since = cx.now;
        }
        self.mark_ready(index);
    }

    /// Handles the program's close of the connection.
    pub(crate) fn close(&mut self, cx: &mut Context<'_>, index: u32) {
        self.close_channel(index);
        let pcb = &mut self.pcbs[index];
        pcb.set(flag::RELEASED);
        let unread = !pcb.receive_queue.is_empty();
        let hard = pcb.settings.has(setting::LINGER) && pcb.settings.linger_s == 0;
        match pcb.state() {
            State::Closed => self.free_if_done(index),
            State::SynSent => self.finish(index, None),
            //= RFC 9293 §3.10.4
            //= RFC 1122 §4.2.2.13 (unread data: reset, so that the peer learns of the loss)
            _ if unread || hard => self.abort(index),
            State::FinWait2 => self.start_fin_wait_2(index, cx.now),
            _ => self.close_sending(cx, index),
        }
        if self.pcbs.is_live(index) {
            self.leave_neighbor(cx.ip, index);
            self.rearm(index);
            self.free_if_done(index);
        }
    }

    /// Ends the connection at once, with a reset if the peer knows it.
    //= RFC 9293 §3.10.5 (ABORT)
    pub(crate) fn abort(&mut self, index: u32) {
        self.reset(index, None);
    }

    /// Ends a connection at once with a reset, while the program keeps it: the program's calls
    /// report the end.
    pub(crate) fn disconnect(&mut self, index: u32) {
        self.reset(index, Some(SocketError::ConnectionReset));
    }

    fn reset(&mut self, index: u32, error: Option<SocketError>) {
        self.touch(index);
        let pcb = &mut self.pcbs[index];
        if pcb.state() == State::Closed {
            return;
        }
        if pcb.state() != State::SynSent {
            pcb.set(flag::RESET);
        }
        self.finish(index, error);
        self.mark_ready(index);
    }

    /// Ends the connection: no segment is received any more, and none sent but a due reset.
    /// Received data stay readable.
    pub(super) fn finish(&mut self, index: u32, error: Option<SocketError>) {
        self.touch(index);
        let pcb = &mut self.pcbs[index];
        if pcb.state() == State::Closed {
            return;
        }
        let half_open = pcb.state() == State::SynReceived && pcb.listener != NONE;
        pcb.set_state(State::Closed);
        pcb.clear(flag::ACK_NOW | flag::SYN_PENDING | flag::PROBE | flag::TAIL_PROBE);
        pcb.set(flag::FIN_QUEUED);
        if let Some(error) = error {
            pcb.error = error as u8;
        }
        pcb.retransmit_at = Instant::NEVER;
        pcb.ack_at = Instant::NEVER;
        pcb.life_at = Instant::NEVER;
        let listener = pcb.listener;
        // The peer may still be about to read these bytes in place.
        let fence = pcb.sent_head != NONE;
        if fence {
            pcb.set(flag::FENCE_WANTED);
        } else {
            self.drop_queued(index);
        }
        self.leave_flow(index);
        if half_open {
            self.listeners[listener].abandon_handshake();
        }
        if self.pcbs[index].is_fast_open() {
            self.end_fast_open(index);
        }
        if fence {
            self.mark_ready(index);
        }
        self.scoreboard.drop_all(&mut self.pcbs[index]);
        self.drop_ranges(index);
        self.record_ends.drop_all(&mut self.pcbs[index]);
        self.mark_event(index, Change::STATE);
    }

    /// Handles the end of both directions after this side closed first: a record replaces the
    /// connection.
    //= RFC 9293 §3.6.1 (half-closed connections), §3.10.7.4 (TIME-WAIT)
    pub(super) fn enter_time_wait(&mut self, cx: &mut Context<'_>, index: u32) {
        let pcb = &self.pcbs[index];
        let window = self
            .window_to_advertise(index)
            .wrapping_shr(pcb.rcv_wscale.into())
            .min(0xffff) as u16;
        let record = TimeWait::of(pcb, window, cx.now + self.config.time_wait);
        cx.counters.tcp_time_wait += 1;
        let acknowledge = pcb.has(flag::ACK_NOW);
        self.finish(index, None);
        if self.keep_time_wait(record) {
            cx.counters.tcp_time_wait_overflows += 1;
        }
        if acknowledge {
            // The record sends the last acknowledgement.
            self.reply_time_wait(cx, &record);
        }
    }
}

impl TimeWait {
    /// The TIME-WAIT record of a connection.
    fn of(pcb: &Pcb, window: u16, deadline: Instant) -> Self {
        Self::new(
            pcb.tuple,
            (pcb.snd_nxt, pcb.rcv_nxt),
            window,
            pcb.has(flag::TIMESTAMPS)
                .then_some((pcb.ts_recent, pcb.ts_offset)),
            deadline,
        )
    }
}
