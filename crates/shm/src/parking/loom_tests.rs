//! Checks every interleaving of resting and waking, within loom's bounds: `RUSTFLAGS="--cfg loom"
//! cargo test --release -p toehold-shm --lib parking`.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{Rest, begin, end, is_resting, mark, park, rouse, wake};
use crate::futex::model::ModelFutex;
use crate::lease::Side;

/// State that changes under the lease; a lock of loom stands for the lease.
#[derive(Default)]
struct State {
    done: u32,
}

struct Node {
    lease: Mutex<State>,
    slot: ModelFutex,
    /// Written before the notification and read after it, without the lease.
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

    /// Waits until `steps` are done, and returns how often it was notified.
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
fn notifications_are_not_lost() {
    loom::model(|| {
        let node = Node::new();
        let other = thread::spawn({
            let node = Arc::clone(&node);
            move || {
                for _ in 0..2 {
                    let mut state = node.lease.lock().unwrap();
                    state.done += 1;
                    let marked = mark(&node.slot);
                    // The woken thread wants the lock.
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
fn one_of_two_notifiers_wakes() {
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
fn earlier_writes_are_visible_after_wake_up() {
    loom::model(|| {
        let node = Node::new();
        begin(&node.slot, Rest::Parked);
        let other = thread::spawn({
            let node = Arc::clone(&node);
            move || {
                // SAFETY: loom checks that no other thread has access at the same time.
                node.message.with_mut(|message| unsafe { *message = 7 });
                notify(&node.slot);
            }
        });
        park(&node.slot, None);
        // SAFETY: loom checks that no other thread has access at the same time.
        assert_eq!(node.message.with(|message| unsafe { *message }), 7);
        other.join().unwrap();
    });
}

/// A thread's own edge-triggered epoll on a bell that no thread silences for the others.
struct ModelSleeper {
    heard: Mutex<bool>,
    ring: Condvar,
}

impl ModelSleeper {
    fn new() -> ModelSleeper {
        ModelSleeper {
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

/// Two threads rest polled. Each notices the rings for the other, too, and sleeps again.
#[test]
fn polled_thread_misses_no_ring() {
    loom::model(|| {
        let bell = Arc::new([
            (ModelFutex::new(), ModelSleeper::new()),
            (ModelFutex::new(), ModelSleeper::new()),
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

/// The node dies while a thread goes to rest: no thread will notify it any more.
#[test]
fn closed_while_thread_goes_to_rest() {
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
