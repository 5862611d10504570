//! Hardware addresses: requests, answers, waiting, eviction.

use super::super::neighbor::Reachability;
use super::*;
use arp::Operation::{Reply, Request};

const SECOND: Duration = Duration::from_secs(1);

fn parse_arp(frame: &[u8]) -> Option<arp::Packet> {
    (frame[12..14] == [0x08, 0x06]).then(|| arp::Packet::parse(&frame[14..]).unwrap())
}

/// Source, destination, message.
fn parse_discovery(frame: &[u8]) -> Option<(Ipv6Addr, Ipv6Addr, ndisc::Message)> {
    let view = ipv6::View::new(frame.get(14..)?, frame.len() - 14).ok()?;
    let message = icmpv6::View::new(view.payload()).ok()?;
    assert!(message.verify(
        icmpv6::pseudo_header(view.src(), view.dst(), view.payload().len()),
        0
    ));
    let delivery = ndisc::Delivery {
        src: view.src(),
        dst: view.dst(),
        hop_limit: view.hop_limit(),
    };
    Some((
        view.src(),
        view.dst(),
        ndisc::Message::parse(&message, &delivery).ok()?,
    ))
}

fn state_of(bench: &Bench, address: impl Into<IpAddr>) -> Option<Reachability> {
    bench.ip.neighbors.state_of(&Address::from(address.into()))
}

fn neighbor(state: PathState) -> u32 {
    match state {
        PathState::Pending { neighbor } => neighbor,
        other => panic!("{other:?}"),
    }
}

#[test]
fn arp_answer_wakes_waiting_connections() {
    //= RFC 826
    let mut bench = Bench::usual();
    let waiting = neighbor(bench.path(PEER));
    assert_eq!(bench.ip.waiting_head(waiting), NONE);
    bench.ip.set_waiting_head(waiting, 42);
    assert_eq!(bench.path(PEER), PathState::Pending { neighbor: waiting });

    assert!(bench.ip.has_output());
    let sent = bench.sent();
    assert!(!bench.ip.has_output());
    assert_eq!(sent.len(), 1, "one question for two askers");
    assert_eq!(
        sent[0][..12],
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1]
    );
    let question = parse_arp(&sent[0]).unwrap();
    assert_eq!(
        (question.operation, question.sender_mac, question.sender_ip),
        (Request, Mac(OWN_MAC), OWN)
    );
    assert_eq!(
        (question.target_mac, question.target_ip),
        (Mac::UNSPECIFIED, PEER)
    );

    assert_eq!(bench.ip.next_event(), None);
    bench.receive(&arp_frame(Reply, PEER_MAC, PEER, OWN_MAC, OWN));
    assert_eq!(
        bench.ip.next_event(),
        Some(NeighborEvent::Resolved { neighbor: waiting })
    );
    assert_eq!(bench.ip.waiting_head(waiting), 42);
    bench.ip.set_waiting_head(waiting, NONE);
    assert_eq!(bench.ip.next_event(), None);
    let path = bench.ready(PEER);
    assert_eq!(
        (path.destination, path.mtu, path.neighbor),
        (PEER_MAC, 1500, waiting)
    );
    assert!(bench.ip.path_is_current(&path));
    assert_eq!(state_of(&bench, PEER), Some(Reachability::Reachable));
}

#[test]
fn discovery_answer_wakes_waiting_connections() {
    //= RFC 4861 §7.2.2
    //= RFC 4861 §7.2.5
    let mut bench = Bench::usual();
    let waiting = neighbor(bench.path(PEER6));
    bench.ip.set_waiting_head(waiting, 1);
    let sent = bench.sent();
    assert_eq!(sent.len(), 1);
    let (src, dst, question) = parse_discovery(&sent[0]).unwrap();
    assert_eq!((src, dst), (OWN6, ndisc::solicited_node(PEER6)));
    assert_eq!(sent[0][..6], [0x33, 0x33, 0xff, 0, 0, 2]);
    let expected = ndisc::Message::NeighborSolicitation {
        target: PEER6,
        source_link: Some(Mac(OWN_MAC)),
    };
    assert_eq!(question, expected);
    bench.receive(&advertisement(PEER6, PEER_MAC, true, true, OWN6));
    assert_eq!(
        bench.ip.next_event(),
        Some(NeighborEvent::Resolved { neighbor: waiting })
    );
    assert_eq!(bench.ready(PEER6).destination, PEER_MAC);
    assert_eq!(state_of(&bench, PEER6), Some(Reachability::Reachable));
}

#[test]
fn link_local_neighbors_are_asked_from_the_link_local_address() {
    //= RFC 6724 §5
    let mut bench = Bench::usual();
    neighbor(bench.path(FAR6));
    let (src, _, question) = parse_discovery(&bench.sent()[0]).unwrap();
    assert_eq!(src, super::super::addresses::link_local(OWN_MAC));
    assert!(matches!(
        question,
        ndisc::Message::NeighborSolicitation { target: GATEWAY6, .. }
    ));
}

#[test]
fn unanswered_resolution_fails_after_three_requests() {
    //= RFC 1122 §2.3.2.1
    //= RFC 4861 §7.2.2
    for remote in [IpAddr::from(PEER), IpAddr::from(PEER6)] {
        let mut bench = Bench::usual();
        let waiting = neighbor(bench.path(remote));
        bench.ip.set_waiting_head(waiting, 5);
        for _ in 0..3 {
            assert_eq!(bench.sent().len(), 1);
            bench.pass(SECOND / 2);
            bench.path(remote);
            assert_eq!(bench.sent().len(), 0, "asking more often does not help");
            assert_eq!(bench.ip.next_event(), None);
            bench.pass(SECOND / 2);
        }
        assert_eq!(
            bench.ip.next_event(),
            Some(NeighborEvent::Failed { neighbor: waiting })
        );
        bench.ip.set_waiting_head(waiting, NONE);
        assert_eq!((bench.sent().len(), bench.ip.poll_timeout()), (0, None));
        // A new attempt starts again.
        assert_eq!(bench.path(remote), PathState::Pending { neighbor: waiting });
        assert_eq!(bench.sent().len(), 1);
    }
}

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
    for target in [OWN6, super::super::addresses::link_local(OWN_MAC)] {
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
fn use_of_stale_neighbor_causes_probe() {
    //= RFC 4861 §6.3.2
    //= RFC 4861 §7.3.3
    //= RFC 4861 §10
    for remote in [IpAddr::from(PEER), IpAddr::from(PEER6)] {
        let mut bench = Bench::usual();
        bench.meet_peer();
        let path = bench.ready(remote);
        bench.pass(Duration::from_secs(46));
        assert_eq!(state_of(&bench, remote), Some(Reachability::Stale));
        assert!(!bench.ip.path_is_current(&path), "connections must notice");
        assert_eq!(
            (bench.sent().len(), bench.ip.poll_timeout()),
            (0, None),
            "unused neighbours are not probed"
        );

        let path = bench.ready(remote);
        assert_eq!(state_of(&bench, remote), Some(Reachability::Delay));
        bench.pass(Duration::from_secs(5));
        assert_eq!(state_of(&bench, remote), Some(Reachability::Probe));
        assert!(bench.ip.path_is_current(&path));
        for _ in 0..3 {
            let sent = bench.sent();
            assert_eq!((sent.len(), &sent[0][..6]), (1, &PEER_MAC[..]), "asked in person");
            bench.pass(SECOND);
        }
        assert_eq!(state_of(&bench, remote), Some(Reachability::Failed));
        assert!(!bench.ip.path_is_current(&path));
        assert!(matches!(bench.path(remote), PathState::Pending { .. }));
    }
}

#[test]
fn forward_progress_avoids_probe() {
    //= RFC 4861 §7.3.1
    let mut bench = Bench::usual();
    bench.meet_peer();
    let path = bench.ready(PEER);
    for _ in 0..200 {
        bench.pass(SECOND);
        bench.ip.confirm(bench.now, &path);
        assert_eq!(state_of(&bench, PEER), Some(Reachability::Reachable));
        assert!(bench.sent().is_empty());
    }
    bench.pass(Duration::from_secs(46));
    let path = bench.ready(PEER);
    bench.pass(SECOND);
    bench.ip.confirm(bench.now, &path);
    assert_eq!(state_of(&bench, PEER), Some(Reachability::Reachable));
    // A path to a former hardware address confirms nothing.
    bench.receive(&arp_frame(Request, [2, 0, 0, 0, 0, 3], PEER, [0; 6], OWN));
    bench.ip.confirm(bench.now, &path);
    assert_eq!(state_of(&bench, PEER), Some(Reachability::Stale));
}

#[test]
fn new_hardware_address_outdates_paths() {
    //= RFC 4861 §7.2.3
    let mut bench = Bench::usual();
    bench.meet_peer();
    let (old, old6) = (bench.ready(PEER), bench.ready(PEER6));
    // A repeated announcement changes nothing.
    bench.receive(&arp_frame(Request, PEER_MAC, PEER, [0xff; 6], PEER));
    bench.receive(&advertisement(
        PEER6,
        PEER_MAC,
        false,
        true,
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
    ));
    assert!(bench.ip.path_is_current(&old) && bench.ip.path_is_current(&old6));
    // A gratuitous request, an unsolicited advertisement.
    let new = [2, 0, 0, 0, 0, 0x33];
    bench.receive(&arp_frame(Request, new, PEER, [0xff; 6], PEER));
    assert!(!bench.ip.path_is_current(&old));
    assert_eq!(bench.ready(PEER).destination, new);
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    //= RFC 4861 §7.2.5
    bench.receive(&advertisement(PEER6, new, false, false, all));
    assert_eq!(
        bench.ready(PEER6).destination,
        PEER_MAC,
        "without the override flag"
    );
    bench.receive(&advertisement(PEER6, new, false, true, all));
    assert_eq!(bench.ready(PEER6).destination, new);
    // Unknown neighbours are not learnt.
    bench.receive(&advertisement("fd00::77".parse().unwrap(), new, false, true, all));
    bench.receive(&arp_frame(
        Request,
        new,
        Ipv4Addr::new(10, 0, 0, 77),
        [0xff; 6],
        Ipv4Addr::new(10, 0, 0, 77),
    ));
    assert_eq!(bench.ip.neighbors.len(), 2);
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

#[test]
fn table_keeps_neighbors_in_use_and_in_resolution() {
    let mut bench = Bench::usual();
    let host = |number: u8| Ipv4Addr::new(10, 0, 0, number);
    let mac = |number: u8| [2, 0, 0, 0, 1, number];
    // Four records are reachable.
    for number in 10..14 {
        bench.path(host(number));
        bench.receive(&arp_frame(Reply, mac(number), host(number), OWN_MAC, OWN));
    }
    // A flood of unknown addresses takes only the rest of the table.
    for number in 20..120 {
        bench.receive(&arp_frame(Request, mac(number), host(number), [0; 6], OWN));
        bench.sent();
    }
    assert_eq!(bench.ip.neighbors.len(), 8);
    for number in 10..14 {
        assert_eq!(state_of(&bench, host(number)), Some(Reachability::Reachable));
    }
    // At most half of the records are in resolution at once.
    for number in 120..124 {
        let waiting = neighbor(bench.path(host(number)));
        bench.ip.set_waiting_head(waiting, u32::from(number));
    }
    assert_eq!(bench.path(host(124)), PathState::Unreachable);
    bench.sent();
    assert!(bench.counted("neighbor_evictions") >= 96);
    assert_eq!(bench.counted("neighbor_table_full"), 1);
    for number in 20..120 {
        bench.receive(&arp_frame(Request, mac(number), host(number), [0; 6], OWN));
    }
    bench.pass(Duration::from_secs(3));
    let mut failed = 0;
    while let Some(NeighborEvent::Failed { neighbor }) = bench.ip.next_event() {
        assert_eq!(bench.ip.waiting_head(neighbor), 120 + failed);
        failed += 1;
        // They fail in the order of their requests, and stay until TCP releases them.
        for number in 20..40 {
            bench.receive(&arp_frame(Request, mac(number), host(number), [0; 6], OWN));
        }
        bench.ip.set_waiting_head(neighbor, NONE);
    }
    assert_eq!(failed, 4);
    assert!(matches!(bench.path(host(124)), PathState::Pending { .. }));
}

#[test]
fn packets_wait_for_address_and_oldest_is_dropped() {
    //= RFC 1122 §2.3.2.2
    //= RFC 4861 §7.2.2
    let mut bench = Bench::usual();
    for seq in 0..5 {
        let request = icmp_v4(&icmpv4::Message::EchoRequest {
            id: 1,
            seq,
            data: b"x",
        });
        bench.receive(&frame_v4(PEER, OWN, protocol::ICMPV4, &request));
    }
    assert_eq!(bench.counted("drop_unresolved"), 2);
    assert_eq!(bench.sent().len(), 1);
    bench.receive(&arp_frame(Reply, PEER_MAC, PEER, OWN_MAC, OWN));
    let sequence: Vec<u8> = bench.sent().iter().map(|frame| frame[14 + 20 + 7]).collect();
    assert_eq!(sequence, [2, 3, 4]);
    // Packets that wait in vain are counted, and their buffers become free.
    let free = bench.ip.packets.free_buffers();
    let request = icmp_v4(&icmpv4::Message::EchoRequest {
        id: 1,
        seq: 9,
        data: b"x",
    });
    bench.receive(&frame_v4(
        Ipv4Addr::new(10, 0, 0, 9),
        OWN,
        protocol::ICMPV4,
        &request,
    ));
    bench.pass(Duration::from_secs(3));
    assert_eq!(
        (bench.counted("drop_unresolved"), bench.ip.packets.free_buffers()),
        (3, free)
    );
}

#[test]
fn announcement_goes_to_all_neighbors() {
    //= RFC 5227 §2.3
    //= RFC 4861 §7.2.6
    let mut bench = Bench::usual();
    bench.ip.announce();
    let sent = bench.sent();
    let arp = parse_arp(&sent[0]).unwrap();
    assert_eq!(
        (arp.sender_ip, arp.target_ip, sent[0][..6].to_vec()),
        (OWN, OWN, vec![0xff; 6])
    );
    for (frame, address) in sent[1..3]
        .iter()
        .zip([OWN6, super::super::addresses::link_local(OWN_MAC)])
    {
        let (src, _, message) = parse_discovery(frame).unwrap();
        assert_eq!(src, address);
        assert!(matches!(
            message,
            ndisc::Message::NeighborAdvertisement { solicited: false, .. }
        ));
    }
    // The last frame reports the groups of this stack.
    assert_eq!((sent.len(), bench.sent().len()), (4, 0));
}

#[test]
fn newcomer_receives_announcement_of_its_own() {
    //= RFC 5227 §2.3
    //= RFC 4861 §7.2.6
    let mut bench = Bench::usual();
    bench.ip.announce();
    let to_all: Vec<_> = bench.sent()[..3]
        .iter()
        .map(|frame| frame[6..].to_vec())
        .collect();
    let newcomer = |number: u8| [2, 0, 0, 0, 9, number];
    for number in [1, 2, 1] {
        bench.ip.announce_to(newcomer(number));
    }
    let sent = bench.sent();
    let macs: Vec<_> = sent.iter().map(|frame| frame[..6].to_vec()).collect();
    assert_eq!(macs, [1, 1, 1, 2, 2, 2].map(newcomer));
    for one in sent.chunks(3) {
        let said: Vec<_> = one.iter().map(|frame| frame[6..].to_vec()).collect();
        assert_eq!(said, to_all);
    }
    // Many newcomers at once get one announcement to all.
    (0..=64).for_each(|number| bench.ip.announce_to(newcomer(number)));
    assert_eq!((bench.sent().len(), bench.sent().len()), (4, 0));
}

#[test]
fn requests_stay_queued_when_link_is_full() {
    let mut bench = Bench::usual();
    bench.path(PEER);
    bench.wire.room = Some(0);
    assert!(bench.sent().is_empty());
    assert_eq!(bench.counted("link_full"), 1);
    assert!(bench.ip.poll_timeout().unwrap() <= bench.now + Duration::from_millis(1));
    bench.wire.room = None;
    assert_eq!(bench.sent().len(), 1);
    // An answer cancels a request that has not left yet.
    bench.path(PEER6);
    bench.receive(&advertisement(PEER6, PEER_MAC, true, true, OWN6));
    assert!(bench.sent().is_empty());
}

/// The link reports that the node is gone. New connections fail at once, and so do waiting ones.
#[test]
fn neighbor_that_is_gone_is_unreachable_at_once() {
    for known in [false, true] {
        let mut bench = Bench::usual();
        if known {
            bench.meet_peer();
        } else {
            let waiting = neighbor(bench.path(PEER));
            bench.ip.set_waiting_head(waiting, 42);
            bench.sent();
        }
        for address in [IpAddr::from(PEER), IpAddr::from(PEER6)] {
            let address = Address::from(address);
            bench.ip.neighbor_unbound(bench.now, address, &mut bench.counters);
        }
        if !known {
            let failed = bench.ip.next_event();
            assert!(matches!(failed, Some(NeighborEvent::Failed { .. })), "{failed:?}");
        }
        for _ in 0..3 {
            assert_eq!(bench.path(PEER), PathState::Gone);
            assert_eq!(bench.path(PEER6), PathState::Gone);
        }
        // Another node may have its address, so it is resolved, once.
        assert_eq!(bench.sent().len(), 2);
        bench.pass(10 * SECOND);
        assert_eq!(bench.path(PEER), PathState::Gone);
        bench.receive(&arp_frame(Reply, PEER_MAC, PEER, OWN_MAC, OWN));
        assert_eq!(bench.ready(PEER).destination, PEER_MAC);
    }
}

#[test]
fn returned_neighbor_is_resolved_again() {
    let mut bench = Bench::usual();
    let address = Address::from(IpAddr::from(PEER));
    bench.ip.neighbor_unbound(bench.now, address, &mut bench.counters);
    assert_eq!(bench.path(PEER), PathState::Gone);
    bench.ip.neighbor_bound(bench.now, address, PEER_MAC);
    assert!(matches!(bench.path(PEER), PathState::Pending { .. }));
    bench.receive(&arp_frame(Reply, PEER_MAC, PEER, OWN_MAC, OWN));
    assert_eq!(bench.ready(PEER).destination, PEER_MAC);
}

/// The stack had learnt another hardware address before the link's report.
#[test]
fn hardware_address_from_link_replaces_learnt_one() {
    let mut bench = Bench::usual();
    bench.path(PEER);
    let thief = [2, 0, 0, 0, 0, 0x66];
    bench.receive(&arp_frame(Reply, thief, PEER, OWN_MAC, OWN));
    let path = bench.ready(PEER);
    assert_eq!(path.destination, thief);
    let address = Address::from(IpAddr::from(PEER));
    bench.ip.neighbor_bound(bench.now, address, PEER_MAC);
    assert!(!bench.ip.path_is_current(&path));
    assert_eq!(bench.ready(PEER).destination, PEER_MAC);
}

/// Present nodes keep their records, however many nodes leave.
#[test]
fn gone_neighbors_take_half_of_the_records_at_most() {
    let mut bench = Bench::usual();
    bench.meet_peer();
    for number in 0..5000_u16 {
        let [high, low] = number.to_be_bytes();
        let address = Address::from(IpAddr::from([10, 0, high, low]));
        bench.ip.neighbor_unbound(bench.now, address, &mut bench.counters);
    }
    assert!(bench.ip.neighbors.len() <= 512);
    assert!(state_of(&bench, PEER6).is_some_and(|state| state != Reachability::Failed));
}
