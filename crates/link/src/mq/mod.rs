//! Message queues between processes: virtual Ethernet over shared memory.
//!
//! A [`Mesh`] connects a node with every other node of a fabric, which is a
//! directory with a socket for each of them. Two nodes that have shaken hands
//! hold a *section* of shared memory each, which the other one maps for reading
//! only: in it lie the ring of the frames they send and what the other side has
//! to know about the ring they receive from. Frames go straight to the peer
//! that has the destination address; group frames are sent to each peer.
//!
//! Everything a peer writes, into memory or into the control connection, is
//! taken for hostile: checked, counted, and answered by cutting the link to that
//! peer alone. This module never waits for a peer, and never looks at IP.
//!
//! | file | what |
//! | --- | --- |
//! | `mesh` | the link: sending, receiving, sleeping |
//! | `membership` | who is a peer: dialling, answering, losing |
//! | `handshake` | what two nodes check before they exchange frames |
//! | `message` | layout of the handshake |
//! | `peer`, `record` | frames in and out of a pair of rings; their layout |
//! | `table`, `slots`, `position` | peers by slot and by address; sets of them; fences |
//! | `acquaintance`, `changes` | whom to dial again, and when; who came and went |
//! | `control`, `directory`, `events` | sockets, their files, epoll |

mod acquaintance;
mod changes;
mod control;
mod directory;
mod events;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod membership;
mod mesh;
mod message;
mod name;
mod peer;
mod position;
mod record;
mod settings;
mod slots;
mod statistics;
mod table;
#[cfg(test)]
mod tests;

pub use self::directory::DirectoryError;
pub use self::mesh::Mesh;
pub use self::message::Refusal;
pub use self::name::{InvalidName, NodeName};
pub use self::record::BadRecord;
pub use self::settings::{JoinError, MeshSettings};
pub use self::statistics::{Loss, MeshStatistics, PeerInfo, PeerState, PeerStatistics};
