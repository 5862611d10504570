//! Settings that a node is given when it joins a fabric.

use std::path::PathBuf;

use rustix::io::Errno;
use toehold_shm::Arenas;
use toehold_shm::direct::Directory;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::directory::DirectoryError;
use super::identity::{Bound, Registry};
use super::name::{MemberName, NodeName};
use super::port::PortError;
use super::quotas::Quotas;
use super::record::{HEADER_LEN, MAX_LINK_HEADER, MAX_PACKET};
use crate::Capabilities;
use crate::steering::Steering;

/// Bytes in a ring's record beside the packet: the ring's own header of 8 bytes, the frame's, and
/// the link header.
const RECORD_OVERHEAD: usize = 8 + HEADER_LEN + MAX_LINK_HEADER;

/// Most bytes of a peer's payload memory, and of the memory file in which it lies: an arena.
pub(super) const MAX_PAYLOAD: u64 = toehold_shm::MAX_ARENA as u64;

/// Most peers a node can have.
pub(super) const MAX_PEERS: usize = 512;

/// The settings of a [`super::Port`] on which the processes of a node have to agree: plain data, to
/// be kept in the node's region.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    serde::Serialize,
    serde::Deserialize,
)]
#[repr(C)]
pub struct PortConfig {
    /// The node's hardware address.
    pub mac: [u8; 6],
    /// Largest IP packet of a plain frame, in bytes.
    pub mtu: u16,
    /// Bytes of the ring to each peer.
    pub ring_capacity: u32,
    /// Most peers at once, each of their shards.
    pub max_peers: u16,
    /// See [`Gateway`].
    pub gateway: u16,
    /// The IP addresses that the fabric gave the node.
    pub bound: Bound,
    /// No padding lies between this and what follows.
    pub reserved: u32,
}

impl PortConfig {
    /// The kinds of frames that such a port carries.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.mtu,
            super_frame: max_packet(self.ring_capacity as usize) as u32,
            checksum_offload: true,
            local: true,
            any_thread: true,
        }
    }
}

/// Longest IP packet whose record fits into a ring: half of it, less headers.
fn max_packet(ring_capacity: usize) -> usize {
    MAX_PACKET.min((ring_capacity / 2).saturating_sub(RECORD_OVERHEAD))
}

/// Whether a node leads to others that are no members. If so, it gets the frames for addresses that
/// no member has, and may send frames from such addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Gateway {
    /// The node speaks for itself alone.
    None = 0,
    /// To any others. What is beyond it does not reach what is beyond another gateway, so that
    /// no frame goes round.
    Uplink = 1,
    /// To those that a bridge (IEEE 802.1Q) connects, a port of which it is. They reach those of
    /// other bridges: that no frame goes round is up to the bridges, which have a spanning tree.
    BridgePort = 2,
}

impl Gateway {
    pub(super) fn from_code(code: u16) -> Gateway {
        match code {
            0 => Gateway::None,
            2 => Gateway::BridgePort,
            _ => Gateway::Uplink,
        }
    }
}

/// Settings of a [`super::Mesh`], or of its two halves.
#[derive(Debug, Clone)]
pub struct MeshSettings {
    /// The fabric: a directory, made for this user only if it does not exist.
    pub directory: PathBuf,
    /// The node's name, unique in the fabric.
    pub name: NodeName,
    /// The node's hardware address, unique in the fabric and no group address.
    pub mac: [u8; 6],
    /// Largest IP packet of a plain frame, in bytes: 68 to 65521.
    pub mtu: u16,
    /// Bytes of the ring to each peer: a power of two, 64 KiB to 16 MiB.
    pub ring_capacity: usize,
    /// Most peers at once: 1 to 512. One with several shards counts once for each.
    pub max_peers: usize,
    /// The arenas of the node's payload memory, if frames may be sent by reference to them.
    /// Each peer of the same user maps its own for reading.
    pub payload: Option<Arenas>,
    /// Which of the node's shards this is. All of them have the node's name and hardware
    /// address, each one rings and bell of its own.
    pub steering: Steering,
    /// Which life of the node this is, the same for all of its shards; random if not
    /// given. A node with several shards has to give it.
    pub incarnation: Option<u64>,
    /// Whether the node leads to others that are no members.
    pub gateway: Gateway,
    /// How many peers one user and one process can have of these.
    pub quotas: Quotas,
    /// The IP addresses that the fabric gave the node, which no peer may claim.
    pub bound: Bound,
    /// The registry that knows the addresses of its peers. Without it they have none, and each may
    /// claim any.
    pub registry: Option<Registry>,
    /// The directory of the node's listeners, if it has direct connections with peers that have
    /// them too.
    pub direct: Option<Directory>,
}

impl MeshSettings {
    /// Least bytes of a ring.
    pub const MIN_RING_CAPACITY: usize = 64 << 10;
    /// Most bytes of a ring.
    pub const MAX_RING_CAPACITY: usize = 16 << 20;
    /// Least MTU: what every IPv4 node must take (RFC 791 §3.2).
    pub const MIN_MTU: u16 = 68;
    /// Greatest MTU.
    pub const MAX_MTU: u16 = 65_521;
    /// Most peers a mesh can have.
    pub const MAX_PEERS: usize = MAX_PEERS;

    /// MTU 1500, rings of 1 MiB, up to 64 peers, no payload memory.
    pub fn new(directory: impl Into<PathBuf>, name: NodeName, mac: [u8; 6]) -> MeshSettings {
        MeshSettings {
            directory: directory.into(),
            name,
            mac,
            mtu: 1500,
            ring_capacity: 1 << 20,
            max_peers: 64,
            payload: None,
            steering: Steering::SOLE,
            incarnation: None,
            gateway: Gateway::None,
            quotas: Quotas::NONE,
            bound: Bound::default(),
            registry: None,
            direct: None,
        }
    }

    /// The name by which the other nodes know this one.
    pub(super) fn member(&self) -> MemberName {
        MemberName {
            node: self.name,
            shard: self.steering.index,
        }
    }

    pub(super) fn check(&self) -> Result<(), JoinError> {
        if self.mac[0] & 1 == 1 || self.mac == [0; 6] {
            return Err(JoinError::Address);
        }
        if !(Self::MIN_MTU..=Self::MAX_MTU).contains(&self.mtu) {
            return Err(JoinError::Mtu(self.mtu));
        }
        let bounds = Self::MIN_RING_CAPACITY..=Self::MAX_RING_CAPACITY;
        if !self.ring_capacity.is_power_of_two() || !bounds.contains(&self.ring_capacity) {
            return Err(JoinError::RingCapacity(self.ring_capacity));
        }
        if usize::from(self.mtu) > max_packet(self.ring_capacity) {
            return Err(JoinError::RingTooSmall {
                mtu: self.mtu,
                ring_capacity: self.ring_capacity,
            });
        }
        if !(1..=Self::MAX_PEERS).contains(&self.max_peers) {
            return Err(JoinError::MaxPeers(self.max_peers));
        }
        if !self.steering.is_valid() {
            return Err(JoinError::Shard(self.steering));
        }
        Ok(())
    }

    /// The configuration that the port of such a node has to have.
    pub fn port_config(&self) -> PortConfig {
        PortConfig {
            mac: self.mac,
            mtu: self.mtu,
            ring_capacity: self.ring_capacity as u32,
            max_peers: self.max_peers as u16,
            gateway: self.gateway as u16,
            bound: self.bound,
            reserved: 0,
        }
    }
}

/// Why a node could not join a fabric.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The hardware address is zero or a group address.
    #[error("the hardware address is zero or a group address; choose one like 02:00:00:00:00:01")]
    Address,
    /// The MTU is out of range.
    #[error("an MTU of {0} is not between 68 and 65521")]
    Mtu(u16),
    /// The ring's size is out of range.
    #[error("a ring cannot have {0} bytes; choose a power of two from 65536 to 16777216")]
    RingCapacity(usize),
    /// A frame of the MTU's length does not fit into the ring.
    #[error("a ring of {ring_capacity} bytes cannot carry packets of {mtu}; choose a larger one")]
    RingTooSmall {
        /// The MTU in bytes.
        mtu: u16,
        /// Bytes of the ring.
        ring_capacity: usize,
    },
    /// The number of peers is out of range.
    #[error("{0} is no number of peers; choose 1 to 512")]
    MaxPeers(usize),
    /// There is no such shard.
    #[error("{0:?} cannot be; a node has 1 to 16 shards, counted from 0")]
    Shard(Steering),
    /// The fabric's directory does not let the node in.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The node's doorbell cannot be made.
    #[error("cannot make the node's doorbell: {0} (is /proc mounted?)")]
    Bell(#[source] Errno),
    /// The memory for a port of this process's own cannot be made.
    #[error(transparent)]
    Memory(#[from] toehold_shm::RegionError),
    /// The port cannot be made.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The system refused a descriptor.
    #[error("cannot set up the node's event descriptors: {0} (see `ulimit -n`)")]
    Events(#[source] Errno),
    /// No random number for the incarnation.
    #[error("cannot get random numbers: {0}")]
    Random(#[source] Errno),
}
