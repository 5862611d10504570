//! Frames of a member that claim an address of its own, of another member, or of no member.

use toehold_shm::{Gather, Region};
use toehold_wire::ndisc::{HOP_LIMIT, MAX_LEN, Message, solicited_node};
use toehold_wire::{Mac, arp, ethernet};

use super::*;
use crate::Offload;

const PEER: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn v4(last: u8) -> Ipv4Addr {
    [10, 77, 0, last].into()
}

fn v6(last: u16) -> Ipv6Addr {
    [0xfd77, 0, 0, 0, 0, 0, 0, last].into()
}

fn bound(last: u8) -> Bound {
    Bound::new(Some(v4(last)), Some(v6(last.into())))
}

/// The peer has the addresses that end with 1, the other member those with 2.
fn bindings() -> Bindings {
    let region = Region::private(Bindings::bytes_needed(4)).unwrap();
    let mut bindings = Bindings::carve(&mut Carver::new(region).unwrap(), 4).unwrap();
    for (mac, last) in [(PEER, 1), (OTHER, 2)] {
        for address in bound(last).all(mac) {
            assert_eq!(bindings.insert(address, mac), None);
        }
    }
    bindings
}

fn framed(source: [u8; 6], ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
    let header = ethernet::Header {
        dst: Mac::BROADCAST,
        src: Mac(source),
        vlan: None,
        ethertype,
    };
    let mut frame = vec![0; 64];
    let len = header.emit(&mut frame);
    frame.truncate(len);
    frame.extend_from_slice(packet);
    frame
}

/// What the port says of a frame, the glance first.
fn judged(frame: &[u8], is_beyond: bool) -> Result<(), Claim> {
    let bindings = bindings();
    let origin = Origin {
        mac: PEER,
        bound: bound(1),
        vouched: [0; 4],
        bindings: &bindings,
    };
    let received = Received {
        private: frame,
        rest: Gather::EMPTY,
        offload: Offload::default(),
    };
    match is_beyond {
        true => origin.judge_beyond(&received),
        false if origin.is_plain(&received) => Ok(()),
        false => origin.judge(&received),
    }
}

fn claims_other(address: impl Into<IpAddr>) -> Result<(), Claim> {
    Err(Claim::Ip(address.into(), OTHER))
}

fn arp_frame(source: [u8; 6], operation: arp::Operation, mac: [u8; 6], ip: Ipv4Addr) -> Vec<u8> {
    let packet = arp::Packet {
        operation,
        sender_mac: Mac(mac),
        sender_ip: ip,
        target_mac: Mac(STRANGER),
        target_ip: ip,
    };
    let mut bytes = [0; arp::PACKET_LEN];
    packet.emit(&mut bytes);
    framed(source, EtherType::ARP, &bytes)
}

fn ipv4_frame(source: [u8; 6], ip: Ipv4Addr) -> Vec<u8> {
    let mut packet = [0; 40];
    packet[0] = 0x45;
    packet[9] = protocol::TCP;
    packet[12..16].copy_from_slice(&ip.octets());
    framed(source, EtherType::IPV4, &packet)
}

fn ipv6_packet(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let header = ipv6::Header {
        payload_len: payload.len() as u16,
        next_header,
        hop_limit: HOP_LIMIT,
        ..ipv6::Header::new(src, dst)
    };
    let mut packet = vec![0; 40];
    header.emit(&mut packet);
    packet.extend_from_slice(payload);
    packet
}

fn message(message: &Message, src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
    let mut bytes = [0; MAX_LEN];
    let len = message.emit(src, dst, &mut bytes);
    bytes[..len].to_vec()
}

fn advertisement(target: Ipv6Addr, mac: Option<[u8; 6]>) -> Message {
    Message::NeighborAdvertisement {
        router: false,
        solicited: false,
        overrides: true,
        target,
        target_link: mac.map(Mac),
    }
}

fn advertises(source: [u8; 6], src: Ipv6Addr, target: Ipv6Addr, mac: Option<[u8; 6]>) -> Vec<u8> {
    let dst = solicited_node(target);
    let said = message(&advertisement(target, mac), src, dst);
    framed(
        source,
        EtherType::IPV6,
        &ipv6_packet(src, dst, protocol::ICMPV6, &said),
    )
}

fn solicits(src: Ipv6Addr, target: Ipv6Addr, mac: Option<[u8; 6]>) -> Vec<u8> {
    let dst = solicited_node(target);
    let asked = Message::NeighborSolicitation {
        target,
        source_link: mac.map(Mac),
    };
    let asked = message(&asked, src, dst);
    framed(
        PEER,
        EtherType::IPV6,
        &ipv6_packet(src, dst, protocol::ICMPV6, &asked),
    )
}

#[test]
fn member_may_claim_its_own_addresses() {
    for frame in [
        ipv4_frame(PEER, v4(1)),
        arp_frame(PEER, arp::Operation::Request, PEER, v4(1)),
        arp_frame(PEER, arp::Operation::Reply, PEER, v4(1)),
        advertises(PEER, v6(1), v6(1), Some(PEER)),
        advertises(PEER, link_local(PEER), link_local(PEER), Some(PEER)),
        solicits(v6(1), v6(2), Some(PEER)),
        solicits(Ipv6Addr::UNSPECIFIED, v6(1), None),
    ] {
        assert_eq!(judged(&frame, false), Ok(()), "{frame:02x?}");
    }
}

#[test]
fn unassigned_address_may_be_claimed_by_any_member() {
    for frame in [
        ipv4_frame(PEER, v4(7)),
        ipv4_frame(PEER, Ipv4Addr::UNSPECIFIED),
        arp_frame(PEER, arp::Operation::Reply, PEER, v4(7)),
        arp_frame(PEER, arp::Operation::Request, PEER, Ipv4Addr::UNSPECIFIED),
        arp_frame(PEER, arp::Operation::Reply, STRANGER, v4(7)),
        advertises(PEER, v6(7), v6(7), Some(PEER)),
        solicits(Ipv6Addr::UNSPECIFIED, v6(7), None),
    ] {
        assert_eq!(judged(&frame, false), Ok(()), "{frame:02x?}");
    }
    for frame in [
        ipv4_frame(STRANGER, v4(7)),
        arp_frame(STRANGER, arp::Operation::Reply, STRANGER, v4(7)),
    ] {
        assert_eq!(judged(&frame, true), Ok(()), "{frame:02x?}");
    }
}

#[test]
fn claim_of_another_members_ip_address_is_refused() {
    let other_local = link_local(OTHER);
    for (frame, address) in [
        (ipv4_frame(PEER, v4(2)), IpAddr::from(v4(2))),
        (arp_frame(PEER, arp::Operation::Reply, PEER, v4(2)), v4(2).into()),
        (
            arp_frame(PEER, arp::Operation::Request, PEER, v4(2)),
            v4(2).into(),
        ),
        (arp_frame(PEER, arp::Operation::Reply, OTHER, v4(2)), v4(2).into()),
        (advertises(PEER, v6(1), v6(2), Some(PEER)), v6(2).into()),
        (advertises(PEER, v6(1), v6(2), None), v6(2).into()),
        (advertises(PEER, v6(2), v6(2), Some(OTHER)), v6(2).into()),
        (
            advertises(PEER, v6(1), other_local, Some(PEER)),
            other_local.into(),
        ),
        (solicits(v6(2), v6(1), Some(PEER)), v6(2).into()),
        (solicits(Ipv6Addr::UNSPECIFIED, v6(2), None), v6(2).into()),
    ] {
        assert_eq!(judged(&frame, false), claims_other(address), "{frame:02x?}");
    }
}

#[test]
fn frame_from_another_members_hardware_address_is_refused() {
    for frame in [
        ipv4_frame(OTHER, v4(1)),
        ipv4_frame(STRANGER, v4(1)),
        arp_frame(OTHER, arp::Operation::Reply, OTHER, v4(2)),
        arp_frame(PEER, arp::Operation::Reply, OTHER, v4(7)),
        advertises(PEER, v6(7), v6(7), Some(OTHER)),
    ] {
        assert_eq!(judged(&frame, false), Err(Claim::Mac), "{frame:02x?}");
    }
    // Its own address leads to itself.
    let own = arp_frame(PEER, arp::Operation::Reply, STRANGER, v4(1));
    assert_eq!(judged(&own, false), Err(Claim::Ip(v4(1).into(), PEER)));
}

#[test]
fn claim_of_members_address_from_beyond_gateway_is_refused() {
    for (frame, claim) in [
        (ipv4_frame(STRANGER, v4(2)), claims_other(v4(2))),
        (
            arp_frame(STRANGER, arp::Operation::Reply, STRANGER, v4(2)),
            claims_other(v4(2)),
        ),
        (
            advertises(STRANGER, v6(9), v6(2), Some(STRANGER)),
            claims_other(v6(2)),
        ),
        (advertises(STRANGER, v6(9), v6(9), Some(OTHER)), Err(Claim::Mac)),
    ] {
        assert_eq!(judged(&frame, true), claim, "{frame:02x?}");
    }
    // The member that has the address answers this one.
    assert_eq!(
        judged(&solicits(Ipv6Addr::UNSPECIFIED, v6(2), None), true),
        Ok(())
    );
}

/// Extension headers and a VLAN tag stand before what is claimed.
#[test]
fn claim_behind_other_headers_is_found() {
    let dst = solicited_node(v6(2));
    let said = message(&advertisement(v6(2), Some(PEER)), v6(1), dst);
    for count in [1, 2] {
        let mut payload = Vec::new();
        for left in (0..count).rev() {
            // Destination options: padding of 6 bytes.
            let next = if left == 0 { protocol::ICMPV6 } else { 60 };
            payload.extend([next, 0, 1, 4, 0, 0, 0, 0]);
        }
        payload.extend(&said);
        let frame = framed(PEER, EtherType::IPV6, &ipv6_packet(v6(1), dst, 60, &payload));
        assert_eq!(judged(&frame, false), claims_other(v6(2)), "{count}");
    }
    let mut tagged = arp_frame(PEER, arp::Operation::Reply, PEER, v4(2));
    tagged.splice(12..12, [0x81, 0, 0, 0]);
    assert_eq!(judged(&tagged, false), claims_other(v4(2)));
}

#[test]
fn second_link_address_option_is_judged_too() {
    let dst = solicited_node(v6(7));
    let mut said = message(&advertisement(v6(7), Some(PEER)), v6(1), dst);
    said.extend([TARGET_LINK, 1]);
    said.extend(OTHER);
    let frame = framed(
        PEER,
        EtherType::IPV6,
        &ipv6_packet(v6(1), dst, protocol::ICMPV6, &said),
    );
    assert_eq!(judged(&frame, false), Err(Claim::Mac));
}

#[test]
fn address_belongs_to_its_first_member() {
    let mut bindings = bindings();
    assert_eq!(bindings.insert(v4(2).into(), PEER), Some(OTHER));
    assert_eq!(bindings.insert(v4(2).into(), OTHER), None, "another shard of it");
    assert_eq!(bindings.owner(v4(2).into()), Some(OTHER));
    assert_eq!(bindings.owner(v4(7).into()), None);
    bindings.clear();
    assert_eq!(bindings.owner(v4(2).into()), None);
    let mut random = 1_u64;
    bindings.disturb(&mut || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        random >> 16
    });
    // A table that was scribbled on ends every search.
    let _ = bindings.owner(v4(2).into());
    let _ = bindings.insert(v4(2).into(), OTHER);
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_judged(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
        kind in 0usize..4,
        is_beyond: bool,
    ) {
        let frame = match kind {
            0 => bytes,
            1 => framed(PEER, EtherType::ARP, &bytes),
            2 => framed(PEER, EtherType::IPV6, &bytes),
            _ => framed(PEER, EtherType::IPV6, &ipv6_packet(v6(1), v6(2), protocol::ICMPV6, &bytes)),
        };
        let _ = judged(&frame, is_beyond);
    }
}
