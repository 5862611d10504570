//! Checks every interleaving of the ring's protocol, within loom's bounds: `RUSTFLAGS="--cfg loom"
//! cargo test --release -p toehold-shm --lib ring`.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Notify};
use loom::thread;

use super::incoming::Incoming;
use super::layout::{FENCE_YOURSELF, RecordHeader};
use super::outgoing::Outgoing;
use super::protocol::{AtomicU64, Fences, ReserveError, Ring, Words};
use super::state::{ConsumerState, ProducerState};

/// A ring of four lines, one of which always stays free. Records are one line long and carry a
/// number; loom reports every unordered access to that.
const CAPACITY: u64 = 256;

/// loom supports no fences in other processes.
const FENCES: Fences = Fences {
    own: false,
    other: false,
};

struct Memory {
    headers: [AtomicU64; 4],
    bodies: [UnsafeCell<u64>; 4],
    consumed: AtomicU64,
    sleeping: AtomicU64,
    starving: AtomicU64,
}

#[derive(Clone)]
struct Model(Arc<Memory>);

impl Model {
    fn body(&self, position: u64) -> &UnsafeCell<u64> {
        &self.0.bodies[(position % CAPACITY / 64) as usize]
    }
}

impl Words for Model {
    fn header(&self, position: u64) -> &AtomicU64 {
        &self.0.headers[(position % CAPACITY / 64) as usize]
    }

    fn consumed(&self) -> &AtomicU64 {
        &self.0.consumed
    }

    fn sleeping(&self) -> &AtomicU64 {
        &self.0.sleeping
    }

    fn starving(&self) -> &AtomicU64 {
        &self.0.starving
    }
}

struct Sender(Ring<Model>, ProducerState);

impl Sender {
    fn end(&mut self) -> Outgoing<'_, Model> {
        self.0.outgoing(&mut self.1)
    }
}

struct Receiver(Ring<Model>, ConsumerState);

impl Receiver {
    fn end(&mut self) -> Incoming<'_, Model> {
        self.0.incoming(&mut self.1)
    }
}

fn ring() -> (Sender, Receiver) {
    ring_with(FENCES, ConsumerState::default())
}

fn ring_with(fences: Fences, receiver: ConsumerState) -> (Sender, Receiver) {
    let model = Model(Arc::new(Memory {
        headers: std::array::from_fn(|_| AtomicU64::new(0)),
        bodies: std::array::from_fn(|_| UnsafeCell::new(0)),
        consumed: AtomicU64::new(0),
        sleeping: AtomicU64::new(receiver.sleeps),
        starving: AtomicU64::new(0),
    }));
    let ring = |words| Ring {
        words,
        capacity: CAPACITY,
        fences,
    };
    (
        Sender(ring(model.clone()), ProducerState::default()),
        Receiver(ring(model), receiver),
    )
}

/// A ring whose receiver sleeps so often that it no longer fences everywhere.
fn ring_of_a_light_sleeper() -> (Sender, Receiver) {
    let promised = Fences {
        own: true,
        other: true,
    };
    let receiver = ConsumerState {
        sleeps: FENCE_YOURSELF,
        short_turns: u32::MAX,
        is_understood: 1,
        ..ConsumerState::default()
    };
    ring_with(promised, receiver)
}

/// Commits a record that carries `number`.
fn send(sender: &mut Sender, number: u64) -> Result<(), ReserveError> {
    let mut outgoing = sender.end();
    let position = outgoing.reserve(8)?;
    // SAFETY: loom checks that no other thread has access at the same time.
    outgoing
        .ring
        .words
        .body(position)
        .with_mut(|body| unsafe { *body = number });
    outgoing.commit(RecordHeader::new(position, 1, 8));
    Ok(())
}

/// Takes the next record, if there is one.
fn take(receiver: &mut Receiver) -> Option<u64> {
    let mut incoming = receiver.end();
    let header = incoming.next().expect("the producer keeps the rules")?;
    // SAFETY: loom checks that no other thread has access at the same time.
    let number = incoming
        .ring
        .words
        .body(incoming.position())
        .with(|body| unsafe { *body });
    incoming.advance(header);
    Some(number)
}

fn check(threads: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(threads);
}

#[test]
fn records_in_reused_space_arrive_complete_in_order() {
    check(|| {
        let (mut outgoing, mut incoming) = ring();
        let producer = thread::spawn(move || {
            // Bursts: 1 and 2, 3, 4 and 5. The fifth record reuses the first one's line without a
            // fence since the consumer's position was read.
            for number in 1..=5 {
                while send(&mut outgoing, number) == Err(ReserveError::Full) {
                    thread::yield_now();
                }
                if number != 1 && number != 4 {
                    outgoing.end().publish();
                }
            }
        });
        for number in 1..=5 {
            let got = loop {
                match take(&mut incoming) {
                    Some(got) => break got,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(got, number);
            if number != 2 {
                incoming.end().release();
            }
        }
        producer.join().unwrap();
        assert!(take(&mut incoming).is_none());
    });
}

#[test]
fn burst_is_seen_completely_or_not_at_all() {
    check(|| {
        let (mut outgoing, mut incoming) = ring();
        let producer = thread::spawn(move || {
            for number in 1..=3 {
                send(&mut outgoing, number).unwrap();
            }
            outgoing.end().publish();
        });
        if let Some(first) = take(&mut incoming) {
            let rest = [take(&mut incoming), take(&mut incoming), take(&mut incoming)];
            assert_eq!((first, rest), (1, [Some(2), Some(3), None]));
        }
        producer.join().unwrap();
    });
}

#[test]
fn consumer_wake_ups_are_not_lost() {
    check(|| all_are_received(ring()));
}

#[test]
fn frequent_sleeper_loses_no_wake_up() {
    check(|| all_are_received(ring_of_a_light_sleeper()));
}

fn all_are_received((mut outgoing, mut incoming): (Sender, Receiver)) {
    let doorbell = Arc::new(Notify::new());
    let ringer = Arc::clone(&doorbell);
    let producer = thread::spawn(move || {
        for number in 1..=2 {
            send(&mut outgoing, number).unwrap();
            if outgoing.end().publish() {
                ringer.notify();
            }
        }
    });
    let mut received = 0;
    while received < 2 {
        if let Some(number) = take(&mut incoming) {
            received += 1;
            assert_eq!(number, received);
        } else if incoming.end().prepare_sleep() {
            // loom reports a missing wake-up as a deadlock.
            doorbell.wait();
            incoming.end().finish_sleep();
        }
    }
    producer.join().unwrap();
}

#[test]
fn producer_wake_ups_are_not_lost() {
    check(|| {
        let (mut outgoing, mut incoming) = ring();
        let doorbells = [Arc::new(Notify::new()), Arc::new(Notify::new())];
        let [room, records] = doorbells.clone();
        let producer = thread::spawn(move || {
            for number in 1..=4 {
                while send(&mut outgoing, number) == Err(ReserveError::Full) {
                    if outgoing.end().prepare_wait(8) {
                        room.wait();
                        outgoing.end().finish_wait();
                    }
                }
                if outgoing.end().publish() {
                    records.notify();
                }
            }
        });
        let [room, records] = doorbells;
        let mut received = 0;
        while received < 4 {
            if let Some(number) = take(&mut incoming) {
                received += 1;
                assert_eq!(number, received);
                continue;
            }
            if incoming.end().release() {
                room.notify();
            }
            if incoming.end().prepare_sleep() {
                if incoming.end().room_wanted() {
                    room.notify();
                }
                records.wait();
                incoming.end().finish_sleep();
            }
        }
        producer.join().unwrap();
    });
}
