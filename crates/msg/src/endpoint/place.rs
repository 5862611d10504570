//! Messages and their receives: matching, placing, freeing.

use super::entry::{MessageBytes, MessageEntry, MessageStage, ReceiveStage};
use super::{EndpointState, ProgramBuffer, ProgramMemory};
use crate::endpoint::CompletionError;
use crate::matching::TagEnvelope;
use crate::moment::Moment;
use crate::names::{FlowId, MessageId, ReceiveId, SendId};
use crate::payload::FillPoint;

/// Bytes that are copied at a time from a send to a receive of one endpoint.
const COPY_LEN: usize = 4096;

impl EndpointState {
    /// Adds a message to the table. Returns `None` if it is full, which no peer that keeps
    /// to its grant brings about.
    pub(super) fn insert_message(
        &mut self,
        flow: FlowId,
        envelope: TagEnvelope,
        data: Option<u64>,
        len: u64,
        bytes: MessageBytes,
    ) -> Option<MessageId> {
        let id = self.messages.insert(MessageEntry {
            flow,
            envelope,
            data,
            len,
            arrived: 0,
            placed: 0,
            units: 0,
            bytes,
            stage: MessageStage::Unexpected,
            delivery: None,
            fault: None,
            is_pulling: false,
        })?;
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.messages += 1;
        }
        self.counters.messages_received += 1;
        Some(id)
    }

    /// Gives an arrived message to the oldest receive that takes it. Returns `false` if the
    /// message is unexpected.
    pub(super) fn match_arrival(
        &mut self,
        now: Moment,
        id: MessageId,
        memory: &mut dyn ProgramMemory,
    ) -> bool {
        let Some(message) = self.messages.get(id) else {
            return false;
        };
        let place = self.matcher.arrive(id.index(), message.envelope);
        let Some(receive) = place.and_then(|place| self.receives.at(place)) else {
            self.counters.messages_unexpected += 1;
            return false;
        };
        self.leave_directed(now, receive);
        self.match_message(now, id, receive, memory);
        true
    }

    /// Begins to place a message that was in no queue any more, and ends it if it is whole.
    pub(super) fn match_message(
        &mut self,
        now: Moment,
        id: MessageId,
        receive: ReceiveId,
        memory: &mut dyn ProgramMemory,
    ) {
        let Some(message) = self.messages.get_mut(id) else {
            return;
        };
        message.stage = MessageStage::Matched(receive);
        let (bytes, arrived) = (message.bytes, message.arrived);
        if let Some(receive) = self.receives.get_mut(receive) {
            receive.stage = ReceiveStage::Placing;
        }
        match bytes {
            MessageBytes::None => {}
            MessageBytes::Short(short) => self.place(id, 0, &short[..arrived as usize], memory),
            MessageBytes::Stored(stored) => {
                // The pool lends its pieces while the endpoint's tables change.
                let payload = core::mem::replace(&mut self.payload, crate::payload::PayloadPool::new(0));
                let mut offset = 0;
                for piece in payload.pieces(stored, 0, arrived as usize) {
                    self.place(id, offset, piece, memory);
                    offset += piece.len() as u64;
                }
                self.payload = payload;
            }
            MessageBytes::Own(send) => self.copy_own(id, send, memory),
            MessageBytes::Offered { .. } => return self.begin_pulls(now, id),
        }
        self.release_bytes(now, id);
        self.finish_if_whole(now, id);
    }

    /// Writes arrived bytes into the receive's buffer, as far as it reaches.
    pub(super) fn place(&mut self, id: MessageId, offset: u64, bytes: &[u8], memory: &mut dyn ProgramMemory) {
        let Some(buffer) = self.buffer(id) else {
            return;
        };
        let room = usize::try_from(buffer.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        let is_placed = bytes.is_empty() || memory.place(buffer, offset, bytes);
        if let Some(message) = self.messages.get_mut(id) {
            if is_placed {
                message.placed += bytes.len() as u64;
            } else {
                message.fault = Some(CompletionError::MemoryFault);
            }
        }
    }

    /// The buffer of the receive that a message has.
    pub(super) fn buffer(&self, id: MessageId) -> Option<ProgramBuffer> {
        match self.messages.get(id)?.stage {
            MessageStage::Matched(receive) => Some(self.receives.get(receive)?.buffer),
            _ => None,
        }
    }

    fn copy_own(&mut self, id: MessageId, send: SendId, memory: &mut dyn ProgramMemory) {
        let Some((bytes, len)) = self.sends.get(send).map(|send| (send.bytes, send.len)) else {
            return;
        };
        let wanted = self.buffer(id).map_or(0, |buffer| buffer.len.min(len));
        let mut copy = [0; COPY_LEN];
        let mut offset = 0;
        let mut result = Ok(());
        while offset < wanted {
            let now = ((wanted - offset) as usize).min(COPY_LEN);
            if !self.read_send(&bytes, offset, &mut copy[..now], memory) {
                result = Err(CompletionError::MemoryFault);
                break;
            }
            self.place(id, offset, &copy[..now], memory);
            offset += now as u64;
        }
        if let Some(message) = self.messages.get_mut(id) {
            message.arrived = len;
            message.fault = message.fault.or(result.err());
        }
        self.complete_send(send, result);
    }

    /// Ends a message whose bytes have all arrived.
    pub(super) fn finish_if_whole(&mut self, now: Moment, id: MessageId) {
        let Some(message) = self.messages.get(id) else {
            return;
        };
        if message.arrived < message.len {
            return;
        }
        match message.stage {
            MessageStage::Matched(receive) => {
                self.complete_receive(receive, id);
                self.conclude_message(now, id);
            }
            MessageStage::Dropped => self.conclude_message(now, id),
            _ => {}
        }
    }

    /// Lets the sender know of a message's end if it wants to, and else frees the message.
    pub(super) fn conclude_message(&mut self, now: Moment, id: MessageId) {
        let Some(message) = self.messages.get_mut(id) else {
            return;
        };
        let flow_id = message.flow;
        let token = match (message.bytes, message.delivery) {
            (MessageBytes::Offered { token, .. }, _) => Some((token, false)),
            (_, Some(seq)) => Some((u64::from(seq), true)),
            _ => None,
        };
        let flow = self.flows.get_mut(flow_id).filter(|flow| !flow.is_gone());
        let (Some((token, is_delivery)), Some(flow)) = (token, flow) else {
            return self.free_message(now, id);
        };
        if core::mem::take(&mut message.is_pulling) {
            self.message_links.unlink(&mut flow.pulling, id.index());
        }
        message.stage = MessageStage::Finishing { token, is_delivery };
        self.message_links.push_back(&mut flow.finishing, id.index());
        self.release_bytes(now, id);
        self.touch(now, flow_id);
    }

    /// Frees the memory of a message's bytes, and grants its units again.
    pub(super) fn release_bytes(&mut self, now: Moment, id: MessageId) {
        let Some(message) = self.messages.get_mut(id) else {
            return;
        };
        let flow_id = message.flow;
        let mut units = 0;
        match message.bytes {
            // A unit stands for the entry until the sender has its DONE.
            MessageBytes::Offered { .. } => return,
            MessageBytes::Stored(stored) => {
                let mut ended = FillPoint::NONE;
                let flow = self.flows.get_mut(flow_id);
                let point = flow.map_or(&mut ended, |flow| &mut flow.fill);
                units = self.payload.release(stored, point);
            }
            _ if message.delivery.is_some() => {}
            _ => units += core::mem::take(&mut message.units),
        }
        message.bytes = MessageBytes::None;
        self.return_units(now, flow_id, units);
    }

    fn return_units(&mut self, now: Moment, flow_id: FlowId, units: u32) {
        let Some(flow) = self.flows.get_mut(flow_id) else {
            return;
        };
        flow.grants.give_back(units);
        if flow.grants.is_worth_telling() {
            flow.ack.hurry();
            self.touch(now, flow_id);
        }
    }

    /// Removes a message from the table.
    pub(super) fn free_message(&mut self, now: Moment, id: MessageId) {
        self.release_bytes(now, id);
        let Some(message) = self.messages.remove(id) else {
            return;
        };
        self.return_units(now, message.flow, message.units);
        if let Some(flow) = self.flows.get_mut(message.flow) {
            flow.messages -= 1;
        }
        self.forget_if_empty(message.flow);
    }
}
