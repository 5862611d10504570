//! Network interfaces of the kernel, as far as a node needs them: addresses, routes,
//! MTU, up and down, in any network namespace.
//!
//! Knows nothing of frames. What it does stays with the kernel: dropping an
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

/// Why an interface could not be found or changed.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// No namespace to look in.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A name that no interface can have.
    #[error("{0:?} is no name for an interface: it takes 1 to 15 letters, digits, '-', '_' or '.'")]
    BadName(String),
    /// There is no such interface, or it is gone.
    #[error("there is no interface {0} in this network namespace (`ip link` lists those that are)")]
    Missing(String),
    /// The right to configure the namespace is missing.
    #[error(
        "no permission to {action} of {interface}: this takes CAP_NET_ADMIN in its network namespace; run as \
         root, or in a namespace of its own (`unshare --map-root-user --net`)"
    )]
    NotPermitted {
        /// What was to be done.
        action: &'static str,
        /// To which interface.
        interface: String,
    },
    /// The kernel refuses what was asked for.
    #[error("the kernel does not {action} of {interface}: {error}")]
    Refused {
        /// What was to be done.
        action: &'static str,
        /// To which interface.
        interface: String,
        /// What the kernel says.
        error: Errno,
    },
}

/// What an interface is like at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceState {
    /// Hardware address; zero for interfaces without one.
    pub address: [u8; 6],
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// Whether it carries Ethernet frames.
    pub ethernet: bool,
    /// Whether it is made by the kernel, as one of a veth pair is, and no hardware is behind it
    /// that it knows of.
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
    /// The interface with this name.
    ///
    /// # Errors
    ///
    /// There is none, or the namespace cannot be entered.
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

    /// Its name, as of when it was opened or last asked for its [state](Interface::state).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number in its namespace.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// What it is like now, and what it is [called](Interface::name).
    ///
    /// # Errors
    ///
    /// It is gone.
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
    /// The kernel refuses, commonly because the device's own bounds say so.
    pub fn set_mtu(&mut self, mtu: u32) -> Result<(), InterfaceError> {
        let mut message = self.link();
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.change("set the MTU", Request::SetLink(message), Unless::Never)
    }

    /// Sets the hardware address.
    ///
    /// # Errors
    ///
    /// The kernel refuses, for example a group address.
    pub fn set_address(&mut self, address: [u8; 6]) -> Result<(), InterfaceError> {
        let mut message = self.link();
        message.attributes.push(LinkAttribute::Address(address.to_vec()));
        self.change(
            "set the hardware address",
            Request::SetLink(message),
            Unless::Never,
        )
    }

    /// Sets how many frames it keeps that have not been taken from it. One that comes when
    /// there are so many is lost; a TAP device has 1000, and a sender's burst more.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn set_queue(&mut self, frames: u32) -> Result<(), InterfaceError> {
        let mut message = self.link();
        message.attributes.push(LinkAttribute::TxQueueLen(frames));
        self.change("set the queue", Request::SetLink(message), Unless::Never)
    }

    /// Sets the interface up or down.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn set_up(&mut self, up: bool) -> Result<(), InterfaceError> {
        let mut message = self.link();
        message.header.change_mask = LinkFlags::Up;
        if up {
            message.header.flags = LinkFlags::Up;
        }
        self.change("change the state", Request::SetLink(message), Unless::Never)
    }

    /// Gives the interface an IP address, which it may have already. An address of IPv6
    /// can be used at once: nobody else on a fabric answers for it.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
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

    /// Leads packets for a prefix over the interface, to a router or straight away. The
    /// route may be there already.
    ///
    /// # Errors
    ///
    /// The kernel refuses, for example because the router is not reachable.
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

    /// Removes the interface. With it goes what the kernel kept for it.
    ///
    /// # Errors
    ///
    /// The kernel refuses: hardware stays.
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

/// Asks for one link.
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

/// Whether an interface can have this name.
///
/// # Errors
///
/// It cannot.
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
