//! Offsets of the headers of a TCP or UDP frame, for the work of a network card:
//! checksums and segmentation. Other frames have no layout.

use toehold_shm::Gather;
use toehold_wire::checksum::{combine, finish, sum};

use crate::Transmit;

const ETHERNET_HEADER: usize = 14;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
/// Most extension headers of a frame with a layout.
//= RFC 8504 §5.3 (a node may bound extension headers)
const MAX_EXTENSIONS: usize = 64;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION_OPTIONS: u8 = 60;

/// The transport protocols that network cards know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    /// Returns the offset of the checksum in the header.
    pub(crate) fn checksum_at(self) -> usize {
        match self {
            Transport::Tcp => 16,
            Transport::Udp => 6,
        }
    }

    fn number(self) -> u8 {
        match self {
            Transport::Tcp => 6,
            Transport::Udp => 17,
        }
    }
}

/// Offsets from the beginning of the frame, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Offset of the IP header.
    pub(crate) network: usize,
    /// Offset of the TCP or UDP header.
    pub(crate) transport: usize,
    /// Offset of the data behind the transport header.
    pub(crate) payload: usize,
    /// Offset of the packet's final destination address.
    destination: usize,
    /// Whether the IP header is IPv4 (otherwise IPv6).
    pub(crate) is_v4: bool,
    pub(crate) protocol: Transport,
}

impl Layout {
    /// Returns the layout of the frame that begins with these bytes. Returns `None`
    /// unless it is TCP or UDP over IP, no fragment, with all headers in these
    /// bytes.
    pub(crate) fn of(beginning: &[u8]) -> Option<Layout> {
        Layout::of_packet(beginning, network_offset(beginning)?)
    }

    /// Returns the layout of the frame that begins with these bytes, with an IP
    /// header at `network`.
    pub(crate) fn of_packet(beginning: &[u8], network: usize) -> Option<Layout> {
        let packet = beginning.get(network..)?;
        let (next, transport, destination, is_v4) = match packet.first()? >> 4 {
            4 => (*packet.get(9)?, ipv4_transport(packet)?, 16, true),
            6 => {
                let Chain {
                    next,
                    at,
                    destination,
                } = Chain::of(packet).ok()?;
                (next, at, destination, false)
            }
            _ => return None,
        };
        let header = packet.get(transport..)?;
        let (protocol, len) = match next {
            6 => (Transport::Tcp, tcp_header_len(header)?),
            17 => (Transport::Udp, 8),
            _ => return None,
        };
        (header.len() >= len).then_some(Layout {
            network,
            transport: network + transport,
            payload: network + transport + len,
            destination: network + destination,
            is_v4,
            protocol,
        })
    }

    /// Returns the length of the IP packet in bytes, from its header.
    pub(crate) fn packet_len(&self, headers: &[u8]) -> usize {
        let field = |at: usize| usize::from(u16::from_be_bytes([headers[at], headers[at + 1]]));
        if self.is_v4 {
            field(self.network + 2)
        } else {
            IPV6_HEADER + field(self.network + 4)
        }
    }

    /// Writes the length of the IP packet, the length of its UDP datagram, and the
    /// checksum of an IPv4 header. Returns `false`, with nothing written, if no
    /// packet can be that long.
    pub(crate) fn set_packet_len(&self, headers: &mut [u8], len: usize) -> bool {
        let transport_len = len - (self.transport - self.network);
        let counted = if self.is_v4 { len } else { len - IPV6_HEADER };
        let Ok(counted) = u16::try_from(counted) else {
            return false;
        };
        let at = self.network + if self.is_v4 { 2 } else { 4 };
        headers[at..at + 2].copy_from_slice(&counted.to_be_bytes());
        if self.is_v4 {
            let header = &mut headers[self.network..self.transport];
            header[10..12].fill(0);
            let checksum = finish(sum(header));
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        if self.protocol == Transport::Udp {
            let len = (transport_len as u16).to_be_bytes();
            headers[self.transport + 4..self.transport + 6].copy_from_slice(&len);
        }
        true
    }

    /// Returns the folded sum over the pseudo-header of a packet with
    /// `packet_len` bytes.
    pub(crate) fn pseudo_sum(&self, headers: &[u8], packet_len: usize) -> u16 {
        let (source, len) = if self.is_v4 { (12, 4) } else { (8, 16) };
        let address = |at: usize| sum(&headers[at..at + len]);
        //= RFC 8200 §8.1 (the destination of the pseudo-header is the final one)
        let addresses = combine(address(self.network + source), address(self.destination), false);
        let transport_len = packet_len - (self.transport - self.network);
        let tail = combine(u32::from(self.protocol.number()), transport_len as u32, false);
        !finish(combine(addresses, tail, false))
    }

    /// Returns whether the transport checksum of a frame in one piece is right.
    pub(crate) fn is_intact(&self, frame: &[u8]) -> bool {
        let packet_len = self.packet_len(frame);
        let (Some(transport), true) = (
            frame.get(self.transport..self.network + packet_len),
            self.network + packet_len >= self.payload,
        ) else {
            return false;
        };
        let pseudo = u32::from(self.pseudo_sum(frame, packet_len));
        finish(combine(pseudo, sum(transport), false)) == 0
    }

    /// Returns the range of the transport checksum.
    pub(crate) fn checksum(&self) -> core::ops::Range<usize> {
        let at = self.transport + self.protocol.checksum_at();
        at..at + 2
    }
}

/// Returns the offset of the IP header, behind up to two VLAN tags.
pub(crate) fn network_offset(frame: &[u8]) -> Option<usize> {
    let mut at = ETHERNET_HEADER;
    for _ in 0..3 {
        let ethertype = frame.get(at - 2..at)?;
        match u16::from_be_bytes([ethertype[0], ethertype[1]]) {
            0x8100 | 0x88a8 => at += 4,
            0x0800 | 0x86dd => return (at < frame.len()).then_some(at),
            _ => return None,
        }
    }
    None
}

fn ipv4_transport(packet: &[u8]) -> Option<usize> {
    let header_len = usize::from(packet[0] & 0x0f) * 4;
    let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff;
    (header_len >= IPV4_HEADER && packet.len() >= header_len && fragment == 0).then_some(header_len)
}

/// The end of an IPv6 packet's extension headers.
struct Chain {
    /// Kind of the next header.
    next: u8,
    /// Offset of the next header, from the IPv6 header on.
    at: usize,
    /// Offset of the packet's final destination address.
    destination: usize,
}

/// Reason for which extension headers cannot be walked.
#[derive(Debug, PartialEq, Eq)]
enum Broken {
    /// The headers continue behind the given bytes.
    Cut,
    /// There are too many, or the final destination of one is unknown.
    Unknown,
}

impl Chain {
    /// Walks hop-by-hop, routing and destination options. A fragment header is
    /// an error.
    fn of(packet: &[u8]) -> Result<Chain, Broken> {
        let mut chain = Chain {
            next: *packet.get(6).ok_or(Broken::Cut)?,
            at: IPV6_HEADER,
            destination: 24,
        };
        for _ in 0..=MAX_EXTENSIONS {
            if !matches!(chain.next, HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS) {
                return Ok(chain);
            }
            let rest = packet.get(chain.at..).ok_or(Broken::Cut)?;
            let len = 8 + usize::from(*rest.get(1).ok_or(Broken::Cut)?) * 8;
            let header = rest.get(..len).ok_or(Broken::Cut)?;
            if chain.next == ROUTING
                && let Some(last) = last_address(header)?
            {
                chain.destination = chain.at + last;
            }
            (chain.next, chain.at) = (header[0], chain.at + len);
        }
        Err(Broken::Unknown)
    }
}

/// Returns the offset of the final destination in a routing header, or `None`
/// at the destination.
//= RFC 8200 §8.1 (the last element of the routing header)
fn last_address(header: &[u8]) -> Result<Option<usize>, Broken> {
    const ADDRESS: usize = 16;
    let (kind, segments_left) = (header[2], header[3]);
    let addresses = (header.len() - 8) / ADDRESS;
    let last = match kind {
        _ if segments_left == 0 => return Ok(None),
        0 | 2 => addresses.checked_sub(1).map(|before| 8 + before * ADDRESS),
        // Source routes with an uncompressed last address (RFC 6554 §3).
        3 if header[4] & 0x0f == 0 => (header.len() - usize::from(header[5] >> 4)).checked_sub(ADDRESS),
        // Segments are listed from the last one on (RFC 8754 §2).
        4 => (addresses > 0).then_some(8),
        _ => None,
    };
    last.filter(|&at| at >= 8).map(Some).ok_or(Broken::Unknown)
}

/// Returns whether the headers of a frame of `len` bytes continue behind its
/// given beginning.
#[inline]
fn is_cut(beginning: &[u8], len: usize) -> bool {
    /// Longest TCP header.
    const LONGEST: usize = 60;
    if beginning.len() >= len {
        return false;
    }
    let Some(network) = network_offset(beginning) else {
        return false;
    };
    let packet = &beginning[network..];
    let first = packet.get(6);
    let has_extensions = packet[0] >> 4 == 6
        && first.is_some_and(|next| matches!(*next, HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS));
    has_extensions
        && match Chain::of(packet) {
            Ok(chain) => chain.at + LONGEST > packet.len(),
            Err(broken) => broken == Broken::Cut,
        }
}

/// Returns the frame with all headers in one piece: unchanged, or copied to
/// `whole`.
pub(crate) fn with_headers<'a>(frame: &Transmit<'a>, whole: &'a mut Vec<u8>) -> Transmit<'a> {
    if !is_cut(frame.headers, frame.len()) {
        return *frame;
    }
    crate::loopback::copy_frame(frame, whole);
    Transmit {
        headers: whole,
        payload: &Gather::EMPTY,
        offload: frame.offload,
    }
}

/// Returns how many bytes of a frame of `len` bytes must be in private memory.
/// `beginning` has at least the minimum.
pub(crate) fn private_len(beginning: &[u8], len: usize) -> usize {
    match is_cut(beginning, len) {
        true => len,
        false => beginning.len(),
    }
}

fn tcp_header_len(header: &[u8]) -> Option<usize> {
    let len = usize::from(header.get(12)? >> 4) * 4;
    (len >= 20).then_some(len)
}

/// Copies the frame's bytes from `offset` on, as many as fit.
pub(crate) fn copy_from(frame: &Transmit<'_>, offset: usize, into: &mut [u8]) {
    let inline = frame.headers.get(offset..).unwrap_or(&[]);
    let inline = &inline[..inline.len().min(into.len())];
    let (first, rest) = into.split_at_mut(inline.len());
    first.copy_from_slice(inline);
    let skipped = (offset + first.len()).saturating_sub(frame.headers.len());
    frame.payload.copy_to(skipped, rest);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Offload;
    use crate::test_frames::{destination_options, tcp_ipv4, tcp_ipv6_behind, tcp_ipv6_vlan, udp_ipv4};

    #[test]
    fn headers_are_found() {
        let layout = Layout::of(&tcp_ipv4(b"payload")).unwrap();
        assert_eq!((layout.network, layout.transport, layout.payload), (14, 34, 54));
        assert_eq!((layout.is_v4, layout.protocol), (true, Transport::Tcp));
        assert_eq!(layout.packet_len(&tcp_ipv4(b"payload")), 47);
        let layout = Layout::of(&tcp_ipv6_vlan(b"payload")).unwrap();
        assert_eq!((layout.network, layout.transport, layout.payload), (18, 58, 78));
        assert_eq!(layout.packet_len(&tcp_ipv6_vlan(b"payload")), 67);
        let layout = Layout::of(&udp_ipv4(b"payload")).unwrap();
        assert_eq!((layout.payload, layout.protocol), (42, Transport::Udp));
    }

    /// The pseudo-header has the final destination of a routing header.
    #[test]
    fn pseudo_sum_behind_routing_header_has_final_destination() {
        //= RFC 8200 §8.1
        let final_one = [0xfd, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0x77];
        let other = [0xfd, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 0x66];
        let routing = |kind, left, addresses: &[[u8; 16]]| {
            let mut header = vec![6, 2 * addresses.len() as u8, kind, left, 0, 0, 0, 0];
            addresses.iter().for_each(|address| header.extend(address));
            header
        };
        let cases = [
            (routing(2, 1, &[final_one]), Some(true)),
            (routing(0, 2, &[other, final_one]), Some(true)),
            (routing(0, 1, &[other, final_one]), Some(true)),
            (routing(3, 2, &[other, final_one]), Some(true)),
            (routing(4, 1, &[final_one, other]), Some(true)),
            // The packet is at its final destination.
            (routing(4, 0, &[other, other]), Some(false)),
            (routing(77, 0, &[other]), Some(false)),
            (routing(77, 1, &[final_one]), None),
            (routing(0, 1, &[]), None),
        ];
        for (header, is_final) in cases {
            let frame = tcp_ipv6_behind(43, &header, b"payload");
            let layout = Layout::of(&frame);
            assert_eq!(layout.is_some(), is_final.is_some(), "{header:?}");
            let Some(layout) = layout else { continue };
            let destination = if is_final == Some(true) {
                &final_one
            } else {
                &frame[38..54]
            };
            let tail = combine(6, 27, false);
            let addresses = combine(sum(&frame[22..38]), sum(destination), false);
            let expected = !finish(combine(addresses, tail, false));
            let sum = layout.pseudo_sum(&frame, layout.packet_len(&frame));
            assert_eq!(sum, expected, "{header:?}");
        }
    }

    #[test]
    fn headers_of_any_length_are_found() {
        //= RFC 8200 §4
        for len in [8, 128, 512, 2048] {
            let frame = tcp_ipv6_behind(60, &destination_options(len), b"payload");
            let layout = Layout::of(&frame).unwrap();
            assert_eq!(layout.payload, 14 + 40 + len + 20);
            let mut whole = Vec::new();
            for private in [60, 192, 512] {
                let (headers, payload) = frame.split_at(private.min(frame.len()));
                let payload = Gather::from_slice(payload);
                let cut = Transmit {
                    headers,
                    payload: &payload,
                    offload: Offload::default(),
                };
                let one = with_headers(&cut, &mut whole);
                assert_eq!(Layout::of(one.headers), Some(layout), "{len}, {private}");
                assert_eq!(private_len(headers, frame.len()), one.headers.len());
            }
        }
        // An endless chain has no layout.
        let endless = [60, 0].repeat(4).repeat(500);
        assert_eq!(Layout::of(&tcp_ipv6_behind(60, &endless, b"")), None);
    }

    #[test]
    fn fragments_and_cut_headers_have_no_layout() {
        let whole = tcp_ipv4(b"");
        for len in 0..whole.len() {
            assert_eq!(Layout::of(&whole[..len]), None, "{len} bytes");
        }
        let mut fragment = whole;
        fragment[20] = 0x20;
        assert_eq!(Layout::of(&fragment), None);
    }

    #[test]
    fn impossible_packet_length_is_refused() {
        let mut frame = tcp_ipv4(b"payload");
        let layout = Layout::of(&frame).unwrap();
        let before = frame.clone();
        assert!(!layout.set_packet_len(&mut frame, 65_536));
        assert_eq!(frame, before);
        assert!(layout.set_packet_len(&mut frame, 65_535));
        assert_eq!(layout.packet_len(&frame), 65_535);
    }

    proptest! {
        #[test]
        fn layout_of_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some(layout) = Layout::of(&bytes) {
                prop_assert!(layout.payload <= bytes.len());
                prop_assert!(layout.transport >= layout.network + 20);
            }
        }

        #[test]
        fn copied_bytes_come_from_headers_and_payload(
            bytes in proptest::collection::vec(any::<u8>(), 1..300),
            split in 0usize..300, offset in 0usize..300, len in 0usize..300,
        ) {
            let (headers, payload) = bytes.split_at(split.min(bytes.len()));
            let frame = Transmit { headers, payload: &Gather::from_slice(payload), offload: Offload::default() };
            let offset = offset.min(bytes.len());
            let len = len.min(bytes.len() - offset);
            let mut copy = vec![0; len];
            copy_from(&frame, offset, &mut copy);
            prop_assert_eq!(&copy[..], &bytes[offset..offset + len]);
        }
    }
}
