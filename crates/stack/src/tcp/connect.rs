//! Active opens: ports, the SYN, and its answer.

use toehold_wire::tcp::Flags;

use super::cold::Cold;
use super::congestion::Congestion;
use super::pcb::{State, flag};
use super::segment::Segment;
use super::time_wait::Flow;
use super::{Context, Opening, Tcp};
use crate::ip::Ip;
use crate::socket::{Change, ConnectionId, Settings, SocketError, setting};
use crate::time::Instant;
use crate::tuple::{Address, FourTuple};

/// Timestamps tick every millisecond. After two ticks, the timestamps of a new connection surely
/// exceed those of the old one with the same tuple.
const REUSE_AFTER_NS: u64 = 2_000_000;

impl Tcp {
    /// Begins a connection attempt. `local` may leave address and port unspecified.
    pub(crate) fn connect(
        &mut self,
        cx: &mut Context<'_>,
        local: (Address, u16),
        remote: (Address, u16),
        settings: Settings,
        opening: Opening,
    ) -> Result<ConnectionId, SocketError> {
        if remote.0.is_unspecified() {
            return Err(SocketError::InvalidInput);
        }
        let address = if local.0.is_unspecified() {
            cx.ip
                .source_for(remote.0)
                .ok_or(SocketError::NetworkUnreachable)?
        } else if cx.ip.is_local(local.0) {
            local.0
        } else {
            return Err(SocketError::AddressNotAvailable);
        };
        let mut tuple = FourTuple {
            local: address,
            remote: remote.0,
            local_port: local.1,
            remote_port: remote.1,
        };
        if local.1 == 0 {
            tuple.local_port = self.choose_port(cx, tuple)?;
        } else if !self.steering.is_own(&tuple.flow()) {
            return Err(SocketError::AddressNotAvailable);
        } else if !self.tuple_free(cx, &tuple) {
            return Err(SocketError::AddressInUse);
        }
        self.open(cx, tuple, settings, opening)
    }

    /// The shard of a connection between these ends. `None` if the port is unspecified, or if no
    /// such connection is possible.
    pub(crate) fn shard_of(&self, ip: &Ip, local: (Address, u16), remote: (Address, u16)) -> Option<u8> {
        let address = if local.0.is_unspecified() {
            ip.source_for(remote.0)?
        } else {
            local.0
        };
        let tuple = FourTuple {
            local: address,
            remote: remote.0,
            local_port: local.1,
            remote_port: remote.1,
        };
        (local.1 != 0).then(|| self.steering.shard_of(&tuple.flow()))
    }

    fn open(
        &mut self,
        cx: &mut Context<'_>,
        tuple: FourTuple,
        settings: Settings,
        opening: Opening,
    ) -> Result<ConnectionId, SocketError> {
        let mut pcb = self.new_pcb(cx.now, tuple, &settings);
        pcb.set_state(State::SynSent);
        let Some(index) = self.pcbs.insert(pcb) else {
            cx.counters.context_memory_out += 1;
            return Err(SocketError::OutOfMemory);
        };
        self.touch(index);
        self.cold[index as usize] = Cold::default();
        self.tune(index, &settings);
        if self.enter_flow(index).is_err() {
            self.remove_pcb(index);
            cx.counters.context_memory_out += 1;
            return Err(SocketError::OutOfMemory);
        }
        cx.counters.tcp_active_opens += 1;
        if self.open_with(cx.now, index, &settings, opening) {
            let pcb = &mut self.pcbs[index];
            pcb.set(flag::SYN_PENDING);
            pcb.waiting_since = cx.now;
            self.mark_ready(index);
        }
        Ok(self.connection_id(index))
    }

    /// Whether a tuple is unused. A TIME-WAIT record that is old enough is replaced.
    fn tuple_free(&mut self, cx: &mut Context<'_>, tuple: &FourTuple) -> bool {
        let number = match self.find_flow(tuple) {
            None => return true,
            Some(Flow::Connection(_)) => return false,
            Some(Flow::TimeWait(number)) => number,
        };
        let record = self.time_waits.get(number);
        //= RFC 6191 §2 (a timestamp that surely is newer makes the reuse safe)
        let entered = record
            .deadline
            .0
            .saturating_sub(self.config.time_wait.as_nanos() as u64);
        let reusable = record.has_timestamps() && cx.now.nanos_since(Instant(entered)) >= REUSE_AFTER_NS;
        if reusable {
            self.end_time_wait(number);
            cx.counters.tcp_time_wait_reused += 1;
        }
        reusable
    }

    /// Chooses a port that assigns the connection to this shard.
    //= RFC 6056 §3.3.3 (algorithm 3, simple hash-based port selection)
    fn choose_port(&mut self, cx: &mut Context<'_>, mut tuple: FourTuple) -> Result<u16, SocketError> {
        let last = self.config.ephemeral_last;
        let first = self.config.ephemeral_first.min(last);
        let count = u32::from(last - first) + 1;
        tuple.local_port = 0;
        let offset = self.keys.port_offset(&tuple);
        for _ in 0..count {
            let step = self.state[0].next_port;
            self.state[0].next_port = step.wrapping_add(1);
            tuple.local_port = first + (offset.wrapping_add(step) % count) as u16;
            if self.steering.is_own(&tuple.flow())
                && self.listeners.find(&tuple, &self.keys).is_none()
                && self.tuple_free(cx, &tuple)
            {
                return Ok(tuple.local_port);
            }
        }
        Err(SocketError::AddressNotAvailable)
    }

    //= RFC 9293 §3.10.7.3 (SYN-SENT)
    pub(super) fn syn_sent_input(&mut self, cx: &mut Context<'_>, index: u32, segment: &Segment<'_>) {
        let pcb = &mut self.pcbs[index];
        let acknowledged = segment.has(Flags::ACK);
        if acknowledged && (segment.ack.le(pcb.iss) || segment.ack.gt(pcb.snd_nxt)) {
            //= RFC 9293 §3.10.7.3 (first, an unacceptable ACK is answered with a reset)
            cx.counters.tcp_bad_acks += 1;
            if !segment.has(Flags::RST) {
                self.reply_reset(cx, segment);
                self.retry_after_reset(index);
            }
            return;
        }
        if segment.has(Flags::RST) {
            //= RFC 5961 §3.2 (in SYN-SENT the ACK field must acknowledge the SYN)
            if acknowledged {
                cx.counters.tcp_resets_received += 1;
                self.finish(index, Some(SocketError::ConnectionRefused));
            }
            return;
        }
        if !segment.has(Flags::SYN) {
            return;
        }
        self.take_syn(cx, index, segment);
        let pcb = &mut self.pcbs[index];
        pcb.last_received = cx.now;
        if acknowledged {
            let repeated = pcb.syn_count > 1;
            pcb.measure_handshake(cx.now, segment);
            if !pcb.has_syn_apart() {
                pcb.snd_una = segment.ack;
            }
            let awaits = self.awaits_first_bytes(index);
            if awaits {
                self.pcbs[index].set(flag::INTERACTIVE);
            }
            match self.pcbs[index].settings.has(setting::LATE_ACK) || awaits {
                // The first data carry the acknowledgement.
                true => self.pcbs[index].ack_at = cx.now + self.config.delayed_ack,
                false => self.pcbs[index].set(flag::ACK_NOW),
            }
            self.syn_answered(cx, index, segment, repeated);
            self.establish(cx, index, segment);
            if !segment.payload.is_empty() || segment.has(Flags::FIN) {
                self.data_input(cx, index, segment, None);
            }
        } else {
            //= RFC 9293 §3.10.7.3 (fourth, simultaneous open: SYN-RECEIVED, send SYN-ACK)
            pcb.set_state(State::SynReceived);
            pcb.syn_count = 0;
            pcb.backoff = 0;
            pcb.set(flag::SYN_PENDING);
        }
    }

    /// Handles a reset from a peer that still had an old connection with these ends. The reset
    /// ended it, so the SYN is sent again now, before its timer expires.
    //= RFC 9293 §3.5.1 (half-open connections: the reset, and then the SYN again)
    fn retry_after_reset(&mut self, index: u32) {
        let pcb = &mut self.pcbs[index];
        if pcb.syn_count == 1 {
            pcb.set(flag::SYN_PENDING);
            self.mark_ready(index);
        }
    }

    /// Notes the contents of the peer's SYN.
    fn take_syn(&mut self, cx: &mut Context<'_>, index: u32, segment: &Segment<'_>) {
        let mut pcb = self.pcbs[index];
        pcb.rcv_nxt = segment.seq + 1;
        pcb.rcv_adv = pcb.rcv_nxt + pcb.settings.receive_buffer.min(65535).min(self.clamp(index));
        pcb.last_ack_sent = pcb.rcv_nxt;
        pcb.snd_wnd = u32::from(segment.window);
        pcb.max_snd_wnd = pcb.snd_wnd;
        pcb.snd_wl1 = segment.seq;
        pcb.snd_wl2 = segment.ack;
        self.negotiate(cx.now, &mut pcb, &segment.options);
        //= RFC 3168 §6.1.1 (ECN: the answer to an offer is ECE without CWR)
        let ecn_answer = segment.has(Flags::ECE) && !segment.has(Flags::CWR);
        if self.config.ecn && segment.has(Flags::ACK) && ecn_answer {
            pcb.set(flag::ECN);
        }
        self.settle_segment_size(&mut pcb);
        self.pcbs[index] = pcb;
    }

    /// Handles the end of the handshake on this side.
    pub(super) fn establish(&mut self, cx: &mut Context<'_>, index: u32, segment: &Segment<'_>) {
        let pcb = &mut self.pcbs[index];
        pcb.set_state(if pcb.has(flag::FIN_QUEUED) {
            // The program has closed in the meantime.
            State::FinWait1
        } else {
            State::Established
        });
        pcb.clear(flag::SYN_PENDING);
        pcb.backoff = 0;
        // Data of the SYN that the peer did not take wait for an answer.
        pcb.waiting_since = match pcb.outstanding() {
            0 => Instant::NEVER,
            _ => cx.now,
        };
        let scale = if segment.has(Flags::SYN) {
            0
        } else {
            pcb.snd_wscale
        };
        pcb.snd_wnd = u32::from(segment.window).wrapping_shl(scale.into());
        pcb.max_snd_wnd = pcb.max_snd_wnd.max(pcb.snd_wnd);
        pcb.snd_wl1 = segment.seq;
        pcb.snd_wl2 = segment.ack;
        if pcb.syn_count > 1 {
            //= RFC 5681 §3.1 (after a lost SYN or SYN-ACK the initial window is one segment)
            let mss = u32::from(pcb.mss);
            pcb.congestion = Congestion::new(pcb.settings.algorithm(), mss, mss);
        }
        self.pcbs[index].start_keepalive(cx.now);
        self.mark_event(index, Change::STATE);
        self.mark_ready(index);
    }
}
