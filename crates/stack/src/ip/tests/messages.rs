//! Control messages: echo, errors received, errors sent.

use super::*;
use icmpv4::unreachable;
use toehold_wire::tcp::Seq;
use toehold_wire::{checksum, udp};

const LINK_LOCAL_PEER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

/// The ICMP message in a frame to the peer.
fn message_in(frame: &[u8]) -> (IpAddr, IpAddr, Vec<u8>) {
    assert_eq!(frame[6..12], OWN_MAC);
    if frame[12..14] == [0x08, 0x00] {
        let view = ipv4::View::new(&frame[14..], frame.len() - 14).unwrap();
        assert!(icmpv4::View::new(view.payload()).unwrap().verify(0, 0));
        return (view.src().into(), view.dst().into(), view.payload().to_vec());
    }
    let view = ipv6::View::new(&frame[14..], frame.len() - 14).unwrap();
    let pseudo_header = icmpv6::pseudo_header(view.src(), view.dst(), view.payload().len());
    assert!(
        icmpv6::View::new(view.payload())
            .unwrap()
            .verify(pseudo_header, 0)
    );
    (view.src().into(), view.dst().into(), view.payload().to_vec())
}

pub(super) fn udp_datagram(source: IpAddr, destination: IpAddr, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    udp::Header {
        src_port: 5000,
        dst_port: 53,
        payload_len: data.len() as u16,
    }
    .emit(&mut bytes);
    let pseudo = checksum::pseudo_header(source, destination, 17, 8 + data.len() as u32);
    udp::set_checksum(&mut bytes, pseudo, checksum::sum(data));
    bytes.extend(data);
    bytes
}

#[test]
fn echo_is_answered_whole() {
    //= RFC 1122 §3.2.2.6
    //= RFC 4443 §4.2
    for len in [0, 1, 56, 1000, 1500 - 40 - 8] {
        let mut bench = Bench::usual();
        bench.meet_peer();
        let data: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let request = icmp_v4(&icmpv4::Message::EchoRequest {
            id: 7,
            seq: 9,
            data: &data,
        });
        bench.receive_split(
            &frame_v4(PEER, OWN, protocol::ICMPV4, &request),
            (14 + 20 + 8 + len).min(192),
        );
        assert!(bench.ip.has_output());
        let sent = bench.sent();
        assert!(!bench.ip.has_output());
        let (source, destination, message) = message_in(&sent[0]);
        assert_eq!((sent.len(), source, destination), (1, OWN.into(), PEER.into()));
        let expected = icmpv4::Message::EchoReply {
            id: 7,
            seq: 9,
            data: &data,
        };
        assert_eq!(
            icmpv4::Message::parse(&icmpv4::View::new(&message).unwrap()),
            expected
        );

        let request = icmp_v6(
            PEER6,
            OWN6,
            &icmpv6::Message::EchoRequest {
                id: 7,
                seq: 9,
                data: &data,
            },
        );
        bench.receive_split(
            &frame_v6(PEER6, OWN6, protocol::ICMPV6, &request),
            (14 + 40 + 8 + len).min(192),
        );
        let sent = bench.sent();
        let (source, destination, message) = message_in(&sent[0]);
        assert_eq!((sent.len(), source, destination), (1, OWN6.into(), PEER6.into()));
        let expected = icmpv6::Message::EchoReply {
            id: 7,
            seq: 9,
            data: &data,
        };
        assert_eq!(
            icmpv6::Message::parse(&icmpv6::View::new(&message).unwrap()),
            expected
        );
        assert_eq!(bench.counted("icmp_echo_replies"), 2);
    }
}

#[test]
fn echo_on_jumbo_links_is_answered_whole() {
    let mut config = config();
    config.link.mtu = 65520;
    let mut bench = Bench::new(&config);
    bench.meet_peer();
    let data = vec![0xa5; 65000];
    let request = icmp_v4(&icmpv4::Message::EchoRequest {
        id: 7,
        seq: 9,
        data: &data,
    });
    bench.receive_split(&frame_v4(PEER, OWN, protocol::ICMPV4, &request), 192);
    let sent = bench.sent();
    assert_eq!((sent.len(), message_in(&sent[0]).2.len()), (1, 65008));
}

#[test]
fn messages_beyond_link_fit_any_path() {
    //= RFC 8201 §5.1
    let mut bench = Bench::usual();
    let request = icmp_v6(
        FAR6,
        OWN6,
        &icmpv6::Message::EchoRequest {
            id: 7,
            seq: 9,
            data: &[1; 1400],
        },
    );
    bench.receive(&frame_v6(FAR6, OWN6, protocol::ICMPV6, &request));
    bench.sent();
    bench.receive(&advertisement(GATEWAY6, PEER_MAC, true, true, OWN6));
    let sent = bench.sent();
    assert_eq!(sent.len(), 2);
    assert!(
        sent.iter()
            .all(|frame| frame.len() <= 14 + 1280 && frame[20] == protocol::FRAGMENT)
    );
}

#[test]
fn damaged_or_general_requests_are_not_answered() {
    let mut bench = Bench::usual();
    bench.meet_peer();
    let mut request = icmp_v4(&icmpv4::Message::EchoRequest {
        id: 7,
        seq: 9,
        data: b"data",
    });
    for everybody in [
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(10, 0, 0, 255),
        Ipv4Addr::new(224, 0, 0, 1),
    ] {
        let packet = packet_v4(PEER, everybody, protocol::ICMPV4, &request);
        bench.receive(&ethernet_frame([0xff; 6], PEER_MAC, EtherType::IPV4, &packet));
    }
    //= RFC 1122 §3.3.6
    let packet = packet_v4(PEER, OWN, protocol::ICMPV4, &request);
    bench.receive(&ethernet_frame([0xff; 6], PEER_MAC, EtherType::IPV4, &packet));
    request[10] ^= 1;
    bench.receive(&frame_v4(PEER, OWN, protocol::ICMPV4, &request));
    bench.receive(&frame_v4(PEER, OWN, protocol::ICMPV4, &request[..7]));
    assert!(bench.sent().is_empty());
    assert_eq!(
        (bench.counted("drop_icmp"), bench.counted("drop_checksum")),
        (3, 1)
    );
    assert_eq!(
        (bench.counted("drop_not_local"), bench.counted("drop_malformed")),
        (1, 1)
    );
}

#[test]
fn flood_of_requests_fills_only_its_queue() {
    let mut bench = Bench::usual();
    bench.meet_peer();
    let request = icmp_v4(&icmpv4::Message::EchoRequest {
        id: 7,
        seq: 9,
        data: &[0; 1000],
    });
    for _ in 0..1000 {
        bench.receive(&frame_v4(PEER, OWN, protocol::ICMPV4, &request));
    }
    // Other hosts can still resolve this stack's address.
    bench.receive(&arp_frame(arp::Operation::Request, PEER_MAC, PEER, [0; 6], OWN));
    let sent = bench.sent();
    assert_eq!((sent.len(), bench.counted("drop_queue_full")), (61, 940));
    assert_eq!(sent[60][12..14], [0x08, 0x06]);
}

/// A segment of this stack, as quoted by a router.
fn quoted_v4(len: u16) -> Vec<u8> {
    let mut quoted = packet_v4(OWN, FAR, protocol::TCP, &[0x1f, 0x90, 0, 80, 1, 2, 3, 4]);
    quoted[2..4].copy_from_slice(&len.to_be_bytes());
    quoted
}

fn quoted_v6(len: u16) -> Vec<u8> {
    let mut quoted = packet_v6(OWN6, FAR6, protocol::TCP, 60, &[0x1f, 0x90, 0, 80, 1, 2, 3, 4]);
    quoted[4..6].copy_from_slice(&(len - 40).to_be_bytes());
    quoted
}

fn error_of(local: IpAddr, remote: IpAddr, kind: IcmpErrorKind) -> Came {
    let tuple = crate::tuple::FourTuple {
        local: local.into(),
        remote: remote.into(),
        local_port: 8080,
        remote_port: 80,
    };
    Came::Error(IcmpError {
        tuple,
        seq: Seq(0x0102_0304),
        kind,
        origin: NO_ORIGIN,
    })
}

fn receive_v4(bench: &mut Bench, message: &icmpv4::Message<'_>) -> Came {
    bench.receive(&frame_v4(
        Ipv4Addr::new(198, 51, 100, 1),
        OWN,
        protocol::ICMPV4,
        &icmp_v4(message),
    ))
}

fn receive_v6(bench: &mut Bench, message: &icmpv6::Message<'_>) -> Came {
    let router = "2001:db8::99".parse().unwrap();
    bench.receive(&frame_v6(
        router,
        OWN6,
        protocol::ICMPV6,
        &icmp_v6(router, OWN6, message),
    ))
}

#[test]
fn errors_about_segments_go_to_tcp() {
    //= RFC 1122 §3.2.2.1
    //= RFC 1122 §4.2.3.9
    let mut bench = Bench::usual();
    let original = &quoted_v4(1500)[..];
    let cases = [
        (unreachable::NET, IcmpErrorKind::NetUnreachable),
        (unreachable::HOST, IcmpErrorKind::HostUnreachable),
        (unreachable::PROTOCOL, IcmpErrorKind::ProtocolUnreachable),
        (unreachable::PORT, IcmpErrorKind::PortUnreachable),
        (unreachable::SOURCE_ROUTE_FAILED, IcmpErrorKind::SourceRouteFailed),
        (6, IcmpErrorKind::NetRefused),
        (7, IcmpErrorKind::HostUnknown),
        (8, IcmpErrorKind::HostIsolated),
        (unreachable::NET_PROHIBITED, IcmpErrorKind::NetRefused),
        (unreachable::HOST_PROHIBITED, IcmpErrorKind::HostRefused),
        (11, IcmpErrorKind::NetRefused),
        (12, IcmpErrorKind::HostRefused),
        (unreachable::PROHIBITED, IcmpErrorKind::HostRefused),
        (14, IcmpErrorKind::HostRefused),
        (15, IcmpErrorKind::HostRefused),
    ];
    for (code, kind) in cases {
        let message = icmpv4::Message::DestinationUnreachable {
            code,
            mtu: 0,
            original,
        };
        assert_eq!(
            receive_v4(&mut bench, &message),
            error_of(OWN.into(), FAR.into(), kind)
        );
    }
    let message = icmpv4::Message::TimeExceeded { code: 0, original };
    let expected = error_of(OWN.into(), FAR.into(), IcmpErrorKind::TimeExceeded);
    assert_eq!(receive_v4(&mut bench, &message), expected);

    //= RFC 4443 §3.1
    let original = &quoted_v6(1500)[..];
    let cases = [
        (0, IcmpErrorKind::NetUnreachable),
        (1, IcmpErrorKind::Prohibited),
        (2, IcmpErrorKind::HostUnreachable),
        (3, IcmpErrorKind::HostUnreachable),
        (4, IcmpErrorKind::PortUnreachable),
        (5, IcmpErrorKind::Prohibited),
        (6, IcmpErrorKind::Prohibited),
        (7, IcmpErrorKind::Unknown),
    ];
    for (code, kind) in cases {
        let message = icmpv6::Message::DestinationUnreachable { code, original };
        assert_eq!(
            receive_v6(&mut bench, &message),
            error_of(OWN6.into(), FAR6.into(), kind)
        );
    }
    for (code, kind) in [
        (0, IcmpErrorKind::ParameterProblem),
        (1, IcmpErrorKind::ParameterProblem),
    ] {
        let message = icmpv6::Message::ParameterProblem {
            code,
            pointer: 6,
            original,
        };
        assert_eq!(
            receive_v6(&mut bench, &message),
            error_of(OWN6.into(), FAR6.into(), kind)
        );
    }
    assert!(bench.sent().is_empty());
}

#[test]
fn reported_path_mtu_is_validated() {
    //= RFC 1191 §3
    //= RFC 1191 §5
    let mut bench = Bench::usual();
    let needed = |bench: &mut Bench, mtu, len| {
        let original = &quoted_v4(len)[..];
        let code = unreachable::FRAGMENTATION_NEEDED;
        receive_v4(
            bench,
            &icmpv4::Message::DestinationUnreachable { code, mtu, original },
        )
    };
    let fits = |mtu| error_of(OWN.into(), FAR.into(), IcmpErrorKind::FragmentationNeeded { mtu });
    assert_eq!(needed(&mut bench, 1400, 1500), fits(1400));
    assert_eq!(needed(&mut bench, 68, 1500), fits(68));
    //= RFC 1191 §7
    // Old routers report no MTU.
    assert_eq!(needed(&mut bench, 0, 1500), fits(1492));
    assert_eq!(needed(&mut bench, 0, 1492), fits(1006));
    for (mtu, len) in [(67, 1500), (1500, 1500), (9000, 1500), (0, 68), (0, 20)] {
        assert_eq!(needed(&mut bench, mtu, len), Came::Nothing);
    }
    //= RFC 8201 §4
    let too_big = |bench: &mut Bench, mtu, len| {
        receive_v6(
            bench,
            &icmpv6::Message::PacketTooBig {
                mtu,
                original: &quoted_v6(len),
            },
        )
    };
    let fits = error_of(
        OWN6.into(),
        FAR6.into(),
        IcmpErrorKind::FragmentationNeeded { mtu: 1280 },
    );
    assert_eq!(too_big(&mut bench, 1280, 1500), fits);
    for (mtu, len) in [(1279, 1500), (1500, 1500), (u32::MAX, 1500), (65536 + 1400, 1500)] {
        assert_eq!(too_big(&mut bench, mtu, len), Came::Nothing);
    }
    assert_eq!(bench.counted("drop_icmp"), 9);
    assert_eq!(
        bench.path_mtu(Address::from(IpAddr::from(FAR))),
        1500,
        "TCP decides"
    );
}

#[test]
fn errors_about_unsent_packets_are_dropped() {
    //= RFC 5927 §4
    let mut bench = Bench::usual();
    let foreign = packet_v4(FAR, OWN, protocol::TCP, &[0; 8]);
    let udp = packet_v4(OWN, FAR, protocol::UDP, &[0; 8]);
    let short = packet_v4(OWN, FAR, protocol::TCP, &[0; 7]);
    let mut later = quoted_v4(1500);
    later[7] = 1;
    for original in [&foreign, &udp, &short, &later, &vec![]] {
        let message = icmpv4::Message::DestinationUnreachable {
            code: unreachable::PORT,
            mtu: 0,
            original,
        };
        assert_eq!(receive_v4(&mut bench, &message), Came::Nothing);
    }
    //= RFC 6633 §3
    // Kinds that TCP does not handle: source quench, redirect, unasked replies.
    let original = quoted_v4(1500);
    for kind in [4, 5, 9, 14] {
        let mut message = [&[kind, 0, 0, 0, 0, 0, 0, 0], &original[..]].concat();
        icmpv4::set_checksum(&mut message, 0);
        bench.receive(&frame_v4(PEER, OWN, protocol::ICMPV4, &message));
    }
    receive_v4(
        &mut bench,
        &icmpv4::Message::EchoReply {
            id: 1,
            seq: 1,
            data: &original,
        },
    );
    assert_eq!(bench.counted("drop_icmp"), 10);
    assert!(bench.sent().is_empty());
}

#[test]
fn packet_without_receiver_is_reported_to_sender() {
    //= RFC 1122 §3.2.2.1
    //= RFC 1122 §4.1.3.1
    //= RFC 4443 §2.2
    //= RFC 4443 §3.1
    //= RFC 4443 §3.4
    //= RFC 1812 §4.3.2.3
    //= RFC 8200 §4
    let mut bench = Bench::usual();
    bench.meet_peer();
    let datagram = udp_datagram(PEER.into(), OWN.into(), &[0xaa; 1200]);
    let packet = packet_v4(PEER, OWN, protocol::UDP, &datagram);
    bench.receive_split(&ethernet_frame(OWN_MAC, PEER_MAC, EtherType::IPV4, &packet), 192);
    let (source, destination, message) = message_in(&bench.sent()[0]);
    assert_eq!(
        (source, destination, message.len() + 20),
        (OWN.into(), PEER.into(), 576)
    );
    let icmpv4::Message::DestinationUnreachable { code, original, .. } =
        icmpv4::Message::parse(&icmpv4::View::new(&message).unwrap())
    else {
        panic!()
    };
    assert_eq!((code, original), (unreachable::PORT, &packet[..548]));

    let datagram = udp_datagram(LINK_LOCAL_PEER.into(), OWN6.into(), &[0xaa; 1400]);
    bench.receive(&advertisement(LINK_LOCAL_PEER, PEER_MAC, true, true, OWN6));
    bench.receive_split(&frame_v6(LINK_LOCAL_PEER, OWN6, protocol::UDP, &datagram), 192);
    let sent = bench.sent();
    // The link-local neighbour was unknown: its address is resolved first.
    assert_eq!(sent.len(), 1);
    bench.receive(&advertisement(LINK_LOCAL_PEER, PEER_MAC, true, true, OWN6));
    let (source, _, message) = message_in(&bench.sent()[0]);
    assert_eq!(
        (source, message.len() + 40, message[..2].to_vec()),
        (OWN6.into(), 1280, vec![1, 4])
    );

    bench.receive(&frame_v4(PEER, OWN, 132, &[0; 12]));
    assert_eq!(message_in(&bench.sent()[0]).2[..2], [3, unreachable::PROTOCOL]);
    bench.receive(&frame_v6(PEER6, OWN6, 132, &[0; 12]));
    let (.., message) = message_in(&bench.sent()[0]);
    assert_eq!((&message[..2], &message[4..8]), (&[4, 1][..], &[0, 0, 0, 6][..]));
    assert_eq!(
        (bench.counted("drop_protocol"), bench.counted("icmp_errors_sent")),
        (4, 4)
    );
}

#[test]
fn some_packets_must_not_be_reported() {
    //= RFC 1122 §3.2.2
    //= RFC 4443 §2.4
    let mut bench = Bench::usual();
    bench.meet_peer();
    let mut datagram = udp_datagram(PEER.into(), Ipv4Addr::BROADCAST.into(), b"data");
    let packet = packet_v4(PEER, Ipv4Addr::BROADCAST, protocol::UDP, &datagram);
    bench.receive(&ethernet_frame([0xff; 6], PEER_MAC, EtherType::IPV4, &packet));
    bench.receive(&frame_v4(
        Ipv4Addr::new(224, 0, 0, 5),
        OWN,
        protocol::UDP,
        &datagram,
    ));
    //= RFC 1122 §4.1.3.4
    datagram[7] ^= 1;
    bench.receive(&frame_v4(PEER, OWN, protocol::UDP, &datagram));
    //= RFC 8200 §8.1
    let mut datagram = udp_datagram(PEER6.into(), OWN6.into(), b"data");
    datagram[6..8].fill(0);
    bench.receive(&frame_v6(PEER6, OWN6, protocol::UDP, &datagram));
    assert_eq!(bench.counted("drop_checksum"), 2);
    //= RFC 8200 §4.7
    bench.receive(&frame_v6(PEER6, OWN6, protocol::NO_NEXT_HEADER, b"nothing"));
    // Unknown headers in front of an ICMPv6 error, or in a packet to a group.
    let error = icmp_v6(
        PEER6,
        OWN6,
        &icmpv6::Message::TimeExceeded {
            code: 0,
            original: &[],
        },
    );
    let unknown = [&[protocol::ICMPV6, 0, 0xc5, 4, 0, 0, 0, 0], &error[..]].concat();
    let packet = packet_v6(PEER6, OWN6, protocol::DESTINATION_OPTIONS, 64, &unknown);
    let group = packet_v6(
        PEER6,
        ndisc::solicited_node(OWN6),
        protocol::DESTINATION_OPTIONS,
        64,
        &unknown,
    );
    bench.receive(&ethernet_frame(
        [0x33, 0x33, 0xff, 0, 0, 1],
        PEER_MAC,
        EtherType::IPV6,
        &group,
    ));
    assert!(bench.sent().is_empty());
    bench.receive(&ethernet_frame(OWN_MAC, PEER_MAC, EtherType::IPV6, &packet));
    assert_eq!(message_in(&bench.sent()[0]).2[..2], [4, 2]);
    //= RFC 8200 §4.2
    // An option may demand an answer even so.
    let mut insisting = group.clone();
    insisting[42] = 0x85;
    bench.receive(&ethernet_frame(
        [0x33, 0x33, 0xff, 0, 0, 1],
        PEER_MAC,
        EtherType::IPV6,
        &insisting,
    ));
    assert_eq!(message_in(&bench.sent()[0]).2[..8][4..], [0, 0, 0, 42]);
}

#[test]
fn errors_are_limited_in_rate() {
    //= RFC 4443 §2.4
    //= RFC 1812 §4.3.2.8
    let mut bench = Bench::usual();
    bench.meet_peer();
    let datagram = udp_datagram(PEER.into(), OWN.into(), b"data");
    let mut sent = 0;
    for _ in 0..2000 {
        bench.receive(&frame_v4(PEER, OWN, protocol::UDP, &datagram));
        sent += bench.sent().len();
    }
    assert_eq!((sent, bench.counted("icmp_errors_limited")), (50, 1950));
    bench.pass(Duration::from_millis(10));
    for _ in 0..100 {
        bench.receive(&frame_v4(PEER, OWN, protocol::UDP, &datagram));
        sent += bench.sent().len();
    }
    assert_eq!(sent, 60);
}

/// Links hand over the beginning of a frame in private memory. Its headers may exceed that.
#[test]
fn headers_beyond_private_bytes_are_read_in_one_piece() {
    //= RFC 8200 §4
    let mut bench = Bench::usual();
    let segment = segment(900);
    for options in [8, 72, 136, 256, 1024] {
        // Options that receivers skip.
        let mut payload = vec![protocol::TCP, (options / 8 - 1) as u8];
        while payload.len() < options {
            let len = (options - payload.len() - 2).min(200);
            payload.extend([0x1e, len as u8]);
            payload.resize(payload.len() + len, 0);
        }
        payload.extend(&segment);
        let frame = frame_v6(FAR6, OWN6, protocol::DESTINATION_OPTIONS, &payload);
        let expected = Came::Tcp {
            source: core::net::IpAddr::from(FAR6).into(),
            destination: core::net::IpAddr::from(OWN6).into(),
            ecn: 0,
            bytes: segment.clone(),
        };
        let came = match bench.receive_split(&frame, 192) {
            Came::Whole(whole) => {
                assert_eq!(whole, frame);
                bench.receive(&whole)
            }
            came => {
                assert!(options < 100, "{options} bytes of options");
                came
            }
        };
        assert_eq!(came, expected, "{options} bytes of options");
    }
}
