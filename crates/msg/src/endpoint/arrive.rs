//! Messages as their packets come in, in the flow's order.

use super::entry::{MessageBytes, MessageStage, SHORT_LEN};
use super::input::ProtocolBreach;
use super::{EndpointState, ProgramMemory, source};
use crate::matching::TagEnvelope;
use crate::moment::Moment;
use crate::names::{FlowId, MessageId};
use crate::rmpp::credit::units;
use toehold_wire::rmpp::{Packet, PacketFlags};

impl EndpointState {
    /// Takes the first packet of a message: its entry, its units, and its receive if there
    /// is one. `cost` is in units.
    fn begin_message(
        &mut self,
        flow_id: FlowId,
        packet: &Packet<'_>,
        tag: u64,
        len: u64,
        cost: u32,
    ) -> Result<MessageId, ProtocolBreach> {
        let flow = self.flows.get_mut(flow_id).ok_or(ProtocolBreach)?;
        if !flow.grants.take(cost, &mut self.budget) {
            return Err(ProtocolBreach);
        }
        let envelope = TagEnvelope {
            tag,
            source: source(flow_id),
            is_tagged: !packet.flags.contains(PacketFlags::UNTAGGED),
        };
        let message = self.insert_message(flow_id, envelope, packet.data, len, MessageBytes::None);
        let id = message.ok_or(ProtocolBreach)?;
        if let Some(message) = self.messages.get_mut(id) {
            message.units = cost;
            let wants_delivery = packet.flags.contains(PacketFlags::DELIVERED);
            message.delivery = wants_delivery.then_some(packet.seq.0);
        }
        Ok(id)
    }

    /// Takes a whole message.
    pub(super) fn handle_eager(
        &mut self,
        now: Moment,
        flow: FlowId,
        packet: &Packet<'_>,
        tag: u64,
        memory: &mut dyn ProgramMemory,
    ) -> Result<(), ProtocolBreach> {
        let bytes = packet.body.bytes();
        let id = self.begin_message(flow, packet, tag, bytes.len() as u64, units(bytes.len()))?;
        self.match_first(now, id, bytes, memory);
        Ok(())
    }

    /// Takes a piece of a message. In the flow's order, pieces of a message follow one
    /// another.
    pub(super) fn handle_part(
        &mut self,
        now: Moment,
        flow_id: FlowId,
        packet: &Packet<'_>,
        tag: u64,
        place: (u32, u32),
        memory: &mut dyn ProgramMemory,
    ) -> Result<(), ProtocolBreach> {
        let (offset, total) = place;
        let bytes = packet.body.bytes();
        let assembling = self.flows.get(flow_id).ok_or(ProtocolBreach)?.assembling;
        let id = match (offset, assembling) {
            (0, None) => {
                let id = self.begin_message(flow_id, packet, tag, total.into(), units(total as usize))?;
                self.match_first(now, id, bytes, memory);
                id
            }
            (_, Some(id)) if offset > 0 => {
                self.continue_message(now, id, u64::from(offset), u64::from(total), bytes, memory)?;
                id
            }
            _ => return Err(ProtocolBreach),
        };
        let is_whole = u64::from(offset) + bytes.len() as u64 == u64::from(total);
        if let Some(flow) = self.flows.get_mut(flow_id) {
            flow.assembling = (!is_whole).then_some(id);
        }
        Ok(())
    }

    /// Matches a message whose first bytes are at hand.
    fn match_first(&mut self, now: Moment, id: MessageId, bytes: &[u8], memory: &mut dyn ProgramMemory) {
        // A receive that is already there gets the bytes from the packet.
        if self.match_arrival(now, id, memory) {
            self.place(id, 0, bytes, memory);
        } else {
            self.store(id, 0, bytes);
        }
        if let Some(message) = self.messages.get_mut(id) {
            message.arrived += bytes.len() as u64;
        }
        self.finish_if_whole(now, id);
    }

    fn continue_message(
        &mut self,
        now: Moment,
        id: MessageId,
        offset: u64,
        total: u64,
        bytes: &[u8],
        memory: &mut dyn ProgramMemory,
    ) -> Result<(), ProtocolBreach> {
        let message = self.messages.get(id).ok_or(ProtocolBreach)?;
        if message.arrived != offset || message.len != total {
            return Err(ProtocolBreach);
        }
        match message.stage {
            MessageStage::Matched(_) => self.place(id, offset, bytes, memory),
            MessageStage::Dropped | MessageStage::Finishing { .. } => {}
            MessageStage::Unexpected | MessageStage::Claimed => self.store(id, offset as usize, bytes),
        }
        if let Some(message) = self.messages.get_mut(id) {
            message.arrived += bytes.len() as u64;
        }
        self.finish_if_whole(now, id);
        Ok(())
    }

    /// Keeps bytes of an unexpected message: short ones in the entry, others where the
    /// flow's grant promised room.
    fn store(&mut self, id: MessageId, offset: usize, bytes: &[u8]) {
        let Some(message) = self.messages.get_mut(id) else {
            return;
        };
        if let MessageBytes::None = message.bytes {
            message.bytes = if message.len as usize <= SHORT_LEN {
                MessageBytes::Short([0; SHORT_LEN])
            } else {
                let Some(flow) = self.flows.get_mut(message.flow) else {
                    return;
                };
                // From now on the units are the blocks'.
                message.units = 0;
                let len = message.len as usize;
                MessageBytes::Stored(self.payload.reserve_promised(&mut flow.fill, len))
            };
        }
        match &mut message.bytes {
            MessageBytes::Short(short) => short[offset..offset + bytes.len()].copy_from_slice(bytes),
            MessageBytes::Stored(stored) => self.payload.write(*stored, offset, bytes),
            _ => {}
        }
    }

    /// Takes an offer.
    pub(super) fn handle_offer(
        &mut self,
        now: Moment,
        flow_id: FlowId,
        packet: &Packet<'_>,
        offer: (u64, u64, u64),
        memory: &mut dyn ProgramMemory,
    ) -> Result<(), ProtocolBreach> {
        let (tag, token, len) = offer;
        let id = self.begin_message(flow_id, packet, tag, len, 1)?;
        if let Some(message) = self.messages.get_mut(id) {
            message.bytes = MessageBytes::Offered { token, pulled: 0 };
            // The DONE of an offer comes after placement, whether it is asked for or not.
            message.delivery = None;
        }
        self.match_arrival(now, id, memory);
        Ok(())
    }
}
