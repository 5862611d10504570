//! Every interleaving of the protocols of direct connections, within loom's bounds:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p toehold-shm --lib direct`.
//!
//! A wake-up that does not come is a deadlock, which loom reports.

mod locks;
mod queues;
mod waiters;

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread;

use super::audience::{Audience, WaiterNumber};
use super::bank::{ArmLine, Class, ReadLine, ReaderLine, RecordLine, WriteLine, WriterLine};
use super::lines::{Arming, Incoming, Outgoing, PeerLines};
use super::lock::{ThreadNumber, full_fence, lock, unlock_and_fence};
use super::waiter::{begin_sleep, end_sleep, ring, ring_bell};
use crate::futex::model::ModelFutex;
use crate::futex::{AtomicU64, Futex};

const GENERATION: u32 = 5;

/// The words on which one waiter of an end sleeps, and its bits.
struct Waiter {
    sleep: AtomicU64,
    told: AtomicU64,
    bell: ModelFutex,
}

impl Waiter {
    fn new() -> Waiter {
        Waiter {
            sleep: AtomicU64::new(0),
            told: AtomicU64::new(0),
            bell: ModelFutex::new(),
        }
    }

    fn ring(&self) {
        ring(&self.sleep, &self.told, || ring_bell(&self.bell));
    }
}

/// A connection: one end writes, the other end reads.
struct Wire {
    write: WriteLine,
    writer: WriterLine,
    lock: ModelFutex,
    writer_arm: ArmLine,
    read: ReadLine,
    reader: ReaderLine,
    reader_arm: ArmLine,
    arm_lock: ModelFutex,
    record: RecordLine,
    waiters: [Waiter; 2],
}

impl Wire {
    fn new() -> Arc<Wire> {
        let wire = Wire {
            write: WriteLine::default(),
            writer: WriterLine::default(),
            lock: ModelFutex::new(),
            writer_arm: ArmLine::default(),
            read: ReadLine::default(),
            reader: ReaderLine::default(),
            reader_arm: ArmLine::default(),
            arm_lock: ModelFutex::new(),
            record: RecordLine::default(),
            waiters: [Waiter::new(), Waiter::new()],
        };
        wire.record.generation.store(GENERATION.into(), Relaxed);
        wire.outgoing().begin(Class::K4);
        wire.incoming().begin(4096, Class::K4, Class::K4);
        wire.arming().begin();
        Arc::new(wire)
    }

    /// The lines of one end as the other sees them; lines of the other direction stand in for
    /// those that are not looked at.
    fn peer<'a>(&'a self, arm: &'a ArmLine) -> PeerLines<'a> {
        PeerLines {
            write: &self.write,
            read: &self.read,
            arm,
            record: &self.record,
        }
    }

    fn outgoing(&self) -> Outgoing<'_> {
        Outgoing {
            own: &self.writer,
            write: &self.write,
            peer: self.peer(&self.reader_arm),
            generation: GENERATION,
        }
    }

    fn incoming(&self) -> Incoming<'_> {
        Incoming {
            own: &self.reader,
            read: &self.read,
            peer: self.peer(&self.writer_arm),
        }
    }

    fn arming(&self) -> Arming<'_> {
        Arming {
            arm: &self.reader_arm,
        }
    }

    fn post(&self, audience: Audience) {
        full_fence();
        audience
            .waiters()
            .for_each(|waiter| self.waiters[usize::from(waiter.get())].ring());
    }

    /// Sends `len` bytes.
    fn send(&self, me: ThreadNumber, len: u64) {
        lock(&self.lock, me).unwrap();
        let w = self.outgoing().room().w + len;
        self.outgoing().publish(w);
        unlock_and_fence(&self.lock);
        if let Some(due) = self.outgoing().due(w, false) {
            self.post(due.audience);
            self.outgoing().told(due);
        }
    }

    fn written(&self) -> u64 {
        self.incoming().available(true).unwrap().unwrap().w
    }

    fn join(&self, waiter: u16) {
        let audience = self.arming().audience().with(number(waiter));
        self.arming().set_audience(audience.unwrap());
    }

    /// Waits until `wanted` bytes are there, as a waiter that is alone there.
    fn wait_alone(&self, waiter: u16, wanted: u64) {
        let here = &self.waiters[usize::from(waiter)];
        while self.written() < wanted {
            let bell = here.bell.word().load(Acquire);
            begin_sleep(&here.sleep);
            self.join(waiter);
            self.arming().read(wanted);
            self.arming().fence();
            if self.written() < wanted {
                here.bell.wait(bell, None);
            }
            end_sleep(&here.sleep);
        }
    }
}

fn number(waiter: u16) -> WaiterNumber {
    WaiterNumber::new(waiter).unwrap()
}

fn me(number: u16) -> ThreadNumber {
    ThreadNumber::new(number).unwrap()
}

fn check(threads: impl Fn() + Sync + Send + 'static) {
    check_within(3, threads);
}

fn check_within(preemptions: usize, threads: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(threads);
}

#[test]
fn no_wake_up_of_a_reader_is_lost_between_publish_arm_and_sleep() {
    check(|| {
        let wire = Wire::new();
        let sender = thread::spawn({
            let wire = Arc::clone(&wire);
            move || (0..2).for_each(|_| wire.send(me(1), 1))
        });
        wire.wait_alone(0, 1);
        wire.wait_alone(0, 2);
        sender.join().unwrap();
    });
}

#[test]
fn wake_up_for_a_mark_beyond_one_message_is_not_lost() {
    check(|| {
        let wire = Wire::new();
        let sender = thread::spawn({
            let wire = Arc::clone(&wire);
            move || (0..3).for_each(|_| wire.send(me(1), 1))
        });
        wire.wait_alone(0, 3);
        sender.join().unwrap();
    });
}

#[test]
fn no_wake_up_is_lost_between_two_senders_and_a_reader() {
    check_within(2, || {
        let wire = Wire::new();
        let senders: Vec<_> = (1..=2)
            .map(|sender| {
                let wire = Arc::clone(&wire);
                thread::spawn(move || wire.send(me(sender), 1))
            })
            .collect();
        wire.wait_alone(0, 1);
        wire.wait_alone(0, 2);
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

#[test]
fn no_wake_up_of_a_writer_is_lost_between_read_arm_and_sleep() {
    check(|| {
        let wire = Wire::new();
        wire.outgoing().publish(2);
        let here = &wire.waiters[0];
        let reader = thread::spawn({
            let wire = Arc::clone(&wire);
            move || {
                for r in 1..=2 {
                    wire.incoming().available(true).unwrap();
                    wire.incoming().release(r);
                    full_fence();
                    if let Some(due) = wire.incoming().due(r) {
                        wire.post(due.audience);
                        wire.incoming().told(due);
                    }
                }
            }
        });
        let arming = Arming {
            arm: &wire.writer_arm,
        };
        while wire.read.r.load(Acquire) < 2 {
            let bell = here.bell.word().load(Acquire);
            begin_sleep(&here.sleep);
            arming.set_audience(Audience::NONE.with(number(0)).unwrap());
            arming.room(2);
            arming.fence();
            if wire.read.r.load(Acquire) < 2 {
                here.bell.wait(bell, None);
            }
            end_sleep(&here.sleep);
        }
        reader.join().unwrap();
    });
}

/// Two waiters of one end, of which one wants more bytes than the other. Where several wait, any
/// byte tells all. With a mark of the next byte, the wake-up of the first waiter was lost. The
/// sender had loaded its generation, and then the mark of the other one.
#[test]
fn no_wake_up_is_lost_by_the_marks_of_another_waiter() {
    check_within(2, || {
        let wire = Wire::new();
        let wait = |wire: &Wire, waiter: u16, wanted: u64| {
            let here = &wire.waiters[usize::from(waiter)];
            loop {
                let bell = here.bell.word().load(Acquire);
                begin_sleep(&here.sleep);
                lock(&wire.arm_lock, me(waiter + 1)).unwrap();
                wire.join(waiter);
                let is_alone = wire.arming().audience().waiters().count() == 1;
                wire.arming().read(if is_alone { wanted } else { 0 });
                unlock_and_fence(&wire.arm_lock);
                wire.arming().fence();
                let is_there = wire.write.w.load(Acquire) >= wanted;
                if !is_there {
                    here.bell.wait(bell, None);
                }
                end_sleep(&here.sleep);
                if is_there {
                    return;
                }
            }
        };
        let other = thread::spawn({
            let wire = Arc::clone(&wire);
            move || wait(&wire, 1, 2)
        });
        let sender = thread::spawn({
            let wire = Arc::clone(&wire);
            move || (0..2).for_each(|_| wire.send(me(9), 1))
        });
        wait(&wire, 0, 1);
        other.join().unwrap();
        sender.join().unwrap();
    });
}

/// A waiter joins the audience, and another one leaves it, while a sender posts.
#[test]
fn wake_up_is_not_lost_when_the_audience_changes_under_a_post() {
    check(|| {
        let wire = Wire::new();
        wire.join(1);
        wire.arming().read(1);
        let sender = thread::spawn({
            let wire = Arc::clone(&wire);
            move || (0..2).for_each(|_| wire.send(me(1), 1))
        });
        let left = wire.arming().audience().retain(|waiter| waiter != number(1));
        wire.arming().set_audience(left);
        wire.wait_alone(0, 2);
        sender.join().unwrap();
    });
}

/// The accepting end makes its lines and stores its record last; the writer believes no word of
/// it before.
#[test]
fn lines_of_an_earlier_connection_are_not_believed() {
    check(|| {
        let wire = Wire::new();
        // As an earlier connection has left them.
        wire.record.generation.store(u64::from(GENERATION) - 1, Relaxed);
        wire.read.r.store(77, Relaxed);
        wire.join(1);
        wire.arming().read(0);
        let accepting = thread::spawn({
            let wire = Arc::clone(&wire);
            move || {
                wire.read.r.store(0, Relaxed);
                wire.read.window.store(4096, Relaxed);
                wire.arming().begin();
                wire.record.generation.store(GENERATION.into(), Release);
                wire.wait_alone(0, 1);
            }
        });
        assert!(wire.outgoing().reload().is_ok());
        wire.send(me(1), 1);
        let room = wire.outgoing().reload().unwrap();
        assert_eq!(room.w, 1);
        accepting.join().unwrap();
    });
}
