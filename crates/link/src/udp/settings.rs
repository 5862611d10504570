//! Settings of a link over UDP.

use std::net::{IpAddr, SocketAddr};

use super::UdpError;

/// Most peers of a node.
pub const MAX_PEERS: usize = 1024;
/// Least MTU in bytes, which every IPv6 link has. The largest one leaves room for
/// the link's headers in 16 bits of length.
pub const MIN_MTU: u16 = 1280;
/// Largest MTU in bytes: leaves room for the link's headers in 16 bits of length.
pub const MAX_MTU: u16 = 65_000;

/// Settings of a link over UDP.
#[derive(Debug, Clone)]
pub struct UdpSettings {
    /// The address to listen on. An unspecified IPv6 address serves IPv4 too.
    pub bind: SocketAddr,
    /// The other nodes of the fabric. This node may be among them.
    pub peers: Vec<SocketAddr>,
    /// The hardware address of this end.
    pub address: [u8; 6],
    /// Number of the fabric. Nodes of other fabrics are ignored.
    pub fabric: u32,
    /// A secret of the fabric's nodes. With it, datagrams are authenticated, and
    /// others are dropped.
    pub key: Option<[u8; 32]>,
    /// Largest IP packet in bytes, equal on all nodes: [`MIN_MTU`] to [`MAX_MTU`].
    /// It may exceed the path's MTU, see [the module](super).
    pub mtu: u16,
    /// Most bytes of a datagram, if the path permits. For paths that silently lose
    /// longer ones.
    pub datagram: u16,
    /// Whether the kernel may cut and join datagrams (UDP_SEGMENT, UDP_GRO).
    pub offload: bool,
}

impl UdpSettings {
    /// Returns settings with MTU 1500 and without a key.
    pub fn new(bind: SocketAddr, peers: Vec<SocketAddr>, address: [u8; 6]) -> UdpSettings {
        UdpSettings {
            bind,
            peers,
            address,
            fabric: 0,
            key: None,
            mtu: 1500,
            datagram: 65_000,
            offload: true,
        }
    }

    /// Checks that a link can have these settings.
    ///
    /// # Errors
    ///
    /// The impossible setting.
    pub fn check(&self) -> Result<(), UdpError> {
        if !(MIN_MTU..=MAX_MTU).contains(&self.mtu) {
            return Err(UdpError::BadMtu(self.mtu));
        }
        if self.datagram < super::peer::MIN_DATAGRAM as u16 {
            return Err(UdpError::BadDatagram(self.datagram));
        }
        if self.address[0] & 1 == 1 || self.address == [0; 6] {
            return Err(UdpError::BadAddress(self.address));
        }
        if self.peers.len() > MAX_PEERS {
            return Err(UdpError::TooManyPeers(self.peers.len()));
        }
        self.peers
            .iter()
            .try_for_each(|&peer| check_peer(self.bind, peer))
    }
}

/// Checks that a peer can have this address.
pub(super) fn check_peer(bind: SocketAddr, peer: SocketAddr) -> Result<(), UdpError> {
    let address = canonical(peer).ip();
    if peer.port() == 0 || address.is_unspecified() || address.is_multicast() {
        return Err(UdpError::BadPeer(peer));
    }
    match can_reach(bind.ip(), address) {
        true => Ok(()),
        false => Err(UdpError::OtherFamily { peer, bind }),
    }
}

/// Returns whether a socket can reach an address. One bound to all of IPv6 also
/// serves IPv4.
fn can_reach(bind: IpAddr, peer: IpAddr) -> bool {
    bind.to_canonical().is_ipv4() == peer.is_ipv4() || bind == IpAddr::from([0u16; 8])
}

/// Returns an IPv4 address in IPv4 form, whichever socket it came through.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
