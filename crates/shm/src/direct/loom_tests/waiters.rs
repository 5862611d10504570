//! Ready bits, rings and sleeps.

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::thread;

use super::{Waiter, check, check_within};
use crate::direct::lock::full_fence;
use crate::direct::ready_set::ReadySet;
use crate::direct::waiter::{begin_sleep, end_dead_sleep, end_sleep, ring};
use crate::futex::{AtomicU64, Futex};

/// An instance with ready bits and one connection.
#[test]
fn ready_bit_is_collected_by_a_waiter_that_falls_asleep() {
    check(|| {
        struct Instance {
            waiter: Waiter,
            summary: AtomicU64,
            listeners: AtomicU64,
            words: [AtomicU64; 2],
            done: [AtomicU64; 2],
        }
        impl Instance {
            fn ready(&self) -> ReadySet<'_> {
                ReadySet {
                    summary: &self.summary,
                    listeners: &self.listeners,
                    words: &self.words,
                }
            }
        }
        let instance = Arc::new(Instance {
            waiter: Waiter::new(),
            summary: AtomicU64::new(0),
            listeners: AtomicU64::new(0),
            words: [AtomicU64::new(0), AtomicU64::new(0)],
            done: [AtomicU64::new(0), AtomicU64::new(0)],
        });
        let posters: Vec<_> = (0..2_u16)
            .map(|source| {
                let instance = Arc::clone(&instance);
                thread::spawn(move || {
                    instance.done[usize::from(source)].store(1, Relaxed);
                    instance.ready().set(source * 64);
                    full_fence();
                    instance.waiter.ring();
                })
            })
            .collect();
        let mut found = 0;
        while found < 2 {
            let bell = instance.waiter.bell.word().load(Acquire);
            begin_sleep(&instance.waiter.sleep);
            if instance.ready().is_empty() {
                instance.waiter.bell.wait(bell, None);
            }
            end_sleep(&instance.waiter.sleep);
            instance.ready().collect(|number| {
                let source = usize::from(number) / 64;
                assert_eq!(instance.done[source].load(Relaxed), 1, "what was posted is seen");
                found += 1;
            });
        }
        for poster in posters {
            poster.join().unwrap();
        }
        // A bit that was taken before the summary named it is named in vain.
        instance.ready().collect(|_| panic!("a bit was collected twice"));
    });
}

/// A ringer that is stopped after it has changed the bell word, and before it says so, silences
/// no other one.
#[test]
fn waiter_is_rung_though_another_ringer_has_stopped() {
    check(|| {
        let waiter = Arc::new((Waiter::new(), AtomicU64::new(0)));
        let stopped = thread::spawn({
            let waiter = Arc::clone(&waiter);
            move || {
                waiter.1.fetch_add(1, AcqRel);
                full_fence();
                let generation = waiter.0.sleep.load(Acquire);
                if generation & 1 != 0 && waiter.0.told.load(Acquire) != generation {
                    // It changes the word and is stopped for ever, before the wake.
                    waiter.0.bell.word().fetch_add(1, Release);
                }
            }
        });
        let ringer = thread::spawn({
            let waiter = Arc::clone(&waiter);
            move || {
                waiter.1.fetch_add(16, AcqRel);
                full_fence();
                waiter.0.ring();
            }
        });
        while waiter.1.load(Acquire) < 16 {
            let here = &waiter.0;
            let bell = here.bell.word().load(Acquire);
            begin_sleep(&here.sleep);
            if waiter.1.load(Acquire) < 16 {
                here.bell.wait(bell, None);
            }
            end_sleep(&here.sleep);
        }
        stopped.join().unwrap();
        ringer.join().unwrap();
    });
}

/// Two threads sleep on one instance, and one thing comes for each. The thread that finds both
/// rings the other one.
#[test]
fn two_threads_of_one_instance_share_what_comes() {
    check_within(2, || {
        let instance = Arc::new((Waiter::new(), AtomicU64::new(0)));
        let wait = |instance: &(Waiter, AtomicU64)| {
            let (here, things) = instance;
            loop {
                let bell = here.bell.word().load(Acquire);
                begin_sleep(&here.sleep);
                if things.load(Acquire) == 0 {
                    here.bell.wait(bell, None);
                }
                end_sleep(&here.sleep);
                let taken = things.fetch_update(AcqRel, Acquire, |things| things.checked_sub(1));
                if let Ok(before) = taken {
                    if before > 1 {
                        full_fence();
                        here.ring();
                    }
                    return;
                }
            }
        };
        let other = thread::spawn({
            let instance = Arc::clone(&instance);
            move || wait(&instance)
        });
        let poster = thread::spawn({
            let instance = Arc::clone(&instance);
            move || {
                for _ in 0..2 {
                    instance.1.fetch_add(1, AcqRel);
                    full_fence();
                    instance.0.ring();
                }
            }
        });
        wait(&instance);
        other.join().unwrap();
        poster.join().unwrap();
    });
}

/// A thread has died asleep after it was rung. The engine ends its sleep and rings again.
#[test]
fn ring_that_a_dead_thread_has_had_is_given_to_another() {
    check(|| {
        let instance = Arc::new((Waiter::new(), AtomicU64::new(0)));
        begin_sleep(&instance.0.sleep);
        instance.0.told.store(instance.0.sleep.load(Relaxed), Relaxed);
        instance.1.store(1, Relaxed);
        let engine = thread::spawn({
            let instance = Arc::clone(&instance);
            move || {
                end_dead_sleep(&instance.0.sleep);
                full_fence();
                instance.0.ring();
            }
        });
        let here = &instance.0;
        let bell = here.bell.word().load(Acquire);
        begin_sleep(&here.sleep);
        if instance.1.load(Acquire) == 0 {
            here.bell.wait(bell, None);
        }
        end_sleep(&here.sleep);
        engine.join().unwrap();
    });
}
