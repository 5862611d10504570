//! Writes the headers of outgoing frames.

use super::{Ip, Path};
use crate::tuple::Address;
use toehold_wire::{ethernet, ipv4, ipv6};

/// Hops a packet may take.
//= RFC 1122 §3.2.1.7
pub(crate) const HOP_LIMIT: u8 = 64;

const DONT_FRAGMENT: u16 = 0x4000;

/// The constant part of a stack's Ethernet headers.
#[derive(Debug, Clone, Copy)]
pub(super) struct EthernetTail {
    /// Source and EtherType, for IPv4 and for IPv6.
    v4: [u8; 8],
    v6: [u8; 8],
}

impl EthernetTail {
    pub(super) fn new([a, b, c, d, e, f]: [u8; 6]) -> Self {
        Self {
            v4: [a, b, c, d, e, f, 0x08, 0x00],
            v6: [a, b, c, d, e, f, 0x86, 0xdd],
        }
    }
}

/// The variable fields of an IP header, without addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields {
    pub(super) protocol: u8,
    /// DSCP and ECN.
    pub(super) tos: u8,
    /// Bytes behind the header.
    pub(super) transport_len: usize,
}

impl Ip {
    /// Writes the headers of a frame, see [`Ip::emit_headers`].
    #[inline]
    pub(super) fn emit(
        &mut self,
        buf: &mut [u8],
        path: &Path,
        local: &Address,
        remote: &Address,
        fields: Fields,
    ) -> usize {
        let is_v4 = remote.is_ipv4();
        let start = self.emit_ethernet(buf, path.destination, is_v4);
        let header = buf.get_mut(start..).unwrap_or(&mut []);
        if is_v4 {
            //= RFC 6864 §4.1
            // The identification of a packet that no router may fragment has no meaning.
            let (id, flags) = if path.may_fragment() {
                (self.state[0].next_fragment_id() as u16, 0)
            } else {
                (0, DONT_FRAGMENT)
            };
            emit_v4(header, [local, remote], fields, id, flags);
            start + ipv4::HEADER_LEN
        } else {
            emit_v6(header, [local, remote], fields);
            start + ipv6::HEADER_LEN
        }
    }

    /// Writes the Ethernet header, where there is one; returns its length.
    #[inline]
    pub(super) fn emit_ethernet(&self, buf: &mut [u8], destination: [u8; 6], is_v4: bool) -> usize {
        if !self.link.ethernet {
            return 0;
        }
        let tail = if is_v4 {
            &self.link.tail.v4
        } else {
            &self.link.tail.v6
        };
        let header: &mut [u8; ethernet::HEADER_LEN] = place(buf);
        header[..6].copy_from_slice(&destination);
        header[6..].copy_from_slice(tail);
        ethernet::HEADER_LEN
    }
}

/// Writes the header of an IPv4 packet without options. It sums and writes words in memory order
/// (RFC 1071 §2: the sum has no byte order).
#[inline]
fn emit_v4(buf: &mut [u8], [local, remote]: [&Address; 2], fields: Fields, id: u16, flags: u16) {
    let len = fields.transport_len + ipv4::HEADER_LEN;
    debug_assert!(len <= ipv4::MAX_PACKET_LEN, "an IPv4 packet of {len} bytes");
    let [high, low] = (len as u16).to_be_bytes();
    let source = word_at::<12>(&local.0);
    let target = word_at::<12>(&remote.0);
    let first = u32::from_ne_bytes([0x45, fields.tos, high, low]);
    let second = (u32::from(id) << 16 | u32::from(flags)).to_be();
    let third = u32::from_ne_bytes([HOP_LIMIT, fields.protocol, 0, 0]);
    let sum = u64::from(first) + u64::from(second) + u64::from(third) + u64::from(source) + u64::from(target);
    let checksum = !fold(sum);
    let header: &mut [u8; ipv4::HEADER_LEN] = place(buf);
    header[..4].copy_from_slice(&first.to_ne_bytes());
    header[4..8].copy_from_slice(&second.to_ne_bytes());
    header[8..10].copy_from_slice(&[HOP_LIMIT, fields.protocol]);
    header[10..12].copy_from_slice(&checksum.to_ne_bytes());
    header[12..16].copy_from_slice(&source.to_ne_bytes());
    header[16..].copy_from_slice(&target.to_ne_bytes());
}

/// Sets the hop limit in headers that [`Ip::emit_headers`] has written.
#[cold]
pub(crate) fn set_hops(headers: &mut [u8], hops: u8) {
    if let Some(header) = headers.last_chunk_mut::<{ ipv6::HEADER_LEN }>()
        && header[0] >> 4 == 6
    {
        header[7] = hops;
    } else if let Some(header) = headers.last_chunk_mut::<{ ipv4::HEADER_LEN }>() {
        header[8] = hops;
        header[10..12].fill(0);
        let checksum = toehold_wire::checksum::finish(toehold_wire::checksum::sum(header));
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Writes the header of an IPv6 packet without extensions.
#[inline]
fn emit_v6(buf: &mut [u8], [local, remote]: [&Address; 2], fields: Fields) {
    let len = fields.transport_len;
    debug_assert!(len <= usize::from(u16::MAX), "an IPv6 payload of {len} bytes");
    let [high, low] = (len as u16).to_be_bytes();
    let Fields { tos, protocol, .. } = fields;
    let header: &mut [u8; ipv6::HEADER_LEN] = place(buf);
    header[..8].copy_from_slice(&[0x60 | tos >> 4, tos << 4, 0, 0, high, low, protocol, HOP_LIMIT]);
    header[8..24].copy_from_slice(&local.0);
    header[24..].copy_from_slice(&remote.0);
}

/// The ones'-complement sum of an IPv4 header without options, in memory order. It is all ones if
/// the header is intact.
#[inline]
pub(super) fn header_sum(header: &[u8; ipv4::HEADER_LEN]) -> u16 {
    let words = [
        word_at::<0>(header),
        word_at::<4>(header),
        word_at::<8>(header),
        word_at::<12>(header),
        word_at::<16>(header),
    ];
    fold(words.iter().map(|word| u64::from(*word)).sum())
}

/// The sum of a few words, with the carries back in; zero only for zero.
#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

#[inline]
fn word_at<const AT: usize>(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes([bytes[AT], bytes[AT + 1], bytes[AT + 2], bytes[AT + 3]])
}

/// The first `N` bytes of a buffer, for a header.
#[inline]
fn place<const N: usize>(buf: &mut [u8]) -> &mut [u8; N] {
    let len = buf.len();
    match buf.first_chunk_mut() {
        Some(place) => place,
        None => panic!("a buffer of {len} bytes for a header of {N}"),
    }
}
