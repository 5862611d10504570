//! Channels: bytes between a program and its node's stack that need no lease.
//!
//! A channel has two *lanes*, one for each direction. A lane is a stream whose bytes lie in blocks
//! of payload memory. The program fills or reads them within the bounds that the holder of the
//! lease has set, and publishes its position. The lanes of both directions work alike: the stack
//! moves the `limit`, the program moves `done`. The bytes between the two belong to the program.
//!
//! One thread of a program uses a lane at a time. It holds a lock, which is a lease of its own. A
//! thread holds the lock while it copies bytes, and never while it waits. The holder of the node's
//! lease only tries the lock. A thread that dies with the lock has filled bytes that stay
//! invisible, or read bytes that another thread reads again. The engine takes its lock.
//!
//! A program leaves a [request](requests) to tell the holder of the lease about a lane. Requests
//! are one bit per channel, so there is no queue that could be full.
//!
//! This module trusts nothing that another process may have written. Impossible positions and
//! missing blocks end a copy, and have no other effect.

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

/// The direction of a lane's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Direction {
    /// From the program to the stack.
    Send = 0,
    /// From the stack to the program.
    Receive = 1,
}

/// The permitted operations of a program on a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum LaneState {
    /// None: the lane belongs to another connection, or to none.
    Closed = 0,
    /// Use the bytes between what is done and the limit, and wait for more.
    Open = 1,
    /// Use these bytes, and then call with the lease: there will be no more.
    Ending = 2,
    /// Call with the lease: the lane cannot describe some property of the bytes.
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
