//! A received segment: its parsed header, and its payload in place.

use toehold_shm::{ByteQueue, Gather, Payload};
use toehold_wire::checksum;
use toehold_wire::tcp::{Flags, Options, Seq, View};

use super::queued::Queued;
use crate::ip::TcpPacket;
use crate::tuple::{Address, FourTuple};
use toehold_link::Checksum;

/// A segment that passed the checks that need no connection.
pub(super) struct Segment<'a> {
    pub(super) tuple: FourTuple,
    pub(super) seq: Seq,
    pub(super) ack: Seq,
    pub(super) flags: Flags,
    /// The window in the header, not scaled.
    pub(super) window: u16,
    pub(super) urgent: u16,
    pub(super) options: Options,
    pub(super) payload: Data<'a>,
    /// Marked "congestion experienced" (RFC 3168 §5).
    pub(super) congestion_experienced: bool,
    /// Hops that the packet had left.
    pub(super) hops: u8,
}

/// Reasons for refusing a segment.
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
            let rest = packet.rest.slice(0, packet.transport_len - packet.header.len());
            let odd = packet.header.len() % 2 == 1;
            let sum = checksum::combine(checksum::sum(packet.header), rest.checksum(), odd);
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
        let arrived = Arrived {
            front: &packet.header[header_len..],
            rest: packet.rest,
        };
        let payload = Data {
            place: Place::Arrived(arrived),
            len: packet.transport_len - header_len,
        };
        let ends = (packet.destination, packet.source);
        let marks = (packet.ecn == 0b11, packet.hops);
        Ok(Self::of(&view, ends, payload, marks))
    }

    /// A segment of this stack to itself. `ends` is the tuple of the sender.
    pub(super) fn loopback(
        ends: &FourTuple,
        header: &[u8],
        payload: Queued,
        hops: u8,
    ) -> Result<Self, Refusal> {
        let view = View::new(header, header.len()).map_err(|_| Refusal::Malformed)?;
        let len = payload.len();
        let payload = Data {
            place: Place::Queued(payload),
            len,
        };
        Ok(Self::of(&view, (ends.remote, ends.local), payload, (false, hops)))
    }

    #[inline]
    fn of(
        view: &View<'_>,
        (local, remote): (Address, Address),
        payload: Data<'a>,
        (congestion_experienced, hops): (bool, u8),
    ) -> Self {
        Self {
            tuple: FourTuple {
                local,
                remote,
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
            congestion_experienced,
            hops,
        }
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

/// The payload of a segment, in place.
#[derive(Clone, Copy)]
pub(super) struct Data<'a> {
    pub(super) place: Place<'a>,
    len: usize,
}

#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Arrived(Arrived<'a>),
    Queued(Queued),
}

/// Payload from a link: its beginning in private memory, the rest in the link's. Either may be
/// empty.
#[derive(Clone, Copy)]
pub(super) struct Arrived<'a> {
    front: &'a [u8],
    rest: &'a Gather<'a>,
}

impl Data<'_> {
    /// No payload.
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self {
            place: Place::Queued(Queued::NONE),
            len: 0,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies payload from `offset` on, and returns the number of bytes.
    #[inline]
    pub(super) fn copy_to(&self, offset: usize, into: &mut [u8]) -> usize {
        let Place::Arrived(arrived) = self.place else {
            return 0;
        };
        let len = self.len.saturating_sub(offset).min(into.len());
        arrived.copy_to(offset, &mut into[..len])
    }
}

impl Arrived<'_> {
    /// Fills `into` with bytes from `offset` on. The caller makes sure that there are enough.
    #[inline]
    fn copy_to(&self, offset: usize, into: &mut [u8]) -> usize {
        let len = into.len();
        if offset >= self.front.len() {
            return self.rest.copy_to(offset - self.front.len(), into);
        }
        let front = len.min(self.front.len() - offset);
        into[..front].copy_from_slice(&self.front[offset..offset + front]);
        front + self.rest.copy_to(0, &mut into[front..])
    }

    /// Appends `len` bytes from `offset` on to a queue, and returns the number appended.
    #[inline]
    pub(super) fn append_to(
        &self,
        queue: &mut ByteQueue,
        memory: &mut Payload,
        offset: usize,
        len: usize,
    ) -> usize {
        let (front, rest_offset) = self.split(offset, len);
        let mut done = 0;
        if !front.is_empty() {
            done = queue.append(memory, front);
        }
        if done == front.len() && done < len {
            done += queue.append_gather(memory, self.rest, rest_offset, len - done);
        }
        done
    }

    /// Writes `len` bytes from `offset` on to a queue, at `at` bytes behind its head. Returns the
    /// number written.
    pub(super) fn write_to(
        &self,
        queue: &mut ByteQueue,
        memory: &mut Payload,
        at: usize,
        offset: usize,
        len: usize,
    ) -> usize {
        let (front, rest_offset) = self.split(offset, len);
        let mut done = 0;
        if !front.is_empty() {
            done = queue.write_at(memory, at, &Gather::from_slice(front), 0, front.len());
        }
        if done == front.len() && done < len {
            done += queue.write_at(memory, at + done, self.rest, rest_offset, len - done);
        }
        done
    }

    /// The private part of `len` bytes from `offset` on, and the offset of the others in the rest.
    #[inline]
    fn split(&self, offset: usize, len: usize) -> (&[u8], usize) {
        if offset >= self.front.len() {
            return (&[], offset - self.front.len());
        }
        let end = (offset + len).min(self.front.len());
        (&self.front[offset..end], 0)
    }
}
