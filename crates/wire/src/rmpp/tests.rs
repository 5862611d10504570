//! Packets there and back, each field at its ends, and hostile bytes.

use super::*;
use crate::WireError;
use proptest::prelude::*;
use std::sync::LazyLock;

const BYTES: [u8; 70] = [0xa5; 70];

/// A list of as many ranges as a NACK has, around the circle's end.
fn full_list() -> RangeList {
    let mut list = RangeList::new();
    for number in 0..MAX_RANGES as u32 {
        let start = Seq(u32::MAX - 8) + number * 2;
        assert!(list.push(MissingRange {
            start,
            end: start + 1
        }));
    }
    assert!(!list.push(MissingRange {
        start: Seq(1),
        end: Seq(2)
    }));
    list
}

/// A packet of each kind with each field of its body at an end of its range.
fn packets_at_ends() -> Vec<Packet<'static>> {
    static FULL: LazyLock<RangeList> = LazyLock::new(full_list);
    let full = FULL.ranges().unwrap();
    let mut bodies = Vec::new();
    for end in [0, u64::MAX] {
        for bytes in [&BYTES[..0], &BYTES[..1], &BYTES[..]] {
            bodies.push(PacketBody::Eager { tag: end, bytes });
        }
        bodies.push(PacketBody::Part {
            tag: end,
            offset: 0,
            total: 0,
            bytes: &[],
        });
        bodies.push(PacketBody::Part {
            tag: end,
            offset: u32::MAX - 1,
            total: u32::MAX,
            bytes: &BYTES[..1],
        });
        bodies.push(PacketBody::Part {
            tag: end,
            offset: 0,
            total: u32::MAX,
            bytes: &BYTES,
        });
        bodies.push(PacketBody::Offer {
            tag: end,
            token: end,
            len: end.min(OFFER_TOTAL_MAX),
            address: end,
            nonce: end,
        });
        bodies.push(PacketBody::Pull {
            token: end,
            sink: end,
            offset: 0,
            len: OFFER_TOTAL_MAX,
        });
        bodies.push(PacketBody::Pull {
            token: end,
            sink: end,
            offset: OFFER_TOTAL_MAX - 1,
            len: 1,
        });
        bodies.push(PacketBody::Piece {
            sink: end,
            offset: OFFER_TOTAL_MAX - 1,
            bytes: &BYTES[..1],
        });
        bodies.push(PacketBody::Piece {
            sink: end,
            offset: 0,
            bytes: &BYTES,
        });
        bodies.push(PacketBody::Done { token: end });
    }
    bodies.extend([
        PacketBody::Ack,
        PacketBody::Nack(full),
        PacketBody::Reset,
        PacketBody::Bye,
    ]);
    bodies.push(PacketBody::Hello {
        len: 9000,
        is_answer: false,
    });
    bodies.push(PacketBody::Hello {
        len: u32::MAX,
        is_answer: true,
    });
    bodies.into_iter().map(Packet::new).collect()
}

/// The packet with each set of options and flags that its kind has, and the other fields at both ends.
fn with_all_options(packet: Packet<'static>) -> Vec<Packet<'static>> {
    let mut all = Vec::new();
    for bits in 0..64 {
        let flags = PacketFlags::from_bits(bits).unwrap();
        if !packet.kind().allowed_flags().contains(flags) {
            continue;
        }
        for end in [0, u64::MAX] {
            let is_set = |flag| flags.contains(flag);
            all.push(Packet {
                flags: flags.without(PacketFlags::FIRST | PacketFlags::DATA | PacketFlags::CHECKSUM),
                credit: end as u16,
                check: end as u32,
                seq: Seq(end as u32),
                ack: Seq(end as u32),
                lives: is_set(PacketFlags::FIRST).then_some(Lives {
                    sender: end,
                    receiver: !end,
                }),
                data: is_set(PacketFlags::DATA).then_some(end),
                has_checksum: is_set(PacketFlags::CHECKSUM),
                body: packet.body,
            });
        }
    }
    all
}

fn emitted(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = vec![0xee; packet.len()];
    assert_eq!(packet.emit(&mut bytes), packet.len());
    bytes
}

#[test]
fn each_kind_with_fields_at_their_ends_round_trips() {
    for packet in packets_at_ends().into_iter().flat_map(with_all_options) {
        let bytes = emitted(&packet);
        assert!(packet.headers_len() <= MAX_HEADERS_LEN);
        assert_eq!(Packet::parse(&bytes), Ok(packet));
    }
}

#[test]
fn padded_packet_round_trips_unless_eager() {
    for packet in packets_at_ends().into_iter().flat_map(with_all_options) {
        let is_open = matches!(packet.body, PacketBody::Part { total, bytes, offset, .. } if bytes.len() as u32 != total - offset);
        if packet.kind() != PacketKind::Eager && !is_open {
            let mut bytes = emitted(&packet);
            bytes.resize(bytes.len() + 46, 0);
            assert_eq!(Packet::parse(&bytes), Ok(packet));
        }
    }
}

#[test]
fn cut_packet_returns_error_or_is_shorter_message() {
    for packet in packets_at_ends().into_iter().flat_map(with_all_options) {
        let bytes = emitted(&packet);
        for len in 0..bytes.len().min(300) {
            match Packet::parse(&bytes[..len]) {
                Err(WireError::Truncated | WireError::BadLength | WireError::BadChecksum) => {}
                Ok(shorter) => {
                    assert!(
                        matches!(packet.kind(), PacketKind::Eager | PacketKind::Part),
                        "{packet:?}"
                    );
                    assert!(shorter.body.bytes().len() < packet.body.bytes().len());
                    assert!(!packet.has_checksum);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn changed_bit_of_checksummed_packet_is_refused() {
    let body = PacketBody::Piece {
        sink: 9,
        offset: 8,
        bytes: &BYTES,
    };
    let packet = Packet {
        has_checksum: true,
        lives: Some(Lives {
            sender: 1,
            receiver: 2,
        }),
        ..Packet::new(body)
    };
    let bytes = emitted(&packet);
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        // Without its flag the checksum is padding, which only the flow's check field tells.
        let is_flag = bit == 8 + 5;
        assert_eq!(Packet::parse(&bytes).is_ok(), is_flag, "bit {bit}");
    }
}

#[test]
fn header_has_documented_layout() {
    let packet = Packet {
        flags: PacketFlags::ACK_NOW,
        credit: 0x0102,
        check: 0x0304_0506,
        seq: Seq(0x0708_090a),
        ack: Seq(0x0b0c_0d0e),
        ..Packet::new(PacketBody::Done {
            token: 0x1112_1314_1516_1718,
        })
    };
    let expected = [
        0x15, 8, 2, 1, 6, 5, 4, 3, 10, 9, 8, 7, 14, 13, 12, 11, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12,
        0x11,
    ];
    assert_eq!(emitted(&packet), expected);
}

#[test]
fn forbidden_first_bytes_return_errors() {
    let bytes = emitted(&Packet::new(PacketBody::Ack));
    for first in 0..=u8::MAX {
        let mut bytes = bytes.clone();
        bytes[0] = first;
        match Packet::parse(&bytes) {
            Err(WireError::BadVersion) => assert_ne!(first >> 4, VERSION),
            Err(WireError::Unsupported) => assert!(usize::from(first & 15) >= PacketKind::ALL.len()),
            _ => assert_eq!(first >> 4, VERSION),
        }
    }
    for flags in 64..=u8::MAX {
        let mut bytes = bytes.clone();
        bytes[1] = flags;
        assert_eq!(Packet::parse(&bytes), Err(WireError::BadField));
    }
}

#[test]
fn contradicting_lengths_return_errors() {
    let word =
        |bytes: &mut Vec<u8>, at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    let mut pull = emitted(&Packet::new(PacketBody::Pull {
        token: 0,
        sink: 0,
        offset: 1,
        len: 1,
    }));
    for len in [0, OFFER_TOTAL_MAX, u64::MAX] {
        word(&mut pull, HEADER_LEN + 16, len);
        assert_eq!(Packet::parse(&pull), Err(WireError::BadLength));
    }
    let mut piece = emitted(&Packet::new(PacketBody::Piece {
        sink: 0,
        offset: 0,
        bytes: &BYTES,
    }));
    for (len, error) in [
        (0, WireError::BadLength),
        (71, WireError::Truncated),
        (u64::MAX, WireError::Truncated),
    ] {
        word(&mut piece, HEADER_LEN + 8, len);
        assert_eq!(Packet::parse(&piece), Err(error));
    }
    let mut offer = emitted(&Packet::new(PacketBody::Offer {
        tag: 0,
        token: 0,
        len: 0,
        address: 0,
        nonce: 0,
    }));
    word(&mut offer, HEADER_LEN + 8, OFFER_TOTAL_MAX + 1);
    assert_eq!(Packet::parse(&offer), Err(WireError::BadLength));
    let mut part = emitted(&Packet::new(PacketBody::Part {
        tag: 0,
        offset: 0,
        total: 8,
        bytes: &BYTES[..8],
    }));
    word(&mut part, HEADER_LEN, 9 | 8 << 32);
    assert_eq!(Packet::parse(&part), Err(WireError::BadLength));
    let mut nack = emitted(&Packet::new(PacketBody::Ack));
    nack[0] = VERSION << 4 | PacketKind::Nack as u8;
    for (count, error) in [
        (0, WireError::BadLength),
        (17, WireError::BadLength),
        (1, WireError::Truncated),
    ] {
        word(&mut nack, 16, count);
        assert_eq!(Packet::parse(&nack), Err(error));
    }
}

proptest! {
    #[test]
    fn parse_never_panics_and_rereads_what_it_writes(
        first in 0u8..16, flags in 0u8..64, mut bytes in proptest::collection::vec(any::<u8>(), 0..200), small: bool
    ) {
        if let [version, flag, ..] = &mut bytes[..] {
            (*version, *flag) = (VERSION << 4 | first, flags);
        }
        // Lengths and counts of random words are never right.
        if small {
            for byte in bytes.iter_mut().skip(17).step_by(2) {
                *byte = 0;
            }
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            prop_assert!(packet.len() <= bytes.len());
            let again = emitted(&packet);
            prop_assert_eq!(Packet::parse(&again), Ok(packet));
        }
    }

    #[test]
    fn headers_and_message_apart_equal_whole(tag: u64, data in any::<Option<u64>>(), len in 0usize..70) {
        let packet = Packet { data, ..Packet::new(PacketBody::Eager { tag, bytes: &BYTES[..len] }) };
        let mut headers = [0; MAX_HEADERS_LEN];
        let at = packet.emit_headers(&mut headers);
        prop_assert_eq!([&headers[..at], packet.body.bytes()].concat(), emitted(&packet));
    }
}
