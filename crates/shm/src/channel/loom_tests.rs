//! Checks every interleaving of lanes and requests, within loom's bounds: `RUSTFLAGS="--cfg loom"
//! cargo test --release -p toehold-shm --lib channel`.
//!
//! loom reports a lost wake-up or request as a deadlock. The tests also check that all bytes are
//! taken when all threads are done.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::LaneState;
use super::lane::Record;
use super::requests::{Left, Requests};
use crate::futex::model::ModelFutex;
use crate::futex::{AtomicU32, Futex, Waited};
use crate::lease::Side;
use loom::sync::atomic::Ordering::{AcqRel, Relaxed};

const OWNER: u64 = 7;
/// Blocks of two bytes.
const SHIFT: u32 = 1;

struct Node {
    lease: ModelFutex,
    lane: Record<ModelFutex>,
    requests: Requests,
    /// The bytes of the lane. loom reports every access that is not ordered.
    bytes: [UnsafeCell<u8>; 2],
    /// The bytes that the stack has taken. Only the holder of the lease accesses it.
    taken: UnsafeCell<u64>,
    /// The attendant sleeps on this.
    bell: ModelFutex,
    /// A thread that did not get the lane's lock has asked the holder of the lease.
    told: AtomicU32,
    /// The taken bytes, for threads without the lease.
    progress: AtomicU32,
}

impl Node {
    fn new() -> Arc<Node> {
        let node = Node {
            lease: ModelFutex::new(),
            lane: Record::new(ModelFutex::new),
            requests: Requests::new(),
            bytes: [UnsafeCell::new(0), UnsafeCell::new(0)],
            taken: UnsafeCell::new(0),
            bell: ModelFutex::new(),
            told: AtomicU32::new(0),
            progress: AtomicU32::new(0),
        };
        node.lane.begin(OWNER, 0);
        node.lane.publish(2, 0, LaneState::Open);
        Arc::new(node)
    }

    fn lease(&self, me: u32) -> Side<'_, ModelFutex> {
        Side {
            futex: &self.lease,
            me,
        }
    }

    fn lock(&self, me: u32) -> Side<'_, ModelFutex> {
        let futex = self.lane.lock();
        Side { futex, me }
    }

    /// A program's thread writes a byte.
    fn fill(&self, me: u32) {
        self.lock(me).acquire(|_| true).unwrap();
        let bounds = self.lane.bounds(OWNER, SHIFT);
        assert!(bounds.len > 0 && bounds.state == LaneState::Open);
        // SAFETY: loom checks that no other thread has access at the same time.
        self.bytes[bounds.done as usize].with_mut(|byte| unsafe { *byte = 1 + bounds.done as u8 });
        self.lane.advance(bounds.done + 1);
        if self.lock(me).release_heeding().unwrap() {
            self.told.store(1, Relaxed);
        }
    }

    /// Serves requests with the lease.
    fn serve(&self) {
        self.requests.take(|number| {
            assert_eq!(number, 3);
            let done = self.lane.done();
            self.taken.with_mut(|taken| {
                // SAFETY: loom checks that no other thread has access at the same time.
                let taken = unsafe { &mut *taken };
                for position in *taken..done {
                    // SAFETY: loom checks that no other thread has access at the same time.
                    let byte = self.bytes[position as usize].with(|byte| unsafe { *byte });
                    assert_eq!(byte, 1 + position as u8);
                }
                *taken = done;
                self.progress.store(done as u32, Relaxed);
            });
        });
    }

    fn let_go(&self, me: u32) {
        while !self.lease(me).release_unless_requested().unwrap() {
            self.serve();
        }
    }

    /// Leaves a request, and serves it if no other thread will.
    fn request(&self, me: u32) {
        match self.requests.leave(3) {
            Left::Attended => {}
            Left::MustRing => {
                // As the kernel does it.
                self.bell.word().swap(1, AcqRel);
                self.bell.wake(1);
            }
            Left::Unattended => {
                if self.lease(me).take_or_request().unwrap() {
                    self.serve();
                    self.let_go(me);
                }
            }
        }
    }

    /// Attends until `until` bytes are taken.
    fn attend(&self, me: u32, until: u32) {
        while self.progress.load(Relaxed) < until {
            self.lease(me).acquire(|_| true).unwrap();
            self.serve();
            self.let_go(me);
            if self.progress.load(Relaxed) < until && self.requests.doze() {
                while self.bell.word().load(Relaxed) == 0 {
                    let _: Waited = self.bell.wait(0, None);
                }
                self.bell.word().swap(0, AcqRel);
                self.requests.attend();
            }
        }
        self.retire(me);
    }

    fn retire(&self, me: u32) {
        self.requests.retire();
        self.lease(me).acquire(|_| true).unwrap();
        self.serve();
        self.let_go(me);
    }

    /// Checks that all bytes are taken, without another look.
    fn finish(&self, bytes: u64) {
        assert!(!self.requests.are_there());
        // SAFETY: loom checks that no other thread has access at the same time.
        assert_eq!(self.taken.with(|taken| unsafe { *taken }), bytes);
        assert!(self.lease(1).try_acquire());
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
fn maker_or_holder_serves_request() {
    check(3, || {
        let node = Node::new();
        let writer = spawn(&node, |node| {
            node.fill(2);
            node.request(2);
        });
        let holder = spawn(&node, |node| {
            node.lease(3).acquire(|_| true).unwrap();
            node.let_go(3);
        });
        writer.join().unwrap();
        holder.join().unwrap();
        node.finish(1);
    });
}

#[test]
fn holder_serves_requests_of_two_threads() {
    check(2, || {
        let node = Node::new();
        let writers = [2, 3].map(|me| {
            spawn(&node, move |node| {
                node.fill(me);
                node.request(me);
            })
        });
        node.lease(4).acquire(|_| true).unwrap();
        node.let_go(4);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        node.finish(2);
    });
}

#[test]
fn giver_or_next_holder_serves_request() {
    check(2, || {
        let node = Node::new();
        let writer = spawn(&node, |node| {
            node.fill(2);
            node.request(2);
        });
        let other = spawn(&node, |node| {
            node.lease(3).acquire(|_| true).unwrap();
            node.let_go(3);
        });
        node.lease(4).acquire(|_| true).unwrap();
        node.lease(4).give_way(|_| true).unwrap();
        node.let_go(4);
        writer.join().unwrap();
        other.join().unwrap();
        node.finish(1);
    });
}

#[test]
fn sleeping_attendant_is_rung() {
    check(3, || {
        let node = Node::new();
        node.requests.attend();
        let attendant = spawn(&node, |node| node.attend(1, 2));
        for _ in 0..2 {
            node.fill(2);
            node.request(2);
        }
        attendant.join().unwrap();
        node.finish(2);
    });
}

#[test]
fn request_left_during_retirement_is_served() {
    check(3, || {
        let node = Node::new();
        node.requests.attend();
        let attendant = spawn(&node, |node| node.retire(1));
        node.fill(2);
        node.request(2);
        attendant.join().unwrap();
        node.finish(1);
    });
}

#[test]
fn failed_lock_attempt_is_told_of_release() {
    check(3, || {
        let node = Node::new();
        let writer = spawn(&node, |node| node.fill(2));
        let got = node.lock(1).take_or_request().unwrap();
        if got {
            node.lock(1).release().unwrap();
        }
        writer.join().unwrap();
        let told = node.told.load(Relaxed) == 1;
        assert!(got || told);
    });
}

/// A process is killed with the lock, in the middle of a copy.
#[test]
fn killed_with_the_lock() {
    check(3, || {
        let node = Node::new();
        let dead = spawn(&node, |node| {
            node.lock(2).acquire(|_| true).unwrap();
        });
        let waiter = spawn(&node, |node| {
            node.fill(3);
            node.request(3);
        });
        dead.join().unwrap();
        if node.lock(1).seize(2) {
            node.lock(1).release().unwrap();
        }
        waiter.join().unwrap();
        node.finish(1);
    });
}

impl Node {
    /// Takes the next byte for a program's thread, once it is there. Returns `false` if there is no
    /// attendant any more.
    fn take_next(&self, me: u32) -> bool {
        loop {
            self.lock(me).acquire(|_| true).unwrap();
            let bounds = self.lane.bounds(OWNER, SHIFT);
            if !bounds.must_wait() {
                self.lane.advance(bounds.done + 1);
            }
            self.lock(me).release().unwrap();
            if !bounds.must_wait() {
                return true;
            }
            if !self.requests.are_attended() {
                return false;
            }
            let is_attended = || self.requests.are_attended();
            self.lane.sleep((OWNER, SHIFT), None, is_attended);
        }
    }

    fn show(&self, limit: u64) {
        self.lane.publish(limit, limit, LaneState::Open);
        if self.lane.mark() {
            self.lane.wake();
        }
    }
}

/// Consumes what the lane showed at first.
fn empty() -> Arc<Node> {
    let node = Node::new();
    node.lane.advance(2);
    node.requests.attend();
    node
}

#[test]
fn sleeper_on_lane_is_woken_by_publication() {
    check(3, || {
        let node = empty();
        let reader = spawn(&node, |node| assert!(node.take_next(2) && node.take_next(2)));
        node.show(3);
        node.show(4);
        reader.join().unwrap();
        assert_eq!(node.lane.done(), 4);
    });
}

#[test]
fn two_sleepers_on_lane_both_receive() {
    check(2, || {
        let node = empty();
        let readers = [2, 3].map(|me| spawn(&node, move |node| assert!(node.take_next(me))));
        node.show(4);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!(node.lane.done(), 4);
    });
}

#[test]
fn sleeper_on_lane_is_woken_by_retirement() {
    check(3, || {
        let node = empty();
        let reader = spawn(&node, |node| assert!(!node.take_next(2)));
        node.requests.retire();
        if node.lane.tell() {
            node.lane.wake();
        }
        reader.join().unwrap();
    });
}

#[test]
fn marked_sleeper_is_woken_after_death_of_waker() {
    check(3, || {
        let node = empty();
        let reader = spawn(&node, |node| assert!(node.take_next(2)));
        node.lane.publish(3, 3, LaneState::Open);
        let _ = node.lane.mark();
        if node.lane.tell() {
            node.lane.wake();
        }
        reader.join().unwrap();
    });
}
