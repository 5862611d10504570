//! ICMP errors that this stack sends: about packets that it does not know, cannot read, or could
//! not reassemble.

use super::Ip;
use super::addresses;
use super::egress::Message as Outgoing;
use super::ethernet::Arrival;
use super::headers::HOP_LIMIT;
use crate::counters::Counters;
use crate::time::Instant;
use toehold_wire::ipv6::Problem;
use toehold_wire::{icmpv4, icmpv6, ipv4, ipv6, protocol};

/// Longest message: the minimum MTU of IPv6, without the IPv6 header.
//= RFC 4443 §2.4
const MAX_MESSAGE_V6: usize = super::path_mtu::LEAST_IPV6 as usize - ipv6::HEADER_LEN;
/// Longest message over IPv4, without IPv4 header.
//= RFC 1812 §4.3.2.3
const MAX_MESSAGE_V4: usize = 576 - ipv4::HEADER_LEN;

/// The fault of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// The port has no listener or connection.
    NoPort,
    /// The protocol has no handler (IPv4).
    NoProtocol,
    /// The headers are invalid (IPv6).
    Problem(Problem),
    /// Fragments were missing for too long.
    Reassembly,
}

impl Ip {
    /// Reports a packet to its sender. The caller knows that the packet was sent to this stack
    /// alone, or that a report is due nevertheless.
    #[cold]
    pub(super) fn report_arrival(&mut self, arrival: &Arrival<'_>, report: Report, counters: &mut Counters) {
        let excused = matches!(report, Report::Problem(problem) if problem.despite_multicast);
        // One report is enough if several shards of the node receive the packet.
        if (arrival.to_group && !excused) || !self.answers {
            return;
        }
        let mut scratch = core::mem::take(&mut self.scratch);
        let len = arrival.copy_to(&mut scratch[..MAX_MESSAGE_V6]);
        self.report(arrival.now, &scratch[..len], report, counters);
        self.scratch = scratch;
    }

    /// Reports the packet that begins with `original` to its sender.
    fn report(&mut self, now: Instant, original: &[u8], report: Report, counters: &mut Counters) {
        let mut buffer = [0; MAX_MESSAGE_V6];
        let outgoing = match original.first().map(|byte| byte >> 4) {
            Some(4) => self.error_message_v4(original, report, &mut buffer),
            _ => self.error_message_v6(original, report, &mut buffer),
        };
        let Some(outgoing) = outgoing else { return };
        if !self.state[0].take_error_token(now) {
            counters.icmp_errors_limited += 1;
            return;
        }
        let sent = self.send_message(now, &outgoing, counters);
        counters.icmp_errors_sent += u64::from(sent);
    }

    //= RFC 1122 §3.2.2
    fn error_message_v4<'a>(
        &self,
        original: &[u8],
        report: Report,
        buffer: &'a mut [u8; MAX_MESSAGE_V6],
    ) -> Option<Outgoing<'a>> {
        let view = ipv4::View::quoted(original).ok()?;
        let about_error = view.protocol() == protocol::ICMPV4 && !is_query_v4(view.payload());
        if about_error || view.fragment_offset() != 0 || !self.own.is_own_v4(view.dst()) {
            return None;
        }
        let whole = original.len().min(usize::from(view.total_len()));
        let original = &original[..whole.min(MAX_MESSAGE_V4 - icmpv4::HEADER_LEN)];
        let unreachable = |code| icmpv4::Message::DestinationUnreachable {
            code,
            mtu: 0,
            original,
        };
        let message = match report {
            Report::NoPort => unreachable(icmpv4::unreachable::PORT),
            Report::NoProtocol => unreachable(icmpv4::unreachable::PROTOCOL),
            //= RFC 1122 §3.3.2
            Report::Reassembly => icmpv4::Message::TimeExceeded { code: 1, original },
            Report::Problem(_) => return None,
        };
        let len = message.emit(buffer);
        Some(Outgoing {
            source: addresses::from_v4(view.dst()),
            destination: addresses::from_v4(view.src()),
            protocol: protocol::ICMPV4,
            hop_limit: HOP_LIMIT,
            tos: 0,
            payload: &buffer[..len],
        })
    }

    //= RFC 4443 §2.4
    fn error_message_v6<'a>(
        &self,
        original: &[u8],
        report: Report,
        buffer: &'a mut [u8; MAX_MESSAGE_V6],
    ) -> Option<Outgoing<'a>> {
        let view = ipv6::View::quoted(original).ok()?;
        if is_error_v6(&view) {
            return None;
        }
        //= RFC 4443 §2.2
        // The source is the packet's destination if that is an address of this stack alone.
        let source = if self.own.is_own_v6(view.dst()) {
            view.dst()
        } else {
            addresses::to_v6(&self.own.source_for(&addresses::from_v6(view.src()))?)
        };
        let whole = original
            .len()
            .min(ipv6::HEADER_LEN + usize::from(view.payload_len()));
        let original = &original[..whole.min(MAX_MESSAGE_V6 - icmpv6::HEADER_LEN)];
        let message = match report {
            Report::NoPort => icmpv6::Message::DestinationUnreachable {
                code: icmpv6::unreachable::PORT,
                original,
            },
            Report::Problem(Problem { code, pointer, .. }) => icmpv6::Message::ParameterProblem {
                code,
                pointer,
                original,
            },
            //= RFC 8200 §4.5
            Report::Reassembly => icmpv6::Message::TimeExceeded { code: 1, original },
            Report::NoProtocol => return None,
        };
        let len = message.emit(source, view.src(), buffer);
        Some(Outgoing {
            source: addresses::from_v6(source),
            destination: addresses::from_v6(view.src()),
            protocol: protocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            tos: 0,
            payload: &buffer[..len],
        })
    }

    /// Discards datagrams whose fragments did not arrive in time.
    pub(super) fn expire_fragments(&mut self, now: Instant, counters: &mut Counters) {
        while let Some(datagram) = self.fragments.expired(now) {
            let mut scratch = core::mem::take(&mut self.scratch);
            let first = self.fragments.give_up(datagram, &mut scratch[..MAX_MESSAGE_V6]);
            if let Some(len) = first.filter(|_| self.speaks) {
                self.report(now, &scratch[..len], Report::Reassembly, counters);
            }
            self.scratch = scratch;
            counters.drop_fragment += 1;
        }
    }
}

/// Whether an ICMPv4 message is a request or an answer. Errors and unknown types are not.
fn is_query_v4(message: &[u8]) -> bool {
    matches!(message.first(), Some(0 | 8 | 13..=18))
}

/// Whether a packet carries an ICMPv6 error, or may carry one.
fn is_error_v6(view: &ipv6::View<'_>) -> bool {
    let Ok(upper) = view.upper() else { return false };
    upper.protocol == protocol::ICMPV6 && view.payload().get(upper.offset).is_none_or(|kind| *kind < 128)
}
