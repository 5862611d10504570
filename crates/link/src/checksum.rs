//! Fills in the fields that a sender left to the link: lengths of a super-frame,
//! and checksums. For links and decorators onto media that can damage bits, and for
//! captures, whose readers expect finished packets.

use toehold_wire::checksum::{combine, finish, sum};

use crate::layout::{Layout, Transport};
use crate::{Checksum, Offload};

const ETHERNET_HEADER: usize = 14;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Fills in the checksums of a frame whose transport checksum is
/// [`Checksum::Partial`]. For a super-frame, fills in the IP length too. `offload`
/// then says [`Checksum::Complete`]. Other frames are unchanged, as are frames
/// without TCP or UDP over a well-formed IP header.
pub(crate) fn complete(frame: &mut [u8], ethernet: bool, offload: &mut Offload) {
    complete_beginning(frame, ethernet, frame.len(), offload);
}

/// Does the work of [`complete`] for the beginning of a frame of `original_len`
/// bytes. If bytes are missing, the transport checksum cannot be filled in.
pub(crate) fn complete_beginning(
    frame: &mut [u8],
    ethernet: bool,
    original_len: usize,
    offload: &mut Offload,
) {
    if offload.checksum != Checksum::Partial {
        return;
    }
    let start = if ethernet { network_offset(frame) } else { Some(0) };
    if let Some(at) = start
        && let Some(packet) = frame.get_mut(at..)
    {
        // Other frames have their length already, which may leave padding out.
        let super_len = (offload.segment_size != 0).then_some(original_len - at);
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => complete_ipv4(packet, super_len),
            Some(6) => complete_ipv6(packet, super_len),
            _ => {}
        }
    }
    offload.checksum = Checksum::Complete;
}

/// Returns the offset of the IP header, behind up to two VLAN tags.
fn network_offset(frame: &[u8]) -> Option<usize> {
    let mut at = ETHERNET_HEADER;
    for _ in 0..3 {
        let ethertype = frame.get(at - 2..at)?;
        match u16::from_be_bytes([ethertype[0], ethertype[1]]) {
            0x8100 | 0x88a8 => at += 4,
            0x0800 | 0x86dd => return Some(at),
            _ => return None,
        }
    }
    None
}

fn complete_ipv4(packet: &mut [u8], super_len: Option<usize>) {
    let header_len = usize::from(packet[0] & 0x0f) * 4;
    if header_len < IPV4_HEADER || packet.len() < header_len {
        return;
    }
    if let Some(Ok(len)) = super_len.map(u16::try_from) {
        packet[2..4].copy_from_slice(&len.to_be_bytes());
    }
    let total_len = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    packet[10..12].fill(0);
    let header_sum = finish(sum(&packet[..header_len]));
    packet[10..12].copy_from_slice(&header_sum.to_be_bytes());

    let is_fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
    if is_fragment || total_len < header_len || total_len > packet.len() {
        return;
    }
    let protocol = packet[9];
    let (header, transport) = packet[..total_len].split_at_mut(header_len);
    complete_transport(sum(&header[12..20]), protocol, transport);
}

fn complete_ipv6(packet: &mut [u8], super_len: Option<usize>) {
    if packet.len() < IPV6_HEADER {
        return;
    }
    if let Some(Ok(len)) = super_len.map(|len| u16::try_from(len - IPV6_HEADER)) {
        packet[4..6].copy_from_slice(&len.to_be_bytes());
    }
    let total_len = IPV6_HEADER + usize::from(u16::from_be_bytes([packet[4], packet[5]]));
    // Fragments have no transport layout and cannot be completed.
    let Some(packet) = packet.get_mut(..total_len) else {
        return;
    };
    let Some(layout) = Layout::of_packet(packet, 0) else {
        return;
    };
    let pseudo = u32::from(layout.pseudo_sum(packet, total_len));
    let field = layout.checksum();
    packet[field.clone()].fill(0);
    let value = finish(combine(pseudo, sum(&packet[layout.transport..]), false));
    let value = match layout.protocol {
        Transport::Udp if value == 0 => 0xffff, // RFC 768: zero would mean that there is none
        _ => value,
    };
    packet[field].copy_from_slice(&value.to_be_bytes());
}

/// Fills in a transport checksum. `addresses` is the sum over source and
/// destination address.
fn complete_transport(addresses: u32, protocol: u8, transport: &mut [u8]) {
    let field = match protocol {
        TCP if transport.len() >= 20 => 16..18,
        UDP if transport.len() >= 8 => 6..8,
        _ => return,
    };
    transport[field.clone()].fill(0);
    let pseudo = combine(
        combine(addresses, u32::from(protocol), false),
        transport.len() as u32,
        false,
    );
    let mut value = finish(combine(pseudo, sum(transport), false));
    if protocol == UDP && value == 0 {
        value = 0xffff; // RFC 768: zero would mean that there is none
    }
    transport[field].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_frames::{PARTIAL, tcp_ipv4, tcp_ipv6_vlan, udp_ipv4};

    fn completed(mut frame: Vec<u8>, segment_size: u16) -> Vec<u8> {
        let mut offload = Offload {
            segment_size,
            ..PARTIAL
        };
        complete(&mut frame, true, &mut offload);
        assert_eq!(offload.checksum, Checksum::Complete);
        frame
    }

    /// Asserts RFC 1071: with the checksum in place the sum over everything is
    /// -0.
    fn assert_sums(addresses: &[u8], protocol: u8, transport: &[u8]) {
        let pseudo = sum(addresses) + u32::from(protocol) + transport.len() as u32;
        assert_eq!(finish(combine(pseudo, sum(transport), false)), 0);
    }

    #[test]
    fn ipv4_tcp_and_udp_checksums_are_completed() {
        let frame = completed(tcp_ipv4(b"an odd number of bytes."), 0);
        assert_eq!(finish(sum(&frame[14..34])), 0);
        assert_sums(&frame[26..34], TCP, &frame[34..]);
        let frame = completed(udp_ipv4(b"even"), 0);
        assert_sums(&frame[26..34], UDP, &frame[34..]);
    }

    #[test]
    fn ipv6_checksum_behind_vlan_tag_is_completed() {
        let frame = completed(tcp_ipv6_vlan(b"payload"), 0);
        assert_sums(&frame[26..58], TCP, &frame[58..]);
    }

    #[test]
    fn ethernet_padding_is_not_summed() {
        let mut padded = tcp_ipv4(b"");
        padded.resize(60, 0xaa);
        let frame = completed(padded, 0);
        assert_sums(&frame[26..34], TCP, &frame[34..54]);
        assert_eq!(frame[54..], [0xaa; 6]);
    }

    #[test]
    fn super_frame_length_is_filled_in() {
        let mut frame = tcp_ipv4(&[7; 9000]);
        frame[16..18].fill(0);
        let frame = completed(frame, 1460);
        assert_eq!(frame[16..18], 9040u16.to_be_bytes());
        assert_sums(&frame[26..34], TCP, &frame[34..]);
    }

    #[test]
    fn beginning_of_super_frame_has_full_length() {
        let mut frame = tcp_ipv4(&[7; 9000]);
        frame[16..18].fill(0);
        let (len, checksum) = (frame.len(), frame[50..52].to_vec());
        frame.truncate(64);
        let mut offload = Offload {
            segment_size: 1460,
            ..PARTIAL
        };
        complete_beginning(&mut frame, true, len, &mut offload);
        assert_eq!(frame[16..18], 9040u16.to_be_bytes());
        assert_eq!(finish(sum(&frame[14..34])), 0);
        assert_eq!(frame[50..52], checksum);
    }

    #[test]
    fn complete_frame_is_unchanged() {
        let original = tcp_ipv4(b"wrong checksum");
        let mut frame = original.clone();
        complete(&mut frame, true, &mut Offload::default());
        assert_eq!(frame, original);
    }

    proptest! {
        #[test]
        fn complete_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..120), ethernet in any::<bool>(),
                                  version in 0u8..8, big in any::<bool>()) {
            let mut bytes = bytes;
            if let Some(first) = bytes.get_mut(if ethernet { 14 } else { 0 }) {
                *first = version << 4 | *first & 0x0f;
            }
            if ethernet && bytes.len() > 14 {
                bytes[12..14].copy_from_slice(&if version == 6 { [0x86, 0xdd] } else { [8, 0] });
            }
            let len = bytes.len();
            complete(&mut bytes, ethernet, &mut Offload { segment_size: u16::from(big), ..PARTIAL });
            prop_assert_eq!(bytes.len(), len);
        }
    }
}
