//! Offered messages: ranges asked for, served, and placed.

use super::entry::{MessageBytes, MessageStage, SendEntry, SendStage};
use super::input::ProtocolBreach;
use super::{EndpointState, ProgramMemory};
use crate::moment::Moment;
use crate::names::{FlowId, MessageId, SendId};

/// Bytes that one PULL asks for, at most.
const PULL_LEN: u64 = 64 << 10;
/// Bytes of an offer that are asked for and have not come, at most.
const MOST_PULLED: u64 = 4 * PULL_LEN;

impl EndpointState {
    /// Bytes of an offered message that its receive has room for.
    fn wanted(&self, id: MessageId) -> u64 {
        let len = self.messages.get(id).map_or(0, |message| message.len);
        self.buffer(id).map_or(0, |buffer| buffer.len.min(len))
    }

    /// Begins to ask for an offered message that has a receive.
    pub(super) fn begin_pulls(&mut self, now: Moment, id: MessageId) {
        let Some(flow_id) = self.messages.get(id).map(|message| message.flow) else {
            return;
        };
        if let Some(flow) = self.flows.get_mut(flow_id) {
            flow.receiving += 1;
        }
        if self.wanted(id) == 0 {
            self.finish_offer(now, id);
        } else {
            self.queue_pulls(now, id);
        }
    }

    /// Puts an offer into its flow's list if another range is to be asked for.
    fn queue_pulls(&mut self, now: Moment, id: MessageId) {
        let has_more = self.next_pull(id).is_some();
        if let Some(message) = self.messages.get_mut(id)
            && has_more
            && !message.is_pulling
            && let Some(flow) = self.flows.get_mut(message.flow)
        {
            message.is_pulling = true;
            self.message_links.push_back(&mut flow.pulling, id.index());
            let flow = message.flow;
            self.touch(now, flow);
        }
    }

    /// The next range to ask for: token, offset and length.
    pub(super) fn next_pull(&self, id: MessageId) -> Option<(u64, u64, u64)> {
        let message = self.messages.get(id)?;
        let MessageBytes::Offered { token, pulled } = message.bytes else {
            return None;
        };
        let len = (self.wanted(id) - pulled).min(PULL_LEN);
        let has_room = pulled + len - message.arrived <= MOST_PULLED;
        (len > 0 && has_room).then_some((token, pulled, len))
    }

    /// Notes that a range was asked for.
    pub(super) fn pull_sent(&mut self, id: MessageId, len: u64) {
        if let Some(message) = self.messages.get_mut(id)
            && let MessageBytes::Offered { pulled, .. } = &mut message.bytes
        {
            *pulled += len;
        }
        if self.next_pull(id).is_none()
            && let Some(message) = self.messages.get_mut(id)
            && let Some(flow) = self.flows.get_mut(message.flow)
            && core::mem::take(&mut message.is_pulling)
        {
            self.message_links.unlink(&mut flow.pulling, id.index());
        }
    }

    /// Takes a peer's request for a range. Ranges of an offer follow one another.
    pub(super) fn handle_pull(
        &mut self,
        now: Moment,
        flow_id: FlowId,
        pull: (u64, u64, u64, u64),
    ) -> Result<(), ProtocolBreach> {
        let (token, sink, offset, len) = pull;
        let id = SendId::from_bits(token);
        // An offer that the peer has ended is not served again.
        let is_open = |send: &&mut SendEntry| send.flow == flow_id && send.wants_answer;
        let Some(send) = self.sends.get_mut(id).filter(is_open) else {
            self.counters.drop_unasked += 1;
            return Ok(());
        };
        let end = offset.checked_add(len).filter(|end| *end <= send.len);
        let SendStage::Offered {
            sink: known,
            served,
            asked,
        } = &mut send.stage
        else {
            return Err(ProtocolBreach);
        };
        let (Some(end), true) = (end, offset == *asked && (*asked == 0 || *known == sink)) else {
            return Err(ProtocolBreach);
        };
        let is_listed = *served < *asked;
        (*known, *asked) = (sink, end);
        if !is_listed && let Some(flow) = self.flows.get_mut(flow_id) {
            self.send_links.push_back(&mut flow.serving, id.index());
            self.touch(now, flow_id);
        }
        Ok(())
    }

    /// Takes bytes of an offer. In the flow's order, they follow one another.
    pub(super) fn handle_piece(
        &mut self,
        now: Moment,
        flow_id: FlowId,
        piece: (u64, u64, &[u8]),
        memory: &mut dyn ProgramMemory,
    ) -> Result<(), ProtocolBreach> {
        let (sink, offset, bytes) = piece;
        let id = MessageId::from_bits(sink);
        let Some(message) = self
            .messages
            .get_mut(id)
            .filter(|message| message.flow == flow_id)
        else {
            self.counters.drop_unasked += 1;
            return Ok(());
        };
        let (MessageBytes::Offered { pulled, .. }, MessageStage::Matched(_)) = (message.bytes, message.stage)
        else {
            return Err(ProtocolBreach);
        };
        let end = offset.checked_add(bytes.len() as u64).ok_or(ProtocolBreach)?;
        if offset != message.arrived || end > pulled {
            return Err(ProtocolBreach);
        }
        message.arrived = end;
        self.place(id, offset, bytes, memory);
        if end == self.wanted(id) {
            self.finish_offer(now, id);
        } else {
            self.queue_pulls(now, id);
        }
        Ok(())
    }

    /// Ends an offered message of which all that has room was placed.
    fn finish_offer(&mut self, now: Moment, id: MessageId) {
        let Some(message) = self.messages.get(id) else {
            return;
        };
        let (flow, stage) = (message.flow, message.stage);
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.receiving -= 1;
        }
        if let MessageStage::Matched(receive) = stage {
            self.complete_receive(receive, id);
        }
        self.conclude_message(now, id);
    }

    /// Takes the answer to an offer, or to a message that asked for one.
    pub(super) fn handle_done(
        &mut self,
        now: Moment,
        flow_id: FlowId,
        token: u64,
        is_delivery: bool,
    ) -> Result<(), ProtocolBreach> {
        let flow = self.flows.get_mut(flow_id).ok_or(ProtocolBreach)?;
        let id = if is_delivery {
            let seq = u32::try_from(token).map_err(|_| ProtocolBreach)?;
            flow.deliveries.remove(&seq)
        } else {
            Some(SendId::from_bits(token))
        };
        let send = id.and_then(|id| self.sends.get_mut(id)).filter(|send| {
            let is_offered = matches!(send.stage, SendStage::Offered { .. });
            send.flow == flow_id && send.wants_answer && is_offered != is_delivery
        });
        let (Some(id), Some(send)) = (id, send) else {
            self.counters.drop_unasked += 1;
            return Ok(());
        };
        send.wants_answer = false;
        if let SendStage::Offered { served, asked, .. } = &mut send.stage
            && *served < *asked
        {
            // The receiver needs no more of what it has asked for.
            *asked = *served;
            if let Some(flow) = self.flows.get_mut(flow_id) {
                self.send_links.unlink(&mut flow.serving, id.index());
            }
        }
        self.settle_send(id);
        self.touch(now, flow_id);
        Ok(())
    }
}
