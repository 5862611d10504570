//! One direction of a channel, with the owner of each byte.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::LaneState;
use crate::futex::{ALL, AtomicU32, AtomicU64, Futex, fence};

/// Most blocks of a lane's bytes at a time.
#[cfg(not(loom))]
pub const LANE_BLOCKS: usize = 32;
/// Most blocks of a lane's bytes at a time; few for the model.
#[cfg(loom)]
pub const LANE_BLOCKS: usize = 2;

/// The shared state of a lane. All zeroes: a closed lane.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Record<F> {
    stack: Stack,
    program: Program<F>,
    /// The block of each position, indexed by block number modulo their count.
    blocks: Blocks,
}

/// The words that the holder of the lease writes.
#[derive(Debug)]
#[repr(C, align(128))]
struct Stack {
    /// The program may not go beyond this position.
    limit: AtomicU64,
    /// The program leaves a request when it reaches this position.
    mark: AtomicU64,
    /// The connection that owns the lane.
    owner: AtomicU64,
    /// A [`LaneState`].
    state: AtomicU32,
}

/// The words that programs write.
#[derive(Debug)]
#[repr(C, align(128))]
struct Program<F> {
    /// The program's position.
    done: AtomicU64,
    /// The lock: the word of a lease.
    lock: F,
    /// Not 0: the program wants to be told of a greater limit.
    wants: AtomicU32,
    /// The word that waiting threads sleep on: [`SLEEPS`], and a count of wake-ups.
    sleepers: F,
}

/// A thread sleeps, or is about to.
const SLEEPS: u32 = 1;

#[derive(Debug)]
#[repr(C, align(128))]
struct Blocks([AtomicU32; LANE_BLOCKS]);

/// The range between the program's position and the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The program's position.
    pub done: u64,
    /// Bytes that the program may use.
    pub len: usize,
    /// The permitted operations.
    pub state: LaneState,
}

impl Bounds {
    /// Whether the program can only wait for more.
    #[inline]
    pub fn must_wait(&self) -> bool {
        self.len == 0 && self.state == LaneState::Open
    }
}

/// The result of a copy along a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Bytes copied.
    pub len: usize,
    /// Bytes left on the lane.
    pub left: usize,
    /// The permitted operations.
    pub state: LaneState,
    /// The program has to leave a request now.
    pub due: bool,
}

impl<F: Futex> Record<F> {
    #[cfg(loom)]
    pub(super) fn new(make: impl Fn() -> F) -> Self {
        Record {
            stack: Stack {
                limit: AtomicU64::new(0),
                mark: AtomicU64::new(0),
                owner: AtomicU64::new(0),
                state: AtomicU32::new(0),
            },
            program: Program {
                done: AtomicU64::new(0),
                lock: make(),
                wants: AtomicU32::new(0),
                sleepers: make(),
            },
            blocks: Blocks([AtomicU32::new(0), AtomicU32::new(0)]),
        }
    }

    /// The lock.
    #[inline]
    pub(super) fn lock(&self) -> &F {
        &self.program.lock
    }

    /// The program's present bounds. The bytes within them that no other connection owns belong to
    /// the program until it advances past them.
    #[inline]
    pub(super) fn bounds(&self, owner: u64, shift: u32) -> Bounds {
        // The state that ends the lane is stored after its last limit.
        let state = LaneState::from_word(self.stack.state.load(Acquire));
        let limit = self.stack.limit.load(Acquire);
        let done = self.program.done.load(Relaxed);
        let len = limit.wrapping_sub(done);
        let possible = len <= (LANE_BLOCKS as u64) << shift;
        if !possible || self.stack.owner.load(Relaxed) != owner {
            return Bounds {
                done,
                len: 0,
                state: LaneState::Closed,
            };
        }
        let len = len as usize;
        Bounds { done, len, state }
    }

    /// The block of a position.
    #[inline]
    pub(super) fn block(&self, position: u64, shift: u32) -> u32 {
        self.blocks.0[(position >> shift) as usize % LANE_BLOCKS].load(Relaxed)
    }

    /// Sets the program's position: it has filled the bytes before, or will not read them again.
    #[inline]
    pub(super) fn advance(&self, position: u64) {
        self.program.done.store(position, Release);
    }

    /// Whether the program has reached the position of its next request.
    #[inline]
    pub(super) fn is_due(&self, position: u64) -> bool {
        let mark = self.stack.mark.load(Relaxed);
        position.wrapping_sub(mark) < 1 << 63
    }

    /// Asks to be told of a greater limit. Call this before leaving a request.
    #[inline]
    pub(super) fn want(&self) {
        self.program.wants.store(1, Relaxed);
    }

    /// Whether the program wants to be told of a greater limit.
    #[inline]
    pub(super) fn take_wants(&self) -> bool {
        self.program.wants.load(Relaxed) != 0 && self.program.wants.swap(0, Relaxed) != 0
    }

    /// Sleeps until the program can continue, while `is_attended` holds. Ends early at `until_ns`
    /// on the monotonic clock, at a signal, and when other threads are woken.
    pub(super) fn sleep(
        &self,
        (owner, shift): (u64, u32),
        until_ns: Option<u64>,
        is_attended: impl FnOnce() -> bool,
    ) {
        let sleepers = &self.program.sleepers;
        let word = sleepers.word().fetch_or(SLEEPS, Relaxed) | SLEEPS;
        // Either this thread sees the published limit, or the publisher sees this thread.
        fence(SeqCst);
        if self.bounds(owner, shift).must_wait() && is_attended() {
            let _ = sleepers.wait(word, until_ns);
        }
    }

    /// Marks the sleepers that can continue, after the lane was published. Returns whether any
    /// thread has to be woken.
    #[inline]
    pub(super) fn mark(&self) -> bool {
        let stack = &self.stack;
        let open = stack.state.load(Relaxed) == LaneState::Open as u32;
        if open && stack.limit.load(Relaxed) == self.program.done.load(Relaxed) {
            return false;
        }
        fence(SeqCst);
        self.program.sleepers.word().load(Relaxed) & SLEEPS != 0 && self.tell()
    }

    /// Makes all threads check again that are about to sleep. Returns whether any thread has to be
    /// woken. The word keeps that mark until a thread wakes them, even if this process dies.
    #[cold]
    pub(super) fn tell(&self) -> bool {
        let told = self.program.sleepers.word().fetch_add(2, Relaxed);
        told & SLEEPS != 0
    }

    /// Wakes all sleepers. This needs no lease. A thread that begins to sleep meanwhile checks once
    /// more.
    #[cold]
    pub(super) fn wake(&self) {
        let sleepers = &self.program.sleepers;
        sleepers.word().fetch_and(!SLEEPS, Relaxed);
        sleepers.wake(ALL);
    }

    /// The program's position.
    #[inline]
    pub(super) fn done(&self) -> u64 {
        self.program.done.load(Acquire)
    }

    /// Assigns the lane to an owner at a position. The lock stays as it is.
    pub(super) fn begin(&self, owner: u64, position: u64) {
        self.program.done.store(position, Relaxed);
        self.program.wants.store(0, Relaxed);
        self.stack.limit.store(position, Relaxed);
        self.stack.mark.store(position, Relaxed);
        self.stack.owner.store(owner, Relaxed);
    }

    /// Sets the block of a position.
    #[inline]
    pub(super) fn set_block(&self, position: u64, shift: u32, block: u32) {
        self.blocks.0[(position >> shift) as usize % LANE_BLOCKS].store(block, Relaxed);
    }

    /// Lets the program go up to `limit`, and leave a request when it reaches `mark`.
    #[inline]
    pub(super) fn publish(&self, limit: u64, mark: u64, state: LaneState) {
        self.stack.mark.store(mark, Relaxed);
        self.stack.limit.store(limit, Release);
        self.stack.state.store(state as u32, Release);
    }

    /// Ends the lane's assignment.
    pub(super) fn end(&self) {
        self.stack.state.store(LaneState::Closed as u32, Release);
        self.stack.owner.store(0, Release);
    }
}
