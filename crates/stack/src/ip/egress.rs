//! Sends the packets of the IP layer itself.

use super::Ip;
use super::addresses::{self, NextHop};
use super::headers::HOP_LIMIT;
use super::neighbor::Resolution;
use super::path_mtu::LEAST_IPV6;
use super::state::Context;
use super::waiting::RESERVED;
use crate::counters::Counters;
use crate::time::Instant;
use crate::tuple::Address;
use core::net::IpAddr;
use toehold_link::{Offload, Transmit, TransmitError, Transmitter};
use toehold_shm::Gather;
use toehold_wire::{Mac, ethernet, ipv4, ipv6, protocol};

/// Hops of packets that must not cross a router.
const HOP_LIMIT_ON_LINK: u8 = toehold_wire::ndisc::HOP_LIMIT;

/// A message the IP layer sends on its own account.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) source: Address,
    pub(super) destination: Address,
    pub(super) protocol: u8,
    pub(super) hop_limit: u8,
    /// DSCP and ECN.
    pub(super) tos: u8,
    pub(super) payload: &'a [u8],
}

/// Which part of a message's payload a packet carries.
#[derive(Debug, Clone, Copy)]
struct Part {
    offset: usize,
    len: usize,
    id: u32,
    /// Whether the message has other parts.
    one_of_many: bool,
}

impl Ip {
    /// The largest packet for `remote`, in bytes.
    pub(crate) fn path_mtu(&self, remote: &Address) -> u16 {
        self.packet_limit(remote).0
    }

    /// The largest packet for `remote` in bytes, and whether routers may fragment it.
    pub(super) fn packet_limit(&self, remote: &Address) -> (u16, bool) {
        let link = self.link.mtu;
        match self.path_mtus.get(remote) {
            Some((mtu, may_fragment)) => (mtu.min(link), may_fragment),
            None => (link, false),
        }
    }

    /// Sends a message, in fragments if needed, as soon as the next hop's hardware address is
    /// known. A message that cannot be sent is counted and dropped. Returns whether there was room
    /// for it.
    pub(super) fn send_message(
        &mut self,
        now: Instant,
        message: &Message<'_>,
        counters: &mut Counters,
    ) -> bool {
        let limit = usize::from(self.message_limit(&message.destination));
        let is_v4 = message.destination.is_ipv4();
        let header_len = if is_v4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let total = message.payload.len();
        let many = header_len + total > limit;
        //= RFC 791 §3.2
        //= RFC 8200 §4.5
        let extra = if is_v4 { 0 } else { ipv6::FRAGMENT_HEADER_LEN };
        let step = if many {
            limit.saturating_sub(header_len + extra) & !7
        } else {
            total.max(1)
        };
        let kept = match message.hop_limit {
            // Neighbour discovery may take the last buffers.
            HOP_LIMIT_ON_LINK => 0,
            _ => RESERVED,
        };
        let parts = if step == 0 { 0 } else { total.div_ceil(step) as u32 };
        counters.drop_queue_full += u64::from(self.packets.give_way(parts + kept));
        if step == 0 || parts + kept > self.packets.free_buffers() {
            counters.drop_queue_full += 1;
            return false;
        }
        let id = if many || is_v4 {
            self.state[0].next_fragment_id()
        } else {
            0
        };
        let mut offset = 0;
        loop {
            let len = step.min(total - offset);
            self.send_part(
                now,
                message,
                Part {
                    offset,
                    len,
                    id,
                    one_of_many: many,
                },
                counters,
            );
            offset += len;
            if offset >= total {
                return true;
            }
        }
    }

    /// The largest packet for a message of the IP layer itself. The stack cannot tell a forged
    /// "packet too big" about such a message from a true one. Beyond the link, messages are
    /// therefore short enough to need none.
    //= RFC 8201 §5.1
    fn message_limit(&self, remote: &Address) -> u16 {
        let (limit, _) = self.packet_limit(remote);
        if remote.is_ipv4() || self.own.is_on_link(remote) {
            limit
        } else {
            limit.min(LEAST_IPV6)
        }
    }

    /// Sends a TCP segment that belongs to no connection, as soon as the next hop's hardware
    /// address is known.
    pub(crate) fn send_segment(
        &mut self,
        now: Instant,
        (local, remote): (Address, Address),
        segment: &[u8],
        counters: &mut Counters,
    ) {
        let message = Message {
            source: local,
            destination: remote,
            protocol: protocol::TCP,
            hop_limit: HOP_LIMIT,
            tos: 0,
            payload: segment,
        };
        self.send_message(now, &message, counters);
    }

    fn send_part(&mut self, now: Instant, message: &Message<'_>, part: Part, counters: &mut Counters) {
        let is_v4 = message.destination.is_ipv4();
        let extension = part.one_of_many && !is_v4;
        let header_len = self.link.header_len
            + if is_v4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN }
            + if extension { ipv6::FRAGMENT_HEADER_LEN } else { 0 };
        let Some(packet) = self.packets.allocate(header_len + part.len) else {
            counters.drop_queue_full += 1;
            return;
        };
        let start = self.link.header_len;
        let frame = self.packets.frame_mut(packet);
        let ip_header_len = emit_part(&mut frame[start..], message, part);
        frame[start + ip_header_len..].copy_from_slice(&message.payload[part.offset..part.offset + part.len]);
        self.send_packet(now, packet, &message.destination, counters);
    }

    /// Sends a packet that is complete but for its Ethernet header.
    fn send_packet(&mut self, now: Instant, packet: u32, destination: &Address, counters: &mut Counters) {
        if !self.link.ethernet {
            self.packets.push_ready(packet);
            return;
        }
        let next_hop = match self.own.next_hop(destination) {
            NextHop::Neighbor(neighbor) => neighbor,
            NextHop::Group => {
                let mac = Mac::for_multicast(IpAddr::from(*destination)).unwrap_or(Mac::BROADCAST);
                self.finish_packet(packet, mac.0);
                return;
            }
            NextHop::Loopback | NextHop::None => {
                self.packets.free(packet);
                counters.drop_unresolved += 1;
                return;
            }
        };
        let mut cx = Context {
            now,
            state: &mut self.state[0],
            packets: &mut self.packets,
        };
        match self.neighbors.resolve(&mut cx, &next_hop) {
            Resolution::Known { mac, .. } => self.finish_packet(packet, mac),
            Resolution::Asking { neighbor } => {
                if self.packets.wait_for(neighbor, packet) {
                    counters.drop_unresolved += 1;
                }
            }
            Resolution::Gone | Resolution::Full => {
                self.packets.free(packet);
                counters.drop_unresolved += 1;
            }
        }
    }

    /// Writes the Ethernet header, which completes the packet.
    fn finish_packet(&mut self, packet: u32, destination: [u8; 6]) {
        let header_len = self.link.header_len;
        let is_v4 = self
            .packets
            .frame(packet)
            .get(header_len)
            .is_some_and(|byte| byte >> 4 == 4);
        let mut header = [0; ethernet::HEADER_LEN];
        let len = self.emit_ethernet(&mut header, destination, is_v4);
        self.packets.frame_mut(packet)[..len].copy_from_slice(&header[..len]);
        self.packets.push_ready(packet);
    }

    /// Sends the frames that waited for a neighbour whose hardware address is now known.
    pub(super) fn release_waiting(&mut self, neighbor: u32, mac: [u8; 6]) {
        while let Some(packet) = self.packets.pop_waiting(neighbor) {
            self.finish_packet(packet, mac);
        }
    }

    /// Queues a whole frame.
    pub(super) fn send_frame(&mut self, frame: &[u8], counters: &mut Counters) {
        counters.drop_queue_full += u64::from(self.packets.give_way(1));
        match self.packets.allocate(frame.len()) {
            Some(packet) => {
                self.packets.frame_mut(packet).copy_from_slice(frame);
                self.packets.push_ready(packet);
            }
            None => counters.drop_queue_full += 1,
        }
    }

    /// Gives queued frames to the link. Requests to neighbours go first, since other frames wait
    /// for the answers. Returns `false` if the link had no room for all. The link may be full for
    /// one neighbour only, which must not delay the others.
    pub(super) fn transmit_queued(&mut self, out: &mut dyn Transmitter, counters: &mut Counters) -> bool {
        let mut room = self.transmit_questions(out, counters);
        let mut at = self.packets.first_ready();
        let mut steps = self.packets.steps();
        while let Some(packet) = at {
            steps.count();
            at = self.packets.next_ready(packet);
            if transmit(out, self.packets.frame(packet), counters) == Err(TransmitError::Full) {
                self.packets.mark_refused(packet);
                room = false;
            } else {
                self.packets.drop_ready(packet);
            }
        }
        room
    }

    fn transmit_questions(&mut self, out: &mut dyn Transmitter, counters: &mut Counters) -> bool {
        let mut first_refused = None;
        while let Some(question) = self.neighbors.next_question() {
            if first_refused == Some(question.neighbor) {
                break;
            }
            let mut buffer = [0; super::discovery::MAX_QUESTION];
            let len = self.write_question(&question, &mut buffer);
            if len > 0 && transmit(out, &buffer[..len], counters) == Err(TransmitError::Full) {
                first_refused.get_or_insert(question.neighbor);
                self.neighbors.question_refused(question.neighbor);
            } else {
                self.neighbors.question_asked(question.neighbor);
            }
        }
        first_refused.is_none()
    }
}

/// Writes the IP header, and the fragment header if need be, of a part of a
/// message; returns their length.
fn emit_part(buffer: &mut [u8], message: &Message<'_>, part: Part) -> usize {
    let last = part.offset + part.len >= message.payload.len();
    if message.destination.is_ipv4() {
        let header = ipv4::Header {
            tos: message.tos,
            id: part.id as u16,
            dont_fragment: false,
            more_fragments: !last,
            fragment_offset: part.offset as u16,
            ttl: message.hop_limit,
            protocol: message.protocol,
            src: addresses::to_v4(&message.source),
            dst: addresses::to_v4(&message.destination),
            payload_len: part.len as u16,
        };
        return header.emit(buffer);
    }
    let extension = if part.one_of_many {
        ipv6::FRAGMENT_HEADER_LEN
    } else {
        0
    };
    let header = ipv6::Header {
        traffic_class: message.tos,
        flow_label: 0,
        payload_len: (extension + part.len) as u16,
        next_header: if part.one_of_many {
            protocol::FRAGMENT
        } else {
            message.protocol
        },
        hop_limit: message.hop_limit,
        src: addresses::to_v6(&message.source),
        dst: addresses::to_v6(&message.destination),
    };
    let len = header.emit(buffer);
    if part.one_of_many {
        let fragment = ipv6::Fragment {
            offset: part.offset as u16,
            more: !last,
            id: part.id,
        };
        ipv6::FragmentHeader {
            next_header: message.protocol,
            fragment,
        }
        .emit(&mut buffer[len..]);
    }
    len + extension
}

/// Gives a frame to the link and counts the result.
pub(super) fn transmit(
    out: &mut dyn Transmitter,
    frame: &[u8],
    counters: &mut Counters,
) -> Result<(), TransmitError> {
    let result = out.transmit(&Transmit {
        headers: frame,
        payload: &Gather::EMPTY,
        offload: Offload::default(),
    });
    match result {
        Ok(()) => counters.frames_sent += 1,
        Err(TransmitError::Full) => counters.link_full += 1,
        Err(TransmitError::Unreachable | TransmitError::TooLong) => counters.drop_unresolved += 1,
    }
    result
}
