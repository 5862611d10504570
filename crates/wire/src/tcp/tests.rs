use super::*;
use crate::{WireError, checksum};
use proptest::prelude::*;

fn parse(bytes: &[u8]) -> (Options, bool) {
    Options::parse(bytes)
}

fn blocks(list: &[(u32, u32)]) -> SackBlocks {
    let mut blocks = SackBlocks::EMPTY;
    for (left, right) in list {
        assert!(blocks.push(Seq(*left), Seq(*right)));
    }
    blocks
}

const TIMESTAMPS: Timestamps = Timestamps {
    value: 0x0102_0304,
    echo: 0x0506_0708,
};

#[test]
fn sequence_numbers_wrap() {
    //= RFC 9293 §3.4
    let last = Seq(u32::MAX);
    assert!(last.lt(last + 1) && last.le(last + 1) && (last + 1).gt(last) && (last + 1).ge(last));
    assert!(last.le(last) && last.ge(last) && !last.lt(last) && !last.gt(last));
    assert_eq!(last.max(Seq(5)), Seq(5));
    assert_eq!(last.min(Seq(5)), last);
    assert_eq!(Seq(5) - 10 + 10, Seq(5));
    assert!(Seq(2).in_window(Seq(u32::MAX - 1), 5) && !Seq(3).in_window(Seq(u32::MAX - 1), 5));
    let mut seq = Seq(3);
    seq += 7;
    seq -= 11;
    assert_eq!(seq, last);
}

#[test]
fn flags_have_names_and_drop_reserved_bits() {
    assert_eq!((Flags::FIN | Flags::ACK).to_string(), "FIN|ACK");
    assert_eq!(Flags::NONE.to_string(), "-");
    assert!(!(Flags::SYN).contains(Flags::SYN | Flags::ACK));
    assert!((Flags::SYN).intersects(Flags::SYN | Flags::ACK));
    assert_eq!(Flags::ALL.without(Flags::ALL), Flags::NONE);
    let mut bytes = [0; 20];
    bytes[12] = 0x5f;
    bytes[13] = 0xff;
    assert_eq!(View::new(&bytes, 20).unwrap().flags(), Flags::ALL);
    let header = Header {
        flags: Flags(0xffff),
        ..Header::default()
    };
    header.emit(&mut bytes);
    assert_eq!(bytes[12..14], [0x51, 0xff]);
}

#[test]
fn known_syn_is_read_and_written() {
    // From a capture of a Linux client: MSS 1460, SACK, timestamps, scale 7.
    let bytes = [
        0xd4, 0x31, 0x00, 0x50, 0x6b, 0x8b, 0x45, 0x67, 0x00, 0x00, 0x00, 0x00, 0xa0, 0x02, 0xfa, 0xf0, 0x00,
        0x00, 0x00, 0x00, 0x02, 0x04, 0x05, 0xb4, 0x04, 0x02, 0x08, 0x0a, 0x01, 0x02, 0x03, 0x04, 0x00, 0x00,
        0x00, 0x00, 0x01, 0x03, 0x03, 0x07,
    ];
    let view = View::new(&bytes, bytes.len()).unwrap();
    let expected = Header {
        src_port: 0xd431,
        dst_port: 80,
        seq: Seq(0x6b8b_4567),
        ack: Seq(0),
        flags: Flags::SYN,
        window: 64240,
        urgent: 0,
        options: Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps {
                value: 0x0102_0304,
                echo: 0,
            }),
            ..Options::NONE
        },
    };
    assert_eq!(view.header(), expected);
    // Linux writes the options in the emitter's order.
    let mut again = [0; 60];
    let len = expected.emit(&mut again);
    assert_eq!(again[..len], bytes);
}

#[test]
fn impossible_data_offsets_return_bad_length() {
    //= RFC 9293 §3.1
    let mut bytes = [0; 64];
    for offset in 0..16u8 {
        bytes[12] = offset << 4;
        let header_len = usize::from(offset) * 4;
        assert_eq!(View::new(&bytes, 64).is_ok(), header_len >= 20);
        // The header is longer than the segment or than the bytes at hand.
        assert_eq!(View::new(&bytes, 39).is_ok(), (20..=39).contains(&header_len));
        assert_eq!(
            View::new(&bytes[..39], 64).is_ok(),
            (20..=39).contains(&header_len)
        );
    }
    assert_eq!(View::new(&bytes[..19], 64).unwrap_err(), WireError::Truncated);
}

#[test]
fn syn_options_in_other_segments_are_ignored() {
    //= RFC 7323 §2.2
    //= RFC 2018 §2
    //= RFC 9293 §3.2
    let options = Options {
        mss: Some(1400),
        window_scale: Some(3),
        sack_permitted: true,
        timestamps: Some(TIMESTAMPS),
        ..Options::NONE
    };
    let mut bytes = [0; 60];
    for (flags, expected) in [
        (Flags::SYN | Flags::ACK, options),
        (
            Flags::ACK,
            Options {
                timestamps: Some(TIMESTAMPS),
                ..Options::NONE
            },
        ),
    ] {
        Header {
            flags,
            options,
            ..Header::default()
        }
        .emit(&mut bytes);
        let view = View::new(&bytes, 60).unwrap();
        assert_eq!((view.options(), view.options_malformed()), (expected, false));
    }
}

#[test]
fn window_shifts_are_limited() {
    //= RFC 7323 §2.3
    assert_eq!(parse(&[3, 3, 15, 0]).0.window_scale, Some(14));
    assert_eq!(parse(&[3, 3, 255, 0]).0.window_scale, Some(14));
    let mut bytes = [0; 4];
    Options {
        window_scale: Some(200),
        ..Options::NONE
    }
    .emit(&mut bytes);
    assert_eq!(bytes, [1, 3, 3, 14]);
}

#[test]
fn impossible_option_length_ends_list() {
    //= RFC 9293 §3.1
    for kind in 2..=255 {
        for len in [0, 1] {
            let list = [2, 4, 5, 180, kind, len, 3, 3];
            let (options, malformed) = parse(&list);
            assert_eq!(
                (options.mss, options.window_scale, malformed),
                (Some(1460), None, true),
                "{kind} {len}"
            );
        }
        assert_eq!(parse(&[kind]), (Options::NONE, true));
        assert_eq!(parse(&[kind, 5, 0, 0]), (Options::NONE, true));
    }
}

#[test]
fn option_of_wrong_length_is_skipped() {
    for kind in 2..=255u8 {
        for len in 2..=38u8 {
            let mut list = vec![kind, len];
            list.extend((2..len).map(|byte| byte.wrapping_mul(37)));
            list.extend([4, 2]);
            let (options, malformed) = parse(&list);
            let right = match kind {
                2 => len == 4,
                3 => len == 3,
                4 => len == 2,
                5 => matches!(len, 10 | 18 | 26 | 34),
                8 => len == 10,
                _ => true,
            };
            assert_eq!(malformed, !right, "{kind} {len}");
            assert!(
                options.sack_permitted,
                "the rest of the list is read: {kind} {len}"
            );
            assert_eq!(options.mss.is_some(), kind == 2 && right);
            assert_eq!(options.window_scale.is_some(), kind == 3 && right);
            assert_eq!(
                options.sack.len(),
                if kind == 5 && right {
                    usize::from(len / 8)
                } else {
                    0
                }
            );
            assert_eq!(options.timestamps.is_some(), kind == 8 && right);
        }
    }
}

#[test]
fn end_option_ends_list_and_padding_is_skipped() {
    //= RFC 9293 §3.1
    //= RFC 9293 §3.2
    assert_eq!(parse(&[0, 2, 4, 5]), (Options::NONE, false));
    assert_eq!(parse(&[1; 40]), (Options::NONE, false));
    assert_eq!(parse(&[]), (Options::NONE, false));
    assert_eq!(parse(&[1, 1, 2, 4, 5, 180, 1, 0]).0.mss, Some(1460));
    // An unknown option is skipped.
    assert_eq!(
        parse(&[35, 6, 1, 2, 3, 4, 4, 2]).0,
        Options {
            sack_permitted: true,
            ..Options::NONE
        }
    );
    // Of repeated options the last one counts.
    assert_eq!(parse(&[2, 4, 0, 1, 2, 4, 0, 2]).0.mss, Some(2));
}

#[test]
fn both_timestamp_parsers_agree() {
    let mut aligned = [0; 12];
    Options {
        timestamps: Some(TIMESTAMPS),
        ..Options::NONE
    }
    .emit(&mut aligned);
    assert_eq!(aligned, [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
    let mut other = aligned;
    other.rotate_left(2);
    assert_eq!(parse(&aligned), parse(&other));
    assert_eq!(parse(&aligned).0.timestamps, Some(TIMESTAMPS));
}

#[test]
fn sack_blocks_without_room_are_left_out() {
    //= RFC 2018 §3
    let four = blocks(&[(1, 2), (3, 4), (5, 6), (7, 8)]);
    assert!(!four.clone().push(Seq(9), Seq(10)));
    for (timestamps, fit, len) in [(None, 4, 36), (Some(TIMESTAMPS), 3, 40)] {
        let options = Options {
            sack: four,
            timestamps,
            ..Options::NONE
        };
        let mut bytes = [0xee; 44];
        assert_eq!((options.emit(&mut bytes), options.len()), (len, len));
        assert_eq!(bytes[len..], vec![0xee; 44 - len]);
        let read = parse(&bytes[..len]).0;
        assert_eq!(read.sack.as_slice(), &four.as_slice()[..fit]);
        assert_eq!(read.timestamps, timestamps);
    }
}

#[test]
fn fast_open_cookies_have_four_to_sixteen_bytes() {
    //= RFC 7413 §4.1.1
    assert_eq!(parse(&[34, 2]).0.fast_open, FastOpen::new(&[], false));
    let four = parse(&[34, 6, 1, 2, 3, 4]).0.fast_open.unwrap();
    assert_eq!(
        (four.cookie(), four.is_experimental()),
        (&[1, 2, 3, 4][..], false)
    );
    let experimental = parse(&[254, 8, 0xf9, 0x89, 1, 2, 3, 4]).0.fast_open;
    assert_eq!(experimental, FastOpen::new(&[1, 2, 3, 4], true));
    for other in [
        &[34, 4, 1, 2][..],
        &[34, 7, 1, 2, 3, 4, 5],
        &[254, 2],
        &[254, 8, 0xf9, 0x88, 1, 2, 3, 4],
    ] {
        assert_eq!(parse(other).0.fast_open, None, "{other:?}");
    }
    assert_eq!(FastOpen::new(&[0; 18], false), None);
    let mut bytes = [0; 12];
    let len = Options {
        fast_open: FastOpen::new(&[9; 8], false),
        ..Options::NONE
    }
    .emit(&mut bytes);
    assert_eq!((len, bytes), (12, [34, 10, 9, 9, 9, 9, 9, 9, 9, 9, 1, 1]));
}

#[test]
fn checksum_matches_definition() {
    //= RFC 9293 §3.1
    let mut header = [0; 20];
    Header {
        src_port: 1,
        dst_port: 2,
        seq: Seq(3),
        window: 4,
        ..Header::default()
    }
    .emit(&mut header);
    let pseudo = checksum::pseudo_header([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6, 23);
    let data = [1, 2, 3];
    set_checksum(&mut header, pseudo, checksum::sum(&data));
    // Addresses, protocol and length, header, data, added by hand.
    let total = 0x0a00 + 1 + 0x0a00 + 2 + 6 + 23 + (1 + 2 + 3 + 0x5000 + 4) + 0x0102 + 0x0300;
    assert_eq!(header[16..18], (!(total as u16)).to_be_bytes());
    assert!(
        View::new(&header, 23)
            .unwrap()
            .verify(pseudo, checksum::sum(&data))
    );
    assert!(
        !View::new(&header, 23)
            .unwrap()
            .verify(pseudo, checksum::sum(&[1, 2, 4]))
    );
}

prop_compose! {
    fn options()(
        mss: Option<u16>, window_scale in proptest::option::of(0u8..=14), sack_permitted: bool,
        list in proptest::collection::vec(any::<(u32, u32)>(), 0..=4), timestamps in any::<Option<(u32, u32)>>(),
        cookie in proptest::option::of((proptest::collection::vec(any::<u16>(), 0..=8), any::<bool>()))
    ) -> Options {
        Options {
            mss, window_scale, sack_permitted,
            sack: blocks(&list),
            timestamps: timestamps.map(|(value, echo)| Timestamps { value, echo }),
            fast_open: cookie.and_then(|(words, experimental)| {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
                FastOpen::new(&bytes, experimental)
            }),
        }
    }
}

prop_compose! {
    fn header()(
        src_port: u16, dst_port: u16, seq: u32, ack: u32, flags in 0..=Flags::ALL.0, window: u16, urgent: u16,
        options in options()
    ) -> Header {
        Header { src_port, dst_port, seq: Seq(seq), ack: Seq(ack), flags: Flags(flags), window, urgent, options }
    }
}

proptest! {
    #[test]
    fn header_round_trips(header in header(), start in 0usize..8, pseudo: u32, data: u32) {
        let mut buffer = vec![0xee; start + MAX_HEADER_LEN];
        let len = header.emit(&mut buffer[start..]);
        prop_assert_eq!(len, header.len());
        prop_assert!(len.is_multiple_of(4) && len <= MAX_HEADER_LEN);
        prop_assert!(buffer[start + len..].iter().all(|byte| *byte == 0xee));
        set_checksum(&mut buffer[start..start + len], pseudo, data);

        let view = View::new(&buffer[start..], len).unwrap();
        prop_assert!(view.verify(pseudo, data));
        prop_assert_eq!(view.header_len(), len);
        prop_assert!(!view.options_malformed());
        let mut expected = header;
        if !header.flags.contains(Flags::SYN) {
            expected.options = Options { mss: None, window_scale: None, sack_permitted: false, fast_open: None, ..header.options };
        }
        // Only the last SACK blocks may be missing, and only without room.
        let sack = view.options().sack;
        prop_assert_eq!(sack.as_slice(), &header.options.sack.as_slice()[..sack.len()]);
        prop_assert!(sack.len() == header.options.sack.len() || len > MAX_HEADER_LEN - 12);
        expected.options.sack = sack;
        prop_assert_eq!(view.header(), expected);
    }

    #[test]
    fn parse_of_segment_never_panics(
        mut bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0u8..11], 0..80), offset in 0u8..16, len in 0usize..100
    ) {
        if let Some(byte) = bytes.get_mut(12) {
            *byte = offset << 4;
        }
        if let Ok(view) = View::new(&bytes, len) {
            prop_assert!(view.header_len() <= len && view.header_len() <= bytes.len());
            let _ = view.verify(u32::MAX, u32::MAX);
            let header = view.header();
            let mut again = [0; MAX_HEADER_LEN];
            let len = header.emit(&mut again);
            // A parsed header survives being sent again, as far as it fits.
            let read = View::new(&again, len).unwrap();
            prop_assert_eq!(read.options().timestamps, header.options.timestamps);
            prop_assert_eq!(read.options().mss, header.options.mss);
        }
    }

    #[test]
    fn parse_of_options_never_panics(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0u8..11], 0..300)) {
        let (options, _) = parse(&bytes);
        prop_assert!(options.len() <= 40);
        prop_assert!(options.window_scale.is_none_or(|shift| shift <= MAX_WINDOW_SCALE));
    }

    #[test]
    fn sequence_numbers_compare_as_distances(start: u32, ahead in 0u32..1 << 31) {
        let (early, late) = (Seq(start), Seq(start) + ahead);
        prop_assert_eq!(late.distance(early), ahead);
        prop_assert_eq!(early.lt(late), ahead > 0);
        prop_assert!(early.le(late) && late.ge(early));
        prop_assert_eq!(late.gt(early), ahead > 0);
        prop_assert_eq!(early.max(late), late);
        prop_assert_eq!(late.min(early), early);
    }
}
