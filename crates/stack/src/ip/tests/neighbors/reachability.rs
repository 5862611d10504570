//! Whether a neighbour is still reachable at its address.

use super::*;

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
