//! A slot for a peer: what a port remembers of it.

use toehold_shm::ArenaId;
use toehold_shm::ring::{ConsumerState, Corrupt, ProducerState};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::mq::change::Joined;
use crate::mq::identity::Bound;
use crate::mq::name::{MAX_NAME, NodeName};
use crate::mq::record::BadRecord;
use crate::mq::settings::Gateway;
use crate::mq::statistics::{Loss, PeerInfo, PeerState, PeerStatistics};
use crate::steering::Steering;

/// A slot for a peer.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub(in crate::mq) struct PeerRecord {
    pub(in crate::mq) outgoing: ProducerState,
    pub(in crate::mq) incoming: ConsumerState,
    pub(in crate::mq) statistics: PeerStatistics,
    /// Bytes of the record that last found no room, or 0.
    pub(in crate::mq) wanted: u64,
    /// Bytes of frames that the peer was not shown yet.
    pub(in crate::mq) unpublished: u64,
    /// Which occupant of the slot it is, or was last; 0 for none.
    pub(in crate::mq) generation: u32,
    /// [`LIVE`] and others.
    pub(super) flags: u32,
    /// The peer's offence, if it is condemned: [`Offence::code`].
    pub(super) offence: u64,
    pub(in crate::mq) incarnation: u64,
    pub(in crate::mq) payload_offset: u64,
    pub(in crate::mq) payload_len: u64,
    /// Bytes of the ring that the peer sends through.
    pub(in crate::mq) ring_capacity: u64,
    /// If the peer is gone: the position up to which its frames are taken.
    last: u64,
    pub(super) mac: [u8; 6],
    /// Which shard of its node it is.
    pub(super) shard: u8,
    pub(super) name_len: u8,
    pub(super) name: [u8; MAX_NAME],
    /// How many shards its node has.
    shards: u8,
    steering_key: [u8; 16],
    /// The IP addresses that the fabric gave it.
    pub(super) bound: Bound,
    /// An IPv4 address of no member, from which a packet of the peer was taken.
    pub(in crate::mq) vouched: [u8; 4],
    /// Where payload lies that the peer reads in place.
    pub(in crate::mq) arena: ArenaId,
    unused: [u8; 60],
}

const _: () = {
    assert!(size_of::<PeerRecord>() == 448);
    assert!(MAX_NAME == 63);
};

/// Frames are exchanged with the peer.
pub(super) const LIVE: u32 = 1;
const SAME_USER: u32 = 2;
/// The peer was given an arena of this node's payload memory.
const SHARES_PAYLOAD: u32 = 4;
/// The peer gave its payload memory.
const GIVES_PAYLOAD: u32 = 8;
/// The peer hung up: what it had sent before is still to be taken.
const GONE: u32 = 16;
/// The peer's node has several shards.
const SHARDED: u32 = 32;
/// The peer is the port of a bridge.
const BRIDGE_PORT: u32 = 64;
/// The peer leads to others.
const GATEWAY: u32 = 128;
/// No more frames are exchanged with the peer, and the membership was not told yet.
pub(super) const DEPARTED: u32 = 256;

/// A rule that a peer broke, by the part in which it broke it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mq) enum Offence {
    Ring(Corrupt),
    Record(BadRecord),
    /// The memory that it had handed over.
    Memory,
}

impl Offence {
    const RECORD: u64 = 1 << 8;
    const MEMORY: u64 = 1 << 9;

    pub(super) fn code(self) -> u64 {
        match self {
            Offence::Ring(corrupt) => corrupt.code(),
            Offence::Record(bad) => Self::RECORD | bad.code(),
            Offence::Memory => Self::MEMORY,
        }
    }

    fn loss(code: u64, name: NodeName) -> Option<Loss> {
        if code == Self::MEMORY {
            Some(Loss::Memory(name))
        } else if code & Self::RECORD != 0 {
            Some(Loss::Record(name, BadRecord::from_code(code & !Self::RECORD)))
        } else {
            Corrupt::from_code(code).map(|corrupt| Loss::Ring(name, corrupt))
        }
    }
}

impl PeerRecord {
    pub(super) fn new(joined: &Joined) -> PeerRecord {
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        let bytes = joined.name.as_str().as_bytes();
        let mut name = [0; MAX_NAME];
        name[..bytes.len()].copy_from_slice(bytes);
        let (payload_offset, payload_len) = joined.payload.unwrap_or_default();
        PeerRecord {
            outgoing: ProducerState::default(),
            incoming: ConsumerState::default(),
            statistics: PeerStatistics::default(),
            wanted: 0,
            unpublished: 0,
            generation: joined.generation.into(),
            flags: LIVE
                | flag(joined.same_user, SAME_USER)
                | flag(joined.shares_payload, SHARES_PAYLOAD)
                | flag(joined.payload.is_some(), GIVES_PAYLOAD)
                | flag(joined.steering.count > 1, SHARDED)
                | flag(joined.gateway != Gateway::None, GATEWAY)
                | flag(joined.gateway == Gateway::BridgePort, BRIDGE_PORT),
            offence: 0,
            incarnation: joined.incarnation,
            payload_offset,
            payload_len,
            ring_capacity: joined.ring_capacity,
            last: 0,
            mac: joined.mac,
            shard: joined.steering.index,
            name_len: bytes.len() as u8,
            name,
            shards: joined.steering.count,
            steering_key: joined.steering.key,
            bound: joined.bound,
            vouched: [0; 4],
            arena: ArenaId::PRIVATE,
            unused: [0; 60],
        }
    }

    #[inline]
    pub(in crate::mq) fn is_live(&self) -> bool {
        self.flags & LIVE != 0
    }

    /// Whether the membership is still to be told that the peer is done with.
    pub(super) fn is_departed(&self) -> bool {
        self.flags & DEPARTED != 0
    }

    /// Whether the peer leads to others.
    pub(super) fn is_gateway(&self) -> bool {
        self.flags & GATEWAY != 0
    }

    #[inline]
    pub(in crate::mq) fn shares_payload(&self) -> bool {
        self.flags & SHARES_PAYLOAD != 0
    }

    pub(in crate::mq) fn gives_payload(&self) -> bool {
        self.flags & GIVES_PAYLOAD != 0
    }

    #[inline]
    pub(in crate::mq) fn is_gone(&self) -> bool {
        self.flags & GONE != 0
    }

    /// Whether frames for the peer's node have to be steered.
    #[inline]
    pub(in crate::mq) fn is_sharded(&self) -> bool {
        self.flags & SHARDED != 0
    }

    /// Whether the peer leads to what a bridge connects.
    pub(in crate::mq) fn is_bridge_port(&self) -> bool {
        self.flags & BRIDGE_PORT != 0
    }

    /// The peer's hardware address.
    #[inline]
    pub(in crate::mq) fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The IP addresses that the fabric gave the peer.
    #[inline]
    pub(in crate::mq) fn bound(&self) -> Bound {
        self.bound
    }

    /// How connections are spread over the shards of the peer's node.
    pub(in crate::mq) fn steering(&self) -> Steering {
        Steering {
            index: self.shard,
            count: self.shards.max(1),
            key: self.steering_key,
        }
    }

    /// Notes that the peer hung up. What it sent before, such as the ends of its streams, is still
    /// received. The peer did not wait for that. No more than its ring holds is received, in case a
    /// process goes on writing there.
    pub(in crate::mq) fn hang_up(&mut self) {
        if !self.is_gone() {
            self.flags |= GONE;
            self.last = self.incoming.position().wrapping_add(self.ring_capacity);
        }
    }

    /// Whether a peer that is gone has no more frames to be taken.
    pub(in crate::mq) fn is_at_last(&self) -> bool {
        self.last.wrapping_sub(self.incoming.position()) as i64 <= 0
    }

    /// `None` if it was scribbled on.
    pub(super) fn name(&self) -> Option<NodeName> {
        NodeName::from_bytes(self.name.get(..usize::from(self.name_len))?).ok()
    }

    pub(super) fn info(&self) -> Option<PeerInfo> {
        Some(PeerInfo {
            name: self.name()?,
            shard: self.shard,
            state: PeerState::Connected {
                mac: self.mac,
                incarnation: self.incarnation,
                same_user: self.flags & SAME_USER != 0,
                statistics: self.statistics,
            },
        })
    }

    /// The peer's offence, if it is condemned.
    pub(in crate::mq) fn loss(&self) -> Option<Loss> {
        Offence::loss(self.offence, self.name()?)
    }
}
