//! IPv4 packets that arrive.

use super::addresses::{self, Destination};
use super::ethernet::{Arrival, dropped, tcp_packet};
use super::fragments::{Key, Outcome, Piece};
use super::headers::header_sum;
use super::icmp_error::Report;
use super::{Ingress, Ip, TcpPacket};
use crate::counters::Counters;
use core::net::Ipv4Addr;
use toehold_link::Received;
use toehold_wire::{WireError, ethernet, ipv4, protocol};

impl Ip {
    /// Handles the common case without detours: a whole TCP segment to this stack, without options.
    /// Returns `None` if the frame needs the general path.
    #[inline]
    pub(super) fn plain_tcp_v4<'a>(&self, frame: &'a Received<'a>, start: usize) -> Option<TcpPacket<'a>> {
        let own = self.own.ipv4?;
        let header: &[u8; ipv4::HEADER_LEN] = frame.private.get(start..)?.first_chunk()?;
        let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let source = Ipv4Addr::new(header[12], header[13], header[14], header[15]);
        let destination = Ipv4Addr::new(header[16], header[17], header[18], header[19]);
        // The mask leaves out a reserved bit and "don't fragment".
        let whole = u16::from_be_bytes([header[6], header[7]]) & 0x3fff == 0;
        let plain = header[0] == 0x45
            && header[9] == protocol::TCP
            && whole
            && destination == own.address
            && (ipv4::HEADER_LEN..=frame.len() - start).contains(&len)
            && header_sum(header) == 0xffff
            && self.own.is_plausible_source_v4(source);
        if !plain {
            return None;
        }
        let ends = (addresses::from_v4(source), addresses::from_v4(destination));
        Some(tcp_packet(
            frame,
            start + ipv4::HEADER_LEN,
            len - ipv4::HEADER_LEN,
            ends,
            (header[1] & 3, header[8]),
        ))
    }

    pub(super) fn receive_ipv4<'a>(&mut self, arrival: &Arrival<'a>, counters: &mut Counters) -> Ingress<'a> {
        let view = match ipv4::View::new(arrival.private(), arrival.len()) {
            Ok(view) => view,
            Err(WireError::BadChecksum) => return dropped(&mut counters.drop_checksum),
            Err(_) => return dropped(&mut counters.drop_malformed),
        };
        let destination = self.own.destination_v4(view.dst());
        if destination == Destination::Other {
            return self.elsewhere(counters, |counters| &mut counters.drop_not_local);
        }
        //= RFC 1122 §3.3.6
        // A unicast packet in a group frame is a mistake of the sender.
        if destination == Destination::Own && arrival.to_group {
            return dropped(&mut counters.drop_not_local);
        }
        if !self.own.is_plausible_source_v4(view.src()) {
            // A host that asks the kernel for an address has none yet (RFC 2131 §4.1).
            return match view.protocol() {
                protocol::TCP => dropped(&mut counters.drop_bad_source),
                _ => self.elsewhere(counters, |counters| &mut counters.drop_bad_source),
            };
        }
        // No honest sender uses source routes (RFC 7126 §4.3, §4.4).
        if view.has_source_route() {
            return dropped(&mut counters.drop_malformed);
        }
        if view.is_fragment() {
            // Of the packets for the kernel, the stack reassembles TCP only.
            if self.beside_kernel && view.protocol() != protocol::TCP {
                return self.elsewhere(counters, |counters| &mut counters.drop_fragment);
            }
            return self.receive_fragment_v4(arrival, &view, counters);
        }
        let to_own = destination == Destination::Own;
        match view.protocol() {
            protocol::TCP if to_own => {
                let ends = (addresses::from_v4(view.src()), addresses::from_v4(view.dst()));
                let start = arrival.start + view.header_len();
                let len = usize::from(view.payload_len());
                let packet = tcp_packet(arrival.frame, start, len, ends, (view.ecn(), view.ttl()));
                counters.tcp_segments_received += 1;
                Ingress::Tcp(packet)
            }
            //= RFC 9293 §3.9.2.3
            // A segment to a group is dropped without an answer.
            protocol::TCP => dropped(&mut counters.drop_not_local),
            protocol::ICMPV4 => self.receive_icmpv4(arrival, &view, to_own, counters),
            protocol::UDP if to_own && !self.beside_kernel => {
                let part = (view.header_len(), usize::from(view.payload_len()));
                self.refuse_udp(arrival, part, (view.src().into(), view.dst().into()), counters)
            }
            _ => {
                //= RFC 1122 §3.2.2.1
                if to_own && !self.beside_kernel {
                    self.report_arrival(arrival, Report::NoProtocol, counters);
                }
                self.elsewhere(counters, |counters| &mut counters.drop_protocol)
            }
        }
    }

    #[cold]
    fn receive_fragment_v4<'a>(
        &mut self,
        arrival: &Arrival<'a>,
        view: &ipv4::View<'a>,
        counters: &mut Counters,
    ) -> Ingress<'a> {
        let key = Key {
            source: addresses::from_v4(view.src()),
            destination: addresses::from_v4(view.dst()),
            id: u32::from(view.id()),
            protocol: u32::from(view.protocol()),
        };
        let mut scratch = core::mem::take(&mut self.scratch);
        let total = arrival.copy_to(&mut scratch).min(usize::from(view.total_len()));
        let (header, data) = scratch[..total].split_at(view.header_len().min(total));
        let (offset, more, ecn) = (view.fragment_offset(), view.more_fragments(), view.ecn());
        let piece = Piece {
            key,
            header,
            data,
            offset,
            more,
            ecn,
        };
        let outcome = self.fragments.insert(arrival.now, &piece, &mut self.state[0]);
        self.scratch = scratch;
        self.fragment_outcome(arrival, outcome, counters)
    }

    /// Passes on the result of a fragment of either family.
    pub(super) fn fragment_outcome<'a>(
        &mut self,
        arrival: &Arrival<'a>,
        outcome: Outcome,
        counters: &mut Counters,
    ) -> Ingress<'a> {
        match outcome {
            Outcome::Kept => Ingress::Done,
            Outcome::Refused => dropped(&mut counters.drop_fragment),
            Outcome::Complete(datagram) => {
                // Without a VLAN tag, which only some of the fragments may have carried.
                let mut link_header = [0; ethernet::HEADER_LEN];
                let header_len = self.link.header_len;
                if let Some(front) = arrival.frame.private.first_chunk::<12>() {
                    link_header[..12].copy_from_slice(front);
                    let behind = arrival.private().first().map_or(0, |byte| byte >> 4);
                    let ethertype: [u8; 2] = if behind == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
                    link_header[12..].copy_from_slice(&ethertype);
                }
                match self.fragments.take(datagram, &link_header[..header_len]) {
                    Some(frame) => Ingress::Reassembled(frame),
                    None => dropped(&mut counters.drop_fragment),
                }
            }
        }
    }
}
