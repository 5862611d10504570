//! Multicast listener discovery: reports of the solicited-node groups.

use super::*;
use crate::ip::addresses::link_local;
use toehold_wire::mld;
use toehold_wire::ndisc::solicited_node;

const OTHER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x20);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x99);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A query as routers send it, of `len` bytes.
fn query(len: usize, group: Ipv6Addr, within_ms: u16, hop_limit: u8) -> Vec<u8> {
    let mut message = vec![0; len];
    message[0] = mld::QUERY;
    message[4..6].copy_from_slice(&within_ms.to_be_bytes());
    message[8..24].copy_from_slice(&group.octets());
    let destination = if group.is_unspecified() { ALL_NODES } else { group };
    icmpv6::set_checksum(&mut message, icmpv6::pseudo_header(ROUTER, destination, len), 0);
    let payload = [&mld::ROUTER_ALERT[..], &message].concat();
    let packet = packet_v6(ROUTER, destination, protocol::HOP_BY_HOP, hop_limit, &payload);
    let mac = Mac::for_multicast(destination.into()).unwrap();
    ethernet_frame(mac.0, PEER_MAC, EtherType::IPV6, &packet)
}

/// The groups in a report of version 2, with the kind of their records.
fn reported(frame: &[u8]) -> Vec<(u8, Ipv6Addr)> {
    let view = ipv6::View::new(&frame[14..], frame.len() - 14).unwrap();
    assert_eq!((view.src(), view.dst()), (link_local(OWN_MAC), mld::ROUTERS));
    assert_eq!(
        (view.hop_limit(), &frame[..6]),
        (1, &[0x33, 0x33, 0, 0, 0, 0x16][..])
    );
    let message = &view.payload()[8..];
    let pseudo_header = icmpv6::pseudo_header(view.src(), view.dst(), message.len());
    assert!(icmpv6::View::new(message).unwrap().verify(pseudo_header, 0));
    assert_eq!(
        (view.payload()[..8].to_vec(), message[0]),
        (mld::ROUTER_ALERT.to_vec(), 143)
    );
    let records = message[8..].chunks_exact(20);
    assert_eq!(records.len(), usize::from(message[7]));
    let read = |record: &[u8]| {
        (
            record[0],
            Ipv6Addr::from(<[u8; 16]>::try_from(&record[4..]).unwrap()),
        )
    };
    records.map(read).collect()
}

/// A stack whose two addresses have groups of their own.
fn bench() -> Bench {
    Bench::new(&Config {
        ipv6: Some((OTHER6, 64)),
        ..config()
    })
}

fn groups(kind: u8) -> Vec<(u8, Ipv6Addr)> {
    [OTHER6, link_local(OWN_MAC)]
        .map(|address| (kind, solicited_node(address)))
        .to_vec()
}

#[test]
fn solicited_node_groups_are_reported_unasked_twice() {
    //= RFC 4861 §7.2.1
    //= RFC 3810 §6.1
    let mut bench = bench();
    bench.ip.announce();
    assert_eq!(reported(bench.sent().last().unwrap()), groups(4));
    bench.pass(Duration::from_secs(1));
    let again = bench.sent();
    assert_eq!((again.len(), reported(&again[0])), (1, groups(4)));
    bench.pass(Duration::from_secs(100));
    assert!(bench.sent().is_empty());
}

#[test]
fn group_of_both_addresses_is_reported_once() {
    let mut bench = Bench::usual();
    bench.ip.announce();
    let group = solicited_node(OWN6);
    assert_eq!(group, solicited_node(link_local(OWN_MAC)));
    assert_eq!(reported(bench.sent().last().unwrap()), [(4, group)]);
}

#[test]
fn query_is_answered_within_its_time() {
    //= RFC 3810 §6.2
    let mut bench = bench();
    for group in [Ipv6Addr::UNSPECIFIED, solicited_node(OTHER6)] {
        bench.receive(&query(28, group, 2000, 1));
        bench.receive(&query(28, group, 2000, 1));
        assert!(bench.sent().is_empty(), "not at once");
        bench.pass(Duration::from_secs(2));
        let sent = bench.sent();
        assert_eq!((sent.len(), reported(&sent[0])), (1, groups(2)));
    }
}

#[test]
fn query_of_version_1_is_answered_to_each_group() {
    //= RFC 2710 §3
    //= RFC 3810 §8.2.1
    let mut bench = bench();
    bench.receive(&query(24, Ipv6Addr::UNSPECIFIED, 1000, 1));
    bench.pass(Duration::from_secs(1));
    let destinations: Vec<_> = bench
        .sent()
        .iter()
        .map(|frame| {
            let view = ipv6::View::new(&frame[14..], frame.len() - 14).unwrap();
            assert_eq!(view.payload()[8], 131);
            (2, view.dst())
        })
        .collect();
    assert_eq!(destinations, groups(2));
}

#[test]
fn invalid_query_is_dropped() {
    //= RFC 3810 §6.2
    let mut bench = bench();
    // The query crossed a router, is cut short, or is for a group of others.
    bench.receive(&query(28, Ipv6Addr::UNSPECIFIED, 100, 2));
    bench.receive(&query(26, Ipv6Addr::UNSPECIFIED, 100, 1));
    bench.receive(&query(28, solicited_node(PEER6), 100, 1));
    bench.pass(Duration::from_secs(1));
    assert!(bench.sent().is_empty());
    assert_eq!(bench.counted("drop_icmp"), 2);
}
