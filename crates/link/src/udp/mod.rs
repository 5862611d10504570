//! Ethernet over UDP sockets, for nodes on different hosts (ETHOS).
//!
//! Every node sends straight to every other one. A datagram carries as many frames as
//! fit. Long frames of TCP, super-frames above all, are cut into segments that fit: each
//! is a frame of its own, so that a lost datagram costs one segment, and a receiver
//! needs no memory to wait for the rest; segments that arrive in a row are put together
//! again. Only what cannot be cut travels in fragments, which are reassembled within
//! bounds (`fragments.rs`).
//!
//! Peers are known by their addresses, hardware addresses behind them are learned. Each
//! side hands the other a random token, which every datagram to it has to carry: who does
//! not see the traffic cannot forge it. With a pre-shared key datagrams are authenticated
//! too, and none is taken twice (`association.rs`, `seal.rs`). They are not encrypted.
//!
//! Checksums stay undone between nodes: the datagram around them has one that covers the
//! same way, made by the kernel or its network card, and the key's if there is one.
//!
//! Never waits: what the socket does not take stays staged, within bounds.

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
