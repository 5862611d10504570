use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use toehold_wire::ethernet::EtherType;
use toehold_wire::{Mac, ipv4, ipv6};

use super::*;

fn steering(count: u8, key: u128) -> Steering {
    Steering {
        index: 0,
        count,
        key: key.to_le_bytes(),
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Returns the beginning of a frame with a TCP segment, without checksums.
fn frame(source: (IpAddr, u16), destination: (IpAddr, u16)) -> Vec<u8> {
    let mut bytes = vec![0; 80];
    let is_v4 = source.0.is_ipv4();
    let header = ethernet::Header {
        dst: Mac([2, 0, 0, 0, 0, 1]),
        src: Mac([2, 0, 0, 0, 0, 2]),
        vlan: None,
        ethertype: if is_v4 { EtherType::IPV4 } else { EtherType::IPV6 },
    };
    let mut at = header.emit(&mut bytes);
    at += match (source.0, destination.0) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => ipv4::Header {
            tos: 0,
            id: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol: protocol::TCP,
            src,
            dst,
            payload_len: 20,
        }
        .emit(&mut bytes[at..]),
        (IpAddr::V6(src), IpAddr::V6(dst)) => ipv6::Header {
            payload_len: 20,
            next_header: protocol::TCP,
            hop_limit: 64,
            ..ipv6::Header::new(src, dst)
        }
        .emit(&mut bytes[at..]),
        _ => unreachable!("both addresses have one family"),
    };
    bytes[at..at + 2].copy_from_slice(&source.1.to_be_bytes());
    bytes[at + 2..at + 4].copy_from_slice(&destination.1.to_be_bytes());
    bytes.truncate(at + 20);
    bytes
}

fn addresses() -> impl Strategy<Value = [IpAddr; 2]> {
    prop_oneof![
        any::<[u32; 2]>().prop_map(|pair| pair.map(|bits| IpAddr::V4(Ipv4Addr::from(bits)))),
        any::<[u128; 2]>().prop_map(|pair| pair.map(|bits| IpAddr::V6(Ipv6Addr::from(bits)))),
    ]
}

proptest! {
    /// Frames of both ends and directions give the shard that the stack finds from
    /// the connection's addresses and ports alone.
    #[test]
    fn both_ends_and_directions_give_one_shard(
        [one, other] in addresses(),
        ports: [u16; 2],
        key: u128,
        count in 1..=MAX_SHARDS,
    ) {
        let steering = steering(count, key);
        let (a, b) = ((one, ports[0]), (other, ports[1]));
        let flow = Flow::between((octets(one), ports[0]), (octets(other), ports[1]));
        for bytes in [frame(a, b), frame(b, a)] {
            prop_assert_eq!(Flow::of_frame(&bytes), Some(flow));
            prop_assert_eq!(Flow::of_packet(&bytes), Some(flow));
        }
        prop_assert!(steering.shard_of(&flow) < count);
        let owners = (0..count).filter(|&index| Steering { index, ..steering }.is_own(&flow));
        prop_assert_eq!(owners.count(), 1);
    }

    #[test]
    fn flow_of_any_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100), kind in 0..3) {
        let mut bytes = bytes;
        if let Some(ethertype) = bytes.get_mut(12..14) {
            match kind {
                0 => ethertype.copy_from_slice(&[0x08, 0x00]),
                1 => ethertype.copy_from_slice(&[0x86, 0xdd]),
                _ => {}
            }
        }
        let connection = Flow::of_frame(&bytes);
        prop_assert!(connection.is_none() || connection == Flow::of_packet(&bytes));
    }

    /// Datagrams have their ends as a flow. Packets without ports have their
    /// addresses only.
    #[test]
    fn packets_of_all_kinds_have_a_flow([one, other] in addresses(), ports: [u16; 2], kind: u8) {
        let mut bytes = frame((one, ports[0]), (other, ports[1]));
        let (kind_at, is_v4) = if one.is_ipv4() { (23, true) } else { (20, false) };
        bytes[kind_at] = kind;
        let has_ports = kind == protocol::TCP || kind == protocol::UDP;
        let [a, b] = if has_ports { ports } else { [0; 2] };
        let flow = Flow::between((octets(one), a), (octets(other), b));
        prop_assert_eq!(Flow::of_packet(&bytes), Some(flow));
        prop_assert_eq!(Flow::of_frame(&bytes).is_some(), has_ports);
        if is_v4 {
            // The first of several fragments, with ports, and a later one without.
            for fragment in [[0x20, 0], [0, 9]] {
                bytes[20..22].copy_from_slice(&fragment);
                let flow = Flow::between((octets(one), 0), (octets(other), 0));
                prop_assert_eq!(Flow::of_packet(&bytes), Some(flow));
                prop_assert_eq!(Flow::of_frame(&bytes), None);
            }
        }
    }
}

#[test]
fn related_connections_are_spread_evenly() {
    const CONNECTIONS: u32 = 16_000;
    let server = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets();
    // Consecutive ports of one client, and consecutive clients with one port.
    let client = |number: u32, many: bool| {
        let address = Ipv4Addr::from(0x0a00_0100 + if many { number } else { 0 });
        let port = if many { 4000 } else { 32_768 + number as u16 };
        (address.to_ipv6_mapped().octets(), port)
    };
    for (count, key) in [(2, 1), (3, 2), (4, 3), (7, 4), (16, 5)] {
        for many in [false, true] {
            let steering = steering(count, key);
            let mut shards = vec![0_u32; count.into()];
            for number in 0..CONNECTIONS {
                let flow = Flow::between((server, 80), client(number, many));
                shards[usize::from(steering.shard_of(&flow))] += 1;
            }
            let expected = CONNECTIONS / u32::from(count);
            // Seven standard deviations of chance.
            let slack = 7 * expected.isqrt();
            assert!(
                shards.iter().all(|&shard| shard.abs_diff(expected) < slack),
                "{shards:?}"
            );
        }
    }
}

#[test]
fn other_key_gives_other_spread() {
    let server = ([1; 16], 80);
    let differ = (0..1000).filter(|&port| {
        let flow = Flow::between(server, ([2; 16], port));
        steering(4, 1).shard_of(&flow) != steering(4, 2).shard_of(&flow)
    });
    // Three quarters of them by chance.
    assert!((650..850).contains(&differ.count()));
}

#[test]
fn unclear_packet_has_no_shard() {
    let v4 = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    let v6 = |last| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
    let plain = frame((v4(1), 1000), (v4(2), 80));
    let plain_v6 = frame((v6(1), 1000), (v6(2), 80));
    let changed = |plain: &[u8], at: usize, value: u8| {
        let mut bytes = plain.to_vec();
        bytes[at] = value;
        Flow::of_frame(&bytes)
    };
    // ICMP, a first and a later fragment, ARP, another version.
    for (at, value) in [(23, 1), (20, 0x20), (21, 1), (13, 0x06), (14, 0x65)] {
        assert_eq!(changed(&plain, at, value), None, "byte {at}");
    }
    assert_eq!(
        changed(&plain, 20, 0),
        Flow::of_frame(&plain),
        "may be fragmented"
    );
    assert_eq!(
        changed(&plain, 23, protocol::UDP),
        Flow::of_frame(&plain),
        "a datagram has a shard"
    );
    // A fragment header, and an IPv4 packet in its place.
    for (at, value) in [(20, 44), (14, 0x45)] {
        assert_eq!(changed(&plain_v6, at, value), None, "byte {at}");
    }
    // IP options where the ports would be, so that the ports are missing.
    assert_eq!(changed(&plain, 14, 0x4f), None);
    for len in 0..38 {
        assert_eq!(Flow::of_frame(&plain[..len]), None, "{len} bytes");
    }
}

#[test]
fn shard_beyond_count_is_invalid() {
    let valid = |index, count| {
        Steering {
            index,
            count,
            key: [0; 16],
        }
        .is_valid()
    };
    assert!(Steering::SOLE.is_valid() && valid(15, 16) && valid(0, 2));
    assert!(!valid(1, 1) && !valid(0, 0) && !valid(16, 17) && !valid(3, 2));
    assert!(!format!("{:?}", steering(3, 0xdead_beef)).contains("de"));
}
