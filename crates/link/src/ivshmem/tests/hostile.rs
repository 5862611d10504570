//! A segment that a hostile process writes to.

use std::os::unix::fs::FileExt;

use proptest::prelude::*;

use super::*;
use crate::test_frames::PARTIAL;

/// Generates offsets of control words before and in the rings, and arbitrary
/// others.
fn place_of_a_word() -> impl Strategy<Value = u64> {
    let slots = (0_u64..4, 0_u64..4).prop_map(|(member, word)| 4096 + member * 256 + word * 8);
    // Twelve pairs of control words (512 bytes) and rings of 64 KiB, from the third
    // page on.
    let way = 512 + (1 << 16);
    let words = (
        0_u64..12,
        prop_oneof![Just(0_u64), Just(128), Just(136), Just(144), Just(152)],
    )
        .prop_map(move |(number, at)| 8192 + number * way + at);
    let headers =
        (0_u64..12, 0_u64..40).prop_map(move |(number, line)| 8192 + number * way + 512 + line * 64);
    prop_oneof![slots, words, headers, (0_u64..1 << 17).prop_map(|at| at * 8)]
}

fn word() -> impl Strategy<Value = u64> {
    let header =
        (0_u64..2000, 0_u64..3, 0_u64..40).prop_map(|(len, kind, line)| len | kind << 32 | line << 48);
    prop_oneof![
        any::<u64>(),
        header,
        (0_u64..2000).prop_map(|line| line * 64),
        Just(0),
        Just(u64::MAX)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Members never panic, hang, or pass on an impossible frame. When the writes
    /// end, the members find one another again.
    #[test]
    fn hostile_writes_disturb_traffic_only(
        scribbles in proptest::collection::vec(proptest::collection::vec((place_of_a_word(), word()), 0..6), 1..40),
    ) {
        let segment = TestSegment::new();
        let (mut a, mut b, mut now) = (segment.member(1), segment.member(2), 0);
        settle(&mut [&mut a, &mut b], &mut now);
        let file = std::fs::OpenOptions::new().write(true).open(segment.path()).unwrap();
        for round in scribbles {
            for (at, word) in round {
                file.write_all_at(&word.to_le_bytes(), at).unwrap();
            }
            now += 2 * MS;
            for link in [&mut a, &mut b] {
                let mut lengths = Vec::new();
                let frames = link.receive(now, 64, &mut |frame| lengths.push(frame.len()));
                prop_assert!(frames <= 64 && frames == lengths.len());
                prop_assert!(lengths.iter().all(|len| (14..=65_557).contains(len)));
                for to in [mac(1), mac(2), [0xff; 6]] {
                    let _ = send(link, &frame_to(to, link.address(), &[0; 700]), PARTIAL);
                }
                link.flush();
                while link.next_change().is_some() {}
            }
        }
        // Members may have lost their numbers, which are only reused after a while.
        for _ in 0..40 {
            settle(&mut [&mut a, &mut b], &mut now);
        }
        prop_assert_eq!((connected(&a), connected(&b)), (1, 1));
        send(&mut a, &frame_to(mac(2), mac(1), b"well"), PARTIAL).unwrap();
        a.flush();
        prop_assert_eq!(receive_all(&mut b, now), vec![frame_to(mac(2), mac(1), b"well")]);
    }
}

#[test]
fn invalid_segment_is_refused() {
    let segment = TestSegment::new();
    std::fs::write(segment.path(), vec![7; 1 << 20]).unwrap();
    let error = IvshmemLink::open(&segment.settings(1)).unwrap_err();
    assert!(error.to_string().contains("fill it with zeros"), "{error}");
}
