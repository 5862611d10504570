//! Network interfaces of the kernel, as far as a node needs them: addresses,
//! routes, MTU, up and down, in any network namespace.
//!
//! The module handles no frames. Its changes stay with the kernel: dropping an
//! [`Interface`] changes nothing.

mod named;
mod namespace;
mod netlink;

pub use named::{InvalidNamespaceName, NamespaceId, NamespaceName};
pub use namespace::{Namespace, NamespaceError, enter_new};

use std::net::IpAddr;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage as Request;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rustix::io::Errno;

use self::netlink::{Channel, Reply, Unless};

/// Longest name of an interface, in bytes.
pub const MAX_NAME: usize = 15;

/// Reason for which an interface could not be found or changed.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// The namespace cannot be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The name is impossible for an interface.
    #[error("{0:?} is no name for an interface: it takes 1 to 15 letters, digits, '-', '_' or '.'")]
    BadName(String),
    /// There is no such interface, or it is gone.
    #[error("there is no interface {0} in this network namespace (`ip link` lists those that are)")]
    Missing(String),
    /// The process lacks the right to configure the namespace.
    #[error(
        "no permission to {action} of {interface}: this takes CAP_NET_ADMIN in its network namespace; run as \
         root, or in a namespace of its own (`unshare --map-root-user --net`)"
    )]
    NotPermitted {
        /// The attempted change.
        action: &'static str,
        /// Name of the interface.
        interface: String,
    },
    /// The kernel refuses the change.
    #[error("the kernel does not {action} of {interface}: {error}")]
    Refused {
        /// The attempted change.
        action: &'static str,
        /// Name of the interface.
        interface: String,
        /// The kernel's error.
        error: Errno,
    },
}

/// Current state of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceState {
    /// Hardware address; zero for interfaces without one.
    pub address: [u8; 6],
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Whether the interface is administratively up.
    pub up: bool,
    /// Whether the interface has a carrier.
    pub carrier: bool,
    /// Whether the interface carries Ethernet frames.
    pub ethernet: bool,
    /// Whether the kernel created the interface, as it does for a veth pair, and
    /// knows of no hardware behind it.
    pub software: bool,
}

/// A handle of one interface in one network namespace.
#[derive(Debug)]
pub struct Interface {
    name: String,
    index: u32,
    channel: Channel,
}

impl Interface {
    /// Opens the interface with this name.
    ///
    /// # Errors
    ///
    /// If there is none, or the namespace cannot be entered.
    pub fn open(namespace: &Namespace, name: &str) -> Result<Interface, InterfaceError> {
        check_name(name)?;
        let mut channel = namespace
            .run(Channel::open)?
            .map_err(|error| refused("open the configuration", name, error))?;
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let found = ask(&mut channel, name, "ask for the state", Request::GetLink(message))?;
        Ok(Interface {
            name: name.to_owned(),
            index: found.header.index,
            channel,
        })
    }

    /// The name when the interface was opened or last asked for its
    /// [state](Interface::state).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interface's number in its namespace.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Reads the current state and the current [name](Interface::name).
    ///
    /// # Errors
    ///
    /// If the interface is gone.
    pub fn state(&mut self) -> Result<InterfaceState, InterfaceError> {
        let request = Request::GetLink(self.link());
        let found = ask(&mut self.channel, &self.name, "ask for the state", request)?;
        let mut state = InterfaceState {
            address: [0; 6],
            mtu: 0,
            up: found.header.flags.contains(LinkFlags::Up),
            carrier: found.header.flags.contains(LinkFlags::LowerUp),
            ethernet: found.header.link_layer_type == LinkLayerType::Ether,
            software: false,
        };
        for attribute in found.attributes {
            match attribute {
                LinkAttribute::IfName(name) => self.name = name,
                LinkAttribute::Address(bytes) => {
                    state.address = bytes.first_chunk().copied().unwrap_or_default();
                }
                LinkAttribute::Mtu(mtu) => state.mtu = mtu,
                LinkAttribute::LinkInfo(infos) => {
                    state.software = infos.iter().any(|info| matches!(info, LinkInfo::Kind(_)));
                }
                _ => {}
            }
        }
        Ok(state)
    }

    /// Sets the largest IP packet, in bytes.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, commonly because of the device's own bounds.
    pub fn set_mtu(&mut self, mtu: u32) -> Result<(), InterfaceError> {
        let mut message = self.link();
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.change("set the MTU", Request::SetLink(message), Unless::Never)
    }

    /// Sets the hardware address.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, for example a multicast address.
    pub fn set_address(&mut self, address: [u8; 6]) -> Result<(), InterfaceError> {
        let mut message = self.link();
        message.attributes.push(LinkAttribute::Address(address.to_vec()));
        self.change(
            "set the hardware address",
            Request::SetLink(message),
            Unless::Never,
        )
    }

    /// Sets the number of frames that the interface queues. Further frames are
    /// lost. A TAP device has 1000, and a sender's burst may be larger.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn set_queue(&mut self, frames: u32) -> Result<(), InterfaceError> {
        let mut message = self.link();
        message.attributes.push(LinkAttribute::TxQueueLen(frames));
        self.change("set the queue", Request::SetLink(message), Unless::Never)
    }

    /// Sets the interface up or down.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn set_up(&mut self, up: bool) -> Result<(), InterfaceError> {
        let mut message = self.link();
        message.header.change_mask = LinkFlags::Up;
        if up {
            message.header.flags = LinkFlags::Up;
        }
        self.change("change the state", Request::SetLink(message), Unless::Never)
    }

    /// Adds an IP address, which the interface may have already. An IPv6 address
    /// can be used at once: no other node on a fabric answers for it.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn add_address(&mut self, address: IpAddr, prefix_len: u8) -> Result<(), InterfaceError> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix_len;
        message.header.index = self.index;
        if address.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        message.attributes = vec![
            AddressAttribute::Local(address),
            AddressAttribute::Address(address),
        ];
        self.change("add an address", Request::NewAddress(message), Unless::Exists)
    }

    /// Adds a route for a prefix over the interface, to a router or directly. The
    /// route may exist already.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, for example because the router is not reachable.
    pub fn add_route(
        &mut self,
        destination: IpAddr,
        prefix_len: u8,
        router: Option<IpAddr>,
    ) -> Result<(), InterfaceError> {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(destination),
            destination_prefix_length: prefix_len,
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Static,
            scope: match router {
                None if destination.is_ipv4() => RouteScope::Link,
                _ => RouteScope::Universe,
            },
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        message.attributes.push(RouteAttribute::Oif(self.index));
        if prefix_len != 0 {
            message
                .attributes
                .push(RouteAttribute::Destination(RouteAddress::from(destination)));
        }
        if let Some(router) = router {
            message
                .attributes
                .push(RouteAttribute::Gateway(RouteAddress::from(router)));
        }
        self.change("add a route", Request::NewRoute(message), Unless::Exists)
    }

    /// Removes the interface and all its kernel state.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, as for hardware.
    pub fn delete(mut self) -> Result<(), InterfaceError> {
        let request = Request::DelLink(self.link());
        self.change("delete the device", request, Unless::Never)
    }

    fn link(&self) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = self.index;
        message
    }

    fn change(
        &mut self,
        action: &'static str,
        request: Request,
        unless: Unless,
    ) -> Result<(), InterfaceError> {
        match self.channel.call(request, unless) {
            Ok(_) => Ok(()),
            Err(error) => Err(refused(action, &self.name, error)),
        }
    }
}

/// Asks the kernel for one link.
fn ask(
    channel: &mut Channel,
    name: &str,
    action: &'static str,
    request: Request,
) -> Result<LinkMessage, InterfaceError> {
    match channel.call(request, Unless::Never) {
        Ok(Reply::Message(Request::NewLink(link))) => Ok(link),
        Ok(_) => Err(refused(action, name, Errno::BADMSG)),
        Err(error) => Err(refused(action, name, error)),
    }
}

fn refused(action: &'static str, name: &str, error: Errno) -> InterfaceError {
    let interface = name.to_owned();
    match error {
        Errno::NODEV => InterfaceError::Missing(interface),
        Errno::PERM | Errno::ACCESS => InterfaceError::NotPermitted { action, interface },
        _ => InterfaceError::Refused {
            action,
            interface,
            error,
        },
    }
}

/// Checks that an interface can have this name.
///
/// # Errors
///
/// If it cannot.
pub fn check_name(name: &str) -> Result<(), InterfaceError> {
    let fits = (1..=MAX_NAME).contains(&name.len()) && !matches!(name, "." | "..");
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match fits && name.bytes().all(allowed) {
        true => Ok(()),
        false => Err(InterfaceError::BadName(name.to_owned())),
    }
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

#[cfg(test)]
mod tests;
