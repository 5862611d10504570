//! A hostile peer writes arbitrary bytes into its section. The other side reads
//! records, positions, and frames in the records, or finds the broken rule. It
//! never leaves the ring.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, SealFlags};
use std::os::fd::{AsFd, OwnedFd};
use toehold_fuzz::Choices;
use toehold_link::mq::fuzzing::{Payload, read_record};
use toehold_shm::ring::{
    Consumer, ConsumerState, PeerSection, Producer, ProducerState, Section, VERSION, connect,
};
use toehold_shm::{Access, Region};

const CAPACITY: u64 = 4096;
/// Offsets of the consumer's position, the two flags, and the records in the
/// layout.
const WORDS: [u64; 3] = [128, 256, 384];
const RECORDS: u64 = 4096;
const PAYLOAD_LEN: usize = 8192;

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let liar = section();
    let own = Section::create("own", CAPACITY, 2).expect("memory");
    if choices.byte() & 1 == 1 {
        // The header has arbitrary bytes, too.
        write(&liar, u64::from(choices.byte()) % 32, choices.bytes(8));
    }
    let Ok(peer) = PeerSection::open(liar.try_clone().expect("a descriptor"), CAPACITY) else {
        return;
    };
    let payload = Payload::new(payload_memory(), 1024, 4096).expect("in bounds");
    let rings = connect(own, peer);
    let (mut sent, mut received) = (ProducerState::default(), ConsumerState::default());
    let (mut producer, mut consumer) = (rings.producer(&mut sent), rings.consumer(&mut received));
    while !choices.is_over() {
        let alive = match choices.byte() % 8 {
            0 => {
                write(
                    &liar,
                    WORDS[usize::from(choices.byte() % 3)],
                    &choices.long().to_ne_bytes(),
                );
                true
            }
            1 => {
                let place = u64::from(choices.short()) % CAPACITY;
                let bytes = usize::from(choices.byte());
                write(&liar, RECORDS + place, choices.bytes(bytes));
                true
            }
            2 | 3 => {
                plausible_record(&liar, consumer.position(), &mut choices);
                true
            }
            4 | 5 => receive(&mut consumer, &payload),
            6 => send(&mut producer, &mut choices),
            _ => sleep(&mut producer, &mut consumer, &mut choices),
        };
        if !alive {
            return;
        }
    }
});

/// Returns a peer's payload memory, mapped read-only as in a node.
fn payload_memory() -> Region {
    let made = Region::create("payload", PAYLOAD_LEN).expect("memory");
    Region::open(made.read_only_fd().expect("a descriptor"), Access::ReadOnly).expect("sealed")
}

/// Creates a section as an honest peer does, but in memory that stays writable.
fn section() -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("liar", flags).expect("memory");
    rustix::fs::ftruncate(&fd, RECORDS + CAPACITY).expect("memory");
    let words = [u64::from(VERSION) | RECORDS << 32, 1, CAPACITY];
    write(&fd, 0, b"toehold\n");
    write(&fd, 8, &words.map(u64::to_ne_bytes).concat());
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).expect("allowed");
    fd
}

fn write(fd: &OwnedFd, offset: u64, bytes: &[u8]) {
    // A write beyond the end fails: the memory is sealed.
    let _ = rustix::io::pwrite(fd.as_fd(), bytes, offset);
}

/// Writes a plausible header and an ending where the consumer looks next.
fn plausible_record(liar: &OwnedFd, position: u64, choices: &mut Choices<'_>) {
    let kind = match choices.byte() {
        // Valid kinds, and some invalid ones.
        choice @ 0..=125 => u64::from(choice % 4),
        choice @ 126..=250 => 0x100 | u64::from(choice % 9),
        _ => u64::from(u16::MAX),
    };
    let len = u64::from(choices.short() % 2200);
    let bytes = usize::from(choices.short() % 700);
    let bytes = choices.bytes(bytes);
    let place = RECORDS + position % CAPACITY;
    write(liar, place + 8, bytes);
    let word = len | kind << 32 | ((position / 64) & 0xffff) << 48;
    write(liar, place, &word.to_ne_bytes());
}

fn receive(consumer: &mut Consumer<'_>, payload: &Payload) -> bool {
    for _ in 0..8 {
        match consumer.peek() {
            Err(_) => return false,
            Ok(None) => break,
            Ok(Some(record)) => {
                let frame = read_record(&record, Some(payload));
                assert!(frame.is_err() || record.len() as u64 <= CAPACITY);
                if frame.is_err() {
                    return false;
                }
            }
        }
        consumer.advance();
    }
    let _ = consumer.release();
    true
}

fn send(producer: &mut Producer<'_>, choices: &mut Choices<'_>) -> bool {
    let len = usize::from(choices.short() % 2200);
    if let Ok(mut record) = producer.reserve(1, len) {
        record.fill(len as u8);
        record.commit();
    }
    let _ = producer.publish();
    producer
        .consumed()
        .is_ok_and(|consumed| consumed <= producer.position())
}

fn sleep(producer: &mut Producer<'_>, consumer: &mut Consumer<'_>, choices: &mut Choices<'_>) -> bool {
    if consumer.release() || consumer.prepare_sleep() {
        let _ = consumer.room_wanted();
        consumer.finish_sleep();
    }
    if producer.prepare_wait(usize::from(choices.short())) {
        producer.finish_wait();
    }
    true
}
