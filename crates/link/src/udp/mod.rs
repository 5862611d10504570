//! Ethernet over UDP sockets, for nodes on different hosts (ETHOS).
//!
//! Every node sends directly to every other one. A datagram carries as many frames
//! as fit. Long TCP frames, above all super-frames, are cut into segments that fit.
//! A lost datagram then costs one segment, and a receiver needs no memory for
//! reassembly. Consecutive segments are merged again. Other long frames travel in
//! fragments, which are reassembled within bounds (`fragments.rs`).
//!
//! Peers are configured by address, and hardware addresses behind them are learnt.
//! Each side hands the other a random token, which every datagram to it must carry.
//! An attacker that does not see the traffic cannot forge it. A pre-shared key also
//! authenticates datagrams, and none is accepted twice (`association.rs`,
//! `seal.rs`). Datagrams are not encrypted.
//!
//! Checksums stay partial between nodes. The kernel or its network card adds a
//! checksum to the datagram around a frame, over the same path. With a key the
//! datagram also has a tag.
//!
//! The link never blocks: unsent datagrams stay staged, within bounds.

mod association;
mod error;
mod fragments;
mod header;
mod inbox;
mod link;
mod merge;
mod outbox;
mod peer;
mod peer_list;
mod seal;
mod settings;
mod socket;
mod statistics;
#[cfg(test)]
mod tests;

pub use error::UdpError;
pub use link::UdpLink;
pub use peer_list::{PeerListError, parse_peers};
pub use settings::{MAX_MTU, MAX_PEERS, MIN_MTU, UdpSettings};
pub use statistics::{UdpPeerInfo, UdpPeerState, UdpPeerStatistics, UdpStatistics};
