//! This stack's addresses, and the classification of other addresses.

use crate::config::Config;
use crate::tuple::Address;
use core::net::{Ipv4Addr, Ipv6Addr};
use toehold_wire::ndisc::solicited_node;

/// The stack's own addresses and routes. Fixed when the stack is made.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    /// Hardware address.
    pub(super) mac: [u8; 6],
    pub(super) ipv4: Option<Network4>,
    pub(super) ipv6: Option<Network6>,
}

/// An IPv4 address with its network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Network4 {
    pub(super) address: Ipv4Addr,
    mask: u32,
    /// The network's own broadcast address, where its size leaves room for one.
    broadcast: Option<Ipv4Addr>,
    gateway: Option<Ipv4Addr>,
}

/// The IPv6 addresses with their network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Network6 {
    pub(super) address: Ipv6Addr,
    pub(super) link_local: Ipv6Addr,
    mask: u128,
    gateway: Option<Ipv6Addr>,
}

/// Receivers of a packet, by its destination address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// This stack alone.
    Own,
    /// A group or network this stack belongs to.
    Group,
    /// Another host.
    Other,
}

/// The next hop of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextHop {
    /// Back into this stack.
    Loopback,
    /// To the neighbour with this address.
    Neighbor(Address),
    /// To all neighbours of a multicast group.
    Group,
    /// No next hop: the packet cannot be sent.
    None,
}

/// The all-nodes address of the link.
pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

impl Addresses {
    pub(super) fn new(config: &Config) -> Self {
        let ipv4 = config
            .ipv4
            .map(|(address, prefix)| Network4::new(address, prefix, config.ipv4_gateway));
        let ipv6 = config.ipv6.map(|(address, prefix)| Network6 {
            address,
            link_local: link_local(config.mac),
            mask: u128::MAX
                .checked_shl(128 - u32::from(prefix.min(128)))
                .unwrap_or(0),
            gateway: config.ipv6_gateway,
        });
        Self {
            mac: config.mac,
            ipv4,
            ipv6,
        }
    }

    /// Whether packets to `address` stay in this stack.
    pub(super) fn is_local(&self, address: &Address) -> bool {
        if address.is_ipv4() {
            let v4 = to_v4(address);
            v4.is_loopback() || self.is_own_v4(v4)
        } else {
            let v6 = to_v6(address);
            v6.is_loopback() || self.is_own_v6(v6)
        }
    }

    pub(super) fn is_own_v4(&self, address: Ipv4Addr) -> bool {
        self.ipv4.is_some_and(|network| network.address == address)
    }

    pub(super) fn is_own_v6(&self, address: Ipv6Addr) -> bool {
        self.ipv6
            .is_some_and(|network| network.address == address || network.link_local == address)
    }

    /// The receivers of an IPv4 packet from the link.
    pub(super) fn destination_v4(&self, address: Ipv4Addr) -> Destination {
        let Some(network) = self.ipv4 else {
            return Destination::Other;
        };
        //= RFC 1122 §3.2.1.3
        // The stack's own address, the limited and the directed broadcast, and
        // 224.0.0.1 (RFC 1112 §7.2); never a loopback address.
        if address == network.address {
            Destination::Own
        } else if address.is_broadcast()
            || Some(address) == network.broadcast
            || address == Ipv4Addr::new(224, 0, 0, 1)
        {
            Destination::Group
        } else {
            Destination::Other
        }
    }

    /// The receivers of an IPv6 packet from the link.
    pub(super) fn destination_v6(&self, address: Ipv6Addr) -> Destination {
        let Some(network) = self.ipv6 else {
            return Destination::Other;
        };
        //= RFC 4291 §2.8
        // The stack's own addresses, all nodes, and the own solicited nodes.
        if address == network.address || address == network.link_local {
            Destination::Own
        } else if address == ALL_NODES
            || address == Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 1)
            || address == solicited_node(network.address)
            || address == solicited_node(network.link_local)
        {
            Destination::Group
        } else {
            Destination::Other
        }
    }

    /// Whether an IPv4 packet from the link can come from `address`.
    pub(super) fn is_plausible_source_v4(&self, address: Ipv4Addr) -> bool {
        //= RFC 1122 §3.2.1.3
        // Not this network (0/8), not loopback (127/8), no group, no class E, no broadcast. The
        // stack's own address as a source is forged.
        let first = address.octets()[0];
        (1..224).contains(&first)
            && first != 127
            && self
                .ipv4
                .is_none_or(|own| own.address != address && own.broadcast != Some(address))
    }

    /// Whether an IPv6 packet from the link can come from `address`. Returns `false` for the
    /// unspecified address, which neighbour discovery allows.
    pub(super) fn is_plausible_source_v6(&self, address: Ipv6Addr) -> bool {
        //= RFC 4291 §2.7
        //= RFC 4291 §2.5.2
        //= RFC 4291 §2.5.3
        // No group, not `::`, not `::1`. An IPv4-mapped address would pass for
        // an IPv4 peer inside this stack.
        let bits = address.to_bits();
        bits >> 120 != 0xff && bits > 1 && bits >> 32 != 0xffff && !self.is_own_v6(address)
    }

    /// Whether a neighbour may claim the IPv4 address as its own.
    pub(super) fn is_possible_neighbor_v4(&self, address: Ipv4Addr) -> bool {
        self.is_plausible_source_v4(address)
            && self
                .ipv4
                .is_some_and(|own| own.is_on_link(address) || own.gateway == Some(address))
    }

    /// The next hop towards `remote`.
    //= RFC 1122 §3.3.1.1
    //= RFC 4861 §5.2
    pub(super) fn next_hop(&self, remote: &Address) -> NextHop {
        if self.is_local(remote) {
            return NextHop::Loopback;
        }
        if remote.is_ipv4() {
            self.next_hop_v4(to_v4(remote))
        } else {
            self.next_hop_v6(to_v6(remote))
        }
    }

    fn next_hop_v4(&self, remote: Ipv4Addr) -> NextHop {
        let Some(own) = self.ipv4 else {
            return NextHop::None;
        };
        if remote.is_multicast() || remote.is_broadcast() || own.broadcast == Some(remote) {
            return NextHop::Group;
        }
        if !self.is_plausible_source_v4(remote) {
            return NextHop::None;
        }
        if own.is_on_link(remote) {
            return NextHop::Neighbor(from_v4(remote));
        }
        own.gateway
            .map_or(NextHop::None, |gateway| NextHop::Neighbor(from_v4(gateway)))
    }

    fn next_hop_v6(&self, remote: Ipv6Addr) -> NextHop {
        let Some(own) = self.ipv6 else {
            return NextHop::None;
        };
        if remote.is_multicast() {
            return NextHop::Group;
        }
        if !self.is_plausible_source_v6(remote) {
            return NextHop::None;
        }
        if remote.is_unicast_link_local() || own.is_on_link(remote) {
            return NextHop::Neighbor(from_v6(remote));
        }
        own.gateway
            .map_or(NextHop::None, |gateway| NextHop::Neighbor(from_v6(gateway)))
    }

    /// Whether `remote` is reached without a router.
    pub(super) fn is_on_link(&self, remote: &Address) -> bool {
        self.next_hop(remote) == NextHop::Neighbor(*remote)
    }

    /// The address a packet to `remote` should come from.
    //= RFC 6724 §5
    pub(super) fn source_for(&self, remote: &Address) -> Option<Address> {
        if self.is_local(remote) {
            // Both ends in this stack: the rule "prefer the same address".
            return Some(match core::net::IpAddr::from(*remote) {
                core::net::IpAddr::V4(v4) if v4.is_loopback() => from_v4(Ipv4Addr::LOCALHOST),
                _ => *remote,
            });
        }
        if remote.is_ipv4() {
            return self.ipv4.map(|own| from_v4(own.address));
        }
        let own = self.ipv6?;
        let v6 = to_v6(remote);
        // The rule "prefer the appropriate scope".
        let on_this_link = v6.is_unicast_link_local() || v6.segments()[0] & 0xff0f == 0xff02;
        Some(from_v6(if on_this_link { own.link_local } else { own.address }))
    }
}

impl Network4 {
    fn new(address: Ipv4Addr, prefix: u8, gateway: Option<Ipv4Addr>) -> Self {
        let prefix = u32::from(prefix.min(32));
        let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
        //= RFC 3021 §2.1
        // Two addresses or one leave none for broadcasts.
        let broadcast = (prefix < 31).then(|| Ipv4Addr::from(u32::from(address) | !mask));
        Self {
            address,
            mask,
            broadcast,
            gateway,
        }
    }

    fn is_on_link(&self, remote: Ipv4Addr) -> bool {
        (u32::from(remote) ^ u32::from(self.address)) & self.mask == 0
    }
}

impl Network6 {
    fn is_on_link(&self, remote: Ipv6Addr) -> bool {
        (u128::from(remote) ^ u128::from(self.address)) & self.mask == 0
    }
}

/// The link-local address that follows from a hardware address.
//= RFC 4291 §2.5.6
pub(super) fn link_local(mac: [u8; 6]) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// The IPv4 address in its mapped form.
#[inline]
pub(super) fn from_v4(address: Ipv4Addr) -> Address {
    let [a, b, c, d] = address.octets();
    Address([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
}

#[inline]
pub(super) fn from_v6(address: Ipv6Addr) -> Address {
    Address(address.octets())
}

/// The IPv4 address of an address that is one.
#[inline]
pub(super) fn to_v4(address: &Address) -> Ipv4Addr {
    let [.., a, b, c, d] = address.0;
    Ipv4Addr::new(a, b, c, d)
}

#[inline]
pub(super) fn to_v6(address: &Address) -> Ipv6Addr {
    Ipv6Addr::from(address.0)
}
