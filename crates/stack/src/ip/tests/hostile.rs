//! Bytes that no honest host sends.

use super::*;
use proptest::prelude::*;

/// A frame whose headers are valid up to some point.
fn begun() -> impl Strategy<Value = Vec<u8>> {
    let icmp = icmp_v4(&icmpv4::Message::EchoRequest {
        id: 1,
        seq: 1,
        data: b"0123456789",
    });
    let original = packet_v4(OWN, FAR, protocol::TCP, &[0; 20]);
    let needed = icmpv4::Message::DestinationUnreachable {
        code: 4,
        mtu: 1000,
        original: &original,
    };
    let icmp6 = icmp_v6(
        PEER6,
        OWN6,
        &icmpv6::Message::EchoRequest {
            id: 1,
            seq: 1,
            data: b"0123456789",
        },
    );
    let original6 = packet_v6(OWN6, FAR6, protocol::TCP, 60, &[0; 20]);
    let too_big = icmp_v6(
        PEER6,
        OWN6,
        &icmpv6::Message::PacketTooBig {
            mtu: 1300,
            original: &original6,
        },
    );
    let solicitation = ndisc::Message::NeighborSolicitation {
        target: OWN6,
        source_link: Some(Mac(PEER_MAC)),
    };
    let mut fragment = vec![protocol::TCP, 0, 0, 1, 0, 0, 0, 1];
    fragment.extend(segment(20));
    let mut fragment4 = frame_v4(PEER, OWN, protocol::TCP, &segment(20));
    fragment4[20] = 0x20;
    mend_header(&mut fragment4);
    prop_oneof![
        Just(arp_frame(arp::Operation::Request, PEER_MAC, PEER, [0; 6], OWN)),
        Just(arp_frame(arp::Operation::Reply, PEER_MAC, PEER, OWN_MAC, OWN)),
        Just(frame_v4(PEER, OWN, protocol::TCP, &segment(30))),
        Just(frame_v4(PEER, OWN, protocol::UDP, &segment(30))),
        Just(frame_v4(PEER, OWN, protocol::ICMPV4, &icmp)),
        Just(frame_v4(PEER, OWN, protocol::ICMPV4, &icmp_v4(&needed))),
        Just(fragment4),
        Just(frame_v6(PEER6, OWN6, protocol::TCP, &segment(30))),
        Just(frame_v6(PEER6, OWN6, protocol::ICMPV6, &icmp6)),
        Just(frame_v6(PEER6, OWN6, protocol::ICMPV6, &too_big)),
        Just(frame_v6(PEER6, OWN6, protocol::FRAGMENT, &fragment)),
        Just(frame_v6(
            PEER6,
            OWN6,
            protocol::DESTINATION_OPTIONS,
            &[6, 0, 1, 4, 0, 0, 0, 0, 1, 2, 3, 4]
        )),
        Just(discovery_frame(
            PEER6,
            ndisc::solicited_node(OWN6),
            255,
            &solicitation
        )),
        Just(advertisement(PEER6, PEER_MAC, true, true, OWN6)),
        Just(Vec::new()),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Receive {
        frame: Vec<u8>,
        changes: Vec<(usize, u8)>,
        mend: bool,
        tail: Vec<u8>,
        cut: usize,
        private: usize,
    },
    Pass(u64),
    Path(u8),
    Transmit,
}

fn step() -> impl Strategy<Value = Step> {
    let change = proptest::collection::vec((0usize..120, any::<u8>()), 0..4);
    let tail = proptest::collection::vec(any::<u8>(), 0..80);
    prop_oneof![
        8 => (begun(), change, any::<bool>(), tail, 0usize..100, 0usize..200).prop_map(
            |(frame, changes, mend, tail, cut, private)| Step::Receive {
                frame, changes, mend, tail, cut: cut.saturating_sub(50), private
            }
        ),
        1 => (0u64..70_000_000_000).prop_map(Step::Pass),
        1 => any::<u8>().prop_map(Step::Path),
        1 => Just(Step::Transmit),
    ]
}

/// Corrects the IPv4 header's checksum, so that the other fields are checked.
fn mend_header(frame: &mut [u8]) {
    if frame.len() >= 34 && frame[12..14] == [8, 0] {
        let len = (usize::from(frame[14] & 15) * 4).clamp(20, frame.len() - 14);
        frame[24..26].fill(0);
        let sum = toehold_wire::checksum::finish(toehold_wire::checksum::sum(&frame[14..14 + len]));
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
}

fn run(bench: &mut Bench, steps: Vec<Step>, start: usize) {
    for step in steps {
        match step {
            Step::Receive {
                mut frame,
                changes,
                mend,
                tail,
                cut,
                private,
            } => {
                for (at, value) in changes {
                    if let Some(byte) = frame.get_mut(at) {
                        *byte = value;
                    }
                }
                frame.truncate(frame.len().saturating_sub(cut));
                frame.extend(tail);
                if mend {
                    mend_header(&mut frame);
                }
                let frame = frame.get(start..).unwrap_or(&[]);
                let private = private.min(frame.len());
                let mut came = bench.receive_split(frame, private);
                if let Came::Whole(frame) = came {
                    came = bench.receive(&frame);
                    assert!(!matches!(came, Came::Whole(_)));
                }
                if let Came::Reassembled(frame) = came {
                    let came = bench.receive(&frame);
                    assert!(!matches!(came, Came::Reassembled(_) | Came::Whole(_)));
                }
            }
            Step::Pass(nanos) => bench.pass(Duration::from_nanos(nanos)),
            Step::Path(host) => {
                if let PathState::Pending { neighbor } = bench.path(Ipv4Addr::new(10, 0, 0, host)) {
                    bench.ip.set_waiting_head(neighbor, u32::from(host));
                }
                while let Some(event) = bench.ip.next_event() {
                    let (NeighborEvent::Resolved { neighbor } | NeighborEvent::Failed { neighbor }) = event;
                    bench.ip.set_waiting_head(neighbor, NONE);
                }
            }
            Step::Transmit => {
                for frame in bench.sent() {
                    assert!(frame.len() <= 1514, "{}", frame.len());
                }
            }
        }
    }
    assert!(bench.ip.neighbors.len() <= 8);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_frames_cause_no_panic(steps in proptest::collection::vec(step(), 1..20)) {
        run(&mut Bench::usual(), steps, 0);
    }

    #[test]
    fn any_packets_without_ethernet_cause_no_panic(steps in proptest::collection::vec(step(), 1..20)) {
        run(&mut Bench::new(&Config { ethernet: false, ..config() }), steps, 14);
    }

    #[test]
    fn random_bytes_cause_no_panic(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..10)) {
        let mut bench = Bench::usual();
        for mut frame in frames {
            if let Some(start) = frame.first_chunk_mut() {
                *start = OWN_MAC;
            }
            bench.receive_split(&frame, frame.len().min(192));
        }
        bench.sent();
    }
}

#[test]
fn impossible_sources_are_dropped() {
    //= RFC 1122 §3.2.1.3
    //= RFC 4291 §2.5.2
    //= RFC 4291 §2.5.3
    //= RFC 4291 §2.7
    let mut bench = Bench::usual();
    let sources = [
        "10.0.0.1",
        "10.0.0.255",
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
    ];
    for source in sources {
        bench.receive(&frame_v4(
            source.parse().unwrap(),
            OWN,
            protocol::TCP,
            &segment(0),
        ));
    }
    assert_eq!(bench.counted("drop_bad_source"), 8);
    // An IPv4-mapped source would pass for an IPv4 peer.
    for source in ["fd00::1", "::", "::1", "ff02::1", "::ffff:10.0.0.2"] {
        bench.receive(&frame_v6(
            source.parse().unwrap(),
            OWN6,
            protocol::TCP,
            &segment(0),
        ));
    }
    assert_eq!(bench.counted("drop_bad_source"), 13);
    let frame = frame_v4(PEER, OWN, protocol::TCP, &segment(0));
    bench.receive(&ethernet_frame(OWN_MAC, [0xff; 6], EtherType::IPV4, &frame[14..]));
    assert_eq!(bench.counted("drop_bad_source"), 14);
    assert_eq!(bench.counters.tcp_segments_received, 0);
}

#[test]
fn frames_for_other_hosts_are_dropped() {
    //= RFC 4291 §2.8
    let mut bench = Bench::usual();
    let own = frame_v4(PEER, OWN, protocol::TCP, &segment(0));
    bench.receive(&ethernet_frame(
        [2, 0, 0, 0, 0, 7],
        PEER_MAC,
        EtherType::IPV4,
        &own[14..],
    ));
    assert_eq!(bench.counted("drop_other_host"), 1);
    for destination in ["10.0.0.7", "127.0.0.1", "192.0.2.1", "224.0.0.9"] {
        bench.receive(&frame_v4(
            PEER,
            destination.parse().unwrap(),
            protocol::TCP,
            &segment(0),
        ));
    }
    for destination in ["fd00::7", "::1", "ff02::2", "ff02::1:ff00:7"] {
        bench.receive(&frame_v6(
            PEER6,
            destination.parse().unwrap(),
            protocol::TCP,
            &segment(0),
        ));
    }
    //= RFC 9293 §3.9.2.3
    // Broadcast segments, and segments in a broadcast frame.
    bench.receive(&frame_v4(PEER, Ipv4Addr::BROADCAST, protocol::TCP, &segment(0)));
    bench.receive(&frame_v4(
        PEER,
        Ipv4Addr::new(10, 0, 0, 255),
        protocol::TCP,
        &segment(0),
    ));
    bench.receive(&frame_v6(
        PEER6,
        ndisc::solicited_node(OWN6),
        protocol::TCP,
        &segment(0),
    ));
    bench.receive(&ethernet_frame([0xff; 6], PEER_MAC, EtherType::IPV4, &own[14..]));
    assert_eq!(bench.counted("drop_not_local"), 12);
    bench.receive(&ethernet_frame(OWN_MAC, PEER_MAC, EtherType(0x88cc), &own[14..]));
    bench.receive(&ethernet_frame(OWN_MAC, PEER_MAC, EtherType(46), &own[14..]));
    assert_eq!(bench.counted("drop_ethertype"), 2);
    assert!(bench.sent().is_empty());
}

#[test]
fn vlan_tag_with_priority_only_is_accepted() {
    let own = frame_v4(PEER, OWN, protocol::TCP, &segment(0));
    let mut bench = Bench::usual();
    let tagged = |tag: u16| [&own[..12], &[0x81, 0], &tag.to_be_bytes(), &own[12..]].concat();
    assert!(matches!(bench.receive(&tagged(0xe000)), Came::Tcp { .. }));
    assert_eq!(bench.receive(&tagged(0xe001)), Came::Nothing);
    assert_eq!(bench.counted("drop_other_host"), 1);
}

#[test]
fn source_routes_are_refused_and_other_options_skipped() {
    let mut bench = Bench::usual();
    let with_option = |option: [u8; 8]| {
        let plain = packet_v4(PEER, OWN, protocol::TCP, &segment(0));
        let mut packet = [&plain[..20], &option, &plain[20..]].concat();
        packet[0] = 0x47;
        packet[3] += 8;
        packet[10..12].fill(0);
        let sum = toehold_wire::checksum::finish(toehold_wire::checksum::sum(&packet[..28]));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        ethernet_frame(OWN_MAC, PEER_MAC, EtherType::IPV4, &packet)
    };
    // Router alert, record route: skipped.
    for option in [[148, 4, 0, 0, 0, 0, 0, 0], [7, 7, 4, 0, 0, 0, 0, 0]] {
        let Came::Tcp { bytes, .. } = bench.receive(&with_option(option)) else {
            panic!()
        };
        assert_eq!(bytes, segment(0));
    }
    for option in [
        [131, 7, 4, 10, 0, 0, 9, 0],
        [137, 7, 4, 10, 0, 0, 9, 0],
        [148, 1, 0, 0, 0, 0, 0, 0],
    ] {
        assert_eq!(bench.receive(&with_option(option)), Came::Nothing);
    }
    assert_eq!(bench.counted("drop_malformed"), 2 + 1);
}

#[test]
fn contradictory_lengths_are_refused() {
    //= RFC 1122 §3.2.1
    let mut bench = Bench::usual();
    for len in [0u16, 19, 41, 65535] {
        let mut frame = frame_v4(PEER, OWN, protocol::TCP, &segment(0));
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        mend_header(&mut frame);
        assert_eq!(bench.receive(&frame), Came::Nothing);
    }
    let mut frame = frame_v6(PEER6, OWN6, protocol::TCP, &segment(0));
    frame[18..20].copy_from_slice(&21u16.to_be_bytes());
    assert_eq!(bench.receive(&frame), Came::Nothing);
    assert_eq!(bench.counted("drop_malformed"), 5);
    //= RFC 1122 §3.2.1.2
    let mut frame = frame_v4(PEER, OWN, protocol::TCP, &segment(0));
    frame[24] ^= 1;
    assert_eq!(
        (bench.receive(&frame), bench.counted("drop_checksum")),
        (Came::Nothing, 1)
    );
}
