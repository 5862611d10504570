//! What is sent next.

use super::entry::{MessageStage, SendStage};
use super::packets::BuildError;
use super::{CompletionError, EndpointState, PacketSink, ProgramMemory};
use crate::moment::Moment;
use crate::names::{FlowId, MessageId, SendId};
use crate::rmpp::credit::units;
use crate::rmpp::flow::{ClosePhase, MessageFlow};
use crate::rmpp::sent::SentBody;
use toehold_wire::rmpp::Seq;

/// Packets of one flow that go before another flow has its turn.
const BURST: usize = 16;

/// Bytes below which an Ethernet pads a packet. Shorter messages go as a PART, which has a
/// length.
const SHORT_MESSAGE_LEN: u64 = 24;

/// Bytes of a lossy path's packet that are not message bytes, at most.
const OVERHEAD_LEN: usize = 24 + 16 + 8 + 16 + 4;

/// Bytes of a PIECE on a path without a limit of its own.
const MOST_PIECE_LEN: usize = 64 << 10;

/// The next packet of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextPacket {
    /// A lost packet again.
    Repeated(Seq, SentBody),
    /// The next numbered packet.
    Numbered(SentBody),
    /// Names missing packets.
    Nack,
    /// Tries a long packet.
    Hello,
    /// Answers a long packet of this length.
    HelloAnswer(u32),
    /// Acknowledges and grants, and asks for an answer if the flag is set.
    Ack { is_probe: bool },
}

/// Whether a flow has had its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlowTurn {
    /// Nothing is left to send.
    Idle,
    /// The burst is over.
    Over,
    /// The link is full.
    LinkFull,
}

impl EndpointState {
    /// Gives everything that can be sent now to the link, flow by flow, until the link is
    /// full.
    pub fn poll_transmit(&mut self, now: Moment, memory: &mut dyn ProgramMemory, sink: &mut dyn PacketSink) {
        while let Some((to, check)) = self.resets.front().copied() {
            if self.emit_reset(to, check, sink).is_err() {
                return;
            }
            self.resets.pop_front();
        }
        while let Some(id) = self.busy.pop_front() {
            match self.transmit_flow(now, id, memory, sink) {
                FlowTurn::Over => self.busy.push_back(id),
                FlowTurn::LinkFull => {
                    self.busy.push_front(id);
                    return;
                }
                FlowTurn::Idle => {
                    if let Some(flow) = self.flows.get_mut(id) {
                        flow.is_busy = false;
                        self.set_deadline(now, id);
                    }
                }
            }
        }
    }

    fn transmit_flow(
        &mut self,
        now: Moment,
        id: FlowId,
        memory: &mut dyn ProgramMemory,
        sink: &mut dyn PacketSink,
    ) -> FlowTurn {
        for _ in 0..BURST {
            let Some(next) = self.next_packet(id) else {
                return FlowTurn::Idle;
            };
            match self.emit(id, next, memory, sink) {
                Ok(len) => self.packet_sent(now, id, next, len),
                Err(BuildError::LinkFull) => return FlowTurn::LinkFull,
                Err(BuildError::MemoryFault) => self.unreadable(now, id, next),
            }
        }
        FlowTurn::Over
    }

    fn next_packet(&mut self, id: FlowId) -> Option<NextPacket> {
        let flow = self.flows.get_mut(id).filter(|flow| !flow.is_gone())?;
        // The oldest packet holds up all others, so it goes whatever the window has.
        if let Some((seq, body)) = flow.sent.next_lost()
            && (seq == flow.sent.first() || flow.window.has_room(flow.sent.under_way()))
        {
            return Some(NextPacket::Repeated(seq, body));
        }
        if flow.has_send_room()
            && let Some(body) = self.next_numbered(id)
        {
            return Some(NextPacket::Numbered(body));
        }
        let flow = self.flows.get_mut(id)?;
        if flow.due.nack {
            return Some(NextPacket::Nack);
        }
        if let Some(len) = flow.due.hello_answer {
            return Some(NextPacket::HelloAnswer(len));
        }
        if flow.due.hello {
            return Some(NextPacket::Hello);
        }
        let is_probe = flow.due.probe;
        (is_probe || flow.ack.is_due()).then_some(NextPacket::Ack { is_probe })
    }

    /// The next numbered packet: answers before requests, requests before bytes, bytes
    /// before messages. Later messages never hold up earlier ones' bytes.
    fn next_numbered(&mut self, id: FlowId) -> Option<SentBody> {
        let flow = self.flows.get(id)?;
        if let Some(message) = self.messages.at(flow.finishing.head())
            && let MessageStage::Finishing { token, is_delivery } = self.messages.get(message)?.stage
        {
            return Some(SentBody::Done { token, is_delivery });
        }
        if let Some(message) = self.messages.at(flow.pulling.head())
            && let Some((token, offset, len)) = self.next_pull(message)
        {
            let sink = message.to_bits();
            return Some(SentBody::Pull {
                token,
                sink,
                offset,
                len,
            });
        }
        if let Some(send) = self.sends.at(flow.serving.head())
            && let SendStage::Offered { served, asked, .. } = self.sends.get(send)?.stage
        {
            let len = (asked - served).min(Self::most_bytes(flow).min(MOST_PIECE_LEN) as u64) as u32;
            let offset = served;
            return Some(SentBody::Piece { send, offset, len });
        }
        if let Some(send) = self.sends.at(flow.waiting.head()) {
            return self.next_of_message(id, send);
        }
        let is_bye = flow.closing == ClosePhase::Wanted && flow.pending_sends == 0;
        is_bye.then_some(SentBody::Bye)
    }

    /// Message bytes of one packet, at most.
    fn most_bytes(flow: &MessageFlow) -> usize {
        flow.packet_len.saturating_sub(OVERHEAD_LEN).max(1)
    }

    /// The next packet of the oldest waiting message, if the grant covers it.
    fn next_of_message(&mut self, id: FlowId, send: SendId) -> Option<SentBody> {
        let entry = self.sends.get(send)?;
        let flow = self.flows.get_mut(id)?;
        let SendStage::Waiting { offset } = entry.stage else {
            return None;
        };
        let most = Self::most_bytes(flow);
        let is_short = flow.is_lossy() && entry.len < SHORT_MESSAGE_LEN;
        let part = |offset: u32| SentBody::Part {
            send,
            offset,
            len: (entry.len - u64::from(offset)).min(most as u64) as u32,
        };
        if offset > 0 {
            return Some(part(offset));
        }
        let is_eager = entry.len <= self.config.eager_len.min(super::MOST_EAGER_LEN) as u64;
        if is_eager && flow.send_credit.covers_eager(units(entry.len as usize)) {
            return Some(if is_short || entry.len > most as u64 {
                part(0)
            } else {
                SentBody::Eager { send }
            });
        }
        if flow.send_credit.covers_offer() {
            return Some(SentBody::Offer { send });
        }
        if !flow.has_asked {
            flow.has_asked = true;
            flow.due.probe = true;
            self.counters.sends_starved += 1;
        }
        None
    }

    /// Moves the state on behind a packet that the link has taken.
    fn packet_sent(&mut self, now: Moment, id: FlowId, next: NextPacket, len: usize) {
        self.counters.packets_sent += 1;
        let Some(flow) = self.flows.get_mut(id) else {
            return;
        };
        flow.grants.told();
        flow.ack.sent();
        match next {
            NextPacket::Repeated(..) => {
                self.counters.packets_repeated += 1;
                flow.sent.repeat(now);
            }
            NextPacket::Numbered(body) => self.numbered_sent(now, id, body, len),
            NextPacket::Nack => {
                flow.due.nack = false;
                flow.nacked = Some(flow.early.next());
            }
            NextPacket::Hello => flow.due.hello = false,
            NextPacket::HelloAnswer(_) => flow.due.hello_answer = None,
            NextPacket::Ack { .. } => flow.due.probe = false,
        }
        // The acknowledgement of the peer's BYE is the last packet.
        let is_over = self
            .flows
            .get(id)
            .is_some_and(|flow| flow.closing == ClosePhase::Heard);
        if is_over {
            self.end_flow(now, id, CompletionError::Closed);
        }
    }

    fn numbered_sent(&mut self, now: Moment, id: FlowId, body: SentBody, len: usize) {
        let Some(flow) = self.flows.get_mut(id) else {
            return;
        };
        let seq = flow.sent.next();
        if flow.is_lossy() {
            flow.sent.push(body, len, now);
        } else {
            flow.sent.skip();
        }
        if let Some(send) = body.send().and_then(|send| self.sends.get_mut(send)) {
            send.unacknowledged += 1;
        }
        match body {
            SentBody::Eager { send } => self.message_sent(id, send, seq, 0, u32::MAX),
            SentBody::Part { send, offset, len } => self.message_sent(id, send, seq, offset, len),
            SentBody::Offer { send } => self.offer_sent(id, send),
            SentBody::Pull { sink, len, .. } => self.pull_sent(MessageId::from_bits(sink), len),
            SentBody::Piece { send, len, .. } => self.piece_sent(id, send, len),
            SentBody::Done { .. } => self.done_sent(now, id),
            SentBody::Bye => flow.closing = ClosePhase::Sent,
        }
        let flow = self.flows.get(id);
        if flow.is_some_and(|flow| !flow.is_lossy()) {
            // Nothing is lost on this path: what is sent has arrived.
            self.packet_acknowledged(body);
            if body == SentBody::Bye {
                self.end_flow(now, id, CompletionError::Closed);
            }
        }
    }

    fn message_sent(&mut self, id: FlowId, send: SendId, seq: Seq, offset: u32, len: u32) {
        let (Some(flow), Some(entry)) = (self.flows.get_mut(id), self.sends.get_mut(send)) else {
            return;
        };
        if offset == 0 {
            flow.send_credit.spend(units(entry.len as usize));
            if entry.wants_answer {
                flow.deliveries.insert(seq.0, send);
            }
        }
        let end = offset.saturating_add(len);
        if u64::from(end) < entry.len {
            entry.stage = SendStage::Waiting { offset: end };
        } else {
            entry.stage = SendStage::Sent;
            self.send_links.unlink(&mut flow.waiting, send.index());
        }
    }

    fn offer_sent(&mut self, id: FlowId, send: SendId) {
        let (Some(flow), Some(entry)) = (self.flows.get_mut(id), self.sends.get_mut(send)) else {
            return;
        };
        flow.send_credit.spend(1);
        entry.wants_answer = true;
        entry.stage = SendStage::Offered {
            sink: 0,
            served: 0,
            asked: 0,
        };
        self.send_links.unlink(&mut flow.waiting, send.index());
    }

    fn piece_sent(&mut self, id: FlowId, send: SendId, len: u32) {
        let (Some(flow), Some(entry)) = (self.flows.get_mut(id), self.sends.get_mut(send)) else {
            return;
        };
        if let SendStage::Offered { served, asked, .. } = &mut entry.stage {
            *served += u64::from(len);
            if served == asked {
                self.send_links.unlink(&mut flow.serving, send.index());
            }
        }
    }

    /// Frees the message whose DONE was sent.
    fn done_sent(&mut self, now: Moment, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id) else {
            return;
        };
        let place = flow.finishing.head();
        if let Some(message) = self.messages.at(place) {
            self.message_links.unlink(&mut flow.finishing, place);
            self.free_message(now, message);
        }
    }

    /// Ends what cannot be read from the program's memory. A send of which no packet is
    /// under way ends alone. Otherwise the flow ends, since the peer waits for bytes.
    fn unreadable(&mut self, now: Moment, id: FlowId, next: NextPacket) {
        let first = match next {
            NextPacket::Numbered(SentBody::Eager { send } | SentBody::Part { send, offset: 0, .. }) => {
                Some(send)
            }
            _ => None,
        };
        match (first, self.flows.get_mut(id)) {
            (Some(send), Some(flow)) => {
                self.send_links.unlink(&mut flow.waiting, send.index());
                self.complete_send(send, Err(CompletionError::MemoryFault));
            }
            _ => self.reset_flow(now, id, CompletionError::MemoryFault),
        }
    }
}
