//! Paths and headers.

use super::*;
use proptest::prelude::*;

#[test]
fn routes_are_chosen_by_prefix() {
    //= RFC 1122 §3.3.1.1
    //= RFC 4861 §5.2
    let mut bench = Bench::usual();
    bench.receive(&arp_frame(
        arp::Operation::Request,
        [2, 0, 0, 0, 0, 0xfe],
        GATEWAY,
        [0; 6],
        OWN,
    ));
    assert_eq!(bench.ready(FAR).destination, [2, 0, 0, 0, 0, 0xfe]);
    assert!(matches!(bench.path(PEER), PathState::Pending { .. }));
    for remote in [
        "10.0.0.255",
        "255.255.255.255",
        "224.0.0.1",
        "ff02::1",
        "::",
        "0.0.0.0",
        "::ffff:0:0",
    ] {
        assert_eq!(
            bench.path(remote.parse::<IpAddr>().unwrap()),
            PathState::Unreachable,
            "{remote}"
        );
    }
    let mut bench = Bench::new(&Config {
        ipv4_gateway: None,
        ipv6: None,
        ..config()
    });
    assert_eq!(bench.path(FAR), PathState::Unreachable);
    assert_eq!(bench.path(PEER6), PathState::Unreachable);
    assert_eq!(bench.ip.source_for(Address::from(IpAddr::from(PEER6))), None);
}

#[test]
fn sources_have_the_scope_of_the_destination() {
    //= RFC 6724 §5
    let bench = Bench::usual();
    let source = |remote: &str| {
        IpAddr::from(
            bench
                .ip
                .source_for(Address::from(remote.parse::<IpAddr>().unwrap()))
                .unwrap(),
        )
    };
    let link_local = IpAddr::from(super::super::addresses::link_local(OWN_MAC));
    assert_eq!(source("10.0.0.2"), IpAddr::from(OWN));
    assert_eq!(source("127.3.2.1"), IpAddr::from(Ipv4Addr::LOCALHOST));
    assert_eq!(source("10.0.0.1"), IpAddr::from(OWN));
    assert_eq!(source("2001:db8::7"), IpAddr::from(OWN6));
    assert_eq!(source("fe80::2"), link_local);
    assert_eq!(source("::1"), IpAddr::from(Ipv6Addr::LOCALHOST));
}

#[test]
fn path_to_own_address_is_loopback_and_link_frames_with_it_are_dropped() {
    let mut bench = Bench::usual();
    for (local, remote) in [
        ("10.0.0.1", "10.0.0.1"),
        ("127.0.0.1", "127.0.0.5"),
        ("fd00::1", "fd00::1"),
        ("::1", "::1"),
    ] {
        let (local, remote): (IpAddr, IpAddr) = (local.parse().unwrap(), remote.parse().unwrap());
        let path = bench.ready(remote);
        assert!(path.is_loopback() && bench.ip.is_local(remote.into()));
        let mut frame = vec![0; MAX_HEADERS];
        let len = bench.ip.emit_headers(
            &mut frame,
            &path,
            local.into(),
            remote.into(),
            protocol::TCP,
            0,
            20,
        );
        frame.truncate(len);
        frame.extend(segment(0));
        // A frame from the link with these addresses is forged.
        assert_eq!(bench.receive(&frame), Came::Nothing);
    }
    assert_eq!(
        bench.counted("drop_bad_source") + bench.counted("drop_not_local"),
        4
    );
    assert!(!bench.ip.is_local(Address::from(IpAddr::from(PEER))));
}

#[test]
fn without_hardware_addresses_every_path_is_ready() {
    let mut bench = Bench::new(&Config {
        ethernet: false,
        ipv4_gateway: None,
        ..config()
    });
    for remote in [IpAddr::from(PEER), IpAddr::from(FAR), IpAddr::from(FAR6)] {
        let path = bench.ready(remote);
        assert_eq!((path.destination, path.neighbor), ([0; 6], NONE));
        let local = bench.ip.source_for(remote.into()).unwrap();
        let mut frame = [0; MAX_HEADERS];
        let len = bench
            .ip
            .emit_headers(&mut frame, &path, local, remote.into(), protocol::TCP, 0, 20);
        assert_eq!(len, if remote.is_ipv4() { 20 } else { 40 });
        bench.ip.confirm(bench.now, &path);
    }
    let request = icmp_v4(&icmpv4::Message::EchoRequest {
        id: 1,
        seq: 2,
        data: b"hello",
    });
    bench.receive(&packet_v4(FAR, OWN, protocol::ICMPV4, &request));
    let sent = bench.sent();
    assert_eq!((sent.len(), sent[0][0], sent[0].len()), (1, 0x45, 33));
}

#[test]
fn small_networks_have_no_broadcast_address() {
    //= RFC 3021 §2.1
    let mut bench = Bench::new(&Config {
        ipv4: Some((Ipv4Addr::new(10, 0, 0, 0), 31)),
        ..config()
    });
    assert!(matches!(
        bench.path(Ipv4Addr::new(10, 0, 0, 1)),
        PathState::Pending { .. }
    ));
    let mut bench = Bench::new(&Config {
        ipv4: Some((OWN, 32)),
        ..config()
    });
    // All destinations are behind the router, which needs no route.
    bench.path(PEER);
    bench.receive(&arp_frame(
        arp::Operation::Reply,
        [2, 0, 0, 0, 0, 0xfe],
        GATEWAY,
        OWN_MAC,
        OWN,
    ));
    assert_eq!(bench.ready(PEER).destination, [2, 0, 0, 0, 0, 0xfe]);
}

#[test]
fn link_local_addresses_follow_from_the_hardware() {
    //= RFC 4291 §2.5.6
    let address = super::super::addresses::link_local([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
    assert_eq!(address, "fe80::3656:78ff:fe9a:bcde".parse::<Ipv6Addr>().unwrap());
    let mut bench = Bench::usual();
    let own = super::super::addresses::link_local(OWN_MAC);
    let segment = segment(0);
    let came = bench.receive(&frame_v6(PEER6, own, protocol::TCP, &segment));
    assert!(matches!(came, Came::Tcp { .. }));
}

#[test]
fn super_frames_keep_to_the_link() {
    //= RFC 791 §3.1
    let mut config = config();
    config.link.super_frame = 1 << 20;
    let mut bench = Bench::new(&config);
    bench.meet_peer();
    let path = bench.ready(PEER);
    assert_eq!((path.mtu, path.super_frame), (1500, 65535));
    assert_eq!(size_of::<Path>(), 24);
    assert!(!bench.ip.path_is_current(&Path::NONE) && !bench.ip.path_is_current(&Path::default()));
}

#[test]
fn path_mtu_shrinks_to_its_floor_and_recovers() {
    //= RFC 1191 §3
    //= RFC 1191 §6.3
    let mut bench = Bench::usual();
    bench.meet_peer();
    let remote = Address::from(IpAddr::from(PEER));
    let before = bench.ready(PEER);
    for unbelievable in [1500, 9000, 67, 0] {
        assert!(!bench.ip.update_path_mtu(bench.now, remote, unbelievable));
    }
    assert!(bench.ip.path_is_current(&before));
    assert!(bench.ip.update_path_mtu(bench.now, remote, 1400));
    assert!(!bench.ip.path_is_current(&before));
    assert_eq!((bench.ready(PEER).mtu, bench.path_mtu(remote)), (1400, 1400));
    // The report is below the floor: routers may fragment instead.
    assert!(bench.ip.update_path_mtu(bench.now, remote, 300));
    let path = bench.ready(PEER);
    assert_eq!(path.mtu, 552);
    let mut frame = [0; MAX_HEADERS];
    let mut ids = Vec::new();
    for _ in 0..2 {
        bench.ip.emit_headers(
            &mut frame,
            &path,
            Address::from(IpAddr::from(OWN)),
            remote,
            6,
            0,
            20,
        );
        let view = ipv4::View::new(&frame[14..], 40).unwrap();
        assert!(!view.dont_fragment());
        ids.push(view.id());
    }
    //= RFC 6864 §4.2
    assert_ne!(ids[0], ids[1]);
    assert_eq!(bench.path_mtu(Address::from(IpAddr::from(FAR))), 1500);
    bench.pass(Duration::from_secs(599));
    assert_eq!(bench.path_mtu(remote), 552);
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.path_mtu(remote), 1500);

    //= RFC 8201 §4
    //= RFC 8200 §5
    let remote = Address::from(IpAddr::from(PEER6));
    assert!(!bench.ip.update_path_mtu(bench.now, remote, 1279));
    assert!(bench.ip.update_path_mtu(bench.now, remote, 1280));
    assert_eq!(bench.path_mtu(remote), 1280);
}

#[test]
fn the_table_of_path_mtus_is_bounded() {
    let mut bench = Bench::usual();
    let host = |number: u32| Address::from(IpAddr::from(Ipv4Addr::from(0xc000_0200 + number)));
    for number in 0..1000 {
        assert!(bench.ip.update_path_mtu(bench.now, host(number), 1000));
    }
    assert_eq!(bench.path_mtu(host(0)), 1500);
    assert_eq!(bench.path_mtu(host(999)), 1000);
    bench.pass(Duration::from_secs(601));
    assert_eq!(bench.path_mtu(host(999)), 1500);
}

proptest! {
    /// Written headers can be read back.
    #[test]
    fn headers_round_trip(v4: bool, tos: u8, protocol: u8, len in 0usize..65516) {
        let mut bench = Bench::usual();
        bench.meet_peer();
        let (local, remote): (IpAddr, IpAddr) = if v4 { (OWN.into(), PEER.into()) } else { (OWN6.into(), PEER6.into()) };
        let path = bench.ready(remote);
        let mut frame = [0xee; MAX_HEADERS];
        let written = bench.ip.emit_headers(&mut frame, &path, local.into(), remote.into(), protocol, tos, len);
        //= RFC 1122 §3.2.1.7
        //= RFC 6864 §4.1
        prop_assert_eq!(&frame[..6], &PEER_MAC[..]);
        prop_assert_eq!(&frame[6..12], &OWN_MAC[..]);
        if v4 {
            prop_assert_eq!((written, &frame[12..14]), (34, &[8, 0][..]));
            let view = ipv4::View::new(&frame[14..34], 70000).unwrap();
            prop_assert_eq!((view.tos(), view.protocol(), usize::from(view.payload_len())), (tos, protocol, len));
            prop_assert_eq!((IpAddr::from(view.src()), IpAddr::from(view.dst())), (local, remote));
            prop_assert!(view.dont_fragment() && !view.is_fragment() && view.ttl() == 64 && view.id() == 0);
        } else {
            prop_assert_eq!((written, &frame[12..14]), (54, &[0x86, 0xdd][..]));
            let view = ipv6::View::new(&frame[14..54], 70000).unwrap();
            prop_assert_eq!((view.traffic_class(), view.next_header(), usize::from(view.payload_len())), (tos, protocol, len));
            prop_assert_eq!((IpAddr::from(view.src()), IpAddr::from(view.dst())), (local, remote));
            prop_assert_eq!((view.flow_label(), view.hop_limit()), (0, 64));
        }
    }
}
