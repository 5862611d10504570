//! The names of connections: addresses and four-tuples.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use toehold_link::steering::Flow;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An IP address of either family; IPv4 in its IPv6-mapped form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct Address(pub [u8; 16]);

impl Address {
    /// No address: `::`, which also stands for 0.0.0.0.
    pub const UNSPECIFIED: Self = Self([0; 16]);

    /// Whether the address belongs to IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.0[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
    }

    /// Whether this is the unspecified address of either family.
    pub fn is_unspecified(&self) -> bool {
        IpAddr::from(*self).is_unspecified()
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        let v6 = Ipv6Addr::from(address.0);
        v6.to_ipv4_mapped().map_or(Self::V6(v6), Self::V4)
    }
}

impl core::fmt::Debug for Address {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        IpAddr::from(*self).fmt(f)
    }
}

/// The four-tuple of a connection, seen from this stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FourTuple {
    /// This stack's address.
    pub local: Address,
    /// The peer's address.
    pub remote: Address,
    /// This stack's port, in host order.
    pub local_port: u16,
    /// The peer's port, in host order.
    pub remote_port: u16,
}

impl FourTuple {
    /// The tuple between two socket addresses.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local: local.ip().into(),
            remote: remote.ip().into(),
            local_port: local.port(),
            remote_port: remote.port(),
        }
    }

    /// The local address and port.
    pub fn local_addr(&self) -> SocketAddr {
        SocketAddr::new(self.local.into(), self.local_port)
    }

    /// The connection's flow, from which a link computes its shard.
    #[inline]
    pub fn flow(&self) -> Flow {
        Flow::between((self.local.0, self.local_port), (self.remote.0, self.remote_port))
    }

    /// The peer's address and port.
    pub fn remote_addr(&self) -> SocketAddr {
        SocketAddr::new(self.remote.into(), self.remote_port)
    }
}

impl core::fmt::Debug for FourTuple {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} <-> {}", self.local_addr(), self.remote_addr())
    }
}
