use proptest::prelude::*;

use super::*;
use crate::checksum::complete;
use crate::test_frames::{
    PARTIAL, destination_options, frame_to, tcp_ipv4, tcp_ipv6_behind, tcp_ipv6_vlan, udp_ipv4,
};

fn super_frame(segment_size: u16) -> Offload {
    Offload {
        segment_size,
        ..PARTIAL
    }
}

fn described(frame: &mut [u8], offload: Offload) -> Header {
    let layout = Layout::of(frame);
    let len = frame.len();
    Header::describe(layout.as_ref(), frame, len, offload)
}

#[test]
fn described_frame_is_judged_equally() {
    for offload in [PARTIAL, super_frame(1000), Offload::default()] {
        for make in [tcp_ipv4, tcp_ipv6_vlan, udp_ipv4] {
            let mut frame = make(&[7; 3000]);
            let header = described(&mut frame, offload);
            assert_eq!(header.judge(&mut frame), Ok(offload));
        }
    }
}

#[test]
fn super_frame_with_long_headers_is_judged_right() {
    //= RFC 8200 §4
    //= RFC 8200 §8.1
    let routing = [&[6, 2, 4, 1, 0, 0, 0, 0][..], &[9; 16]].concat();
    for (first, extensions) in [(60, destination_options(1024)), (43, routing)] {
        for offload in [PARTIAL, super_frame(1000)] {
            let mut frame = tcp_ipv6_behind(first, &extensions, &[7; 3000]);
            let header = described(&mut frame, offload);
            assert_eq!(header.judge(&mut frame), Ok(offload));
        }
    }
}

#[test]
fn checksum_behind_unknown_routing_header_is_filled_in() {
    // Only the sender knows the sum of the pseudo-header.
    let routing = [&[6, 2, 77, 1, 0, 0, 0, 0][..], &[9; 16]].concat();
    let mut frame = tcp_ipv6_behind(43, &routing, b"payload");
    let header = Header {
        flags: NEEDS_CHECKSUM,
        checksum_start: 78,
        checksum_offset: 16,
        ..Header::default()
    };
    frame[94..96].copy_from_slice(&[0x12, 0x34]);
    let expected = finish(sum(&frame[78..]));
    assert_eq!(
        header.judge(&mut frame).map(|offload| offload.checksum),
        Ok(Checksum::Complete)
    );
    assert_eq!(frame[94..96], expected.to_be_bytes());
}

#[test]
fn kernel_completes_partial_sum() {
    for make in [tcp_ipv4, tcp_ipv6_vlan, udp_ipv4] {
        let mut frame = make(b"some payload");
        let mut expected = frame.clone();
        complete(&mut expected, true, &mut PARTIAL.clone());
        let header = described(&mut frame, PARTIAL);
        // Completes it like a kernel without hardware (skb_checksum_help).
        let (start, at) = (
            usize::from(header.checksum_start),
            usize::from(header.checksum_offset),
        );
        let checksum = finish(sum(&frame[start..]));
        frame[start + at..start + at + 2].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(frame[start..], expected[start..]);
    }
}

#[test]
//= RFC 3168 §6.1.2
fn cwr_sets_ecn_flag() {
    let mut frame = tcp_ipv4(&[0; 3000]);
    frame[47] |= 0x80;
    let header = described(&mut frame, super_frame(1000));
    assert_eq!(header.gso_type, GSO_TCP_V4 | GSO_ECN);
    assert_eq!(header.judge(&mut frame), Ok(super_frame(1000)));
}

#[test]
fn super_frame_of_one_segment_is_plain() {
    let mut frame = tcp_ipv4(&[0; 900]);
    let header = described(&mut frame, super_frame(1000));
    assert_eq!(header.judge(&mut frame), Ok(PARTIAL));
}

#[test]
fn checksum_of_other_protocol_is_filled_in() {
    // As of a protocol inside another one.
    let mut frame = frame_to([2; 6], [4; 6], &[1; 100]);
    let header = Header {
        flags: NEEDS_CHECKSUM,
        checksum_start: 20,
        checksum_offset: 16,
        ..Header::default()
    };
    assert_eq!(
        header.judge(&mut frame),
        Ok(Checksum::Complete).map(|checksum| Offload {
            checksum,
            segment_size: 0
        })
    );
    let mut expected = frame_to([2; 6], [4; 6], &[1; 100]);
    let value = finish(sum(&expected[20..]));
    expected[36..38].copy_from_slice(&value.to_be_bytes());
    assert_eq!(frame, expected);
}

#[test]
fn invalid_headers_return_error() {
    let good = described(&mut tcp_ipv4(&[0; 3000]), super_frame(1000));
    let refused = |header: Header, mut frame: Vec<u8>| header.judge(&mut frame).unwrap_err();
    let tcp = || tcp_ipv4(&[0; 3000]);
    assert_eq!(
        refused(Header { gso_type: 3, ..good }, tcp()),
        BadHeader::UnknownKind
    );
    assert_eq!(
        refused(
            Header {
                gso_type: GSO_ECN,
                ..good
            },
            tcp()
        ),
        BadHeader::UnknownKind
    );
    assert_eq!(
        refused(
            Header {
                gso_type: GSO_UDP,
                ..good
            },
            tcp()
        ),
        BadHeader::WrongKind
    );
    assert_eq!(refused(good, tcp_ipv6_vlan(&[0; 3000])), BadHeader::WrongKind);
    assert_eq!(
        refused(good, frame_to([2; 6], [4; 6], &[0; 3000])),
        BadHeader::WrongKind
    );
    assert_eq!(
        refused(Header { gso_size: 0, ..good }, tcp()),
        BadHeader::SegmentSize
    );
    assert_eq!(
        refused(Header { gso_size: 1, ..good }, tcp()),
        BadHeader::SegmentSize
    );
    assert_eq!(refused(good, tcp_ipv4(&[])), BadHeader::SegmentSize);
    assert_eq!(refused(good, tcp_ipv4(&[0; 65_540])), BadHeader::SegmentSize);
    assert_eq!(
        refused(Header { flags: 0, ..good }, tcp()),
        BadHeader::ChecksumPlace
    );
    assert_eq!(
        refused(
            Header {
                checksum_start: 40,
                ..good
            },
            tcp()
        ),
        BadHeader::ChecksumPlace
    );
    assert_eq!(refused(good, vec![0; 13]), BadHeader::TooShort);
    let beyond = Header {
        flags: NEEDS_CHECKSUM,
        checksum_start: 20,
        checksum_offset: 0xffff,
        ..Header::default()
    };
    assert_eq!(refused(beyond, tcp()), BadHeader::ChecksumPlace);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn judge_of_any_header_never_panics(
        header: [u8; HEADER_LEN], kind in 0usize..8, payload_len in 0usize..2000, cut in 0usize..2100,
        noise in proptest::collection::vec((0usize..100, any::<u8>()), 0..4),
    ) {
        let payload = vec![0x5a; payload_len];
        let mut frame = match kind {
            0 | 1 => tcp_ipv4(&payload),
            2 | 3 => tcp_ipv6_vlan(&payload),
            4 | 5 => udp_ipv4(&payload),
            _ => frame_to([2; 6], [4; 6], &payload),
        };
        let mut header = Header::read_from_bytes(&header).unwrap();
        if kind % 2 == 0 {
            // Nearly right, so that the later checks are reached.
            let right = described(&mut frame, super_frame(500));
            header = Header { gso_size: header.gso_size, checksum_start: header.checksum_start % 100, ..right };
        }
        for (at, byte) in noise {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(cut);
        if let Ok(offload) = header.judge(&mut frame) {
            prop_assert!(frame.len() >= MIN_FRAME);
            if offload.segment_size != 0 {
                let layout = Layout::of(&frame).unwrap();
                prop_assert!(frame.len() - layout.payload > usize::from(offload.segment_size));
            }
        }
    }
}
