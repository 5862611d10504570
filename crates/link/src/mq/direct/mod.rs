//! Memory for direct connections: how two nodes of a fabric give it to one another.
//!
//! A direct connection carries its bytes through memory alone, without frames. What lies in that
//! memory is no affair of this module. Each node gives every peer its *directory* of listeners.
//! Either node opens *banks* to the other one, in which it makes connections.
//!
//! A bank has two *halves*. Each side writes one half, and the other side maps it for reading only.
//! Both write the *signals* to each side, which are hints.
//!
//! Nodes of one user also give each other *bells* for threads that wait for descriptors of the
//! kernel, too. A node of another user gets none: a bell can hang its ringer.
//!
//! All of it happens after the welcome, over the connection of the handshake. Both nodes must have
//! said in the handshake that they have direct connections. A peer that breaks a rule here loses
//! its direct connections. Frames are exchanged with it as before.

mod exchange;
mod message;

use toehold_shm::direct::{BellSet, Half, PeerDirectory, PeerHalf, Side, Signals};

use super::identity::Bound;
use super::name::NodeName;

pub(super) use self::exchange::Direct;
#[cfg(test)]
pub(super) use self::message::DirectMessage;

/// Most banks that one node opens to another one.
pub const MAX_BANKS: u8 = 16;

/// Most banks of a node with all of its peers together, both ways. One half of these is for peers
/// of the node's own user.
pub const MAX_BANKS_IN_ALL: usize = 1024;

/// Messages taken from a peer while it is connected: its directory, and two for each bank.
pub(super) const MAX_MESSAGES: u8 = 1 + 2 * MAX_BANKS;

/// The memory of a bank. What is the peer's was checked.
#[derive(Debug)]
pub struct BankMemory {
    /// This node's half.
    pub own_half: Half,
    /// The peer's half.
    pub peer_half: PeerHalf,
    /// The signals to this node.
    pub own_signals: Signals,
    /// The signals to the peer.
    pub peer_signals: Signals,
    /// The bells of both sides; `None` with a peer of another user, or if a side had no
    /// descriptors left.
    pub bells: Option<BankBells>,
}

/// The bells of a bank: a set for each side, which the other side rings.
#[derive(Debug)]
pub struct BankBells {
    /// On which the peer rings this node's waiters.
    pub own: BellSet,
    /// On which this node rings the peer's waiters.
    pub peer: BellSet,
}

/// A peer that has direct connections with this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectPeer {
    /// The peer's name.
    pub name: NodeName,
    /// The peer's hardware address.
    pub mac: [u8; 6],
    /// The IP addresses that the fabric gave it.
    pub bound: Bound,
    /// Whether it runs as the same user.
    pub same_user: bool,
}

/// A change of direct connections with a peer. Slot and generation name the peer, see
/// [`Joined`](super::Joined).
#[derive(Debug)]
pub enum DirectChange {
    /// The peer has given its directory.
    Met {
        /// The peer's slot.
        slot: u16,
        /// Which occupant of the slot it is.
        generation: u16,
        /// The peer.
        peer: Box<DirectPeer>,
        /// The peer's directory.
        directory: PeerDirectory,
    },
    /// A new bank exists with the peer.
    Bank {
        /// The peer's slot.
        slot: u16,
        /// Which occupant of the slot it is.
        generation: u16,
        /// Which side this node is.
        side: Side,
        /// The bank's number: banks of one side are counted from 0.
        number: u8,
        /// The bank's memory.
        memory: Box<BankMemory>,
    },
    /// The peer declined a bank that this node wanted to open.
    Declined {
        /// The peer's slot.
        slot: u16,
        /// Which occupant of the slot it is.
        generation: u16,
    },
    /// There are no direct connections with the peer any more. It has ended, or broken a rule.
    Parted {
        /// The peer's slot.
        slot: u16,
        /// Which occupant of the slot it was.
        generation: u16,
    },
}
