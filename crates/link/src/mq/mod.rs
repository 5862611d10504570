//! Message queues between processes: virtual Ethernet over shared memory.
//!
//! A node is connected with every other node of a fabric, which is a directory with a socket for
//! each of them. Two nodes that have shaken hands hold a *section* of shared memory each, which the
//! other one maps for reading only. In the section lies the ring of the frames that its owner
//! sends. Beside it lies what the other side has to know about the ring that the owner receives
//! from. Frames go straight to the peer that has the destination address; group frames are sent to
//! each peer.
//!
//! A node may be several processes. A single one holds its [`Membership`], which knows the peers.
//! All of them have handles of its [`Port`], which frames go through. The port's state lies in the
//! node's region, and each process maps the sections for itself. The node's [`Bell`] wakes the
//! processes that sleep. A [`Mesh`] is all of it in one process.
//!
//! Everything a peer writes, into memory or into the control connection, is taken for hostile. It
//! is checked, counted, and answered by cutting the link to that peer alone. This module never
//! waits for a peer. Of IP it knows which addresses the fabric gave its members, and lets no frame
//! claim another member's (`identity`).
//!
//! | file | what |
//! | --- | --- |
//! | `port`, `traffic` | the data path: which peers are there; sending |
//! | `rounds`, `sleep` | receiving, sleeping |
//! | `activity` | which of many peers are looked at |
//! | `state`, `mapping` | what a port remembers, in the region; what each process maps |
//! | `mend` | a port whose driver was killed |
//! | `peer`, `record` | frames in and out of a pair of rings; their layout |
//! | `gateway` | frames to and from nodes that are no members |
//! | `slots`, `addresses` | sets of peers; which peer has an address |
//! | `identity` | whose IP addresses are whose, and what no frame may claim |
//! | `position` | fences |
//! | `membership`, `members` | which nodes are peers, and how one is lost |
//! | `calls`, `handshake`, `message` | dialling and answering; what is checked; its layout |
//! | `quotas` | how many peers a user and a process can have |
//! | `direct` | memory for connections that need no frames |
//! | `change` | what a membership tells a port |
//! | `acquaintance` | which nodes to dial again, and when |
//! | `bell` | what wakes a sleeping node |
//! | `control`, `directory`, `events` | sockets, their files, epoll |
//! | `access` | which users can connect to them |
//! | `mesh` | membership and port in one process |

mod access;
mod acquaintance;
mod activity;
mod addresses;
mod ahead;
mod bell;
mod calls;
mod change;
mod control;
mod direct;
mod directory;
mod events;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod handshake;
mod identity;
mod mapping;
mod members;
mod membership;
mod mend;
mod mesh;
mod message;
mod name;
mod peer;
mod port;
mod position;
mod quotas;
mod record;
mod rounds;
mod settings;
mod sleep;
mod slots;
mod state;
mod statistics;
#[cfg(test)]
mod tests;
mod traffic;

pub use self::access::{Reach, SocketAccess};
pub use self::bell::Bell;
pub use self::change::{Change, Departed, Joined, PeerDescriptors};
pub use self::direct::{BankBells, BankMemory, DirectChange, DirectPeer, MAX_BANKS, MAX_BANKS_IN_ALL};
pub use self::directory::{DirectoryError, socket_names};
pub use self::identity::{Bound, Registry};
pub use self::mapping::{MapError, Mapping};
pub use self::membership::Membership;
pub use self::mesh::Mesh;
pub use self::message::Refusal;
pub use self::name::{InvalidName, NodeName};
pub use self::port::{Port, PortError};
pub use self::quotas::Quotas;
pub use self::record::BadRecord;
pub use self::settings::{Gateway, JoinError, MeshSettings, PortConfig};
pub use self::statistics::{
    Conflict, Loss, MembershipStatistics, PeerInfo, PeerState, PeerStatistics, PortStatistics,
};
