use core::sync::atomic::AtomicBool;

use proptest::prelude::*;

use core::sync::atomic::Ordering::Relaxed;

use super::*;

const CAPACITY: usize = 4096;

/// Records that one thread sends another.
const RECORDS: u64 = 20_000;

fn tape() -> Tape {
    let mut carver = Carver::new(Region::private(Tape::bytes_needed(CAPACITY)).unwrap()).unwrap();
    carver.tape(CAPACITY).unwrap()
}

fn bytes_of(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed) as u8).collect()
}

#[test]
fn nothing_is_recorded_without_reader() {
    let mut tape = tape();
    let mut reader = tape.reader();
    assert!(!tape.is_played());
    reader.start(100);
    assert!(tape.is_played());
    tape.append(5, 9, b"begin", &Gather::from_slice(b"ning"));
    reader.stop();
    assert!(!tape.is_played());
    let mut bytes = Vec::new();
    let (label, lost) = reader.read(&mut bytes).unwrap();
    assert_eq!(
        (label.timestamp_ns, label.kind, label.original_len, lost),
        (5, 9, 9, 0)
    );
    assert_eq!(bytes, b"beginning");
    assert!(reader.read(&mut bytes).is_none());
}

#[test]
fn long_records_are_cut_in_the_beginning_or_the_rest() {
    let mut tape = tape();
    let mut reader = tape.reader();
    for limit in [1, 4, 5, 6, 8, 9, 10] {
        reader.start(limit);
        tape.append(0, 0, b"begin", &Gather::from_slice(b"ning"));
        let mut bytes = Vec::new();
        let (label, _) = reader.read(&mut bytes).unwrap();
        assert_eq!(bytes, b"beginning"[..(limit as usize).min(9)]);
        assert_eq!(label.original_len, 9);
    }
}

#[test]
fn full_ring_counts_lost_records() {
    let mut tape = tape();
    let mut reader = tape.reader();
    reader.start(u32::MAX);
    for number in 0..200 {
        tape.append(number, 0, &[7; 30], &Gather::EMPTY);
    }
    // 64 bytes each.
    let mut bytes = Vec::new();
    for number in 0..64 {
        let (label, lost) = reader.read(&mut bytes).unwrap();
        assert_eq!((label.timestamp_ns, lost), (number, 0));
    }
    assert!(reader.read(&mut bytes).is_none());
    tape.append(200, 0, &[7; 30], &Gather::EMPTY);
    assert_eq!(
        reader
            .read(&mut bytes)
            .map(|(label, lost)| (label.timestamp_ns, lost)),
        Some((200, 136))
    );
    tape.append(201, 0, &[7; CAPACITY], &Gather::EMPTY);
    assert!(reader.read(&mut bytes).is_none());
    assert_eq!((reader.lost(), reader.lost()), (1, 0));
}

#[test]
fn next_reader_begins_at_present_position() {
    let mut tape = tape();
    let mut first = tape.reader();
    first.start(100);
    tape.append(1, 0, b"early", &Gather::EMPTY);
    tape.append(2, 0, &[0; CAPACITY], &Gather::EMPTY);
    first.stop();
    let mut second = tape.reader();
    second.start(100);
    tape.append(3, 0, b"late", &Gather::EMPTY);
    let mut bytes = Vec::new();
    let (label, lost) = second.read(&mut bytes).unwrap();
    assert_eq!((label.timestamp_ns, lost, &bytes[..]), (3, 0, &b"late"[..]));
}

#[test]
fn reader_thread_gets_complete_records() {
    let mut tape = tape();
    let mut reader = tape.reader();
    reader.start(u32::MAX);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            for number in 0..RECORDS {
                let bytes = bytes_of(number as usize, number as usize * 31 % 900);
                tape.append(number, number as u32, &[], &Gather::from_slice(&bytes));
            }
            // Until one record has arrived.
            while !done.load(Relaxed) {
                tape.append(u64::MAX, 0, &[], &Gather::EMPTY);
                std::thread::yield_now();
            }
        });
        let (mut next, mut bytes) = (0, Vec::new());
        loop {
            bytes.clear();
            let Some((label, lost)) = reader.read(&mut bytes) else {
                std::thread::yield_now();
                continue;
            };
            if label.timestamp_ns == u64::MAX {
                break;
            }
            next += lost;
            assert_eq!(label.timestamp_ns, next);
            assert_eq!(bytes, bytes_of(next as usize, next as usize * 31 % 900));
            next += 1;
        }
        done.store(true, Relaxed);
        assert!(next <= RECORDS);
    });
}

proptest! {
    #[test]
    fn ring_is_bounded_queue(steps in prop::collection::vec((0_usize..1500, any::<bool>()), 1..200)) {
        let mut tape = tape();
        let mut reader = tape.reader();
        reader.start(1400);
        let mut sent = 0;
        let mut expected = 0;
        let mut check = |reader: &mut TapeReader| {
            let mut bytes = Vec::new();
            let Some((label, lost)) = reader.read(&mut bytes) else { return false };
            expected += lost;
            assert_eq!(label.timestamp_ns, expected);
            assert_eq!(bytes, bytes_of(expected as usize, (label.original_len as usize).min(1400)));
            expected += 1;
            true
        };
        for (len, read) in steps {
            let bytes = bytes_of(sent as usize, len);
            let (beginning, rest) = bytes.split_at(len / 2);
            tape.append(sent, 0, beginning, &Gather::from_slice(rest));
            sent += 1;
            if read {
                check(&mut reader);
            }
        }
        while check(&mut reader) {}
        prop_assert_eq!(expected + reader.lost(), sent);
    }

    #[test]
    fn nonsense_in_ring_is_harmless(nonsense in prop::collection::vec((0_usize..CAPACITY / 8, any::<u64>()), 1..30),
                                        written in any::<u64>(), taken in any::<u64>()) {
        let mut tape = tape();
        let mut reader = tape.reader();
        reader.start(500);
        for (at, value) in nonsense {
            for number in 0..10 {
                tape.append(number, 0, &[1; 333], &Gather::EMPTY);
            }
            tape.bytes_mut(at * 8, 8).copy_from_slice(&value.to_ne_bytes());
            let mut bytes = Vec::new();
            for _ in 0..8 {
                reader.read(&mut bytes);
            }
            prop_assert!(bytes.len() <= 8 * CAPACITY);
        }
        tape.written.word(WRITTEN).store(written, Relaxed);
        tape.taken.word(0).store(taken, Relaxed);
        for _ in 0..20 {
            tape.append(0, 0, &[1; 333], &Gather::EMPTY);
            reader.read(&mut Vec::new());
        }
    }
}
