//! Rings between two honest sides.

mod lies;
mod mend;
mod threads;
mod turns;

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::incoming::{MANY, OFTEN};
use super::layout::{
    CONSUMED, HEADER_LEN, MAGIC, PADDING, RECORDS, RecordHeader, SLEEPING, STARVING, VERSION, record_size,
};
use super::{
    Consumer, ConsumerState, Corrupt, PeerSection, Place, Producer, ProducerState, ReserveError, Rings,
    Section, SectionError, connect, fence_before_sleep,
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

/// The two ends of one ring, each in its own mappings.
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
    /// A reservation that is dropped.
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
    fn ring_behaves_as_queue(steps in prop::collection::vec(step(), 0..300), seed in any::<u8>()) {
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
fn record_lengths_are_bounded() {
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
    // At any position, an empty ring has room for the longest record.
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
fn padding_kind_is_refused() {
    let _ = ring(CAPACITY).0.end().reserve(PADDING, 1);
}

#[test]
fn record_slices_stay_inside() {
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
fn sections_report_their_identity() {
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

#[test]
fn sleep_announced_twice_is_rung_again() {
    let (mut producer, mut consumer) = ring(CAPACITY);
    assert!(consumer.end().prepare_sleep());
    send(&mut producer, 1, &[]).unwrap();
    assert!(producer.end().publish());
    // The consumer wakes without withdrawing its announcement.
    assert!(take(&mut consumer).is_some());
    assert!(consumer.end().prepare_sleep());
    send(&mut producer, 1, &[]).unwrap();
    assert!(producer.end().publish());
    assert!(!consumer.end().prepare_sleep(), "there is a record");
    send(&mut producer, 1, &[]).unwrap();
    assert!(!producer.end().publish(), "nobody sleeps");
}

#[test]
fn frequent_sleeper_fences_everywhere_once() {
    let (mut producer, mut consumer) = ring(CAPACITY);
    let promised = consumer.rings.fences_everywhere();
    let mut sleep = |records: u64| {
        for number in 0..records {
            send(&mut producer, 1, &[]).unwrap();
            let _ = producer.end().publish();
            assert_eq!(take(&mut consumer).unwrap().0, 1, "record {number}");
            let _ = consumer.end().release();
        }
        let everywhere = consumer.end().announce_sleep();
        assert!(fence_before_sleep(everywhere) && consumer.end().confirm_sleep());
        consumer.end().finish_sleep();
        everywhere
    };
    for _ in 0..OFTEN {
        assert_eq!(sleep(1), promised);
    }
    for _ in 0..3 * OFTEN {
        assert!(!sleep(1));
    }
    assert_eq!(sleep(2 * MANY / 64), promised, "after a stream without a sleep");
    for _ in 1..OFTEN {
        assert_eq!(sleep(1), promised);
    }
    assert_eq!(sleep(1), promised, "the first that asks the sender");
    assert!(!sleep(1));
}

/// The contents of the record with this number.
fn contents(number: u64) -> Vec<u8> {
    let len = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
        * if number.is_multiple_of(17) { 7 } else { 1 };
    (0..len).map(|at| (at as u64 + number) as u8).collect()
}
