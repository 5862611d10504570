//! Counters of what a node and its peers have done and dropped, and why.

use std::net::IpAddr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::message::Refusal;
use super::name::NodeName;
use super::record::BadRecord;

/// Counters of a [`super::Membership`], since it joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MembershipStatistics {
    /// Handshakes that made a peer.
    pub connected: u64,
    /// Handshakes this node refused, for any reason.
    pub refused: u64,
    /// Handshakes this node refused because what came was no handshake.
    pub malformed: u64,
    /// Handshakes this node refused because nothing came in time.
    pub timed_out: u64,
    /// Handshakes this node refused because the user or the process had as many peers as it may have.
    pub over_quota: u64,
    /// Handshakes other nodes refused.
    pub refused_by_others: u64,
    /// Connections that closed during the handshake.
    pub abandoned: u64,
    /// Connections that could not be accepted for lack of descriptors.
    pub accept_errors: u64,
    /// Peers replaced by a new incarnation of the same node.
    pub replaced: u64,
    /// Peers that hung up.
    pub lost: u64,
    /// Peers cut off because of what they wrote into the ring, or did to their memory.
    pub corrupt: u64,
    /// Peers that frames are exchanged with, and no direct connections, because of what they sent.
    pub direct_refused: u64,
}

/// Counters of a [`super::Port`], since it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct PortStatistics {
    /// Frames not sent because no peer has the destination address.
    pub unreachable: u64,
    /// Frames not sent because they are too short or too long.
    pub bad_length: u64,
    /// Frames that a gateway did not send because a member has their source address.
    pub forged: u64,
    /// Frames for addresses that no member has, sent to a gateway.
    pub sent_beyond: u64,
    /// Frames not taken because they claim an address that the fabric gave to another member.
    pub claims_refused: u64,
}

/// Counters of one peer, since the present connection was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct PeerStatistics {
    /// Frames put into the ring.
    pub frames_sent: u64,
    /// Bytes of these frames.
    pub bytes_sent: u64,
    /// Sent frames whose payload was not copied.
    pub frames_sent_by_reference: u64,
    /// Times a frame found the ring full and was given back to the stack.
    pub full: u64,
    /// Group frames dropped because the ring was full.
    pub group_frames_dropped: u64,
    /// Times the sleeping peer was woken.
    pub rings: u64,
    /// Frames taken from the peer's ring.
    pub frames_received: u64,
    /// Bytes of these frames.
    pub bytes_received: u64,
    /// Frames that were refused because their hardware address is not the peer's. From a gateway,
    /// those with the address of a member, or of what is beyond another gateway.
    pub forged: u64,
}

/// A member that claims what is another one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict {
    /// The member through which the claim came.
    pub name: NodeName,
    /// The claimed address.
    pub address: IpAddr,
    /// The hardware address of the member that has it, and its name, if it is still there.
    pub owner: ([u8; 6], Option<NodeName>),
    /// How often it did so, counting all that were refused since.
    pub count: u64,
}

/// A mesh's knowledge of another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerInfo {
    /// The node's name.
    pub name: NodeName,
    /// Which of its shards.
    pub shard: u8,
    /// How things stand with it.
    pub state: PeerState,
}

/// How things stand with another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerState {
    /// Frames flow.
    Connected {
        /// The node's hardware address.
        mac: [u8; 6],
        /// Which life of the node this is.
        incarnation: u64,
        /// Whether it runs as the same user.
        same_user: bool,
        /// Counters of the frames that were exchanged.
        statistics: PeerStatistics,
    },
    /// A handshake is under way.
    Dialling,
    /// The peer is not connected, and will be dialled again or dial itself.
    Away {
        /// Why the last handshake failed, if it did.
        refusal: Option<Refusal>,
    },
}

/// Why the last peer was cut off, for diagnosis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// The peer hung up.
    #[error("{0} hung up")]
    HungUp(NodeName),
    /// This node had no memory to keep it.
    #[error("there was no memory for {0}")]
    Disconnected(NodeName),
    /// A new incarnation took the peer's place.
    #[error("{0} was restarted")]
    Replaced(NodeName),
    /// The indices or lengths of the peer's ring were wrong.
    #[error("{0} broke the rules of the ring: {1}")]
    Ring(NodeName, toehold_shm::ring::Corrupt),
    /// A record in the peer's ring was wrong.
    #[error("{0} wrote a bad record: {1}")]
    Record(NodeName, BadRecord),
    /// The peer changed the memory that it had handed over, after that was checked.
    #[error("{0} changed the memory that it had handed over")]
    Memory(NodeName),
}
