//! Every interleaving of resting and waking, within loom's bounds:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p toehold-shm --lib parking`.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{Rest, begin, end, is_resting, mark, park, rouse, wake};
use crate::futex::model::ModelFutex;
use crate::lease::Side;

/// What is changed with the lease, for which loom's lock stands here.
#[derive(Default)]
struct State {
    done: u32,
}

struct Node {
    lease: Mutex<State>,
    slot: ModelFutex,
    /// Written before the notification, read after it, without the lease.
    message: UnsafeCell<u32>,
}

impl Node {
    fn new() -> Arc<Node> {
        Arc::new(Node {
            lease: Mutex::new(State::default()),
            slot: ModelFutex::new(),
            message: UnsafeCell::new(0),
        })
    }

    /// Waits until `steps` are done; how often it was notified.
    fn wait_for(&self, steps: u32) -> u32 {
        let mut notified = 0;
        let mut state = self.lease.lock().unwrap();
        while state.done < steps {
            begin(&self.slot, Rest::Parked);
            drop(state);
            park(&self.slot, None);
            state = self.lease.lock().unwrap();
            notified += u32::from(end(&self.slot));
        }
        assert!(!is_resting(&self.slot));
        notified
    }
}

fn notify(slot: &ModelFutex) -> Option<Rest> {
    let rest = mark(slot)?;
    if rest == Rest::Parked {
        wake(slot);
    }
    Some(rest)
}

#[test]
fn no_notification_is_lost() {
    loom::model(|| {
        let node = Node::new();
        let other = thread::spawn({
            let node = Arc::clone(&node);
            move || {
                for _ in 0..2 {
                    let mut state = node.lease.lock().unwrap();
                    state.done += 1;
                    let marked = mark(&node.slot);
                    // Whoever wakes up wants the lock.
                    drop(state);
                    if marked.is_some() {
                        wake(&node.slot);
                    }
                }
            }
        });
        assert!(node.wait_for(2) <= 2);
        other.join().unwrap();
    });
}

#[test]
fn two_notify_and_one_of_them_wakes() {
    loom::model(|| {
        let node = Node::new();
        begin(&node.slot, Rest::Parked);
        let others = [(); 2].map(|()| {
            let node = Arc::clone(&node);
            thread::spawn(move || u32::from(notify(&node.slot).is_some()))
        });
        park(&node.slot, None);
        let woken: u32 = others.into_iter().map(|other| other.join().unwrap()).sum();
        assert_eq!(woken, 1);
        assert!(end(&node.slot));
    });
}

#[test]
fn what_was_written_before_is_there_after() {
    loom::model(|| {
        let node = Node::new();
        begin(&node.slot, Rest::Parked);
        let other = thread::spawn({
            let node = Arc::clone(&node);
            move || {
                // SAFETY: loom checks that nobody else has access at the same time.
                node.message.with_mut(|message| unsafe { *message = 7 });
                notify(&node.slot);
            }
        });
        park(&node.slot, None);
        // SAFETY: as above.
        assert_eq!(node.message.with(|message| unsafe { *message }), 7);
        other.join().unwrap();
    });
}

/// What a thread hears of a bell that nobody silences for others: an epoll of its own, at edges.
struct Sleeper {
    heard: Mutex<bool>,
    ring: Condvar,
}

impl Sleeper {
    fn new() -> Sleeper {
        Sleeper {
            heard: Mutex::new(false),
            ring: Condvar::new(),
        }
    }

    fn ring(&self) {
        *self.heard.lock().unwrap() = true;
        self.ring.notify_one();
    }

    fn sleep(&self) {
        let mut heard = self.heard.lock().unwrap();
        while !*heard {
            heard = self.ring.wait(heard).unwrap();
        }
        *heard = false;
    }
}

/// Two rest polled. Each hears the rings that are for the other, too, and sleeps on.
#[test]
fn who_rests_polled_misses_no_ring() {
    loom::model(|| {
        let bell = Arc::new([
            (ModelFutex::new(), Sleeper::new()),
            (ModelFutex::new(), Sleeper::new()),
        ]);
        bell.iter().for_each(|(slot, _)| begin(slot, Rest::Polled));
        let waiters = [0, 1].map(|me| {
            let bell = Arc::clone(&bell);
            thread::spawn(move || {
                let (slot, ear) = &bell[me];
                while is_resting(slot) {
                    ear.sleep();
                }
                assert!(end(slot));
            })
        });
        for (slot, _) in &*bell {
            if notify(slot) == Some(Rest::Polled) {
                bell.iter().for_each(|(_, ear)| ear.ring());
            }
        }
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

/// A process is killed between marking the thread and waking it.
#[test]
fn killed_between_mark_and_wake() {
    loom::model(|| {
        let node = Node::new();
        let dead = thread::spawn({
            let node = Arc::clone(&node);
            move || {
                node.lease.lock().unwrap().done = 1;
                mark(&node.slot);
            }
        });
        let waiter = thread::spawn({
            let node = Arc::clone(&node);
            move || node.wait_for(1)
        });
        dead.join().unwrap();
        {
            let _lease = node.lease.lock().unwrap();
            rouse(&node.slot);
        }
        waiter.join().unwrap();
    });
}

/// The node dies while a thread goes to rest: nobody will notify it any more.
#[test]
fn closed_while_going_to_rest() {
    loom::model(|| {
        let node = Arc::new((ModelFutex::new(), ModelFutex::new()));
        let waiter = thread::spawn({
            let node = Arc::clone(&node);
            move || {
                let (lease, slot) = &*node;
                let side = Side { futex: lease, me: 2 };
                if side.acquire(|_| true).is_ok() {
                    begin(slot, Rest::Parked);
                    if side.release().is_ok() {
                        park(slot, None);
                    }
                }
            }
        });
        let (lease, slot) = &*node;
        Side { futex: lease, me: 3 }.close();
        rouse(slot);
        waiter.join().unwrap();
    });
}
