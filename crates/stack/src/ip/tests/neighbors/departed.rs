//! What the link reports of neighbours that come and go.

use super::*;

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
