//! Rings between two honest sides, and between an honest and a lying one.

mod turns;

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::layout::{
    CONSUMED, HEADER_LEN, MAGIC, PADDING, RECORDS, RecordHeader, SLEEPING, STARVING, VERSION, record_size,
};
use super::{
    Consumer, ConsumerState, Corrupt, PeerSection, Place, Producer, ProducerState, ReserveError, Rings,
    Section, SectionError, connect,
};
use crate::{Carver, Doorbell, Region, Table};

const CAPACITY: u64 = 4096;

/// A sending end with its state.
struct Sender {
    rings: Rings,
    state: ProducerState,
}

impl Sender {
    fn new(rings: Rings) -> Self {
        let state = ProducerState::default();
        Self { rings, state }
    }

    fn end(&mut self) -> Producer<'_> {
        self.rings.producer(&mut self.state)
    }
}

/// A receiving end with its state.
struct Receiver {
    rings: Rings,
    state: ConsumerState,
}

impl Receiver {
    fn new(rings: Rings) -> Self {
        let state = ConsumerState::default();
        Self { rings, state }
    }

    fn end(&mut self) -> Consumer<'_> {
        self.rings.consumer(&mut self.state)
    }
}

/// The two ends of one ring, each in mappings of its own.
fn ring(capacity: u64) -> (Sender, Receiver) {
    let sections = [1, 2].map(|incarnation| Section::create("toehold-test", capacity, incarnation).unwrap());
    let peers = sections
        .each_ref()
        .map(|section| PeerSection::open(section.read_only_fd().unwrap(), capacity).unwrap());
    let ([here, there], [peer_of_there, peer_of_here]) = (sections, peers);
    (
        Sender::new(connect(here, peer_of_here)),
        Receiver::new(connect(there, peer_of_there)),
    )
}

fn send(sender: &mut Sender, kind: u16, bytes: &[u8]) -> Result<(), ReserveError> {
    let mut producer = sender.end();
    let mut record = producer.reserve(kind, bytes.len())?;
    record.copy_from_slice(bytes);
    record.commit();
    Ok(())
}

fn take(receiver: &mut Receiver) -> Option<(u16, Vec<u8>)> {
    let mut consumer = receiver.end();
    let record = consumer.peek().expect("the producer keeps the rules")?;
    let mut bytes = vec![0; record.len()];
    assert_eq!(record.copy_to(0, &mut bytes), bytes.len());
    let taken = (record.kind(), bytes);
    consumer.advance();
    Some(taken)
}

#[derive(Debug, Clone)]
enum Step {
    Send(u16, usize),
    /// A reservation that is given up.
    Drop(usize),
    Publish,
    Take,
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![3 => 0..200_usize, 1 => 0..2040_usize, 1 => Just(2040_usize)];
    prop_oneof![
        4 => (1..PADDING, len.clone()).prop_map(|(kind, len)| Step::Send(kind, len)),
        1 => len.prop_map(Step::Drop),
        3 => Just(Step::Publish),
        5 => Just(Step::Take),
        3 => Just(Step::Release),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn behaves_as_a_queue(steps in prop::collection::vec(step(), 0..300), seed in any::<u8>()) {
        let (mut producer, mut consumer) = ring(CAPACITY);
        let (mut committed, mut visible) = (VecDeque::new(), VecDeque::new());
        let mut released = 0;
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Send(kind, len) => {
                    let bytes: Vec<u8> = (0..len).map(|byte| (byte / 3 + at) as u8 ^ seed).collect();
                    match send(&mut producer, kind, &bytes) {
                        Ok(()) => committed.push_back((kind, bytes)),
                        // With a line for the next header, and padding shorter than the record.
                        Err(error) => {
                            prop_assert_eq!(error, ReserveError::Full);
                            let used = producer.end().position() - released;
                            prop_assert!(used + 2 * record_size(len as u64) > CAPACITY - 64);
                        }
                    }
                }
                Step::Drop(len) => drop(producer.end().reserve(1, len)),
                Step::Publish => {
                    prop_assert!(!producer.end().publish());
                    visible.append(&mut committed);
                }
                Step::Take => prop_assert_eq!(take(&mut consumer), visible.pop_front()),
                Step::Release => {
                    prop_assert!(!consumer.end().release());
                    released = consumer.end().position();
                    prop_assert_eq!(producer.end().consumed(), Ok(released));
                }
            }
            prop_assert!(producer.end().position() - released <= CAPACITY - 64);
        }
    }
}

#[test]
fn lengths_have_their_bounds() {
    let (mut producer, mut consumer) = ring(CAPACITY);
    assert_eq!(producer.end().max_record(), 2040);
    assert_eq!(
        producer.end().reserve(1, 2041).unwrap_err(),
        ReserveError::TooLong
    );
    assert_eq!(
        producer.end().reserve(1, usize::MAX).unwrap_err(),
        ReserveError::TooLong
    );
    // Whatever the position, an empty ring has room for the longest record.
    for lap in 0..200 {
        send(&mut producer, 1, &[lap as u8; 30]).unwrap();
        send(&mut producer, 2, &[]).unwrap();
        let _ = producer.end().publish();
        assert_eq!(take(&mut consumer).unwrap().1.len(), 30);
        assert_eq!(take(&mut consumer).unwrap(), (2, vec![]));
        let _ = consumer.end().release();
        send(&mut producer, 3, &[lap as u8; 2040]).unwrap();
        let _ = producer.end().publish();
        assert_eq!(take(&mut consumer), Some((3, vec![lap as u8; 2040])));
        let _ = consumer.end().release();
    }
}

#[test]
#[should_panic(expected = "record kinds")]
fn the_kind_of_padding_is_not_for_others() {
    let _ = ring(CAPACITY).0.end().reserve(PADDING, 1);
}

#[test]
fn slices_of_a_record_stay_inside() {
    let (mut producer, mut consumer) = ring(CAPACITY);
    send(&mut producer, 1, b"0123456789").unwrap();
    let _ = producer.end().publish();
    let mut consumer = consumer.end();
    let record = consumer.peek().unwrap().unwrap();
    let copy = |offset, len| {
        let mut bytes = vec![0; record.slice(offset, len).len()];
        record.slice(offset, len).copy_to(0, &mut bytes);
        bytes
    };
    assert_eq!(copy(3, 4), b"3456");
    assert_eq!(copy(8, 4), b"89");
    assert_eq!(copy(10, 4), b"");
    assert_eq!(copy(usize::MAX, usize::MAX), b"");
    assert_eq!(record.copy_to(usize::MAX, &mut [0; 4]), 0);
    assert_eq!(record.copy_to(9, &mut [0; 4]), 1);
}

#[test]
fn sections_tell_who_they_are() {
    let section = Section::create("toehold-test", 1 << 16, 0xfeed).unwrap();
    let peer = PeerSection::open(section.fd().try_clone_to_owned().unwrap(), 1 << 16).unwrap();
    assert_eq!((peer.incarnation(), peer.capacity()), (0xfeed, 1 << 16));
    section.populate();
    peer.populate();
    for capacity in [0, 1, 2048, 4097, 1 << 31, u64::MAX] {
        assert_eq!(
            Section::create("toehold-test", capacity, 0).unwrap_err(),
            SectionError::Capacity(capacity)
        );
    }
}

/// A side that writes whatever it likes into its section.
struct Liar {
    bytes: Table<u8>,
    peer: Option<PeerSection>,
}

impl Liar {
    /// A section as it should be.
    fn new() -> Self {
        let mut liar = Self::with_len(RECORDS + CAPACITY as usize);
        liar.poke(0, MAGIC);
        liar.poke(8, u64::from(VERSION) | (RECORDS as u64) << 32);
        liar.poke(24, CAPACITY);
        liar
    }

    fn with_len(len: usize) -> Self {
        let region = Region::create("toehold-liar", len).unwrap();
        let fd = region.fd().unwrap().try_clone_to_owned().unwrap();
        let bytes = Carver::new(region).unwrap().table(len).unwrap();
        Self {
            bytes,
            peer: PeerSection::open(fd, CAPACITY).ok(),
        }
    }

    /// Opens the section again, as it is now.
    fn open(&self, most: u64) -> Result<PeerSection, SectionError> {
        PeerSection::open(
            self.bytes.region().fd().unwrap().try_clone_to_owned().unwrap(),
            most,
        )
    }

    fn poke(&mut self, offset: usize, word: u64) {
        self.bytes[offset..offset + 8].copy_from_slice(&word.to_ne_bytes());
    }

    /// Writes a header at a position.
    fn header(&mut self, position: u64, header: RecordHeader) {
        self.poke(RECORDS + (position % CAPACITY) as usize, header.to_word());
    }

    /// The honest other side.
    fn victim(&mut self) -> (Sender, Receiver) {
        let own = Section::create("toehold-test", CAPACITY, 1).unwrap();
        let own_again = Section::attach(own.fd().try_clone_to_owned().unwrap()).unwrap();
        let peer = self.peer.take().unwrap_or_else(|| self.open(CAPACITY).unwrap());
        let peer_again = self.open(CAPACITY).unwrap();
        (
            Sender::new(connect(own, peer)),
            Receiver::new(connect(own_again, peer_again)),
        )
    }

    /// What the other side says of `header` where it expects the first record.
    fn verdict(header: RecordHeader) -> Result<usize, Corrupt> {
        let mut liar = Self::new();
        let (_, mut consumer) = liar.victim();
        liar.header(0, header);
        consumer.end().peek().map(|record| record.unwrap().len())
    }
}

#[test]
fn sections_that_are_none_are_refused() {
    let lie = |offset, word| {
        let mut liar = Liar::new();
        liar.poke(offset, word);
        liar.open(CAPACITY).unwrap_err()
    };
    assert_eq!(lie(0, MAGIC + 1), SectionError::NotASection);
    assert_eq!(
        lie(8, u64::from(VERSION + 1) | (RECORDS as u64) << 32),
        SectionError::Version(VERSION + 1)
    );
    assert_eq!(
        lie(8, u64::from(VERSION) | 64 << 32),
        SectionError::Version(VERSION)
    );
    for capacity in [0, 1, 64, CAPACITY - 64, CAPACITY * 2, 1 << 40, u64::MAX] {
        assert_eq!(lie(24, capacity), SectionError::Capacity(capacity));
    }
    let mut liar = Liar::new();
    liar.poke(24, CAPACITY * 2);
    let len = RECORDS + CAPACITY as usize;
    let truncated = SectionError::Truncated {
        len,
        capacity: CAPACITY * 2,
    };
    assert_eq!(liar.open(CAPACITY * 4).unwrap_err(), truncated);
    assert!(matches!(
        Liar::with_len(RECORDS).open(CAPACITY),
        Err(SectionError::NotASection)
    ));
    assert!(matches!(
        Liar::with_len(1).open(CAPACITY),
        Err(SectionError::NotASection | SectionError::Truncated { .. })
    ));
}

#[test]
fn lies_in_a_header_are_found() {
    let good = RecordHeader::new(0, 1, 100);
    assert_eq!(Liar::verdict(good), Ok(100));
    assert_eq!(
        Liar::verdict(RecordHeader { kind: 0, ..good }),
        Err(Corrupt::RecordKind)
    );
    assert_eq!(
        Liar::verdict(RecordHeader { sequence: 1, ..good }),
        Err(Corrupt::RecordSequence)
    );
    assert_eq!(Liar::verdict(RecordHeader { len: 2040, ..good }), Ok(2040));
    for len in [2041, 4096, 4096 - 8, 1 << 31, u32::MAX - 8, u32::MAX] {
        assert_eq!(
            Liar::verdict(RecordHeader { len, ..good }),
            Err(Corrupt::RecordLength),
            "{len}"
        );
    }
    for len in [0, 100, 2040] {
        assert_eq!(
            Liar::verdict(RecordHeader {
                kind: PADDING,
                len,
                ..good
            }),
            Err(Corrupt::Padding),
            "{len}"
        );
    }
}

#[test]
fn lies_near_the_end_are_found() {
    let mut liar = Liar::new();
    let (_, mut consumer) = liar.victim();
    // Up to 64 bytes before the end.
    for (position, len) in [(0, 2040), (2048, 1976)] {
        liar.header(position, RecordHeader::new(position, 1, len));
        assert!(take(&mut consumer).is_some());
    }
    assert_eq!(consumer.end().position(), CAPACITY - 64);
    let mut verdict = |kind, len| {
        liar.header(CAPACITY - 64, RecordHeader::new(CAPACITY - 64, kind, len));
        consumer
            .end()
            .peek()
            .map(|record| record.map(|record| record.len()))
    };
    assert_eq!(verdict(1, 57), Err(Corrupt::RecordCrossesEnd));
    assert_eq!(verdict(1, 2040), Err(Corrupt::RecordCrossesEnd));
    assert_eq!(verdict(PADDING, 57), Err(Corrupt::RecordCrossesEnd));
    // A stale header of the first lap, behind proper padding.
    assert_eq!(verdict(PADDING, 56), Err(Corrupt::RecordSequence));
}

#[test]
fn endless_padding_is_no_endless_loop() {
    let mut liar = Liar::new();
    let (_, mut consumer) = liar.victim();
    for position in (0..CAPACITY).step_by(64) {
        liar.header(position, RecordHeader::new(position, PADDING, 56));
    }
    assert_eq!(consumer.end().peek().unwrap_err(), Corrupt::Padding);
}

#[test]
fn a_header_changed_after_the_look_changes_nothing() {
    let mut liar = Liar::new();
    let (_, mut consumer) = liar.victim();
    let mut consumer = consumer.end();
    liar.header(0, RecordHeader::new(0, 1, 100));
    assert_eq!(consumer.peek().unwrap().unwrap().len(), 100);
    liar.header(0, RecordHeader::new(0, 7, 2000));
    let record = consumer.peek().unwrap().unwrap();
    assert_eq!((record.kind(), record.len()), (1, 100));
    consumer.advance();
    assert_eq!(consumer.position(), 128);
}

#[test]
fn lies_in_the_consumers_position_are_found() {
    let mut liar = Liar::new();
    let mut verdict = |second: u64| {
        let (mut producer, _) = liar.victim();
        liar.poke(CONSUMED, 0);
        for _ in 0..3 {
            send(&mut producer, 1, &[0; 100]).unwrap();
        }
        let _ = producer.end().publish();
        send(&mut producer, 1, &[0; 100]).unwrap();
        liar.poke(CONSUMED, 128);
        assert_eq!(producer.end().consumed(), Ok(128));
        liar.poke(CONSUMED, second);
        let verdict = producer.end().consumed();
        if let Err(fault) = verdict {
            // An error is final, and found by reserving as well.
            liar.poke(CONSUMED, 256);
            assert_eq!(producer.end().consumed(), verdict);
            while send(&mut producer, 1, &[0; 1000]).is_ok() {}
            let refused = send(&mut producer, 1, &[0; 2040]).unwrap_err();
            assert_eq!(refused, ReserveError::Corrupt(fault));
            assert!(!producer.end().prepare_wait(2040));
        }
        verdict
    };
    assert_eq!(verdict(384), Ok(384));
    assert_eq!(verdict(64), Err(Corrupt::ConsumedBackwards));
    assert_eq!(verdict(0), Err(Corrupt::ConsumedBackwards));
    assert_eq!(verdict(129), Err(Corrupt::ConsumedUnaligned));
    // Committed, but not published.
    assert_eq!(verdict(512), Err(Corrupt::ConsumedAhead));
    assert_eq!(verdict(u64::MAX - 63), Err(Corrupt::ConsumedAhead));
    assert_eq!(verdict(u64::MAX), Err(Corrupt::ConsumedUnaligned));
}

#[test]
fn a_liar_that_always_sleeps_is_rung_once_a_sleep() {
    let mut liar = Liar::new();
    let (mut producer, mut consumer) = liar.victim();
    let mut rings = 0;
    for sleep in [1, 1, 1, 3, 3, u64::MAX, u64::MAX, 2, 4] {
        liar.poke(SLEEPING, sleep);
        send(&mut producer, 1, &[]).unwrap();
        rings += u32::from(producer.end().publish());
    }
    assert_eq!(rings, 3);
    // Nor does one that always starves.
    liar.poke(STARVING, 1);
    assert!(!consumer.end().room_wanted() && !consumer.end().release());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn no_lie_leads_outside_the_ring(
        lies in prop::collection::vec((0..130_usize, any::<u64>(), any::<u8>()), 0..60),
    ) {
        let mut liar = Liar::new();
        let (mut producer, mut consumer) = liar.victim();
        for (at, word, how) in lies {
            match at {
                0..64 => liar.poke(RECORDS + at * 64, word),
                // Nearly right: the next header, a few bits off.
                64..120 => {
                    let position = consumer.end().position();
                    let right = RecordHeader::new(position, 1 + u16::from(how % 4), (word % 2048) as u32).to_word();
                    let wrong = if how < 40 { 1 << (word % 64) } else { 0 };
                    liar.poke(RECORDS + (position % CAPACITY) as usize, right ^ wrong);
                }
                120..123 => liar.poke(CONSUMED, word),
                123..126 => liar.poke(CONSUMED, producer.end().position() & !63),
                126..128 => liar.poke(SLEEPING, word),
                _ => liar.poke(STARVING, word),
            }
            let before = consumer.end().position();
            let mut end = consumer.end();
            if let Ok(Some(record)) = end.peek() {
                prop_assert!(record.kind() != 0 && record.len() <= 2040);
                let (len, slice) = (record.len(), record.slice(0, usize::MAX));
                prop_assert_eq!(slice.len(), len);
                let mut copy = vec![0; len];
                prop_assert_eq!(slice.copy_to(0, &mut copy), len);
                end.advance();
                let after = end.position();
                let start = after - record_size(len as u64);
                prop_assert!(start >= before && start / CAPACITY == (after - 1) / CAPACITY);
                prop_assert!(start % CAPACITY + HEADER_LEN + len as u64 <= CAPACITY);
            }
            let _ = consumer.end().release();
            let _ = consumer.end().prepare_sleep();
            consumer.end().finish_sleep();
            let _ = send(&mut producer, 1, &vec![0; usize::from(how) * 8]);
            let _ = producer.end().publish();
            if let Ok(consumed) = producer.end().consumed() {
                prop_assert!(consumed <= producer.end().position());
            }
        }
    }
}

#[test]
fn a_sleep_announced_twice_is_rung_for_again() {
    let (mut producer, mut consumer) = ring(CAPACITY);
    assert!(consumer.end().prepare_sleep());
    send(&mut producer, 1, &[]).unwrap();
    assert!(producer.end().publish());
    // The consumer wakes, and forgets to take its announcement back.
    assert!(take(&mut consumer).is_some());
    assert!(consumer.end().prepare_sleep());
    send(&mut producer, 1, &[]).unwrap();
    assert!(producer.end().publish());
    assert!(!consumer.end().prepare_sleep(), "there is a record");
    send(&mut producer, 1, &[]).unwrap();
    assert!(!producer.end().publish(), "nobody sleeps");
}

/// Waits for a ring. False: none came in time.
fn wait(doorbell: &Doorbell) -> bool {
    let mut fds = [PollFd::new(doorbell, PollFlags::IN)];
    let rung = poll(
        &mut fds,
        Some(&Timespec {
            tv_sec: 10,
            tv_nsec: 0,
        }),
    )
    .unwrap()
        == 1;
    doorbell.clear();
    rung
}

/// What the record with this number holds.
fn contents(number: u64) -> Vec<u8> {
    let len = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
        * if number.is_multiple_of(17) { 7 } else { 1 };
    (0..len).map(|at| (at as u64 + number) as u8).collect()
}

#[test]
fn records_arrive_intact_from_another_thread() {
    let (mut producer, mut consumer) = ring(CAPACITY);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let sender = scope.spawn(move || {
            let mut number = 0;
            while !stop.load(Relaxed) {
                match send(&mut producer, 1 + (number % 100) as u16, &contents(number)) {
                    Ok(()) => number += 1,
                    Err(error) => {
                        assert_eq!(error, ReserveError::Full);
                        std::thread::yield_now();
                    }
                }
                if number % 3 == 0 {
                    let _ = producer.end().publish();
                }
            }
            let _ = producer.end().publish();
            number
        });
        let end = Instant::now() + Duration::from_millis(700);
        let mut number = 0;
        let sent = loop {
            while let Some((kind, bytes)) = take(&mut consumer) {
                assert_eq!((kind, &bytes), (1 + (number % 100) as u16, &contents(number)));
                number += 1;
                if number % 5 == 0 {
                    let _ = consumer.end().release();
                }
            }
            let _ = consumer.end().release();
            if stop.swap(Instant::now() > end, Relaxed) {
                break sender.join().unwrap();
            }
            std::thread::yield_now();
        };
        while take(&mut consumer).is_some() {
            number += 1;
        }
        assert_eq!(number, sent);
        assert!(number > 1000, "only {number} records");
    });
}

#[test]
fn neither_side_sleeps_through_a_wake_up() {
    let (mut producer, mut consumer) = ring(CAPACITY);
    let doorbells = [Doorbell::new().unwrap(), Doorbell::new().unwrap()];
    let [records, room] = &doorbells;
    let end = Instant::now() + Duration::from_millis(1000);
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let mut number = 0_u64;
            while Instant::now() < end {
                // Bursts of changing length, so that now one side waits, now the other.
                for _ in 0..number % 23 + 1 {
                    let bytes = contents(number);
                    while send(&mut producer, 1, &bytes).is_err() {
                        if producer.end().publish() {
                            records.ring();
                        }
                        if producer.end().prepare_wait(bytes.len()) {
                            assert!(wait(room), "the producer was not woken");
                            producer.end().finish_wait();
                        }
                    }
                    number += 1;
                }
                if producer.end().publish() {
                    records.ring();
                }
            }
            send_last(&mut producer, records);
            number
        });
        let mut number = 0;
        let mut sleeps = 0;
        'all: loop {
            while let Some((kind, bytes)) = take(&mut consumer) {
                if kind == LAST {
                    break 'all;
                }
                assert_eq!(bytes, contents(number));
                number += 1;
                if number % 11 == 0 && consumer.end().release() {
                    room.ring();
                }
            }
            if consumer.end().release() {
                room.ring();
            }
            if consumer.end().prepare_sleep() {
                if consumer.end().room_wanted() {
                    room.ring();
                }
                sleeps += 1;
                assert!(wait(records), "the consumer was not woken");
                consumer.end().finish_sleep();
            }
        }
        assert_eq!(number, sender.join().unwrap());
        assert!(sleeps > 10, "only {sleeps} sleeps in {number} records");
    });
}

/// Kind of a stream's last record.
const LAST: u16 = 9;

fn send_last(producer: &mut Sender, records: &Doorbell) {
    while send(producer, LAST, &[]).is_err() {
        std::thread::yield_now();
    }
    if producer.end().publish() {
        records.ring();
    }
}
