//! Fragments: reassembled, refused, discarded, and sent.

use super::*;
use proptest::prelude::*;

/// Part of a datagram: offset, bytes, whether other parts follow.
pub(super) type Part<'a> = (u16, &'a [u8], bool);

pub(super) fn fragment_v4(id: u16, protocol: u8, (offset, data, more): Part<'_>) -> Vec<u8> {
    let header = ipv4::Header {
        id,
        protocol,
        dont_fragment: false,
        more_fragments: more,
        fragment_offset: offset,
        payload_len: data.len() as u16,
        ..ipv4::Header::new(PEER, OWN)
    };
    let mut bytes = vec![0; ipv4::HEADER_LEN];
    header.emit(&mut bytes);
    bytes.extend(data);
    ethernet_frame(OWN_MAC, PEER_MAC, EtherType::IPV4, &bytes)
}

pub(super) fn fragment_v6(id: u32, next_header: u8, (offset, data, more): Part<'_>) -> Vec<u8> {
    let mut payload = vec![0; 8];
    let fragment = ipv6::Fragment { offset, more, id };
    ipv6::FragmentHeader {
        next_header,
        fragment,
    }
    .emit(&mut payload);
    payload.extend(data);
    frame_v6(PEER6, OWN6, protocol::FRAGMENT, &payload)
}

fn fragment(v4: bool, id: u16, part: Part<'_>) -> Vec<u8> {
    if v4 {
        fragment_v4(id, protocol::TCP, part)
    } else {
        fragment_v6(u32::from(id), protocol::TCP, part)
    }
}

/// Receives the parts in turn, and receives again what the last one completes.
pub(super) fn receive_all(bench: &mut Bench, v4: bool, id: u16, parts: &[Part<'_>]) -> Came {
    let mut last = Came::Nothing;
    for part in parts {
        assert_eq!(last, Came::Nothing);
        let frame = fragment(v4, id, *part);
        last = bench.receive_split(&frame, frame.len().min(192));
    }
    match last {
        Came::Reassembled(frame) => bench.receive(&frame),
        other => other,
    }
}

pub(super) fn whole(v4: bool, bytes: &[u8]) -> Came {
    let ends: (IpAddr, IpAddr) = if v4 {
        (PEER.into(), OWN.into())
    } else {
        (PEER6.into(), OWN6.into())
    };
    Came::Tcp {
        source: ends.0.into(),
        destination: ends.1.into(),
        ecn: 0,
        bytes: bytes.to_vec(),
    }
}

#[test]
fn fragments_in_any_order_are_reassembled() {
    //= RFC 791 §3.2
    //= RFC 8200 §4.5
    //= RFC 6946 §4
    let data = segment(2980);
    let parts: [Part<'_>; 3] = [
        (0, &data[..1000], true),
        (1000, &data[1000..2000], true),
        (2000, &data[2000..], false),
    ];
    for v4 in [true, false] {
        for (id, order) in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
            .into_iter()
            .enumerate()
        {
            let mut bench = Bench::usual();
            let parts = order.map(|part: usize| parts[part]);
            assert_eq!(receive_all(&mut bench, v4, id as u16, &parts), whole(v4, &data));
            assert_eq!(bench.ip.fragments.next_deadline(), Instant::NEVER);
        }
    }
}

#[test]
fn large_datagram_is_reassembled() {
    let data: Vec<u8> = (0..65000u32).map(|at| (at * 7) as u8).collect();
    for v4 in [true, false] {
        let mut bench = Bench::usual();
        let parts: Vec<Part<'_>> = data
            .chunks(1480)
            .enumerate()
            .map(|(at, chunk)| (at as u16 * 1480, chunk, (at + 1) * 1480 < data.len()))
            .collect();
        assert_eq!(receive_all(&mut bench, v4, 1, &parts), whole(v4, &data));
    }
}

#[test]
fn overlap_discards_datagram_for_good() {
    //= RFC 5722 §4
    let data = segment(44);
    let other = [0xee; 64];
    let first: Part<'_> = (0, &data[..32], true);
    let last: Part<'_> = (32, &data[32..], false);
    let hostile: [Part<'_>; 6] = [
        (0, &other[..32], true),
        (24, &data[24..40], true),
        (24, &other[..16], true),
        (8, &data[8..64], false),
        // Two ends.
        (16, &data[16..32], false),
        (8, &other[..8], false),
    ];
    for v4 in [true, false] {
        for (case, part) in hostile.into_iter().enumerate() {
            let mut bench = Bench::usual();
            bench.receive(&fragment(v4, 1, first));
            bench.receive(&fragment(v4, 1, part));
            assert_eq!(bench.counted("drop_fragment"), 1, "{case}");
            // Neither the missing part nor a repeated first fragment helps.
            for part in [last, first, last] {
                assert_eq!(bench.receive(&fragment(v4, 1, part)), Came::Nothing, "{case}");
            }
            assert_eq!(bench.counted("drop_fragment"), 4);
            // Another datagram is unaffected.
            assert_eq!(receive_all(&mut bench, v4, 2, &[last, first]), whole(v4, &data));
        }
        // Behind the end.
        let mut bench = Bench::usual();
        bench.receive(&fragment(v4, 1, last));
        bench.receive(&fragment(v4, 1, (64, &other[..8], true)));
        assert_eq!(bench.receive(&fragment(v4, 1, first)), Came::Nothing);
    }
}

#[test]
fn duplicate_fragment_is_no_overlap() {
    //= RFC 8200 §4.5
    let data = segment(44);
    for v4 in [true, false] {
        let mut bench = Bench::usual();
        let parts: [Part<'_>; 4] = [
            (0, &data[..32], true),
            (0, &data[..32], true),
            (8, &data[8..16], true),
            (32, &data[32..], false),
        ];
        assert_eq!(receive_all(&mut bench, v4, 1, &parts), whole(v4, &data));
    }
}

#[test]
fn impossible_fragments_are_refused() {
    let mut bench = Bench::usual();
    for v4 in [true, false] {
        bench.receive(&fragment(v4, 1, (0, &[0; 13], true)));
        bench.receive(&fragment(v4, 1, (65528, &[0; 64], false)));
        bench.receive(&fragment(v4, 1, (8, &[], true)));
    }
    //= RFC 7112 §5
    // The first fragment must contain the headers.
    bench.meet_peer();
    bench.sent();
    let option = [protocol::TCP, 3, 1, 4, 0, 0, 0, 0];
    bench.receive(&fragment_v6(9, protocol::DESTINATION_OPTIONS, (0, &option, true)));
    assert_eq!(bench.sent()[0][54..56], [4, 3]);
    assert_eq!(bench.ip.fragments.next_deadline(), Instant::NEVER);
    assert_eq!(bench.counted("drop_fragment"), 1);
}

#[test]
fn a_fragment_within_a_fragment_is_refused() {
    //= RFC 5722 §4
    let mut inner = vec![0; 8];
    let fragment = ipv6::Fragment {
        offset: 8,
        more: true,
        id: 5,
    };
    ipv6::FragmentHeader {
        next_header: protocol::TCP,
        fragment,
    }
    .emit(&mut inner);
    inner.extend([0; 24]);
    let mut bench = Bench::usual();
    bench.receive(&fragment_v6(4, protocol::FRAGMENT, (0, &inner[..16], true)));
    assert_eq!(
        bench.receive(&fragment_v6(4, protocol::FRAGMENT, (16, &inner[16..], false))),
        Came::Nothing
    );
    assert_eq!(bench.counted("drop_fragment"), 1);
}

#[test]
fn extension_headers_before_the_fragment_header_are_kept() {
    let data = segment(20);
    let mut bench = Bench::usual();
    for (offset, part, more) in [(0, &data[..16], true), (16, &data[16..], false)] {
        let mut payload = vec![protocol::FRAGMENT, 0, 1, 4, 0, 0, 0, 0];
        let mut header = [0; 8];
        let fragment = ipv6::Fragment { offset, more, id: 3 };
        ipv6::FragmentHeader {
            next_header: protocol::TCP,
            fragment,
        }
        .emit(&mut header);
        payload.extend(header);
        payload.extend(part);
        if let Came::Reassembled(frame) =
            bench.receive(&frame_v6(PEER6, OWN6, protocol::HOP_BY_HOP, &payload))
        {
            assert_eq!(bench.receive(&frame), whole(false, &data));
            return;
        }
    }
    panic!("not complete");
}

#[test]
fn mark_on_fragment_marks_datagram() {
    //= RFC 3168 §5.3
    let data = segment(44);
    for (marks, expected) in [
        ([2, 3], Some(3)),
        ([2, 2], Some(2)),
        ([0, 0], Some(0)),
        ([0, 3], None),
    ] {
        let mut bench = Bench::usual();
        let mut first = fragment_v6(1, protocol::TCP, (0, &data[..32], true));
        let mut last = fragment_v6(1, protocol::TCP, (32, &data[32..], false));
        first[15] |= marks[0] << 4;
        last[15] |= marks[1] << 4;
        bench.receive(&first);
        match (bench.receive(&last), expected) {
            (Came::Reassembled(frame), Some(expected)) => {
                assert!(matches!(bench.receive(&frame), Came::Tcp { ecn, .. } if ecn == expected));
            }
            (came, expected) => assert_eq!((came, expected), (Came::Nothing, None)),
        }
    }
}

#[test]
fn incomplete_datagram_is_discarded_and_reported() {
    //= RFC 1122 §3.3.2
    //= RFC 8200 §4.5
    for v4 in [true, false] {
        let mut bench = Bench::usual();
        bench.meet_peer();
        let data = segment(100);
        let first = fragment(v4, 1, (0, &data[..64], true));
        bench.receive(&first);
        bench.pass(Duration::from_secs(30));
        // The first fragment of this datagram is missing: it is not reported.
        bench.receive(&fragment(v4, 2, (64, &data[64..], false)));
        bench.pass(Duration::from_secs(29));
        // Keep the neighbour known.
        bench.receive(&advertisement(PEER6, PEER_MAC, true, true, OWN6));
        bench.receive(&arp_frame(arp::Operation::Request, PEER_MAC, PEER, [0; 6], OWN));
        bench.sent();
        bench.pass(Duration::from_secs(2));
        let sent = bench.sent();
        assert_eq!(sent.len(), 1);
        let message = &sent[0][if v4 { 34 } else { 54 }..];
        assert_eq!(message[..2], [if v4 { 11 } else { 3 }, 1]);
        assert_eq!(message[8..], first[14..], "the original packet");
        bench.pass(Duration::from_secs(30));
        assert_eq!((bench.sent().len(), bench.counted("drop_fragment")), (0, 2));
        assert_eq!(
            bench.receive(&fragment(v4, 1, (64, &data[64..], false))),
            Came::Nothing
        );
    }
}

#[test]
fn flood_of_first_fragments_displaces_oldest_datagram() {
    let data = segment(44);
    let mut bench = Bench::usual();
    for id in 0..1000 {
        bench.receive(&fragment(true, id, (0, &data[..32], true)));
        bench.pass(Duration::from_millis(1));
    }
    for (id, expected) in [(999, whole(true, &data)), (0, Came::Nothing)] {
        let came = receive_all(&mut bench, true, id, &[(32, &data[32..], false)]);
        assert_eq!(came, expected);
    }
}

#[test]
fn first_identification_depends_on_seed() {
    //= RFC 7739 §5
    let first = |seed| {
        let mut bench = Bench::new(&Config { seed, ..config() });
        bench.meet_peer();
        let request = icmp_v4(&icmpv4::Message::EchoRequest {
            id: 1,
            seq: 2,
            data: b"",
        });
        bench.receive(&frame_v4(PEER, OWN, protocol::ICMPV4, &request));
        ipv4::View::new(&bench.sent()[0][14..], 1500).unwrap().id()
    };
    assert!(first(1) != first(2) && first(2) != first(3) && first(1) == first(1));
}

#[test]
fn long_echoes_are_answered_in_fragments() {
    //= RFC 1122 §3.2.2.6
    //= RFC 4443 §4.2
    let data: Vec<u8> = (0..20000u32).map(|at| (at * 13) as u8).collect();
    for v4 in [true, false] {
        let mut bench = Bench::usual();
        bench.meet_peer();
        let request = if v4 {
            icmp_v4(&icmpv4::Message::EchoRequest {
                id: 1,
                seq: 2,
                data: &data,
            })
        } else {
            icmp_v6(
                PEER6,
                OWN6,
                &icmpv6::Message::EchoRequest {
                    id: 1,
                    seq: 2,
                    data: &data,
                },
            )
        };
        let step = 1400;
        let mut last = Came::Nothing;
        for (at, chunk) in request.chunks(step).enumerate() {
            let part = ((at * step) as u16, chunk, (at + 1) * step < request.len());
            last = bench.receive(&if v4 {
                fragment_v4(1, protocol::ICMPV4, part)
            } else {
                fragment_v6(1, protocol::ICMPV6, part)
            });
        }
        let Came::Reassembled(frame) = last else { panic!() };
        assert_eq!(bench.receive(&frame), Came::Nothing);
        // The peer reassembles them.
        let sent = bench.sent();
        assert!(sent.len() > 13 && sent.iter().all(|frame| frame.len() <= 1514));
        let peer = Config {
            mac: PEER_MAC,
            ipv4: Some((PEER, 24)),
            ipv6: Some((PEER6, 64)),
            ..config()
        };
        let mut peer = Bench::new(&peer);
        let mut together = None;
        for frame in sent {
            if let Came::Reassembled(frame) = peer.receive(&frame) {
                together = Some(frame);
            }
        }
        let together = together.unwrap();
        let start = if v4 { 34 } else { 62 };
        assert_eq!(together[start], if v4 { 0 } else { 129 });
        assert_eq!(together[start + 8..], data);
    }
}

proptest! {
    /// Any parts in any order yield the original datagram or none.
    #[test]
    fn random_parts_yield_original_or_nothing(
        v4: bool,
        parts in proptest::collection::vec((0u16..10, 1u16..6, any::<bool>()), 1..30),
    ) {
        let data = segment(60);
        let mut bench = Bench::usual();
        for (start, units, more) in parts {
            let (from, to) = (usize::from(start) * 8, (usize::from(start + units) * 8).min(80));
            if from >= to {
                continue;
            }
            // The end stays in place, except for some parts.
            let more = if to == 80 { false } else { more };
            if let Came::Reassembled(frame) = bench.receive(&fragment(v4, 1, (from as u16, &data[from..to], more))) {
                let Came::Tcp { bytes, .. } = bench.receive(&frame) else { panic!() };
                prop_assert_eq!(&bytes[..], &data[..bytes.len()]);
            }
        }
    }
}
