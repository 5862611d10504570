//! Handles packets that exceed the other link's MTU and are no segments that could
//! be cut, as a router would.
//!
//! An IPv4 packet is fragmented if it permits that. The senders of other packets
//! get an ICMP error with the other link's MTU. The error's source is the packet's
//! destination, since a bridge has no address of its own.

use toehold_wire::{icmpv4, icmpv6, ipv4, ipv6, protocol};

use crate::layout::network_offset;

/// Length of the longest error over IPv4 and IPv6, headers included.
//= RFC 1812 §4.3.2.3
const MAX_V4: usize = 576;
//= RFC 4443 §2.4
const MAX_V6: usize = 1280;
/// Errors in a row, and the interval after which one more is permitted, in
/// nanoseconds.
const BURST: u64 = 32;
const PAUSE_NS: u64 = 10_000_000;

/// Limits the rate of errors.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    /// Time at which a full burst is permitted again.
    full_ns: u64,
}

impl Allowance {
    /// Returns whether an error may be sent now, and counts it.
    pub(super) fn take(&mut self, now_ns: u64) -> bool {
        let full_ns = self.full_ns.max(now_ns) + PAUSE_NS;
        let is_allowed = full_ns - now_ns <= BURST * PAUSE_NS;
        if is_allowed {
            self.full_ns = full_ns;
        }
        is_allowed
    }
}

/// Returns whether a frame's packet is longer than `packet`, wherever it
/// begins.
pub(super) fn exceeds(headers: &[u8], len: usize, packet: usize) -> bool {
    const SHORTEST_HEADER: usize = 14;
    len > packet + SHORTEST_HEADER
        && len > packet + network_offset(headers).unwrap_or(super::direction::MAX_LINK_HEADER)
}

/// Returns the frame that tells a packet's sender the largest packet length, `mtu`.
/// `beginning` is the beginning of the packet's frame. Returns `None` if no error
/// may be sent.
pub(super) fn report(beginning: &[u8], mtu: usize) -> Option<Vec<u8>> {
    let at = network_offset(beginning)?;
    let (destination, source) = (beginning.get(..6)?, beginning.get(6..12)?);
    if destination[0] & 1 == 1 || source[0] & 1 == 1 {
        return None;
    }
    let mut frame = [source, destination, beginning.get(12..at)?].concat();
    let packet = beginning.get(at..)?;
    match packet.first()? >> 4 {
        4 => report_v4(packet, mtu, &mut frame)?,
        6 => report_v6(packet, mtu, &mut frame)?,
        _ => return None,
    }
    Some(frame)
}

//= RFC 1191 §4
//= RFC 1122 §3.2.2
fn report_v4(packet: &[u8], mtu: usize, frame: &mut Vec<u8>) -> Option<()> {
    let view = ipv4::View::quoted(packet).ok()?;
    let asks = matches!(view.payload().first(), Some(0 | 8 | 13..=18));
    let is_error = view.protocol() == protocol::ICMPV4 && !asks;
    let is_one = !view.src().is_unspecified() && !view.src().is_multicast() && !view.src().is_broadcast();
    if is_error || view.fragment_offset() != 0 || !is_one || view.dst().is_multicast() {
        return None;
    }
    let room = MAX_V4 - ipv4::HEADER_LEN - icmpv4::HEADER_LEN;
    let message = icmpv4::Message::DestinationUnreachable {
        code: icmpv4::unreachable::FRAGMENTATION_NEEDED,
        mtu: mtu as u16,
        original: &packet[..packet.len().min(room)],
    };
    let mut buffer = [0; MAX_V4];
    let len = message.emit(&mut buffer[ipv4::HEADER_LEN..]);
    let header = ipv4::Header {
        protocol: protocol::ICMPV4,
        payload_len: len as u16,
        ..ipv4::Header::new(view.dst(), view.src())
    };
    header.emit(&mut buffer);
    frame.extend(&buffer[..ipv4::HEADER_LEN + len]);
    Some(())
}

//= RFC 4443 §3.2
//= RFC 4443 §2.4
fn report_v6(packet: &[u8], mtu: usize, frame: &mut Vec<u8>) -> Option<()> {
    let view = ipv6::View::quoted(packet).ok()?;
    let upper = view.upper().ok()?;
    let is_error =
        upper.protocol == protocol::ICMPV6 && view.payload().get(upper.offset).is_none_or(|kind| *kind < 128);
    if is_error || view.src().is_unspecified() || view.src().is_multicast() || view.dst().is_multicast() {
        return None;
    }
    let room = MAX_V6 - ipv6::HEADER_LEN - icmpv6::HEADER_LEN;
    let message = icmpv6::Message::PacketTooBig {
        mtu: mtu as u32,
        original: &packet[..packet.len().min(room)],
    };
    let mut buffer = [0; MAX_V6];
    let (src, dst) = (view.dst(), view.src());
    let len = message.emit(src, dst, &mut buffer[ipv6::HEADER_LEN..]);
    let header = ipv6::Header {
        payload_len: len as u16,
        next_header: protocol::ICMPV6,
        ..ipv6::Header::new(src, dst)
    };
    header.emit(&mut buffer);
    frame.extend(&buffer[..ipv6::HEADER_LEN + len]);
    Some(())
}

/// Returns the frames of a packet's fragments, if it may be fragmented: an IPv4
/// packet without options and with complete checksums.
//= RFC 791 §3.2
pub(super) fn fragments(frame: &[u8], mtu: usize) -> Option<impl Iterator<Item = Vec<u8>>> {
    let at = network_offset(frame)?;
    let (link, packet) = frame.split_at(at);
    let view = ipv4::View::new(packet, packet.len()).ok()?;
    let each = mtu.checked_sub(ipv4::HEADER_LEN)? & !7;
    if view.dont_fragment() || view.header_len() != ipv4::HEADER_LEN || each == 0 {
        return None;
    }
    let payload = view.payload();
    let header = ipv4::Header {
        tos: view.tos(),
        id: view.id(),
        dont_fragment: false,
        ttl: view.ttl(),
        protocol: view.protocol(),
        ..ipv4::Header::new(view.src(), view.dst())
    };
    let (is_last_of_all, first) = (!view.more_fragments(), view.fragment_offset());
    Some((0..payload.len()).step_by(each).map(move |start| {
        let part = &payload[start..payload.len().min(start + each)];
        let is_last = start + part.len() == payload.len();
        let header = ipv4::Header {
            more_fragments: !(is_last && is_last_of_all),
            fragment_offset: first + start as u16,
            payload_len: part.len() as u16,
            ..header
        };
        let mut emitted = [0; ipv4::HEADER_LEN];
        header.emit(&mut emitted);
        [link, &emitted, part].concat()
    }))
}
