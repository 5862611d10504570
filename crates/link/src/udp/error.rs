//! Why there is no link over UDP.

use std::net::SocketAddr;

use rustix::io::Errno;

use super::peer::MIN_DATAGRAM;
use super::settings::{MAX_MTU, MAX_PEERS, MIN_MTU};

/// Why a link over UDP could not be made, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// An MTU outside of the bounds.
    #[error("MTU {0} is not between {MIN_MTU} and {MAX_MTU}")]
    BadMtu(u16),
    /// Datagrams too short to be of use.
    #[error("datagrams of {0} bytes are too short: {MIN_DATAGRAM} is the least")]
    BadDatagram(u16),
    /// A group address, or none at all.
    #[error("{0:02x?} is not the hardware address of one node")]
    BadAddress([u8; 6]),
    /// Where no node can be.
    #[error("{0} is not the address and port of one node")]
    BadPeer(SocketAddr),
    /// More than a node can have.
    #[error("{0} peers are more than {MAX_PEERS}")]
    TooManyPeers(usize),
    /// IPv4 from a socket of IPv6, or the other way.
    #[error("{peer} cannot be reached from {bind}: listen on [::] for both IPv4 and IPv6")]
    OtherFamily {
        /// Who cannot be reached.
        peer: SocketAddr,
        /// Where this node listens.
        bind: SocketAddr,
    },
    /// Somebody else has the port.
    #[error("{0} is in use: choose another port, or end the program that has it (`ss -ulpn` shows it)")]
    InUse(SocketAddr),
    /// No interface has the address.
    #[error("no interface of this host has the address {0} (`ip address` shows those that are)")]
    NotLocal(SocketAddr),
    /// The kernel refuses a step for another reason.
    #[error("cannot {action}: {error}")]
    System {
        /// What was to be done.
        action: &'static str,
        /// What the kernel says.
        error: Errno,
    },
}
