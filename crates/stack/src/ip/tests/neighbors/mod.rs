//! Hardware addresses: requests, answers, waiting, eviction.

mod announcements;
mod departed;
mod reachability;
mod requests;
mod table;

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
    assert_eq!(src, crate::ip::addresses::link_local(OWN_MAC));
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
