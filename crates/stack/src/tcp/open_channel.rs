//! What the holder of the lease knows about an open channel.

use toehold_shm::Channels;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::config::Config;

/// Knowledge about a channel that only the holder of the lease has.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Channel {
    /// The lane's position of the send queue's end.
    pub(super) sent: u64,
    /// How far the program may write.
    pub(super) send_limit: u64,
    /// The lane's position of the receive queue's head.
    pub(super) read: u64,
    /// How far the program may read.
    pub(super) receive_limit: u64,
    pub(super) connection: u32,
    /// Bytes to claim ahead: more than the program writes between two absorptions.
    pub(super) ahead: u32,
    /// Not 0: the program has asked for room, and waits for it.
    pub(super) hungry: u32,
    /// Bytes of the queue that is in use when `Tcp::enter_lane` was called.
    pub(super) entered_with: u32,
}

/// Channels of a stack.
pub(super) fn capacity(config: &Config) -> u32 {
    config.connections.min(Channels::MOST)
}
