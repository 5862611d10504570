//! Frames for the kernel's stack beside this one.

use super::fragmented::{fragment_v4, fragment_v6, receive_all, whole};
use super::messages::udp_datagram;
use super::*;
use crate::ip::IcmpErrorKind;
use toehold_link::steering::{Flow, Steering};
use toehold_wire::tcp::Seq;

fn beside() -> Bench {
    Bench::new(&Config {
        beside_kernel: true,
        ..config()
    })
}

/// Frames for the kernel only.
fn kernels() -> Vec<(&'static str, Vec<u8>)> {
    let echo_v4 = icmp_v4(&icmpv4::Message::EchoRequest {
        id: 7,
        seq: 9,
        data: &[1; 56],
    });
    let echo_v6 = icmpv6::Message::EchoRequest {
        id: 7,
        seq: 9,
        data: &[1; 56],
    };
    let quoted = packet_v4(
        OWN,
        PEER,
        protocol::UDP,
        &udp_datagram(OWN.into(), PEER.into(), b"?"),
    );
    let unreachable = icmp_v4(&icmpv4::Message::DestinationUnreachable {
        code: icmpv4::unreachable::PORT,
        mtu: 0,
        original: &quoted,
    });
    let other = Ipv4Addr::new(10, 0, 0, 99);
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
    let mut tagged = frame_v4(PEER, OWN, protocol::TCP, &segment(10));
    tagged.splice(12..12, [0x81, 0x00, 0x00, 0x07]);
    let asks_for_address = packet_v4(
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::BROADCAST,
        protocol::UDP,
        &[0; 300],
    );
    vec![
        ("echo", frame_v4(PEER, OWN, protocol::ICMPV4, &echo_v4)),
        (
            "echo over IPv6",
            frame_v6(PEER6, OWN6, protocol::ICMPV6, &icmp_v6(PEER6, OWN6, &echo_v6)),
        ),
        (
            "UDP",
            frame_v4(
                PEER,
                OWN,
                protocol::UDP,
                &udp_datagram(PEER.into(), OWN.into(), b"!"),
            ),
        ),
        (
            "UDP over IPv6",
            frame_v6(
                PEER6,
                OWN6,
                protocol::UDP,
                &udp_datagram(PEER6.into(), OWN6.into(), b"!"),
            ),
        ),
        (
            "an error about UDP",
            frame_v4(PEER, OWN, protocol::ICMPV4, &unreachable),
        ),
        ("SCTP", frame_v4(PEER, OWN, 132, &[0; 40])),
        ("SCTP over IPv6", frame_v6(PEER6, OWN6, 132, &[0; 40])),
        (
            "TCP to another address",
            frame_v4(PEER, other, protocol::TCP, &segment(10)),
        ),
        ("a VLAN", tagged),
        (
            "LLDP",
            ethernet_frame(OWN_MAC, PEER_MAC, EtherType(0x88cc), &[0; 46]),
        ),
        (
            "a question for an address",
            ethernet_frame([0xff; 6], PEER_MAC, EtherType::IPV4, &asks_for_address),
        ),
        (
            "a group",
            ethernet_frame(
                [0x33, 0x33, 0, 0, 0, 0xfb],
                PEER_MAC,
                EtherType::IPV6,
                &packet_v6(PEER6, group, protocol::UDP, 255, &[0; 20]),
            ),
        ),
    ]
}

#[test]
fn unhandled_frames_go_to_kernel() {
    for (what, frame) in kernels() {
        let mut bench = beside();
        bench.meet_peer();
        assert_eq!(bench.receive(&frame), Came::Kernel, "{what}");
        assert!(bench.sent().is_empty(), "{what} is answered twice");
        let drops = bench
            .counters
            .iter()
            .filter(|(name, count)| name.starts_with("drop_") && *count != 0);
        assert_eq!(drops.collect::<Vec<_>>(), [], "{what}");
        // A stack without a kernel beside it drops them.
        let mut alone = Bench::usual();
        alone.meet_peer();
        assert_eq!(alone.receive(&frame), Came::Nothing, "{what}");
    }
}

#[test]
fn tcp_segments_and_errors_go_to_tcp_first() {
    let mut bench = beside();
    bench.meet_peer();
    assert!(matches!(
        bench.receive(&frame_v4(PEER, OWN, protocol::TCP, &segment(10))),
        Came::Tcp { .. }
    ));
    let mut quoted = segment(0);
    quoted[..8].copy_from_slice(&[0, 80, 0x12, 0x34, 0, 0, 0, 5]);
    let original = packet_v4(OWN, PEER, protocol::TCP, &quoted);
    let message = icmp_v4(&icmpv4::Message::DestinationUnreachable {
        code: icmpv4::unreachable::HOST,
        mtu: 0,
        original: &original,
    });
    let Came::Error(error) = bench.receive(&frame_v4(PEER, OWN, protocol::ICMPV4, &message)) else {
        panic!("an error about TCP is looked up");
    };
    assert_eq!((error.kind, error.seq), (IcmpErrorKind::HostUnreachable, Seq(5)));
}

#[test]
fn frames_for_another_host_are_dropped_by_both_stacks() {
    let mut bench = beside();
    let frame = ethernet_frame(
        [2, 0, 0, 0, 0, 9],
        PEER_MAC,
        EtherType::IPV4,
        &packet_v4(PEER, OWN, protocol::UDP, &[0; 8]),
    );
    assert_eq!(bench.receive(&frame), Came::Nothing);
    assert_eq!(bench.counted("drop_other_host"), 1);
}

#[test]
fn neighbor_messages_go_to_both_stacks() {
    let mut bench = beside();
    let question = arp_frame(arp::Operation::Request, PEER_MAC, PEER, [0; 6], OWN);
    assert_eq!(bench.receive(&question), Came::Kernel);
    let sent = bench.sent();
    assert_eq!(sent.len(), 1, "this stack answers: the interface may be down");
    assert_eq!(bench.ready(PEER).destination, PEER_MAC, "and has learnt");
    let solicitation = ndisc::Message::NeighborSolicitation {
        target: OWN6,
        source_link: Some(Mac(PEER_MAC)),
    };
    let group = ndisc::solicited_node(OWN6);
    assert_eq!(
        bench.receive(&discovery_frame(PEER6, group, 255, &solicitation)),
        Came::Kernel
    );
    assert_eq!(bench.sent().len(), 1);
    assert_eq!(bench.ready(PEER6).destination, PEER_MAC);
    // Answers go to both: each stack has sent requests, and cannot tell whose answer it is.
    let answer = arp_frame(arp::Operation::Reply, PEER_MAC, PEER, OWN_MAC, OWN);
    assert_eq!(bench.receive(&answer), Came::Kernel);
    assert_eq!(
        bench.receive(&advertisement(PEER6, PEER_MAC, true, true, OWN6)),
        Came::Kernel
    );
}

#[test]
fn only_tcp_fragments_are_reassembled() {
    for v4 in [true, false] {
        let mut bench = beside();
        let bytes: Vec<u8> = (0..64).collect();
        let parts = [(0, &bytes[..32], true), (32, &bytes[32..], false)];
        let udp = |part| match v4 {
            true => fragment_v4(3, protocol::UDP, part),
            false => fragment_v6(3, protocol::UDP, part),
        };
        for part in parts {
            assert_eq!(bench.receive(&udp(part)), Came::Kernel);
        }
        assert_eq!(receive_all(&mut bench, v4, 4, &parts), whole(v4, &bytes));
    }
}

/// The flow's shard hands on frames of a flow, and the first shard all others.
#[test]
fn one_shard_hands_frame_to_kernel() {
    let mut by_flow = 0;
    for index in 0..2 {
        let steering = Steering {
            index,
            count: 2,
            key: [7; 16],
        };
        let mut bench = Bench::new(&Config {
            beside_kernel: true,
            steering,
            ..config()
        });
        let mut others = 0;
        for (what, frame) in kernels() {
            let flow = Flow::of_frame(&frame);
            by_flow += usize::from(flow.is_some());
            let own = flow.map_or(index == 0, |flow| steering.is_own(&flow));
            let expected = if own { Came::Kernel } else { Came::Nothing };
            assert_eq!(bench.receive(&frame), expected, "{what}, shard {index}");
            others += u64::from(!own);
        }
        assert_eq!(bench.counted("drop_other_shard"), others);
    }
    assert!(by_flow >= 4, "some of either kind");
}
