//! The fast path of plain TCP segments agrees with the general path.

use super::*;
use crate::tuple::FourTuple;
use proptest::prelude::*;

/// Runs both paths, one after the other.
fn both(config: &Config, bytes: &[u8], private: usize) -> (Option<Came>, Came) {
    let mut bench = Bench::new(config);
    let (private, rest) = bytes.split_at(private.min(bytes.len()));
    let frame = Received {
        private,
        rest: Gather::from_slice(rest),
        offload: Offload::default(),
    };
    let short = bench
        .ip
        .plain_tcp(&frame)
        .map(|packet| came(Ingress::Tcp(packet)));
    let long = came(bench.ip.receive_any(bench.now, &frame, &mut bench.counters));
    (short, long)
}

fn plain(v4: bool, payload_len: usize) -> Vec<u8> {
    if v4 {
        frame_v4(PEER, OWN, protocol::TCP, &segment(payload_len))
    } else {
        frame_v6(PEER6, OWN6, protocol::TCP, &segment(payload_len))
    }
}

#[test]
fn plain_segment_takes_fast_path() {
    for v4 in [true, false] {
        for payload_len in [0, 1, 64, 1400, 65000] {
            for padding in [0, 7] {
                let mut bytes = plain(v4, payload_len);
                bytes.extend(vec![0xee; padding]);
                let (short, long) = both(&config(), &bytes, 192);
                assert_eq!(short, Some(long));
                let Some(Came::Tcp { bytes, .. }) = short else {
                    panic!()
                };
                assert_eq!(bytes, segment(payload_len));
            }
        }
    }
}

#[test]
fn probable_ends_of_plain_segment_are_its_ends() {
    for v4 in [true, false] {
        let frame = plain(v4, 64);
        let (local, remote): (IpAddr, IpAddr) = if v4 {
            (OWN.into(), PEER.into())
        } else {
            (OWN6.into(), PEER6.into())
        };
        let ports = segment(64);
        let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
        let ends = FourTuple::new((local, port(2)).into(), (remote, port(0)).into());
        assert_eq!(Bench::usual().ip.probable_ends(&frame), Some(ends));
        let config = Config {
            ethernet: false,
            ..config()
        };
        assert_eq!(Bench::new(&config).ip.probable_ends(&frame[14..]), Some(ends));
        for len in 0..if v4 { 38 } else { 58 } {
            assert_eq!(Bench::usual().ip.probable_ends(&frame[..len]), None, "{len}");
        }
    }
    let other = frame_v4(PEER, OWN, protocol::UDP, &segment(64));
    assert_eq!(Bench::usual().ip.probable_ends(&other), None);
}

#[test]
fn frames_may_begin_with_the_ip_header() {
    let config = Config {
        ethernet: false,
        ..config()
    };
    for bytes in [plain(true, 10), plain(false, 10)] {
        let (short, long) = both(&config, &bytes[14..], 192);
        assert_eq!(short, Some(long));
        assert!(short.is_some());
    }
}

#[test]
fn congestion_marks_are_handed_up() {
    //= RFC 3168 §5
    let header = ipv4::Header {
        tos: 0xb3,
        protocol: protocol::TCP,
        payload_len: 20,
        ..ipv4::Header::new(PEER, OWN)
    };
    let mut packet = vec![0; 40];
    header.emit(&mut packet);
    let mut bench = Bench::usual();
    let came = bench.receive(&ethernet_frame(OWN_MAC, PEER_MAC, EtherType::IPV4, &packet));
    assert!(matches!(came, Came::Tcp { ecn: 3, .. }));
    let mut frame = plain(false, 0);
    frame[15] = 0x20;
    assert!(matches!(bench.receive(&frame), Came::Tcp { ecn: 2, .. }));
}

#[test]
fn rest_of_segment_may_lie_in_several_pieces() {
    let bytes = plain(true, 3000);
    let (private, rest) = bytes.split_at(192);
    let mut gather = Gather::from_slice(&rest[..1000]);
    gather.push(&rest[1000..]);
    let frame = Received {
        private,
        rest: gather,
        offload: Offload {
            checksum: Checksum::Partial,
            segment_size: 1460,
        },
    };
    let mut bench = Bench::usual();
    let Ingress::Tcp(packet) = bench.ip.receive(bench.now, &frame, &mut bench.counters) else {
        panic!()
    };
    assert_eq!(
        (packet.header.len(), packet.rest.len(), packet.transport_len),
        (192 - 34, 3034 + 20 - 192, 3020)
    );
    assert_eq!(packet.offload, frame.offload);
    assert_eq!(
        (
            bench.counters.frames_received,
            bench.counters.tcp_segments_received
        ),
        (1, 1)
    );
}

proptest! {
    /// The general path agrees on all frames that the fast path takes.
    #[test]
    fn damaged_frame_has_same_result_on_both_paths(
        v4: bool, payload_len in 0usize..400, at in 0usize..54, with: u8, cut in 0usize..80, fix: bool, private in 0usize..300,
    ) {
        let mut bytes = plain(v4, payload_len);
        bytes[at] = with;
        if fix && v4 {
            bytes[24..26].fill(0);
            let sum = toehold_wire::checksum::finish(toehold_wire::checksum::sum(&bytes[14..34]));
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        let (short, long) = both(&config(), &bytes, private.max(192));
        if let Some(short) = short {
            prop_assert_eq!(short, long);
        } else if let Came::Tcp { .. } = long {
            // Only the general path takes options, tags and extension headers.
            prop_assert!(bytes[14] != 0x45 || !v4);
        }
    }

    #[test]
    fn header_sums_are_those_of_the_definition(header: [u8; 20]) {
        let sum = toehold_wire::checksum::sum(&header);
        prop_assert_eq!(super::super::headers::header_sum(&header) == 0xffff, toehold_wire::checksum::is_valid(sum));
    }
}
