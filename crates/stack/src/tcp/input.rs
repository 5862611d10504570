//! Handles arriving segments (RFC 9293 §3.10.7): finds their connection, and keeps the order of the
//! checks. Each step has a file of its own.

use toehold_shm::{NONE, prefetch_all};
use toehold_wire::tcp::Flags;

use super::pcb::{State, flag};
use super::report::Report;
use super::segment::{Refusal, Segment};
use super::time_wait::Flow;
use super::{Context, Tcp};
use crate::ip::{IcmpErrorKind, IcmpOrigin, TcpPacket};
use crate::socket::{Change, DirectReceive, SocketError, Tuning, family};
use crate::tuple::FourTuple;

impl Tcp {
    /// Prefetches the memory that segments with these ends will probably need.
    pub(crate) fn prefetch(&self, ends: &[FourTuple]) {
        self.demux
            .guess_burst(ends, |id| match Flow::new(id, &self.pcbs) {
                Flow::Connection(index) => {
                    if let Some(pcb) = self.pcbs.peek(index) {
                        prefetch_all(pcb);
                    }
                }
                Flow::TimeWait(number) => self.time_waits.prefetch(number),
            });
    }

    /// Handles a packet from the network. Returns `false` if it is for the kernel's stack; it is
    /// then unchanged.
    pub(crate) fn segment_arrives(
        &mut self,
        cx: &mut Context<'_>,
        packet: &TcpPacket<'_>,
        direct_receive: Option<&mut DirectReceive<'_>>,
    ) -> bool {
        // By reference: a segment is large, and parsed in place.
        match &Segment::parse(packet) {
            Ok(segment) => return self.segment_input(cx, segment, direct_receive),
            Err(Refusal::Malformed) => cx.counters.drop_malformed += 1,
            Err(Refusal::Checksum) => cx.counters.drop_checksum += 1,
        }
        true
    }

    #[inline]
    pub(super) fn segment_input(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<'_>,
        direct_receive: Option<&mut DirectReceive<'_>>,
    ) -> bool {
        let found = self.find_flow(&segment.tuple);
        if let Some(Flow::Connection(index)) = found {
            self.touch(index);
            if self.lacks_hops(index, segment) {
                cx.counters.tcp_too_few_hops += 1;
                return true;
            }
            self.count_in(cx.now, index, segment.payload.len());
            if self.predicts(index, segment) {
                self.predicted_input(cx, index, segment, direct_receive);
            } else {
                self.connection_input(cx, index, segment, direct_receive);
            }
        } else if let Some(Flow::TimeWait(number)) = found {
            return self.time_wait_input(cx, number, segment);
        } else if !self.steering.is_own(&segment.tuple.flow()) {
            // The segment's shard also receives it, or its sender uses the wrong shard. An answer
            // would end a connection of another shard.
            cx.counters.drop_other_shard += 1;
        } else if let Some(listener) = self.listeners.find(&segment.tuple, &self.keys) {
            if segment.hops < self.listeners[listener].least_hops(&segment.tuple) {
                cx.counters.tcp_too_few_hops += 1;
                return true;
            }
            return self.listen_input(cx, listener, segment);
        } else if self.is_beside_kernel(cx, segment) {
            return false;
        } else {
            self.no_connection_input(cx, segment);
        }
        true
    }

    /// Whether a segment has crossed more routers than the receiving program allows.
    //= RFC 5082 §3 (a packet that was sent with 255 hops and has as many comes from the same link)
    #[inline]
    fn lacks_hops(&self, index: u32, segment: &Segment<'_>) -> bool {
        let least = |tuning: &Tuning| tuning.least_hops[family(segment.tuple.local.is_ipv4())];
        self.tuning(index)
            .is_some_and(|tuning| segment.hops < least(tuning))
    }

    /// Whether a segment unknown to this stack may belong to the kernel. Segments of this stack to
    /// itself never do: the kernel would drop them as forged.
    pub(super) fn is_beside_kernel(&self, cx: &Context<'_>, segment: &Segment<'_>) -> bool {
        self.beside_kernel && !cx.ip.is_local(segment.tuple.remote)
    }

    fn connection_input(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        segment: &Segment<'_>,
        direct_receive: Option<&mut DirectReceive<'_>>,
    ) {
        if self.pcbs[index].state() == State::SynSent {
            self.syn_sent_input(cx, index, segment);
        } else if self.acceptable(cx, index, segment) {
            self.synchronized_input(cx, index, segment, direct_receive);
        }
        let pcb = &self.pcbs[index];
        if pcb.has(flag::ACK_NOW | flag::RESET | flag::SYN_PENDING) {
            self.mark_ready(index);
        }
        self.rearm(index);
        self.free_if_done(index);
    }

    /// Makes the checks from the fifth on: acknowledgement, urgent mark, data, FIN.
    fn synchronized_input(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        segment: &Segment<'_>,
        direct_receive: Option<&mut DirectReceive<'_>>,
    ) {
        //= RFC 9293 §3.10.7.4 (fifth, check the ACK field: off, drop)
        if !segment.has(Flags::ACK) {
            return;
        }
        let pcb = &mut self.pcbs[index];
        pcb.last_received = cx.now;
        pcb.keepalive_probes = 0;
        if pcb.state() == State::SynReceived && !self.handshake_completes(cx, index, segment) {
            return;
        }
        if self.pcbs[index].is_fast_open() && !self.fast_open_completes(cx, index, segment) {
            return;
        }
        if !self.ack_input(cx, index, segment) || self.pcbs[index].state() == State::Closed {
            return;
        }
        self.pcbs[index].remember_timestamp(cx.now, segment);
        self.ecn_input(cx, index, segment);
        if segment.has(Flags::URG) {
            self.urgent_input(index, segment);
        }
        if !segment.payload.is_empty() || segment.has(Flags::FIN) {
            self.data_input(cx, index, segment, direct_receive);
        }
    }

    /// Handles congestion marks of the network and their echo (RFC 3168 §6.1.3).
    fn ecn_input(&mut self, cx: &mut Context<'_>, index: u32, segment: &Segment<'_>) {
        let pcb = &mut self.pcbs[index];
        if !pcb.has(flag::ECN) {
            return;
        }
        if segment.has(Flags::CWR) {
            pcb.clear(flag::ECN_ECHO);
        }
        if segment.has(Flags::ECE) && !segment.has(Flags::SYN) && segment.ack.gt(pcb.ecn_recover) {
            //= RFC 3168 §6.1.2 (react to congestion at most once a window of data)
            cx.counters.tcp_ecn_reductions += 1;
            self.count(index, |tally| &mut tally.congestion_echoes);
            let pcb = &mut self.pcbs[index];
            let flight_size = pcb.flight_size();
            pcb.congestion.on_ecn(cx.now, pcb.mss.into(), flight_size);
            pcb.ecn_recover = pcb.snd_nxt;
            pcb.set(flag::ECN_CWR);
        }
        if segment.congestion_experienced {
            //= RFC 3168 §6.1.3 (the receiver sets ECE until it sees CWR)
            cx.counters.tcp_ce_received += 1;
            self.count(index, |tally| &mut tally.congestion_marks);
            let pcb = &mut self.pcbs[index];
            if !pcb.has(flag::ECN_ECHO) {
                pcb.set(flag::ECN_ECHO | flag::ACK_NOW);
            }
        }
    }

    /// Handles a segment for an address and port without a connection or listener.
    fn no_connection_input(&mut self, cx: &mut Context<'_>, segment: &Segment<'_>) {
        cx.counters.tcp_no_connection += 1;
        self.reply_reset(cx, segment);
    }

    /// Handles a segment for a connection in TIME-WAIT. Returns `false` if it opens another
    /// connection, with the kernel.
    fn time_wait_input(&mut self, cx: &mut Context<'_>, number: u32, segment: &Segment<'_>) -> bool {
        let record = self.time_waits.get(number);
        let timestamps = segment.options.timestamps.filter(|_| record.has_timestamps());
        let advance = timestamps.map(|ts| ts.value.wrapping_sub(record.ts_recent) as i32);
        let is_old = advance.is_some_and(|advance| advance < 0);
        if segment.has(Flags::RST) {
            //= RFC 9293 §3.10.7.4 (second, check the RST bit: TIME-WAIT, enter CLOSED)
            // RFC 1337 guards against old duplicates. No old duplicate has exactly this number,
            // except a reset. A peer that reuses this port and gets no answer sends such a reset.
            if segment.seq == record.rcv_nxt() {
                cx.counters.tcp_resets_received += 1;
                self.end_time_wait(number);
            }
            return true;
        }
        let newer = match advance {
            Some(advance) if advance != 0 => advance > 0,
            _ => segment.seq.gt(record.rcv_nxt()),
        };
        if segment.has(Flags::SYN) && !segment.has(Flags::ACK) && newer {
            //= RFC 6191 §2 (a new SYN may reuse the record if its timestamp or sequence number is beyond the old ones)
            let listener = self.listeners.find(&segment.tuple, &self.keys);
            if listener.is_some() || self.is_beside_kernel(cx, segment) {
                self.end_time_wait(number);
                cx.counters.tcp_time_wait_reused += 1;
                return listener.is_some_and(|listener| self.listen_input(cx, listener, segment));
            }
        }
        //= RFC 9293 §3.10.7.4 (TIME-WAIT: acknowledge, restart the 2 MSL timeout on a FIN)
        if segment.has(Flags::FIN) {
            self.time_waits.refresh(number, cx.now + self.config.time_wait);
        }
        //= RFC 9293 §3.10.7.4 (first: what is out of place is acknowledged)
        // Any segment is unexpected, except one with nothing to acknowledge. A peer that reuses
        // this port waits for the answer to its SYN, and sends a reset.
        let in_place = segment.seq == record.rcv_nxt() && segment.len() == 0 && !is_old;
        if !in_place && (segment.len() > 0 || self.time_waits.answers_bare(number)) {
            self.reply_time_wait(cx, &record);
        }
        true
    }

    /// Handles an ICMP error that quotes a segment of this stack (RFC 5461, RFC 9293 §3.9.2.2).
    /// Returns `false` if the segment is not of this stack; it may then be the kernel's.
    pub(crate) fn icmp_error(&mut self, cx: &mut Context<'_>, error: &crate::ip::IcmpError) -> bool {
        if let Some(Flow::Connection(index)) = self.find_flow(&error.tuple) {
            self.touch(index);
            self.connection_error(cx, index, error);
        } else if !self.steering.is_own(&error.tuple.flow()) {
            cx.counters.drop_other_shard += 1;
        } else if self.beside_kernel {
            return false;
        } else {
            cx.counters.drop_icmp += 1;
        }
        true
    }

    fn connection_error(&mut self, cx: &mut Context<'_>, index: u32, about: &crate::ip::IcmpError) {
        use IcmpErrorKind as Kind;
        let pcb = &self.pcbs[index];
        //= RFC 5927 §4.1 (the quoted sequence number must be one in flight)
        let in_flight = about.seq.ge(pcb.first_outstanding()) && about.seq.lt(pcb.snd_nxt);
        if !in_flight {
            cx.counters.drop_icmp += 1;
            return;
        }
        let kind = about.kind;
        let error = match kind {
            Kind::FragmentationNeeded { mtu } => {
                self.path_mtu_shrunk(cx, index, mtu);
                return;
            }
            Kind::PortUnreachable => SocketError::ConnectionRefused,
            Kind::ProtocolUnreachable => SocketError::ProtocolNotAvailable,
            Kind::HostUnreachable | Kind::HostRefused | Kind::TimeExceeded => SocketError::HostUnreachable,
            Kind::HostUnknown => SocketError::HostDown,
            Kind::HostIsolated => SocketError::NotOnNetwork,
            Kind::NetUnreachable | Kind::NetRefused => SocketError::NetworkUnreachable,
            Kind::SourceRouteFailed => SocketError::NotSupported,
            Kind::Prohibited => SocketError::Prohibited,
            Kind::Unknown | Kind::ParameterProblem => SocketError::Protocol,
        };
        //= RFC 5461 §4.1 (a hard error ends only an attempt; elsewhere it is soft)
        match self.pcbs[index].state() {
            State::SynSent => self.refused_by_network(index, error, &about.origin),
            State::SynReceived if self.pcbs[index].listener == NONE => {
                self.refused_by_network(index, error, &about.origin);
            }
            // The peer of a half-open connection cannot be reached, and no program waits for it.
            State::SynReceived
                if !self.pcbs[index].is_fast_open() && ends_half_open(about.tuple.remote.is_ipv4(), kind) =>
            {
                self.finish(index, None);
            }
            // The program has not accepted it, and its peer cannot be reached.
            _ if self.pcbs[index].is_fast_open() && self.pcbs[index].has(flag::IN_ACCEPT_QUEUE) => {
                self.finish(index, Some(error));
            }
            _ => {
                self.cold[index as usize].note_soft_error(cx.now, error);
                self.report_soft_error(index, error);
            }
        }
        self.free_if_done(index);
    }
}

impl Tcp {
    /// Ends an attempt to connect because of a network error.
    pub(super) fn refused_by_network(&mut self, index: u32, error: SocketError, origin: &IcmpOrigin) {
        let generation = self.pcbs[index].generation;
        self.reports[index as usize] = Report::new(generation, error, origin);
        self.finish(index, Some(error));
    }

    /// Makes a soft error pending, for a program that has asked for that (ip(7), IP_RECVERR).
    fn report_soft_error(&mut self, index: u32, error: SocketError) {
        let is_ipv4 = self.pcbs[index].tuple.local.is_ipv4();
        let reports = |tuning: &Tuning| tuning.reports_errors[family(is_ipv4)] != 0;
        if self.tuning(index).is_some_and(reports) {
            self.pcbs[index].error = error as u8;
            self.mark_event(index, Change::STATE);
        }
    }
}

/// Whether an error about a SYN-ACK means that its peer cannot be reached, as on Linux.
fn ends_half_open(is_ipv4: bool, kind: IcmpErrorKind) -> bool {
    use IcmpErrorKind as Kind;
    match kind {
        Kind::ParameterProblem => true,
        Kind::NetUnreachable | Kind::HostUnreachable | Kind::TimeExceeded => is_ipv4,
        Kind::Prohibited | Kind::PortUnreachable | Kind::Unknown => !is_ipv4,
        _ => false,
    }
}
