//! One direction of a channel: who may touch which bytes.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::LaneState;
use crate::futex::{ALL, AtomicU32, AtomicU64, Futex, fence};

/// Most blocks that a lane's bytes lie in at a time.
#[cfg(not(loom))]
pub const LANE_BLOCKS: usize = 32;
/// The same, few for the model.
#[cfg(loom)]
pub const LANE_BLOCKS: usize = 2;

/// What the lane's memory holds. All zeroes: a lane that is closed.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Record<F> {
    stack: Stack,
    program: Program<F>,
    /// The block of each position, by its number modulo that of the blocks.
    blocks: Blocks,
}

/// What the holder of the lease writes.
#[derive(Debug)]
#[repr(C, align(128))]
struct Stack {
    /// The program goes no further.
    limit: AtomicU64,
    /// The program leaves a request when it comes as far as this.
    mark: AtomicU64,
    /// Whose the lane is.
    owner: AtomicU64,
    /// A [`LaneState`].
    state: AtomicU32,
}

/// What programs write.
#[derive(Debug)]
#[repr(C, align(128))]
struct Program<F> {
    /// How far the program has come.
    done: AtomicU64,
    /// The lock: the word of a lease.
    lock: F,
    /// Not 0: the program wants to be told of a greater limit.
    wants: AtomicU32,
    /// What threads sleep on that wait for more: [`SLEEPS`], and how often they were woken.
    sleepers: F,
}

/// Somebody sleeps, or is about to.
const SLEEPS: u32 = 1;

#[derive(Debug)]
#[repr(C, align(128))]
struct Blocks([AtomicU32; LANE_BLOCKS]);

/// What there is between what is done and the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// How far the program has come.
    pub done: u64,
    /// Bytes it may go on.
    pub len: usize,
    /// What it may do.
    pub state: LaneState,
}

impl Bounds {
    /// Whether there is nothing for the program to do but to wait for more.
    #[inline]
    pub fn must_wait(&self) -> bool {
        self.len == 0 && self.state == LaneState::Open
    }
}

/// What became of a copy along a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Bytes copied.
    pub len: usize,
    /// Bytes that are left on the lane.
    pub left: usize,
    /// What the program may do.
    pub state: LaneState,
    /// It is time to leave a request.
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

    /// What the program may do now. What lies within these bounds, and is none of another
    /// connection's, is the program's until it says that it has done it.
    #[inline]
    pub(super) fn bounds(&self, owner: u64, shift: u32) -> Bounds {
        // A state that ends the lane comes after its last limit.
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

    /// The program has come as far as this: it has filled the bytes before, or will not
    /// read them again.
    #[inline]
    pub(super) fn advance(&self, position: u64) {
        self.program.done.store(position, Release);
    }

    /// Whether the program has come to where it is to leave a request.
    #[inline]
    pub(super) fn is_due(&self, position: u64) -> bool {
        let mark = self.stack.mark.load(Relaxed);
        position.wrapping_sub(mark) < 1 << 63
    }

    /// Asks to be told of a greater limit. To be called before a request is left.
    #[inline]
    pub(super) fn want(&self) {
        self.program.wants.store(1, Relaxed);
    }

    /// Whether the program wants to be told of a greater limit.
    #[inline]
    pub(super) fn take_wants(&self) -> bool {
        self.program.wants.load(Relaxed) != 0 && self.program.wants.swap(0, Relaxed) != 0
    }

    /// Sleeps until the program can go on, if somebody wakes those who do: `is_attended`. Ends
    /// early at that time on the monotonic clock, if a signal comes, and when others are woken.
    pub(super) fn sleep(
        &self,
        (owner, shift): (u64, u32),
        until_ns: Option<u64>,
        is_attended: impl FnOnce() -> bool,
    ) {
        let sleepers = &self.program.sleepers;
        let word = sleepers.word().fetch_or(SLEEPS, Relaxed) | SLEEPS;
        // Either this thread sees what was published, or who has published it sees this thread.
        fence(SeqCst);
        if self.bounds(owner, shift).must_wait() && is_attended() {
            let _ = sleepers.wait(word, until_ns);
        }
    }

    /// Tells those who sleep, after the lane was published, if they can go on. Whether there
    /// are any, who have to be woken then.
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

    /// Has all threads look again that are about to sleep. Whether any sleep, who have to be
    /// woken: until they are, the word says so, whatever becomes of who was to do it.
    #[cold]
    pub(super) fn tell(&self) -> bool {
        let told = self.program.sleepers.word().fetch_add(2, Relaxed);
        told & SLEEPS != 0
    }

    /// Wakes all who sleep. This needs no lease. Whoever begins to sleep meanwhile looks once more.
    #[cold]
    pub(super) fn wake(&self) {
        let sleepers = &self.program.sleepers;
        sleepers.word().fetch_and(!SLEEPS, Relaxed);
        sleepers.wake(ALL);
    }

    /// How far the program has come.
    #[inline]
    pub(super) fn done(&self) -> u64 {
        self.program.done.load(Acquire)
    }

    /// The lane is this owner's from now on, who has come as far as this. The lock is
    /// whatever it is.
    pub(super) fn begin(&self, owner: u64, position: u64) {
        self.program.done.store(position, Relaxed);
        self.program.wants.store(0, Relaxed);
        self.stack.limit.store(position, Relaxed);
        self.stack.mark.store(position, Relaxed);
        self.stack.owner.store(owner, Relaxed);
    }

    /// Puts a block where a position is.
    #[inline]
    pub(super) fn set_block(&self, position: u64, shift: u32, block: u32) {
        self.blocks.0[(position >> shift) as usize % LANE_BLOCKS].store(block, Relaxed);
    }

    /// The program may go as far as this, and leaves a request when it comes to the mark.
    #[inline]
    pub(super) fn publish(&self, limit: u64, mark: u64, state: LaneState) {
        self.stack.mark.store(mark, Relaxed);
        self.stack.limit.store(limit, Release);
        self.stack.state.store(state as u32, Release);
    }

    /// The lane is nobody's.
    pub(super) fn end(&self) {
        self.stack.state.store(LaneState::Closed as u32, Release);
        self.stack.owner.store(0, Release);
    }
}
