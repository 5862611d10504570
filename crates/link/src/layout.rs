//! Where the headers of a TCP or UDP frame lie, for what a network card would do
//! to one: checksums and segmentation. Says nothing of frames it does not know.

use toehold_wire::checksum::{combine, finish, sum};

use crate::Transmit;

const ETHERNET_HEADER: usize = 14;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
/// A frame with more extension headers than this is one of those not known.
const MAX_EXTENSIONS: usize = 8;

/// Headers longer than this, Ethernet's included, are not looked through. Every link
/// hands over more than this in private memory ([`MIN_PRIVATE`](crate::MIN_PRIVATE)),
/// or the whole frame.
pub(crate) const MAX_HEADERS: usize = 192;

/// Of the transport protocols that network cards know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    /// Where the checksum lies in the header.
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
    /// The IP header.
    pub(crate) network: usize,
    /// The TCP or UDP header.
    pub(crate) transport: usize,
    /// What follows it.
    pub(crate) payload: usize,
    /// Whether the IP header is one of IPv4 (otherwise IPv6).
    pub(crate) is_v4: bool,
    pub(crate) protocol: Transport,
}

impl Layout {
    /// Of the frame that begins with these bytes. `None` unless it is TCP or UDP over
    /// IP, no fragment, with all its headers in the first [`MAX_HEADERS`] bytes.
    pub(crate) fn of(beginning: &[u8]) -> Option<Layout> {
        let beginning = &beginning[..beginning.len().min(MAX_HEADERS)];
        let network = network_offset(beginning)?;
        let packet = &beginning[network..];
        let (next, transport, is_v4) = match packet.first()? >> 4 {
            4 => (packet.get(9)?, ipv4_transport(packet)?, true),
            6 => {
                let (next, at) = ipv6_transport(packet)?;
                (next, at, false)
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
            is_v4,
            protocol,
        })
    }

    /// Bytes of the IP packet, as its header says.
    pub(crate) fn packet_len(&self, headers: &[u8]) -> usize {
        let field = |at: usize| usize::from(u16::from_be_bytes([headers[at], headers[at + 1]]));
        if self.is_v4 {
            field(self.network + 2)
        } else {
            IPV6_HEADER + field(self.network + 4)
        }
    }

    /// Writes the length of the IP packet, and of the UDP datagram in it, and the
    /// checksum of an IPv4 header. False, and nothing written, if no packet is so long.
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

    /// The sum over the pseudo-header of a packet with `packet_len` bytes, folded.
    pub(crate) fn pseudo_sum(&self, headers: &[u8], packet_len: usize) -> u16 {
        let addresses = if self.is_v4 {
            self.network + 12..self.network + 20
        } else {
            self.network + 8..self.network + 40
        };
        let transport_len = packet_len - (self.transport - self.network);
        let tail = combine(u32::from(self.protocol.number()), transport_len as u32, false);
        !finish(combine(sum(&headers[addresses]), tail, false))
    }

    /// Whether the transport checksum of a frame in one piece is right.
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

    /// Where the transport checksum lies.
    pub(crate) fn checksum(&self) -> core::ops::Range<usize> {
        let at = self.transport + self.protocol.checksum_at();
        at..at + 2
    }
}

/// Where the IP header begins, past up to two VLAN tags.
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

/// Past hop-by-hop, routing and destination options, which do not move the
/// destination of what is handled here. A fragment is not known.
fn ipv6_transport(packet: &[u8]) -> Option<(&u8, usize)> {
    let (mut next, mut at) = (packet.get(6)?, IPV6_HEADER);
    for _ in 0..MAX_EXTENSIONS {
        if !matches!(next, 0 | 43 | 60) {
            break;
        }
        let extension = packet.get(at..at + 2)?;
        (next, at) = (&extension[0], at + 8 + usize::from(extension[1]) * 8);
    }
    Some((next, at))
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
    use toehold_shm::Gather;

    use super::*;
    use crate::Offload;
    use crate::test_frames::{tcp_ipv4, tcp_ipv6_vlan, udp_ipv4};

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

    #[test]
    fn fragments_and_cut_headers_are_not_known() {
        let whole = tcp_ipv4(b"");
        for len in 0..whole.len() {
            assert_eq!(Layout::of(&whole[..len]), None, "{len} bytes");
        }
        let mut fragment = whole;
        fragment[20] = 0x20;
        assert_eq!(Layout::of(&fragment), None);
    }

    #[test]
    fn a_length_that_no_packet_has_is_refused() {
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
        fn anything_may_be_looked_at(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some(layout) = Layout::of(&bytes) {
                prop_assert!(layout.payload <= bytes.len().min(MAX_HEADERS));
                prop_assert!(layout.transport >= layout.network + 20);
            }
        }

        #[test]
        fn bytes_are_copied_from_both_places(
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
