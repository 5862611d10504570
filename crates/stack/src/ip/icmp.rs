//! Control messages that arrive. The stack answers echo requests and passes errors about TCP up.
//! Neighbour discovery has a file of its own; all other messages are dropped.

use super::addresses;
use super::egress::Message as Outgoing;
use super::ethernet::{Arrival, dropped};
use super::headers::HOP_LIMIT;
use super::ingress::{IcmpError, IcmpErrorKind, IcmpOrigin};
use super::{Ingress, Ip};
use crate::counters::Counters;
use crate::tuple::{Address, FourTuple};
use toehold_wire::ipv6::Upper;
use toehold_wire::ndisc::Delivery;
use toehold_wire::quote::Quote;
use toehold_wire::{icmpv4, icmpv6, ipv4, ipv6, protocol};

const ECHO_REPLY_V4: u8 = 0;
const ECHO_REPLY_V6: u8 = 129;

/// Common MTUs, tried in turn when a router does not report the MTU of the next hop.
//= RFC 1191 §7
const PLATEAUS: [u16; 10] = [32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];

/// An echo request to answer, in the scratch buffer.
struct Echo {
    /// Source address of the answer.
    source: Address,
    destination: Address,
    tos: u8,
    /// Offset of the message.
    start: usize,
    end: usize,
}

impl Ip {
    pub(super) fn receive_icmpv4<'a>(
        &mut self,
        arrival: &Arrival<'_>,
        view: &ipv4::View<'_>,
        to_own: bool,
        counters: &mut Counters,
    ) -> Ingress<'a> {
        let end = arrival
            .copy_to(&mut self.scratch)
            .min(usize::from(view.total_len()));
        let start = view.header_len().min(end);
        let Ok(message) = icmpv4::View::new(&self.scratch[start..end]) else {
            return dropped(&mut counters.drop_malformed);
        };
        if !message.verify(0, 0) {
            return dropped(&mut counters.drop_checksum);
        }
        //= RFC 1122 §3.2.2.6
        // Requests to a group are not answered: they would serve to flood.
        if !to_own {
            return self.elsewhere(counters, |counters| &mut counters.drop_icmp);
        }
        if !matches!(
            icmpv4::Message::parse(&message),
            icmpv4::Message::EchoRequest { .. }
        ) {
            let origin = IcmpOrigin {
                from: addresses::from_v4(view.src()),
                kind: self.scratch[start],
                code: self.scratch[start + 1],
            };
            return self.error_v4(&icmpv4::Message::parse(&message), origin, counters);
        }
        if self.beside_kernel {
            return self.elsewhere(counters, |counters| &mut counters.drop_icmp);
        }
        //= RFC 1122 §3.2.2.6
        let (source, destination) = (addresses::from_v4(view.dst()), addresses::from_v4(view.src()));
        self.scratch[start] = ECHO_REPLY_V4;
        icmpv4::set_checksum(&mut self.scratch[start..end], 0);
        self.answer_echo(
            arrival,
            &Echo {
                source,
                destination,
                tos: view.tos(),
                start,
                end,
            },
            counters,
        );
        Ingress::Done
    }

    pub(super) fn receive_icmpv6<'a>(
        &mut self,
        arrival: &Arrival<'_>,
        view: &ipv6::View<'_>,
        upper: Upper,
        to_own: bool,
        counters: &mut Counters,
    ) -> Ingress<'a> {
        let end = ipv6::HEADER_LEN + usize::from(view.payload_len());
        let end = arrival.copy_to(&mut self.scratch).min(end);
        let start = (ipv6::HEADER_LEN + upper.offset).min(end);
        let scratch = core::mem::take(&mut self.scratch);
        let (message, unspecified) = (
            icmpv6::View::new(&scratch[start..end]),
            view.src().is_unspecified(),
        );
        let pseudo_header = icmpv6::pseudo_header(view.src(), view.dst(), end - start);
        let ingress = match message {
            Err(_) => dropped(&mut counters.drop_malformed),
            Ok(message) if !message.verify(pseudo_header, 0) => dropped(&mut counters.drop_checksum),
            Ok(message) => match icmpv6::Message::parse(&message) {
                icmpv6::Message::NeighborDiscovery => {
                    //= RFC 6980 §5
                    // No extension header may stand between the IP header and the message, least of
                    // all a fragment header.
                    if upper.offset != 0 || !self.link.ethernet {
                        dropped(&mut counters.drop_neighbor)
                    } else {
                        let delivery = Delivery {
                            src: view.src(),
                            dst: view.dst(),
                            hop_limit: view.hop_limit(),
                        };
                        let taken = self.receive_discovery(arrival, &message, &delivery, counters);
                        self.for_both(taken)
                    }
                }
                icmpv6::Message::Other {
                    kind: toehold_wire::mld::QUERY,
                    ..
                } if !unspecified => {
                    self.receive_query(arrival, view, &scratch[start..end], counters);
                    self.for_both(Ingress::Done)
                }
                _ if unspecified => self.elsewhere(counters, |counters| &mut counters.drop_bad_source),
                // Requests to a group would serve to flood (RFC 4443 §4.2 leaves the answer open).
                _ if !to_own => self.elsewhere(counters, |counters| &mut counters.drop_icmp),
                icmpv6::Message::EchoRequest { .. } if self.beside_kernel => {
                    self.elsewhere(counters, |counters| &mut counters.drop_icmp)
                }
                icmpv6::Message::EchoRequest { .. } => {
                    self.scratch = scratch;
                    return self.answer_echo_v6(arrival, view, (start, end), counters);
                }
                other => {
                    let origin = IcmpOrigin {
                        from: addresses::from_v6(view.src()),
                        kind: scratch[start],
                        code: scratch[start + 1],
                    };
                    self.error_v6(&other, origin, counters)
                }
            },
        };
        self.scratch = scratch;
        ingress
    }

    //= RFC 4443 §4.2
    fn answer_echo_v6<'a>(
        &mut self,
        arrival: &Arrival<'_>,
        view: &ipv6::View<'_>,
        (start, end): (usize, usize),
        counters: &mut Counters,
    ) -> Ingress<'a> {
        let pseudo_header = icmpv6::pseudo_header(view.dst(), view.src(), end - start);
        self.scratch[start] = ECHO_REPLY_V6;
        icmpv6::set_checksum(&mut self.scratch[start..end], pseudo_header, 0);
        let (source, destination) = (addresses::from_v6(view.dst()), addresses::from_v6(view.src()));
        let tos = view.traffic_class();
        self.answer_echo(
            arrival,
            &Echo {
                source,
                destination,
                tos,
                start,
                end,
            },
            counters,
        );
        Ingress::Done
    }

    fn answer_echo(&mut self, arrival: &Arrival<'_>, echo: &Echo, counters: &mut Counters) {
        if !self.speaks {
            counters.left_to_first_shard += 1;
            return;
        }
        let scratch = core::mem::take(&mut self.scratch);
        let outgoing = Outgoing {
            source: echo.source,
            destination: echo.destination,
            protocol: if echo.destination.is_ipv4() {
                protocol::ICMPV4
            } else {
                protocol::ICMPV6
            },
            hop_limit: HOP_LIMIT,
            // The class of the request (RFC 1349 §5.1), never a congestion mark.
            tos: echo.tos & 0xfc,
            payload: &scratch[echo.start..echo.end],
        };
        let answered = self.send_message(arrival.now, &outgoing, counters);
        self.scratch = scratch;
        counters.icmp_echo_replies += u64::from(answered);
    }

    /// An error, perhaps about a segment of this stack.
    fn error_v4<'a>(
        &self,
        message: &icmpv4::Message<'_>,
        origin: IcmpOrigin,
        counters: &mut Counters,
    ) -> Ingress<'a> {
        use icmpv4::Message::{DestinationUnreachable, ParameterProblem, TimeExceeded};
        let (original, kind) = match *message {
            DestinationUnreachable { code, mtu, original } => (original, unreachable_v4(code, mtu)),
            TimeExceeded { original, .. } => (original, Some(IcmpErrorKind::TimeExceeded)),
            ParameterProblem { original, .. } => (original, Some(IcmpErrorKind::ParameterProblem)),
            //= RFC 6633 §3
            //= RFC 1122 §3.2.2
            // Source quench and all other types.
            _ => (&[][..], None),
        };
        self.error(Quote::v4(original).ok(), kind, origin, counters)
    }

    fn error_v6<'a>(
        &self,
        message: &icmpv6::Message<'_>,
        origin: IcmpOrigin,
        counters: &mut Counters,
    ) -> Ingress<'a> {
        use icmpv6::Message::{DestinationUnreachable, PacketTooBig, ParameterProblem, TimeExceeded};
        let (original, kind) = match *message {
            DestinationUnreachable { code, original } => (original, unreachable_v6(code)),
            PacketTooBig { mtu, original } => {
                let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
                (original, Some(IcmpErrorKind::FragmentationNeeded { mtu }))
            }
            TimeExceeded { original, .. } => (original, Some(IcmpErrorKind::TimeExceeded)),
            ParameterProblem { original, .. } => (original, Some(IcmpErrorKind::ParameterProblem)),
            _ => (&[][..], None),
        };
        self.error(Quote::v6(original).ok(), kind, origin, counters)
    }

    /// Maps the quoted packet to a connection of this stack.
    //= RFC 1122 §4.2.3.9
    //= RFC 5927 §4
    fn error<'a>(
        &self,
        quote: Option<Quote>,
        kind: Option<IcmpErrorKind>,
        origin: IcmpOrigin,
        counters: &mut Counters,
    ) -> Ingress<'a> {
        let (Some(quote), Some(kind)) = (quote, kind) else {
            return self.elsewhere(counters, |counters| &mut counters.drop_icmp);
        };
        let (local, remote) = (Address::from(quote.src), Address::from(quote.dst));
        let ours = match quote.src {
            core::net::IpAddr::V4(source) => self.own.is_own_v4(source),
            core::net::IpAddr::V6(source) => self.own.is_own_v6(source),
        };
        let (Some(seq), true) = (quote.seq, ours) else {
            return self.elsewhere(counters, |counters| &mut counters.drop_icmp);
        };
        let kind = match kind {
            IcmpErrorKind::FragmentationNeeded { mtu } => {
                let Some(mtu) = believable_mtu(mtu, quote.packet_len, remote.is_ipv4()) else {
                    return self.elsewhere(counters, |counters| &mut counters.drop_icmp);
                };
                IcmpErrorKind::FragmentationNeeded { mtu }
            }
            kind => kind,
        };
        let tuple = FourTuple {
            local,
            remote,
            local_port: quote.src_port,
            remote_port: quote.dst_port,
        };
        Ingress::IcmpError(IcmpError {
            tuple,
            seq,
            kind,
            origin,
        })
    }
}

/// Validates a reported MTU against the packet that it is about.
fn believable_mtu(mtu: u16, packet_len: u32, is_v4: bool) -> Option<u16> {
    if !is_v4 {
        //= RFC 8201 §4
        return (mtu >= super::path_mtu::LEAST_IPV6 && u32::from(mtu) < packet_len).then_some(mtu);
    }
    let mtu = match mtu {
        //= RFC 1191 §5
        // An old router reports no MTU: use the next common MTU below the packet's length.
        0 => PLATEAUS
            .into_iter()
            .find(|plateau| u32::from(*plateau) < packet_len)?,
        mtu => mtu,
    };
    //= RFC 1191 §3
    // A packet that fits was not dropped for its length.
    (mtu >= super::path_mtu::LEAST_POSSIBLE_IPV4 && u32::from(mtu) < packet_len).then_some(mtu)
}

//= RFC 1122 §3.2.2.1
fn unreachable_v4(code: u8, mtu: u16) -> Option<IcmpErrorKind> {
    use icmpv4::unreachable as code_of;
    match code {
        code_of::NET => Some(IcmpErrorKind::NetUnreachable),
        code_of::HOST => Some(IcmpErrorKind::HostUnreachable),
        // 6, 11: network unknown, or not for this type of service.
        6 | code_of::NET_PROHIBITED | 11 => Some(IcmpErrorKind::NetRefused),
        // 12: not for this type of service; 14, 15: precedence.
        code_of::HOST_PROHIBITED | 12 | code_of::PROHIBITED | 14 | 15 => Some(IcmpErrorKind::HostRefused),
        code_of::SOURCE_ROUTE_FAILED => Some(IcmpErrorKind::SourceRouteFailed),
        7 => Some(IcmpErrorKind::HostUnknown),
        8 => Some(IcmpErrorKind::HostIsolated),
        code_of::PROTOCOL => Some(IcmpErrorKind::ProtocolUnreachable),
        code_of::PORT => Some(IcmpErrorKind::PortUnreachable),
        code_of::FRAGMENTATION_NEEDED => Some(IcmpErrorKind::FragmentationNeeded { mtu }),
        _ => None,
    }
}

//= RFC 4443 §3.1
fn unreachable_v6(code: u8) -> Option<IcmpErrorKind> {
    use icmpv6::unreachable as code_of;
    match code {
        code_of::NO_ROUTE => Some(IcmpErrorKind::NetUnreachable),
        code_of::BEYOND_SCOPE | code_of::ADDRESS => Some(IcmpErrorKind::HostUnreachable),
        code_of::PORT => Some(IcmpErrorKind::PortUnreachable),
        code_of::PROHIBITED | code_of::POLICY | code_of::REJECTED => Some(IcmpErrorKind::Prohibited),
        _ => Some(IcmpErrorKind::Unknown),
    }
}
