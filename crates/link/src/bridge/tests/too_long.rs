//! Packets that exceed the other link's MTU.

use toehold_wire::{icmpv4, icmpv6, ipv4, ipv6};

use super::super::too_long::{fragments, report};
use super::*;

/// Creates a bridge from a link with an MTU of 9000 to one of 1500.
fn narrowing() -> (Loopback, Bridge<Loopback, Loopback>, Loopback) {
    let ((near, left), (right, far)) = (cable(|wide| wide.capabilities.mtu = 9000), cable(plain));
    (near, Bridge::new(left, right), far)
}

/// Returns an IPv4 datagram from A to B with `len` bytes of payload, with or
/// without "don't fragment".
fn datagram_v4(len: usize, dont_fragment: bool) -> Vec<u8> {
    let mut frame = udp_ipv4(&(0..len).map(|at| (at / 5) as u8).collect::<Vec<_>>());
    frame[..6].copy_from_slice(&B);
    frame[20] = if dont_fragment { 0x40 } else { 0 };
    frame
}

/// Returns an IPv6 datagram from A to B with `len` bytes of payload.
fn datagram_v6(len: usize) -> Vec<u8> {
    let mut frame = [&B[..], &A, &[0x86, 0xdd]].concat();
    let [src, dst] = ["fd77::1", "fd77::2"].map(|address| address.parse().unwrap());
    let header = ipv6::Header {
        payload_len: 8 + len as u16,
        next_header: 17,
        ..ipv6::Header::new(src, dst)
    };
    let mut packet = [0; ipv6::HEADER_LEN];
    header.emit(&mut packet);
    frame.extend(packet);
    frame.extend([0x9c, 0x40, 0x9c, 0x41]);
    frame.extend((8 + len as u16).to_be_bytes());
    frame.extend(vec![0; 2 + len]);
    frame
}

#[test]
fn long_packet_without_dont_fragment_is_fragmented() {
    let (mut near, mut bridge, mut far) = narrowing();
    let frame = datagram_v4(5000, false);
    send(&mut near, &frame, PARTIAL).unwrap();
    near.flush();
    settle(&mut bridge);
    let mut finished = frame;
    complete(&mut finished, true, &mut PARTIAL.clone());
    let pieces = receive_all(&mut far, 0);
    assert_eq!(pieces.len(), 4);
    let mut payload: Vec<u8> = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        assert!(piece.len() <= 1514 && piece[..14] == finished[..14]);
        let view = ipv4::View::new(&piece[14..], piece.len() - 14).unwrap();
        assert_eq!(
            (usize::from(view.fragment_offset()), view.id()),
            (payload.len(), 1)
        );
        assert_eq!(view.more_fragments(), number != 3);
        payload.extend(view.payload());
        // A fragment cut again keeps its offset, and is not the last one.
        let again: Vec<_> = fragments(piece, 600).unwrap().collect();
        let last = again.last().unwrap();
        let last = ipv4::View::new(&last[14..], last.len() - 14).unwrap();
        assert_eq!(last.more_fragments(), view.more_fragments());
        let end = usize::from(last.fragment_offset()) + last.payload().len();
        assert_eq!(end, payload.len());
    }
    assert_eq!(payload, finished[34..]);
    let [forth, _] = bridge.statistics();
    assert_eq!((forth.fragmented, forth.forwarded, forth.dropped()), (1, 4, 0));
    assert!(receive_all(&mut near, 0).is_empty());
}

#[test]
fn sender_of_uncuttable_packet_is_told_mtu() {
    let (mut near, mut bridge, mut far) = narrowing();
    for frame in [datagram_v4(5000, true), datagram_v6(5000)] {
        send(&mut near, &frame, PARTIAL).unwrap();
        near.flush();
        settle(&mut bridge);
        assert!(receive_all(&mut far, 0).is_empty());
        let told = receive_all(&mut near, 0);
        assert_eq!(told.len(), 1);
        assert_eq!(
            told[0][..12],
            [A, B].concat(),
            "the error comes from the packet's destination"
        );
        let mut finished = frame;
        complete(&mut finished, true, &mut PARTIAL.clone());
        let (packet, sent) = (&told[0][14..], &finished[14..]);
        if let Ok(view) = ipv4::View::new(packet, packet.len()) {
            let ends = ipv4::View::quoted(sent).map(|sent| (sent.dst(), sent.src()));
            assert_eq!(ends, Ok((view.src(), view.dst())));
            let error = icmpv4::View::new(view.payload()).unwrap();
            assert!(error.verify(0, 0));
            let icmpv4::Message::DestinationUnreachable { code, mtu, original } =
                icmpv4::Message::parse(&error)
            else {
                panic!("{:?}", icmpv4::Message::parse(&error));
            };
            assert_eq!((code, mtu), (icmpv4::unreachable::FRAGMENTATION_NEEDED, 1500));
            assert!(original.len() >= 28 && sent.starts_with(original));
        } else {
            let view = ipv6::View::new(packet, packet.len()).unwrap();
            let ends = ipv6::View::quoted(sent).map(|sent| (sent.dst(), sent.src()));
            assert_eq!(ends, Ok((view.src(), view.dst())));
            let error = icmpv6::View::new(view.payload()).unwrap();
            let pseudo_header = icmpv6::pseudo_header(view.src(), view.dst(), view.payload().len());
            assert!(error.verify(pseudo_header, 0));
            let icmpv6::Message::PacketTooBig { mtu, original } = icmpv6::Message::parse(&error) else {
                panic!("{:?}", icmpv6::Message::parse(&error));
            };
            assert!(mtu == 1500 && original.len() >= 48 && sent.starts_with(original));
        }
    }
    let [forth, _] = bridge.statistics();
    assert_eq!((forth.too_long, forth.reported, forth.forwarded), (2, 2, 0));
}

/// No error is sent about an error, about a multicast packet, or about a
/// segment, which is cut.
#[test]
fn no_error_is_sent_about_errors_multicast_and_segments() {
    let told = |frame: &[u8]| report(frame, 1500).is_some();
    assert!(told(&datagram_v4(5000, true)) && told(&datagram_v6(5000)));
    let mut group = datagram_v4(5000, true);
    group[0] |= 1;
    assert!(!told(&group));
    let mut later = datagram_v4(5000, true);
    later[21] = 9;
    assert!(!told(&later), "the sender is told of the first fragment");
    assert!(!told(&report(&datagram_v4(5000, true), 1500).unwrap()));
    assert!(!told(&report(&datagram_v6(5000), 1500).unwrap()));
    let mut request = datagram_v4(5000, true);
    (request[23], request[34]) = (1, 8);
    assert!(told(&request), "an echo request is no error");

    let (mut near, mut bridge, mut far) = narrowing();
    send(&mut near, &tcp_ipv4(&[7; 5000]), PARTIAL).unwrap();
    near.flush();
    settle(&mut bridge);
    assert_eq!(payload_of(&receive_all(&mut far, 0), 1500), [7; 5000]);
    assert!(receive_all(&mut near, 0).is_empty());
}

/// Without VLAN tags a packet may exceed the MTU by a few bytes only, the room
/// of the tags.
#[test]
fn packet_longer_by_tag_room_is_noticed() {
    for over in 0..=8 {
        let (mut near, mut bridge, mut far) = narrowing();
        send(&mut near, &tcp_ipv4(&vec![7; 1460 + over]), PARTIAL).unwrap();
        near.flush();
        settle(&mut bridge);
        assert_eq!(
            receive_all(&mut far, 0).len(),
            1 + usize::from(over > 0),
            "{over} bytes"
        );
        assert_eq!(bridge.statistics()[0].dropped(), 0);
    }
}

#[test]
fn errors_are_rate_limited() {
    let (mut near, mut bridge, _far) = narrowing();
    let mut told = 0;
    let mut flood = |now_ns: u64| {
        for _ in 0..100 {
            send(&mut near, &datagram_v6(5000), PARTIAL).unwrap();
            near.flush();
            while bridge.round_at(now_ns) != 0 {}
            told += receive_all(&mut near, 0).len();
        }
        told
    };
    assert_eq!(flood(0), 32);
    assert_eq!(flood(20_000_000), 34, "one more each ten milliseconds");
    assert_eq!(flood(10_000_000_000), 66);
}

proptest! {
    #[test]
    fn arbitrary_long_packet_never_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        damage: (prop::sample::Index, u8),
        v4: bool,
        dont_fragment: bool,
        mtu in 0..3000_usize,
    ) {
        let _ = (report(&bytes, mtu), fragments(&bytes, mtu).map(Iterator::count));
        let mut frame = if v4 { datagram_v4(1000, dont_fragment) } else { datagram_v6(1000) };
        let at = damage.0.index(60);
        frame[at] = damage.1;
        let _ = report(&frame[..100], mtu);
        for piece in fragments(&frame, mtu).into_iter().flatten() {
            prop_assert!(piece.len() <= mtu + 22);
        }
    }
}
