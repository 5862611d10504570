//! Packets from the link.

use super::{EndpointState, MOST_RESETS, PacketOrigin, ProgramMemory};
use crate::endpoint::CompletionError;
use crate::moment::Moment;
use crate::names::FlowId;
use crate::rmpp::early::{ArrivalOrder, MOST_EARLY};
use crate::rmpp::flow::{ClosePhase, FlowPath};
use crate::rmpp::sent::SentBody;
use toehold_wire::Mac;
use toehold_wire::rmpp::{MissingRange, Packet, PacketBody, PacketFlags, PacketKind};

/// A peer broke the protocol. Its flow ends with a RESET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProtocolBreach;

impl EndpointState {
    /// Takes a packet that begins behind the Ethernet header. Whatever it says, it causes at
    /// most a counted drop, an answer, or the end of its own flow.
    pub fn handle_frame(
        &mut self,
        now: Moment,
        origin: PacketOrigin,
        bytes: &[u8],
        memory: &mut dyn ProgramMemory,
    ) {
        self.counters.packets_received += 1;
        let needs_checksum = self.config.has_checksum && origin.path == FlowPath::Lossy;
        let packet = Packet::parse(bytes);
        let Some(packet) = packet
            .ok()
            .filter(|packet| packet.has_checksum || !needs_checksum)
        else {
            self.counters.drop_malformed += 1;
            return;
        };
        let Some(flow) = self.flow_of(now, origin, &packet) else {
            return;
        };
        if packet.kind() == PacketKind::Reset {
            self.counters.resets_received += 1;
            self.end_by_reset(now, flow);
            return;
        }
        if self.handle_header(now, flow, &packet)
            && self.handle_body(now, flow, &packet, bytes, memory).is_err()
        {
            self.punish(now, flow);
        }
        self.touch(now, flow);
    }

    /// Finds the flow of a packet, or begins it.
    fn flow_of(&mut self, now: Moment, origin: PacketOrigin, packet: &Packet<'_>) -> Option<FlowId> {
        let known = self.by_check.get(&(origin.mac, packet.check)).copied();
        let is_reset = packet.kind() == PacketKind::Reset;
        match (known, packet.lives) {
            (Some(id), Some(lives)) if self.flows.get(id)?.lives != lives.reversed() => {
                self.counters.drop_unknown_life += 1;
                None
            }
            (Some(id), _) => Some(id),
            (None, Some(_)) if !is_reset => self.accept(now, origin, packet),
            (None, _) => {
                self.counters.drop_unknown_life += 1;
                if !is_reset {
                    self.queue_reset(origin.mac, packet.check);
                }
                None
            }
        }
    }

    /// Begins a flow for one of the first packets of a peer's life.
    fn accept(&mut self, now: Moment, origin: PacketOrigin, packet: &Packet<'_>) -> Option<FlowId> {
        let lives = packet.lives?.reversed();
        let is_true =
            lives.check() == packet.check && origin.mac != self.config.mac && origin.path != FlowPath::Own;
        if !is_true {
            self.counters.drop_malformed += 1;
            return None;
        }
        let is_late = packet.seq.0 > MOST_EARLY;
        let is_ours = lives.sender == self.config.incarnation;
        if !is_ours || is_late || self.tombstones.contains(lives.receiver, now) {
            self.counters.drop_unknown_life += 1;
            self.queue_reset(origin.mac, packet.check);
            return None;
        }
        // Half of the table is for peers that the program has named.
        if self.accepted >= self.config.flows / 2 {
            self.counters.refused_flows += 1;
            return None;
        }
        let id = self.open_flow(origin.mac, origin.path, lives)?;
        self.accepted += 1;
        self.flows.get_mut(id)?.is_accepted = true;
        Some(id)
    }

    /// Keeps a RESET for the link. Without room it is left out: the peer will ask again.
    pub(super) fn queue_reset(&mut self, to: Mac, check: u32) {
        if self.resets.len() < MOST_RESETS && !self.resets.contains(&(to, check)) {
            self.resets.push_back((to, check));
        }
    }

    /// Ends the flow of a peer that broke the protocol.
    fn punish(&mut self, now: Moment, id: FlowId) {
        self.counters.offences += 1;
        self.reset_flow(now, id, CompletionError::PeerGone);
    }

    /// Takes what each packet says: that the peer lives, an acknowledgement, and a grant.
    /// Returns `false` if the packet is to be dropped.
    fn handle_header(&mut self, now: Moment, id: FlowId, packet: &Packet<'_>) -> bool {
        let Some(flow) = self.flows.get_mut(id) else {
            return false;
        };
        if packet.ack.gt(flow.sent.next()) {
            self.counters.drop_bad_ack += 1;
            return false;
        }
        if flow.hear(now) && flow.is_lossy() {
            flow.due.hello = self.config.hello_len > flow.packet_len;
        }
        self.handle_ack(now, id, packet);
        let Some(flow) = self.flows.get_mut(id) else {
            return false;
        };
        if flow.send_credit.hear(packet.credit, packet.ack) {
            flow.has_asked = false;
        }
        if packet.flags.contains(PacketFlags::ACK_NOW) {
            flow.ack.hurry();
            if packet.kind() == PacketKind::Ack {
                flow.grants.ask(&mut self.budget);
            }
        }
        !flow.is_gone()
    }

    fn handle_ack(&mut self, now: Moment, id: FlowId, packet: &Packet<'_>) {
        let Some(flow) = self.flows.get_mut(id) else {
            return;
        };
        let mut freed = core::mem::take(&mut self.acknowledged);
        let report = flow.sent.acknowledge(packet.ack, |_, body| freed.push(body));
        let report = report.unwrap_or_default();
        if report.bytes > 0 {
            flow.rto_at = Moment::NEVER;
            flow.window.acknowledge(report.bytes, flow.packet_len as u64);
            if let Some(sent_at) = report.sent_at {
                flow.round_trip.measure(now.ns_since(sent_at));
            }
        }
        // After a timeout the peer answers again: what was sent before is taken for lost.
        if let Some(end) = flow.silent_until.take() {
            let start = flow.sent.first();
            flow.sent.lose(MissingRange { start, end });
        }
        let is_over = flow.closing == ClosePhase::Sent && flow.sent.is_empty();
        for body in freed.drain(..) {
            self.packet_acknowledged(body);
        }
        self.acknowledged = freed;
        if is_over {
            self.end_flow(now, id, CompletionError::Closed);
        }
    }

    /// Notes that a numbered packet needs no repetition any more.
    pub(super) fn packet_acknowledged(&mut self, body: SentBody) {
        if let Some(id) = body.send()
            && let Some(send) = self.sends.get_mut(id)
        {
            send.unacknowledged -= 1;
            self.settle_send(id);
        }
    }

    fn handle_body(
        &mut self,
        now: Moment,
        id: FlowId,
        packet: &Packet<'_>,
        bytes: &[u8],
        memory: &mut dyn ProgramMemory,
    ) -> Result<(), ProtocolBreach> {
        if packet.kind().is_sequenced() {
            return self.handle_numbered(now, id, packet, bytes, memory);
        }
        let flow = self.flows.get_mut(id).ok_or(ProtocolBreach)?;
        match packet.body {
            PacketBody::Nack(missing) => {
                let (next, packet_len) = (flow.sent.next(), flow.packet_len as u64);
                for range in missing.iter() {
                    if let Some(lost) = flow.sent.lose(range) {
                        flow.window.lose(lost, next, packet_len);
                    }
                }
            }
            PacketBody::Hello {
                len,
                is_answer: false,
            } => flow.due.hello_answer = Some(len),
            // Only a length that this endpoint has tried is believed.
            PacketBody::Hello { len, is_answer: true }
                if flow.is_lossy() && len as usize == self.config.hello_len =>
            {
                flow.packet_len = flow.packet_len.max(self.config.hello_len);
            }
            _ => {}
        }
        Ok(())
    }

    fn handle_numbered(
        &mut self,
        now: Moment,
        id: FlowId,
        packet: &Packet<'_>,
        bytes: &[u8],
        memory: &mut dyn ProgramMemory,
    ) -> Result<(), ProtocolBreach> {
        let flow = self.flows.get_mut(id).ok_or(ProtocolBreach)?;
        let arrival = flow.early.judge(packet.seq);
        if !flow.is_lossy() && arrival != ArrivalOrder::Next {
            return Err(ProtocolBreach);
        }
        match arrival {
            ArrivalOrder::Next => {
                self.process(now, id, packet, memory)?;
                self.process_kept(now, id, memory)
            }
            ArrivalOrder::Repeated => {
                self.counters.drop_repeated += 1;
                flow.ack.hurry();
                Ok(())
            }
            ArrivalOrder::Early => {
                self.keep_early(now, id, packet, bytes);
                Ok(())
            }
            ArrivalOrder::TooEarly => {
                self.counters.drop_early += 1;
                Ok(())
            }
        }
    }

    fn keep_early(&mut self, now: Moment, id: FlowId, packet: &Packet<'_>, bytes: &[u8]) {
        let bytes = &bytes[..packet.len().min(bytes.len())];
        let stored = self.payload.reserve_spare(bytes.len());
        let (Some(flow), Some(stored)) = (self.flows.get_mut(id), stored) else {
            self.counters.drop_early += 1;
            return;
        };
        self.payload.write(stored, 0, bytes);
        flow.early.keep(packet.seq, stored);
        let is_named = flow.nacked == Some(flow.early.next());
        if flow.nack_at == Moment::NEVER && !is_named {
            flow.nack_at = now.plus_ns(flow.round_trip.reorder_ns());
        }
    }

    /// Processes packets that had come before the one just processed.
    fn process_kept(
        &mut self,
        now: Moment,
        id: FlowId,
        memory: &mut dyn ProgramMemory,
    ) -> Result<(), ProtocolBreach> {
        let mut bytes = Vec::new();
        for _ in 0..=MOST_EARLY {
            let Some(flow) = self.flows.get_mut(id).filter(|flow| !flow.is_gone()) else {
                return Ok(());
            };
            flow.nack_at = Moment::NEVER;
            let Some(stored) = flow.early.advance() else {
                break;
            };
            bytes.clear();
            for piece in self.payload.pieces(stored, 0, stored.len()) {
                bytes.extend_from_slice(piece);
            }
            self.release_spare(stored);
            let packet = Packet::parse(&bytes).map_err(|_| ProtocolBreach)?;
            self.process(now, id, &packet, memory)?;
        }
        if let Some(flow) = self.flows.get_mut(id)
            && flow.early.has_gap()
        {
            flow.nack_at = now.plus_ns(flow.round_trip.reorder_ns());
        }
        Ok(())
    }

    /// Processes the next packet of a flow.
    fn process(
        &mut self,
        now: Moment,
        id: FlowId,
        packet: &Packet<'_>,
        memory: &mut dyn ProgramMemory,
    ) -> Result<(), ProtocolBreach> {
        let flow = self.flows.get_mut(id).ok_or(ProtocolBreach)?;
        if flow.is_lossy() {
            flow.ack.packet(now);
        }
        match packet.body {
            PacketBody::Eager { tag, .. } => self.handle_eager(now, id, packet, tag, memory),
            PacketBody::Part {
                tag, offset, total, ..
            } => self.handle_part(now, id, packet, tag, (offset, total), memory),
            PacketBody::Offer { tag, token, len, .. } => {
                self.handle_offer(now, id, packet, (tag, token, len), memory)
            }
            PacketBody::Pull {
                token,
                sink,
                offset,
                len,
            } => self.handle_pull(now, id, (token, sink, offset, len)),
            PacketBody::Piece { sink, offset, bytes } => {
                self.handle_piece(now, id, (sink, offset, bytes), memory)
            }
            PacketBody::Done { token } => {
                let is_delivery = packet.flags.contains(PacketFlags::DELIVERED);
                self.handle_done(now, id, token, is_delivery)
            }
            PacketBody::Bye => {
                flow.closing = ClosePhase::Heard;
                flow.ack.hurry();
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
