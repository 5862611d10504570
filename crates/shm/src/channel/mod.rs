//! Channels: bytes between a program and its node's stack that need no lease.
//!
//! A channel has two *lanes*, one a direction. On either of them the program goes along a
//! stream whose bytes lie in blocks of payload memory: it fills them or it reads them, in
//! the bounds that the holder of the lease has set, and says how far it has come. The two
//! sides of a lane are alike in both directions: the stack moves its `limit`, the program
//! what is `done`, and what is between the two is the program's.
//!
//! A lane has one program's thread at a time, for which there is a lock, a lease of its
//! own. It is held while bytes are copied, and never while anybody waits for anything; the
//! holder of the node's lease only ever tries to take it. A thread that dies with it has
//! filled bytes that nobody will see, or read some that another one reads again; the
//! engine takes its lock.
//!
//! What the holder of the lease has to know of, a program leaves as a [request](requests),
//! a bit a channel: there is no queue that could be full.
//!
//! Nothing here is taken for granted that another process may have written: positions
//! that cannot be, and blocks there are none of, end a copy, and that is all.

mod bytes;
#[cfg(not(loom))]
mod handle;
mod lane;
mod requests;

pub(crate) use bytes::SharedBytes;
#[cfg(not(loom))]
pub use handle::{Channels, Lane, LaneLock};
pub use lane::{Bounds, LANE_BLOCKS, Moved};
pub use requests::Left;

/// Which way the bytes of a lane go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Direction {
    /// From the program to the stack.
    Send = 0,
    /// From the stack to the program.
    Receive = 1,
}

/// What a program may do with a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum LaneState {
    /// Nothing: the lane is another connection's, or nobody's.
    Closed = 0,
    /// Use the bytes between what is done and the limit, and wait for more.
    Open = 1,
    /// Use these bytes, and then call with the lease: there will be no more.
    Ending = 2,
    /// Call with the lease: there is something about the bytes that a lane does not tell.
    Special = 3,
}

impl LaneState {
    fn from_word(word: u32) -> LaneState {
        match word {
            1 => LaneState::Open,
            2 => LaneState::Ending,
            3 => LaneState::Special,
            _ => LaneState::Closed,
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
