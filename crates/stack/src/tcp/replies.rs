//! Segments without a control block: resets for unexpected segments, SYN-ACKs with cookies, and
//! acknowledgements from TIME-WAIT. They wait in a bounded ring for the next transmission round. If
//! the ring is full the oldest is dropped, since its sender asks again. Replies to this stack
//! itself take the loopback path.

use toehold_link::{Checksum, Offload, Transmit, TransmitError, Transmitter};
use toehold_shm::{Gather, Steps};
use toehold_wire::protocol;
use toehold_wire::tcp::{Flags, Seq};

use super::output::MOST_REFUSED;
use super::queued::Queued;
use super::reply::{CAPACITY, Reply};
use super::segment::Segment;
use super::time_wait::TimeWait;
use super::{Context, Tcp};
use crate::ip::{HOP_LIMIT, Path, PathState};

impl Tcp {
    fn push_reply(&mut self, cx: &mut Context<'_>, reply: Reply) {
        let state = &mut self.state[0];
        if state.reply_tail.wrapping_sub(state.reply_head) >= CAPACITY {
            cx.counters.link_full += 1;
            state.reply_head = state.reply_head.wrapping_add(1);
        }
        self.queue_reply(reply);
    }

    fn queue_reply(&mut self, reply: Reply) {
        let state = &mut self.state[0];
        let slot = state.reply_tail % CAPACITY;
        state.reply_tail = state.reply_tail.wrapping_add(1);
        self.replies[slot as usize] = reply;
    }

    /// Resets the sender of a segment without a connection.
    //= RFC 9293 §3.10.7.1 (CLOSED: the form of the reset)
    pub(super) fn reply_reset(&mut self, cx: &mut Context<'_>, segment: &Segment<'_>) {
        if segment.has(Flags::RST) {
            return;
        }
        let reply = if segment.has(Flags::ACK) {
            Reply::new(segment.tuple, segment.ack, Seq(0), Flags::RST)
        } else {
            Reply::new(
                segment.tuple,
                Seq(0),
                segment.seq + segment.len(),
                Flags::RST | Flags::ACK,
            )
        };
        cx.counters.tcp_resets_sent += 1;
        self.push_reply(cx, reply);
    }

    /// Resets a connection that is about to be freed. By then the peer has received all data,
    /// including a FIN that it had not seen when it last sent.
    //= RFC 9293 §3.10.5 (ABORT: the form of the reset)
    pub(super) fn reply_abort(&mut self, cx: &mut Context<'_>, index: u32) {
        let pcb = &self.pcbs[index];
        let reply = Reply::new(pcb.tuple, pcb.snd_nxt, Seq(0), Flags::RST);
        cx.counters.tcp_resets_sent += 1;
        self.push_reply(cx, reply);
    }

    /// Sends an acknowledgement from a TIME-WAIT record.
    pub(super) fn reply_time_wait(&mut self, cx: &mut Context<'_>, record: &TimeWait) {
        let mut reply = Reply::new(record.tuple, record.snd_nxt(), record.rcv_nxt(), Flags::ACK);
        reply.window = record.window();
        if record.has_timestamps() {
            reply.has_timestamps = 1;
            reply.ts_value = (cx.now.millis() as u32).wrapping_add(record.ts_offset);
            reply.ts_echo = record.ts_recent;
        }
        self.push_reply(cx, reply);
    }

    /// Answers a SYN without storing state.
    pub(super) fn reply_cookie(&mut self, cx: &mut Context<'_>, listener: u32, segment: &Segment<'_>) {
        let settings = self.listeners[listener].settings;
        let mut pcb = super::Pcb::new(segment.tuple, 0, settings.common);
        self.negotiate(cx.now, &mut pcb, &segment.options);
        let cookie = self.keys.make_cookie(segment, cx.now);
        let mut reply = Reply::new(
            segment.tuple,
            cookie.seq,
            segment.seq + 1,
            Flags::SYN | Flags::ACK,
        );
        let ipv4 = segment.tuple.local.is_ipv4();
        let PathState::Ready(path) = cx.ip.path(cx.now, segment.tuple.remote) else {
            return;
        };
        reply.mss = path
            .mtu
            .saturating_sub(super::syn::fixed_headers(ipv4))
            .max(super::syn::MIN_MSS);
        reply.window = settings.receive_buffer.min(65535).min(settings.tuning.clamp()) as u16;
        if let Some(value) = cookie.timestamp {
            reply.has_timestamps = 1;
            reply.ts_value = value;
            reply.ts_echo = pcb.ts_recent;
            reply.sack = u8::from(pcb.has(super::flag::SACK));
            if pcb.has(super::flag::WINDOW_SCALING) {
                reply.scale = super::syn::window_scale(self.config.largest_receive_buffer(&settings)) + 1;
            }
        }
        self.state[0].cookie_sent_at = cx.now;
        cx.counters.tcp_syn_cookies_sent += 1;
        self.push_reply(cx, reply);
    }

    /// Sends the waiting replies, each at most once. A reply that the link refuses stays, behind
    /// the others.
    pub(super) fn transmit_replies(&mut self, cx: &mut Context<'_>, out: &mut dyn Transmitter) {
        let mut refused = 0;
        let end = self.state[0].reply_tail;
        let mut steps = Steps::along(CAPACITY);
        while self.state[0].reply_head != end && refused < MOST_REFUSED {
            steps.count();
            let reply = self.replies[(self.state[0].reply_head % CAPACITY) as usize];
            self.state[0].reply_head = self.state[0].reply_head.wrapping_add(1);
            match cx.ip.path(cx.now, reply.tuple.remote) {
                PathState::Ready(path) => match self.transmit_reply(cx, &reply, &path, out) {
                    Err(TransmitError::Full) => {
                        refused += 1;
                        self.queue_reply(reply);
                    }
                    Ok(()) => {
                        cx.counters.tcp_segments_sent += 1;
                        cx.counters.frames_sent += 1;
                    }
                    Err(_) => {}
                },
                PathState::Pending { .. } => {
                    let ends = (reply.tuple.local, reply.tuple.remote);
                    let mut buffer = [0u8; 64];
                    let len = reply.emit(&mut buffer);
                    cx.counters.tcp_segments_sent += 1;
                    cx.ip.send_segment(cx.now, ends, &buffer[..len], cx.counters);
                }
                PathState::Unreachable | PathState::Gone => cx.counters.drop_unresolved += 1,
            }
        }
    }

    fn transmit_reply(
        &mut self,
        cx: &mut Context<'_>,
        reply: &Reply,
        path: &Path,
        out: &mut dyn Transmitter,
    ) -> Result<(), TransmitError> {
        let mut buffer = [0u8; 128];
        let (local, remote) = (reply.tuple.local, reply.tuple.remote);
        let len = reply.header().len();
        let at = cx
            .ip
            .emit_headers(&mut buffer, path, local, remote, protocol::TCP, 0, len);
        let end = at + reply.emit(&mut buffer[at..]);
        let offload = Offload {
            checksum: Checksum::Complete,
            segment_size: 0,
        };
        if path.is_loopback() {
            if self
                .push_loopback(reply.tuple, &buffer[at..end], Queued::NONE, HOP_LIMIT)
                .is_err()
            {
                // Without room it is dropped: a reply that waits for memory could block the
                // segments that free memory.
                cx.counters.link_full += 1;
                return Err(TransmitError::Unreachable);
            }
            return Ok(());
        }
        out.transmit(&Transmit {
            headers: &buffer[..end],
            payload: &Gather::EMPTY,
            offload,
        })
    }
}
