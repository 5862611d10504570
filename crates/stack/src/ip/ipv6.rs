//! IPv6 packets that arrive.

use super::addresses::{self, Destination};
use super::ethernet::{Arrival, dropped, tcp_packet};
use super::fragments::{Key, Piece};
use super::icmp_error::Report;
use super::{Ingress, Ip, TcpPacket};
use crate::counters::Counters;
use core::net::Ipv6Addr;
use toehold_link::Received;
use toehold_wire::ipv6::{ExtensionError, Fragment, Problem, Upper};
use toehold_wire::{ipv6, protocol};

impl Ip {
    /// Handles the common case without detours: a whole TCP segment to this stack, without
    /// extension headers. Returns `None` if the frame needs the general path.
    #[inline]
    pub(super) fn plain_tcp_v6<'a>(&self, frame: &'a Received<'a>, start: usize) -> Option<TcpPacket<'a>> {
        let own = self.own.ipv6.as_ref()?;
        let header: &[u8; ipv6::HEADER_LEN] = frame.private.get(start..)?.first_chunk()?;
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let (source, destination) = (address_at::<8>(header), address_at::<24>(header));
        let plain = header[0] >> 4 == 6
            && header[6] == protocol::TCP
            && (destination == own.address || destination == own.link_local)
            && len + ipv6::HEADER_LEN <= frame.len() - start
            && self.own.is_plausible_source_v6(source);
        if !plain {
            return None;
        }
        let ends = (addresses::from_v6(source), addresses::from_v6(destination));
        Some(tcp_packet(
            frame,
            start + ipv6::HEADER_LEN,
            len,
            ends,
            (header[1] >> 4 & 3, header[7]),
        ))
    }

    pub(super) fn receive_ipv6<'a>(&mut self, arrival: &Arrival<'a>, counters: &mut Counters) -> Ingress<'a> {
        let Ok(view) = ipv6::View::new(arrival.private(), arrival.len()) else {
            return dropped(&mut counters.drop_malformed);
        };
        let destination = self.own.destination_v6(view.dst());
        if destination == Destination::Other {
            return self.elsewhere(counters, |counters| &mut counters.drop_not_local);
        }
        if destination == Destination::Own && arrival.to_group {
            return dropped(&mut counters.drop_not_local);
        }
        //= RFC 4861 §7.1.1
        // A node without an address may ask for one. Neighbour discovery decides; no other protocol
        // accepts such a source.
        let unspecified = view.src().is_unspecified();
        if !unspecified && !self.own.is_plausible_source_v6(view.src()) {
            return dropped(&mut counters.drop_bad_source);
        }
        let to_own = destination == Destination::Own;
        let upper = view.upper();
        if is_cut(&upper, arrival) {
            return Ingress::Whole(arrival.whole());
        }
        let upper = match upper {
            Ok(upper) => upper,
            Err(_) if self.beside_kernel => {
                return self.elsewhere(counters, |counters| &mut counters.drop_extension_header);
            }
            Err(error) => {
                if let (ExtensionError::Problem(problem), false) = (error, unspecified)
                    && (to_own || problem.despite_multicast)
                {
                    self.report_arrival(arrival, Report::Problem(problem), counters);
                }
                return dropped(&mut counters.drop_extension_header);
            }
        };
        if unspecified && upper.protocol != protocol::ICMPV6 {
            return dropped(&mut counters.drop_bad_source);
        }
        match upper.fragment {
            Some(_) if self.beside_kernel && upper.protocol != protocol::TCP => {
                self.elsewhere(counters, |counters| &mut counters.drop_fragment)
            }
            Some(fragment) => self.receive_fragment_v6(arrival, &view, upper, fragment, counters),
            None => self.receive_upper_v6(arrival, &view, upper, to_own, counters),
        }
    }

    /// Handles a packet behind its extension headers.
    fn receive_upper_v6<'a>(
        &mut self,
        arrival: &Arrival<'a>,
        view: &ipv6::View<'a>,
        upper: Upper,
        to_own: bool,
        counters: &mut Counters,
    ) -> Ingress<'a> {
        let len = usize::from(view.payload_len()).saturating_sub(upper.offset);
        match upper.protocol {
            protocol::TCP if to_own => {
                let ends = (addresses::from_v6(view.src()), addresses::from_v6(view.dst()));
                let start = arrival.start + ipv6::HEADER_LEN + upper.offset;
                let packet = tcp_packet(arrival.frame, start, len, ends, (view.ecn(), view.hop_limit()));
                counters.tcp_segments_received += 1;
                Ingress::Tcp(packet)
            }
            //= RFC 9293 §3.9.2.3
            protocol::TCP => dropped(&mut counters.drop_not_local),
            protocol::ICMPV6 => self.receive_icmpv6(arrival, view, upper, to_own, counters),
            _ if self.beside_kernel => self.elsewhere(counters, |counters| &mut counters.drop_protocol),
            //= RFC 8200 §4.7
            protocol::NO_NEXT_HEADER => dropped(&mut counters.drop_protocol),
            protocol::UDP if to_own => {
                let part = (ipv6::HEADER_LEN + upper.offset, len);
                self.refuse_udp(arrival, part, (view.src().into(), view.dst().into()), counters)
            }
            _ => {
                if to_own {
                    //= RFC 4443 §3.4
                    //= RFC 8200 §4
                    let unknown = Problem {
                        code: 1,
                        pointer: upper.named_at as u32,
                        despite_multicast: false,
                    };
                    self.report_arrival(arrival, Report::Problem(unknown), counters);
                }
                dropped(&mut counters.drop_protocol)
            }
        }
    }

    #[cold]
    fn receive_fragment_v6<'a>(
        &mut self,
        arrival: &Arrival<'a>,
        view: &ipv6::View<'a>,
        upper: Upper,
        fragment: Fragment,
        counters: &mut Counters,
    ) -> Ingress<'a> {
        let key = Key {
            source: addresses::from_v6(view.src()),
            destination: addresses::from_v6(view.dst()),
            id: fragment.id,
            protocol: 0,
        };
        let mut scratch = core::mem::take(&mut self.scratch);
        let total = arrival
            .copy_to(&mut scratch)
            .min(ipv6::HEADER_LEN + usize::from(view.payload_len()));
        let (header, data) = scratch[..total].split_at((ipv6::HEADER_LEN + upper.offset).min(total));
        let complete_chain = fragment.offset != 0
            || ipv6::walk(upper.protocol, data, data.len()) != Err(ExtensionError::Truncated);
        let piece = Piece {
            key,
            header,
            data,
            offset: fragment.offset,
            more: fragment.more,
            ecn: view.ecn(),
        };
        let outcome = complete_chain.then(|| self.fragments.insert(arrival.now, &piece, &mut self.state[0]));
        self.scratch = scratch;
        if let Some(outcome) = outcome {
            return self.fragment_outcome(arrival, outcome, counters);
        }
        //= RFC 7112 §5
        // The first fragment must contain all headers.
        let cut = Problem {
            code: 3,
            pointer: 0,
            despite_multicast: false,
        };
        if !arrival.to_group {
            self.report_arrival(arrival, Report::Problem(cut), counters);
        }
        dropped(&mut counters.drop_fragment)
    }
}

#[inline]
fn address_at<const AT: usize>(header: &[u8; ipv6::HEADER_LEN]) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&header[AT..AT + 16]);
    Ipv6Addr::from(octets)
}

/// Whether a packet's headers, including the TCP header, exceed the private bytes.
#[inline]
fn is_cut(upper: &Result<Upper, ExtensionError>, arrival: &Arrival<'_>) -> bool {
    /// Longest TCP header.
    const LONGEST: usize = 60;
    let private = arrival.private().len();
    private < arrival.len()
        && match upper {
            Ok(upper) => upper.offset > 0 && ipv6::HEADER_LEN + upper.offset + LONGEST > private,
            Err(error) => *error == ExtensionError::Truncated,
        }
}
