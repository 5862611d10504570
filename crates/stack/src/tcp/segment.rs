//! A segment as it arrived: its header in numbers, its payload where it lies.

use toehold_shm::Gather;
use toehold_wire::checksum;
use toehold_wire::tcp::{Flags, Options, Seq, View};

use crate::ip::TcpPacket;
use crate::tuple::FourTuple;
use toehold_link::Checksum;

/// A segment that passed the checks that need no connection.
pub(super) struct Segment<'a> {
    pub(super) tuple: FourTuple,
    pub(super) seq: Seq,
    pub(super) ack: Seq,
    pub(super) flags: Flags,
    /// As in the header, not scaled.
    pub(super) window: u16,
    pub(super) urgent: u16,
    pub(super) options: Options,
    pub(super) payload: Gather<'a>,
    /// Marked "congestion experienced" (RFC 3168 §5).
    pub(super) congestion_experienced: bool,
}

/// Why a segment was not taken.
pub(super) enum Refusal {
    Malformed,
    Checksum,
}

impl<'a> Segment<'a> {
    /// Parses a packet and verifies its checksum unless the link vouches for it.
    #[inline]
    pub(super) fn parse(packet: &TcpPacket<'a>) -> Result<Self, Refusal> {
        let view = View::new(packet.header, packet.transport_len).map_err(|_| Refusal::Malformed)?;
        if packet.offload.checksum == Checksum::Complete {
            //= RFC 9293 §3.1 (checksum: the receiver must check it)
            let sum = checksum::combine(
                checksum::sum(packet.header),
                packet.rest.checksum(),
                packet.header.len() % 2 == 1,
            );
            let pseudo = checksum::pseudo_header(
                packet.source.into(),
                packet.destination.into(),
                toehold_wire::protocol::TCP,
                packet.transport_len as u32,
            );
            if checksum::finish(checksum::combine(sum, pseudo, false)) != 0 {
                return Err(Refusal::Checksum);
            }
        }
        let header_len = view.header_len();
        let payload = join(&packet.header[header_len..], packet.rest).ok_or(Refusal::Malformed)?;
        Ok(Self {
            tuple: FourTuple {
                local: packet.destination,
                remote: packet.source,
                local_port: view.dst_port(),
                remote_port: view.src_port(),
            },
            seq: view.seq(),
            ack: view.ack(),
            flags: view.flags(),
            window: view.window(),
            urgent: view.urgent(),
            options: view.options(),
            payload,
            congestion_experienced: packet.ecn == 0b11,
        })
    }

    /// Sequence space the segment occupies.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.payload.len() as u32
            + u32::from(self.flags.contains(Flags::SYN))
            + u32::from(self.flags.contains(Flags::FIN))
    }

    #[inline]
    pub(super) fn has(&self, flags: Flags) -> bool {
        self.flags.contains(flags)
    }

    /// Sequence number of the first payload byte.
    #[inline]
    pub(super) fn data_start(&self) -> Seq {
        self.seq + u32::from(self.flags.contains(Flags::SYN))
    }
}

fn join<'a>(front: &'a [u8], rest: Gather<'a>) -> Option<Gather<'a>> {
    if front.is_empty() {
        return Some(rest);
    }
    let mut whole = Gather::from_slice(front);
    whole.append(&rest).then_some(whole)
}
