//! Errors of a link over UDP.

use std::net::SocketAddr;

use rustix::io::Errno;

use super::peer::MIN_DATAGRAM;
use super::settings::{MAX_MTU, MAX_PEERS, MIN_MTU};

/// Reason for which a link over UDP could not be opened, with advice.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// The MTU is out of bounds.
    #[error("MTU {0} is not between {MIN_MTU} and {MAX_MTU}")]
    BadMtu(u16),
    /// The datagrams are too short.
    #[error("datagrams of {0} bytes are too short: {MIN_DATAGRAM} is the least")]
    BadDatagram(u16),
    /// The address is multicast or zero.
    #[error("{0:02x?} is not the hardware address of one node")]
    BadAddress([u8; 6]),
    /// No node can have this address and port.
    #[error("{0} is not the address and port of one node")]
    BadPeer(SocketAddr),
    /// There are more peers than a node can have.
    #[error("{0} peers are more than {MAX_PEERS}")]
    TooManyPeers(usize),
    /// The peer has IPv4 and the socket IPv6, or the other way round.
    #[error("{peer} cannot be reached from {bind}: listen on [::] for both IPv4 and IPv6")]
    OtherFamily {
        /// The unreachable peer.
        peer: SocketAddr,
        /// The address on which this node listens.
        bind: SocketAddr,
    },
    /// Another program has the port.
    #[error("{0} is in use: choose another port, or end the program that has it (`ss -ulpn` shows it)")]
    InUse(SocketAddr),
    /// No interface has the address.
    #[error("no interface of this host has the address {0} (`ip address` shows those that are)")]
    NotLocal(SocketAddr),
    /// The kernel refuses a step for another reason.
    #[error("cannot {action}: {error}")]
    System {
        /// The attempted step.
        action: &'static str,
        /// The kernel's error.
        error: Errno,
    },
}
