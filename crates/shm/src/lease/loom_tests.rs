//! Checks every interleaving of the lease's protocol, within loom's bounds: `RUSTFLAGS="--cfg loom"
//! cargo test --release -p toehold-shm --lib lease`.
//!
//! No thread checks by itself after a slice of time here, so loom reports a missing wake-up as a
//! deadlock. A thread that ends in the middle of the protocol stands for a killed process. The
//! engine joins it where the kernel would report its death.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;

use super::Revoked;
use super::protocol::{HANDED, HOLDER, Right, SLEEPERS, Side, is_wanted};
use crate::futex::model::ModelFutex;
use crate::futex::{Futex, Waited};

const ENGINE: u32 = 1;

fn forever(_: Waited) -> bool {
    true
}

struct Node {
    futex: ModelFutex,
    /// loom reports every access without the lease.
    changes: UnsafeCell<u64>,
}

impl Node {
    fn new() -> Arc<Node> {
        Arc::new(Node {
            futex: ModelFutex::new(),
            changes: UnsafeCell::new(0),
        })
    }

    fn side(&self, me: u32) -> Side<'_, ModelFutex> {
        Side {
            futex: &self.futex,
            me,
        }
    }

    /// The caller holds the lease.
    fn change(&self) {
        // SAFETY: loom checks that no other thread has access at the same time.
        self.changes.with_mut(|changes| unsafe { *changes += 1 });
    }

    fn acquire_change_release(&self, me: u32) {
        let side = self.side(me);
        side.acquire(forever).unwrap();
        self.change();
        side.release().unwrap();
    }

    fn is_wanted(&self) -> bool {
        is_wanted(self.futex.word().load(Relaxed))
    }

    /// Checks that nothing is left in the word, and returns the number of changes.
    fn finish(&self) -> u64 {
        assert!(self.side(ENGINE).try_acquire());
        assert!(!self.is_wanted());
        self.changes.with(|changes| {
            // SAFETY: loom checks that no other thread has access at the same time.
            unsafe { *changes }
        })
    }
}

fn check(preemptions: usize, threads: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(threads);
}

fn spawn(node: &Arc<Node>, work: impl FnOnce(&Node) + 'static) -> thread::JoinHandle<()> {
    let node = Arc::clone(node);
    thread::spawn(move || work(&node))
}

#[test]
fn each_thread_gets_lease_alone() {
    check(3, || {
        let node = Node::new();
        let others = [2, 3].map(|me| spawn(&node, move |node| node.acquire_change_release(me)));
        node.acquire_change_release(ENGINE);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(node.finish(), 3);
    });
}

#[test]
fn lease_is_taken_repeatedly() {
    check(3, || {
        let node = Node::new();
        let other = spawn(&node, |node| (0..2).for_each(|_| node.acquire_change_release(2)));
        (0..2).for_each(|_| node.acquire_change_release(ENGINE));
        other.join().unwrap();
        assert_eq!(node.finish(), 4);
    });
}

#[test]
fn giver_and_waiters_all_get_lease() {
    check(2, || {
        let node = Node::new();
        let side = node.side(ENGINE);
        side.acquire(forever).unwrap();
        let others = [2, 3].map(|me| spawn(&node, move |node| node.acquire_change_release(me)));
        if node.is_wanted() {
            side.give_way(forever).unwrap();
        }
        node.change();
        side.release().unwrap();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(node.finish(), 3);
    });
}

#[test]
fn two_threads_give_way_to_each_other() {
    check(3, || {
        let node = Node::new();
        let twice = |node: &Node, me| {
            let side = node.side(me);
            side.acquire(forever).unwrap();
            node.change();
            side.give_way(forever).unwrap();
            node.change();
            side.release().unwrap();
        };
        let other = spawn(&node, move |node| twice(node, 2));
        twice(&node, ENGINE);
        other.join().unwrap();
        assert_eq!(node.finish(), 4);
    });
}

/// The step at which a process is killed.
#[derive(Debug, Clone, Copy)]
enum Killed {
    Holding,
    Wanting,
    BeforeSleep,
    /// Woken from its sleep, perhaps in place of another thread.
    AfterSleep,
    BetweenReleaseAndWake,
    BetweenHandingOverAndWake,
    BetweenWakeAndTakingBack,
}

fn be_killed(node: &Node, killed: Killed) {
    let side = node.side(2);
    match killed {
        Killed::Holding => {
            side.acquire(forever).unwrap();
            node.change();
        }
        Killed::Wanting => side.want(),
        Killed::BeforeSleep => {
            side.announce_sleep(Right::Newcomer);
        }
        Killed::AfterSleep => {
            if let Some(word) = side.announce_sleep(Right::Newcomer) {
                side.futex.wait(word, None);
            }
        }
        Killed::BetweenReleaseAndWake => {
            side.acquire(forever).unwrap();
            side.let_go(0).unwrap();
        }
        Killed::BetweenHandingOverAndWake => {
            side.acquire(forever).unwrap();
            side.let_go(HANDED).unwrap();
        }
        Killed::BetweenWakeAndTakingBack => {
            side.acquire(forever).unwrap();
            if side.let_go(HANDED).unwrap() & SLEEPERS != 0 {
                side.futex.wake(1);
            }
        }
    }
}

/// Process 2 is killed while process 3 wants the lease; the engine seizes it.
fn killed_beside_one_other(killed: Killed) {
    check(3, move || {
        let node = Node::new();
        let dead = spawn(&node, move |node| be_killed(node, killed));
        let other = spawn(&node, |node| node.acquire_change_release(3));
        dead.join().unwrap();
        let side = node.side(ENGINE);
        let seized = side.seize(2);
        assert_eq!(seized, matches!(killed, Killed::Holding));
        if seized {
            node.change();
            side.release().unwrap();
        }
        other.join().unwrap();
        // The next holder removes what the dead process left.
        node.acquire_change_release(ENGINE);
        assert!(node.finish() >= 2);
    });
}

#[test]
fn killed_while_it_holds_the_lease() {
    killed_beside_one_other(Killed::Holding);
}

#[test]
fn killed_while_it_wants_the_lease() {
    killed_beside_one_other(Killed::Wanting);
    killed_beside_one_other(Killed::BeforeSleep);
}

#[test]
fn killed_before_waking_sleeper() {
    killed_beside_one_other(Killed::BetweenReleaseAndWake);
    killed_beside_one_other(Killed::BetweenHandingOverAndWake);
    killed_beside_one_other(Killed::BetweenWakeAndTakingBack);
}

/// Gives the lease to a process that dies with it, and sleeps for it then.
fn give_way_change_release(node: &Node) {
    let side = node.side(4);
    side.give_way(forever).unwrap();
    node.change();
    side.release().unwrap();
}

#[test]
fn killed_after_hand_over() {
    check(3, || {
        let node = Node::new();
        node.side(4).acquire(forever).unwrap();
        let dead = spawn(&node, |node| be_killed(node, Killed::AfterSleep));
        let giver = spawn(&node, give_way_change_release);
        dead.join().unwrap();
        assert!(!node.side(ENGINE).seize(2));
        giver.join().unwrap();
        node.acquire_change_release(ENGINE);
        assert_eq!(node.finish(), 2);
    });
}

#[test]
fn killed_after_wake_up_meant_for_another() {
    check(1, || {
        let node = Node::new();
        node.side(4).acquire(forever).unwrap();
        let dead = spawn(&node, |node| be_killed(node, Killed::AfterSleep));
        let other = spawn(&node, |node| node.acquire_change_release(3));
        let giver = spawn(&node, give_way_change_release);
        dead.join().unwrap();
        assert!(!node.side(ENGINE).seize(2));
        other.join().unwrap();
        giver.join().unwrap();
        node.acquire_change_release(ENGINE);
        assert_eq!(node.finish(), 3);
    });
}

#[test]
fn seized_or_released_but_not_both() {
    check(5, || {
        let node = Node::new();
        node.side(2).acquire(forever).unwrap();
        let other = spawn(&node, |node| {
            let released = node.side(2).release().is_ok();
            let holder = node.futex.word().load(Relaxed) & HOLDER;
            assert_eq!(released, holder == 0);
        });
        let seized = node.side(ENGINE).seize(2);
        other.join().unwrap();
        let holder = node.futex.word().load(Relaxed) & HOLDER;
        assert_eq!(holder, if seized { ENGINE } else { 0 });
    });
}

/// A process gives way and is wrongly taken for dead.
#[test]
fn seized_while_giving_way() {
    check(3, || {
        let node = Node::new();
        node.side(2).acquire(forever).unwrap();
        let slow = spawn(&node, |node| {
            let side = node.side(2);
            if side.give_way(forever).is_ok() {
                let _ = side.release();
            }
        });
        let other = spawn(&node, |node| node.acquire_change_release(3));
        let side = node.side(ENGINE);
        if side.seize(2) {
            side.release().unwrap();
        }
        slow.join().unwrap();
        other.join().unwrap();
        assert_eq!(node.finish(), 1);
    });
}

#[test]
fn closing_wakes_all_and_admits_none() {
    check(3, || {
        let node = Node::new();
        let side = node.side(ENGINE);
        side.acquire(forever).unwrap();
        let others = [2, 3].map(|me| {
            spawn(&node, move |node| {
                assert_eq!(node.side(me).acquire(forever), Err(Revoked));
            })
        });
        side.close();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(side.release(), Err(Revoked), "let go, and told so");
        assert!(!side.try_acquire());
        assert_eq!(side.acquire(forever), Err(Revoked));
    });
}

#[test]
fn timeout_loses_no_wake_up() {
    // Three threads that all may sleep: without a bound this takes minutes.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let node = Node::new();
        node.side(2).acquire(forever).unwrap();
        let waiting = spawn(&node, |node| node.acquire_change_release(3));
        let impatient = spawn(&node, |node| {
            let side = node.side(4);
            if side.acquire(|_| false).unwrap() {
                side.release().unwrap();
            }
        });
        node.side(2).release().unwrap();
        waiting.join().unwrap();
        impatient.join().unwrap();
        // A hint may remain until the next release.
        node.acquire_change_release(2);
        assert_eq!(node.finish(), 2);
    });
}
