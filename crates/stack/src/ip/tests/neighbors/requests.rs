//! Requests of others: answers, and what is learnt of their senders.

use super::*;

#[test]
fn request_is_answered_and_its_sender_learnt() {
    //= RFC 826
    let mut bench = Bench::usual();
    bench.receive(&arp_frame(Request, PEER_MAC, PEER, [0; 6], OWN));
    let sent = bench.sent();
    let reply = parse_arp(&sent[0]).unwrap();
    assert_eq!(
        (sent.len(), reply.operation, sent[0][..6].to_vec()),
        (1, Reply, PEER_MAC.to_vec())
    );
    assert_eq!((reply.sender_mac, reply.sender_ip), (Mac(OWN_MAC), OWN));
    assert_eq!((reply.target_mac, reply.target_ip), (Mac(PEER_MAC), PEER));
    assert_eq!(state_of(&bench, PEER), Some(Reachability::Stale));
    assert_eq!(bench.ready(PEER).destination, PEER_MAC);
    // A request for another host is not learnt.
    bench.receive(&arp_frame(
        Request,
        [2, 0, 0, 0, 0, 9],
        Ipv4Addr::new(10, 0, 0, 9),
        [0; 6],
        PEER,
    ));
    assert_eq!((bench.sent().len(), bench.ip.neighbors.len()), (0, 1));
}

#[test]
fn probe_for_own_address_is_answered_and_not_learnt() {
    //= RFC 5227 §2.1.1
    let mut bench = Bench::usual();
    bench.receive(&arp_frame(Request, PEER_MAC, Ipv4Addr::UNSPECIFIED, [0; 6], OWN));
    assert_eq!((bench.sent().len(), bench.ip.neighbors.len()), (1, 0));

    //= RFC 4861 §7.2.4
    let probe = ndisc::Message::NeighborSolicitation {
        target: OWN6,
        source_link: None,
    };
    bench.receive(&discovery_frame(
        Ipv6Addr::UNSPECIFIED,
        ndisc::solicited_node(OWN6),
        255,
        &probe,
    ));
    let (src, dst, answer) = parse_discovery(&bench.sent()[0]).unwrap();
    assert_eq!((src, dst), (OWN6, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)));
    assert!(matches!(
        answer,
        ndisc::Message::NeighborAdvertisement {
            solicited: false,
            overrides: true,
            target: OWN6,
            ..
        }
    ));
    assert_eq!(bench.ip.neighbors.len(), 0);
}

#[test]
fn solicitations_for_own_addresses_are_answered() {
    //= RFC 4861 §7.2.3
    //= RFC 4861 §7.2.4
    let mut bench = Bench::usual();
    for target in [OWN6, crate::ip::addresses::link_local(OWN_MAC)] {
        let message = ndisc::Message::NeighborSolicitation {
            target,
            source_link: Some(Mac(PEER_MAC)),
        };
        bench.receive(&discovery_frame(
            PEER6,
            ndisc::solicited_node(target),
            255,
            &message,
        ));
        let sent = bench.sent();
        let (src, dst, answer) = parse_discovery(&sent[0]).unwrap();
        assert_eq!(
            (src, dst, sent[0][..6].to_vec()),
            (target, PEER6, PEER_MAC.to_vec())
        );
        let expected = ndisc::Message::NeighborAdvertisement {
            router: false,
            solicited: true,
            overrides: true,
            target,
            target_link: Some(Mac(OWN_MAC)),
        };
        assert_eq!(answer, expected);
        assert_eq!(bench.ready(PEER6).destination, PEER_MAC);
    }
    let other = ndisc::Message::NeighborSolicitation {
        target: PEER6,
        source_link: Some(Mac(PEER_MAC)),
    };
    bench.receive(&discovery_frame(PEER6, ndisc::solicited_node(OWN6), 255, &other));
    assert_eq!(bench.sent().len(), 0);
}

#[test]
fn answer_waits_for_address_of_requester() {
    //= RFC 4861 §7.2.4
    let mut bench = Bench::usual();
    let message = ndisc::Message::NeighborSolicitation {
        target: OWN6,
        source_link: None,
    };
    bench.receive(&discovery_frame(PEER6, OWN6, 255, &message));
    let sent = bench.sent();
    assert_eq!(sent.len(), 1);
    assert!(matches!(
        parse_discovery(&sent[0]).unwrap().2,
        ndisc::Message::NeighborSolicitation { .. }
    ));
    bench.receive(&advertisement(PEER6, PEER_MAC, true, true, OWN6));
    let sent = bench.sent();
    assert_eq!(sent.len(), 1);
    assert!(matches!(
        parse_discovery(&sent[0]).unwrap().2,
        ndisc::Message::NeighborAdvertisement { .. }
    ));
    // The answer used the record.
    assert_eq!(state_of(&bench, PEER6), Some(Reachability::Reachable));
}

#[test]
fn discovery_over_router_or_in_fragments_is_dropped() {
    //= RFC 4861 §7.1.1
    let mut bench = Bench::usual();
    let message = ndisc::Message::NeighborSolicitation {
        target: OWN6,
        source_link: Some(Mac(PEER_MAC)),
    };
    bench.receive(&discovery_frame(PEER6, OWN6, 254, &message));
    //= RFC 6980 §5
    let mut bytes = vec![0; message.len()];
    message.emit(PEER6, OWN6, &mut bytes);
    let mut payload = vec![0; 8];
    let fragment = ipv6::Fragment {
        offset: 0,
        more: false,
        id: 1,
    };
    ipv6::FragmentHeader {
        next_header: protocol::ICMPV6,
        fragment,
    }
    .emit(&mut payload);
    payload.extend(bytes);
    let packet = packet_v6(PEER6, OWN6, protocol::FRAGMENT, 255, &payload);
    bench.receive(&ethernet_frame(OWN_MAC, PEER_MAC, EtherType::IPV6, &packet));
    assert_eq!(
        (
            bench.counted("drop_neighbor"),
            bench.sent().len(),
            bench.ip.neighbors.len()
        ),
        (2, 0, 0)
    );
}

#[test]
fn impossible_senders_are_refused() {
    //= RFC 1122 §3.2.1.3
    let mut bench = Bench::usual();
    for sender in [
        "10.0.0.1",
        "10.0.0.255",
        "224.0.0.1",
        "127.0.0.1",
        "192.0.2.1",
        "0.0.0.1",
        "255.255.255.255",
    ] {
        bench.receive(&arp_frame(
            Request,
            PEER_MAC,
            sender.parse().unwrap(),
            [0; 6],
            OWN,
        ));
    }
    bench.receive(&arp_frame(Reply, PEER_MAC, Ipv4Addr::UNSPECIFIED, OWN_MAC, OWN));
    let message = ndisc::Message::NeighborSolicitation {
        target: OWN6,
        source_link: Some(Mac(PEER_MAC)),
    };
    bench.receive(&discovery_frame(FAR6, OWN6, 255, &message));
    bench.receive(&advertisement(
        OWN6,
        PEER_MAC,
        false,
        true,
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
    ));
    assert_eq!(
        (bench.counted("drop_neighbor"), bench.counted("drop_bad_source")),
        (9, 1)
    );
    assert_eq!((bench.sent().len(), bench.ip.neighbors.len()), (0, 0));
}
