//! Packets built from the state.

use super::entry::SendEntry;
use super::output::NextPacket;
use super::{EndpointState, MOST_HELLO_LEN, PacketSink, ProgramMemory, SinkFull};
use crate::names::{FlowId, SendId};
use crate::rmpp::flow::FlowLife;
use crate::rmpp::sent::SentBody;
use toehold_wire::Mac;
use toehold_wire::rmpp::{MAX_HEADERS_LEN, Packet, PacketBody, PacketFlags, RangeList, crc32c};

/// Zeroes that make a HELLO as long as the packets that it tries.
static PADDING: [u8; MOST_HELLO_LEN] = [0; MOST_HELLO_LEN];

/// Why a packet was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BuildError {
    /// The link has no room.
    LinkFull,
    /// The program's memory cannot be read.
    MemoryFault,
}

impl From<SinkFull> for BuildError {
    fn from(_: SinkFull) -> Self {
        Self::LinkFull
    }
}

impl EndpointState {
    /// Builds a packet and gives it to the link. Returns its length.
    pub(super) fn emit(
        &mut self,
        id: FlowId,
        next: NextPacket,
        memory: &mut dyn ProgramMemory,
        sink: &mut dyn PacketSink,
    ) -> Result<usize, BuildError> {
        let mut bytes = core::mem::take(&mut self.scratch);
        bytes.clear();
        let result = self.emit_with(id, next, &mut bytes, memory, sink);
        self.scratch = bytes;
        result
    }

    fn emit_with(
        &self,
        id: FlowId,
        next: NextPacket,
        bytes: &mut Vec<u8>,
        memory: &mut dyn ProgramMemory,
        sink: &mut dyn PacketSink,
    ) -> Result<usize, BuildError> {
        let flow = self.flows.get(id).ok_or(BuildError::MemoryFault)?;
        let missing;
        let mut packet = match next {
            NextPacket::Repeated(_, body) | NextPacket::Numbered(body) => {
                self.numbered(body, bytes, memory)?
            }
            NextPacket::Nack => {
                missing = flow.early.missing();
                nack_of(&missing)
            }
            NextPacket::Hello => Packet::new(PacketBody::Hello {
                len: self.config.hello_len as u32,
                is_answer: false,
            }),
            NextPacket::HelloAnswer(len) => Packet::new(PacketBody::Hello { len, is_answer: true }),
            NextPacket::Ack { is_probe } => {
                let mut packet = Packet::new(PacketBody::Ack);
                if is_probe {
                    packet.flags |= PacketFlags::ACK_NOW;
                }
                packet
            }
        };
        packet.seq = match next {
            NextPacket::Repeated(seq, _) => seq,
            _ => flow.sent.next(),
        };
        packet.credit = flow.grants.field();
        packet.check = flow.check;
        packet.ack = flow.early.next();
        packet.lives = (flow.life == FlowLife::Fresh).then_some(flow.lives);
        packet.has_checksum = self.config.has_checksum && flow.is_lossy();
        transmit(&packet, flow.peer, sink)
    }

    /// A numbered packet without its flow's fields. Its message bytes are read into `bytes`.
    fn numbered<'a>(
        &self,
        body: SentBody,
        bytes: &'a mut Vec<u8>,
        memory: &mut dyn ProgramMemory,
    ) -> Result<Packet<'a>, BuildError> {
        match body {
            SentBody::Eager { send } => {
                let entry = self.entry(send)?;
                let bytes = self.read(entry, 0, entry.len as usize, bytes, memory)?;
                Ok(message(
                    entry,
                    PacketBody::Eager {
                        tag: entry.tag,
                        bytes,
                    },
                ))
            }
            SentBody::Part { send, offset, len } => {
                let entry = self.entry(send)?;
                let bytes = self.read(entry, u64::from(offset), len as usize, bytes, memory)?;
                let body = PacketBody::Part {
                    tag: entry.tag,
                    offset,
                    total: entry.len as u32,
                    bytes,
                };
                Ok(message(entry, body))
            }
            SentBody::Offer { send } => {
                let entry = self.entry(send)?;
                let body = PacketBody::Offer {
                    tag: entry.tag,
                    token: send.to_bits(),
                    len: entry.len,
                    address: 0,
                    nonce: 0,
                };
                Ok(message(entry, body))
            }
            SentBody::Piece { send, offset, len } => {
                let entry = self.entry(send)?;
                let super::entry::SendStage::Offered { sink, .. } = entry.stage else {
                    return Err(BuildError::MemoryFault);
                };
                let bytes = self.read(entry, offset, len as usize, bytes, memory)?;
                Ok(Packet::new(PacketBody::Piece { sink, offset, bytes }))
            }
            SentBody::Pull {
                token,
                sink,
                offset,
                len,
            } => Ok(Packet::new(PacketBody::Pull {
                token,
                sink,
                offset,
                len,
            })),
            SentBody::Done { token, is_delivery } => {
                let mut packet = Packet::new(PacketBody::Done { token });
                if is_delivery {
                    packet.flags |= PacketFlags::DELIVERED;
                }
                Ok(packet)
            }
            SentBody::Bye => Ok(Packet::new(PacketBody::Bye)),
        }
    }

    fn entry(&self, send: SendId) -> Result<&SendEntry, BuildError> {
        self.sends.get(send).ok_or(BuildError::MemoryFault)
    }

    fn read<'a>(
        &self,
        entry: &SendEntry,
        offset: u64,
        len: usize,
        bytes: &'a mut Vec<u8>,
        memory: &mut dyn ProgramMemory,
    ) -> Result<&'a [u8], BuildError> {
        bytes.resize(len, 0);
        if self.read_send(&entry.bytes, offset, bytes, memory) {
            Ok(bytes)
        } else {
            Err(BuildError::MemoryFault)
        }
    }

    /// Gives a RESET to the link. It answers for a pair of lives of which only the check is
    /// known.
    pub(super) fn emit_reset(
        &mut self,
        to: Mac,
        check: u32,
        sink: &mut dyn PacketSink,
    ) -> Result<(), BuildError> {
        let packet = Packet {
            check,
            has_checksum: self.config.has_checksum,
            ..Packet::new(PacketBody::Reset)
        };
        transmit(&packet, to, sink)?;
        self.counters.packets_sent += 1;
        Ok(())
    }
}

/// A packet of a message, with what the sender's call has said of it.
fn message<'a>(entry: &SendEntry, body: PacketBody<'a>) -> Packet<'a> {
    let mut packet = Packet::new(body);
    packet.data = entry.data;
    for (is_set, flag) in [
        (!entry.is_tagged, PacketFlags::UNTAGGED),
        (entry.wants_delivery, PacketFlags::DELIVERED),
    ] {
        if is_set {
            packet.flags |= flag;
        }
    }
    packet
}

/// A NACK of the missing ranges; an ACK if none is missing any more.
fn nack_of(missing: &RangeList) -> Packet<'_> {
    Packet::new(missing.ranges().map_or(PacketBody::Ack, PacketBody::Nack))
}

/// Gives a packet to the link. Returns its length.
fn transmit(packet: &Packet<'_>, to: Mac, sink: &mut dyn PacketSink) -> Result<usize, BuildError> {
    let mut headers = [0; MAX_HEADERS_LEN];
    let headers_len = packet.emit_headers(&mut headers);
    let headers = &headers[..headers_len];
    let bytes = match packet.body {
        PacketBody::Hello { is_answer: false, .. } => {
            let sum_len = if packet.has_checksum { 4 } else { 0 };
            let padding = packet.len() - headers_len - sum_len;
            &PADDING[..padding.min(PADDING.len())]
        }
        body => body.bytes(),
    };
    let sum = crc32c(crc32c(0, headers), bytes).to_le_bytes();
    let tail = if packet.has_checksum { &sum[..] } else { &[] };
    sink.transmit(to, [headers, bytes, tail])?;
    Ok(headers_len + bytes.len() + tail.len())
}
