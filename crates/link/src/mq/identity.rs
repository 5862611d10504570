//! Which member may claim which address: the fabric gives members their addresses, and no frame
//! changes that.
//!
//! ARP and neighbour discovery have no proof of ownership. A fabric needs none: the handshake tells
//! each member's hardware address, and the fabric's directory its IP addresses. So a frame of a
//! member has that member's hardware address as its source. No frame claims an IP address that
//! another member was given. That holds for the source of a packet, for ARP and for neighbour
//! discovery. What comes from beyond a gateway claims no address of any member.
//!
//! Addresses that the fabric gave to no member are claimed as on any other link. The check stands
//! in front of everything that takes frames from a port: the stack, the kernel beside it, bridges.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use toehold_shm::{Carver, OutOfMemory, Table};
use toehold_wire::arp::Packet;
use toehold_wire::ethernet::{EtherType, Frame};
use toehold_wire::ipv6::{self, ExtensionError};
use toehold_wire::protocol;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::name::NodeName;
use super::record::MIN_FRAME;
use crate::Received;

/// Addresses of a member: IPv4, IPv6, and the IPv6 address that follows from its hardware address.
const EACH: usize = 3;

/// Bytes of a packet of IPv6 that are looked through for a message of neighbour discovery. A chain
/// of extension headers that is longer than this is refused.
const LOOKED_THROUGH: usize = 2048;

const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// Bytes of either before its options, and where the target lies.
const NEIGHBOR_LEN: usize = 24;
const TARGET: core::ops::Range<usize> = 8..24;
const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;

/// The IP addresses that the fabric gave a member. Plain data.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    serde::Serialize,
    serde::Deserialize,
)]
#[repr(C)]
pub struct Bound {
    ipv4: [u8; 4],
    ipv6: [u8; 16],
}

impl Bound {
    /// Claims these addresses; unspecified ones are none.
    pub fn new(ipv4: Option<Ipv4Addr>, ipv6: Option<Ipv6Addr>) -> Bound {
        Bound {
            ipv4: ipv4.map(|address| address.octets()).unwrap_or_default(),
            ipv6: ipv6.map(|address| address.octets()).unwrap_or_default(),
        }
    }

    /// The addresses.
    pub fn given(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let given = [IpAddr::from(self.ipv4), IpAddr::from(self.ipv6)].into_iter();
        given.filter(|address| !address.is_unspecified())
    }

    /// The addresses, and the link-local one of a member with this hardware address.
    pub(super) fn all(&self, mac: [u8; 6]) -> impl Iterator<Item = IpAddr> + use<> {
        self.given().chain([IpAddr::from(link_local(mac))])
    }

    /// Gives an address up.
    pub(super) fn forget(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) if address.octets() == self.ipv4 => self.ipv4 = [0; 4],
            IpAddr::V6(address) if address.octets() == self.ipv6 => self.ipv6 = [0; 16],
            _ => {}
        }
    }
}

/// The address that follows from a hardware address.
//= RFC 4291 appendix A
fn link_local([a, b, c, d, e, f]: [u8; 6]) -> Ipv6Addr {
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Looks up a member's addresses by its name, its hardware address, and the user that must own the
/// answer.
type LookUp = dyn Fn(&NodeName, [u8; 6], u32) -> Bound + Send + Sync;

/// A function that knows the addresses that the fabric gave its members.
#[derive(Clone)]
pub struct Registry(Arc<LookUp>);

impl Registry {
    /// Asks a function, in the process that connects the node with others.
    pub fn new(look_up: impl Fn(&NodeName, [u8; 6], u32) -> Bound + Send + Sync + 'static) -> Registry {
        Registry(Arc::new(look_up))
    }

    /// The addresses of a member.
    pub(super) fn look_up(&self, name: &NodeName, mac: [u8; 6], uid: u32) -> Bound {
        (self.0)(name, mac, uid)
    }
}

impl core::fmt::Debug for Registry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Registry")
    }
}

fn key(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Entry {
    address: [u8; 16],
    mac: [u8; 6],
    /// Not zero: there is one.
    used: u16,
}

/// Which hardware address belongs to which IP address: plain data in the node's region, a table with
/// open addressing, at most three quarters full. Any contents are survived.
#[derive(Debug)]
pub(super) struct Bindings(Table<Entry>);

impl Bindings {
    /// For the peers and the node itself.
    fn places(max_peers: usize) -> usize {
        (4 * (max_peers + 1)).next_power_of_two()
    }

    pub(super) fn bytes_needed(max_peers: usize) -> usize {
        Table::<Entry>::bytes_needed(Self::places(max_peers))
    }

    pub(super) fn carve(carver: &mut Carver, max_peers: usize) -> Result<Bindings, OutOfMemory> {
        const { assert!(EACH < 4) };
        carver.table(Self::places(max_peers)).map(Bindings)
    }

    /// The place of an address, or the first empty one where it would be.
    fn place(&self, address: &[u8; 16]) -> Option<usize> {
        let (mut high, mut low) = ([0; 8], [0; 8]);
        high.copy_from_slice(&address[..8]);
        low.copy_from_slice(&address[8..]);
        let mixed = u64::from_le_bytes(high) ^ u64::from_le_bytes(low).rotate_left(17);
        let first = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
        let mask = self.0.len() - 1;
        (0..=mask)
            .map(|step| (first + step) & mask)
            .find(|&place| self.0[place].used == 0 || self.0[place].address == *address)
    }

    /// The member that an address belongs to.
    pub(super) fn owner(&self, address: IpAddr) -> Option<[u8; 6]> {
        let entry = self.0.get(self.place(&key(address))?)?;
        (entry.used != 0).then_some(entry.mac)
    }

    /// Gives an address to a member, unless another one has it: that one is returned.
    pub(super) fn insert(&mut self, address: IpAddr, mac: [u8; 6]) -> Option<[u8; 6]> {
        if let Some(owner) = self.owner(address) {
            return (owner != mac).then_some(owner);
        }
        let address = key(address);
        if let Some(entry) = self.place(&address).and_then(|place| self.0.get_mut(place)) {
            *entry = Entry {
                address,
                mac,
                used: 1,
            };
        }
        None
    }

    pub(super) fn clear(&mut self) {
        self.0.iter_mut().for_each(|entry| entry.used = 0);
    }

    /// Leaves nothing as it was.
    #[cfg(test)]
    pub(super) fn disturb(&mut self, random: &mut impl FnMut() -> u64) {
        for entry in self.0.iter_mut() {
            entry
                .as_mut_bytes()
                .iter_mut()
                .for_each(|byte| *byte = random() as u8);
        }
    }
}

/// The source of a packet of IPv4 without a VLAN tag.
pub(super) fn source_v4(frame: &Received<'_>) -> Option<[u8; 4]> {
    let (ethernet, packet) = frame.private.split_first_chunk::<MIN_FRAME>()?;
    let source = packet.get(12..16)?.first_chunk()?;
    (ethernet[12..] == [0x08, 0x00]).then_some(*source)
}

/// An address of another member that a frame claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// A hardware address.
    Mac,
    /// An IP address, and the member that has it.
    Ip(IpAddr, [u8; 6]),
    /// Perhaps an address: the headers are too long to be looked through.
    Hidden,
}

/// Where a frame comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin<'a> {
    /// The peer through whose ring it came.
    pub(super) mac: [u8; 6],
    pub(super) bound: Bound,
    /// An address of no member, from which a packet of the peer was judged before.
    pub(super) vouched: [u8; 4],
    pub(super) bindings: &'a Bindings,
}

impl Origin<'_> {
    /// Whether the frame claims nothing but what is the peer's own, at a glance. Commonly true of
    /// honest frames; one of which it is not is to be [judged](Origin::judge).
    #[inline]
    pub(super) fn is_plain(&self, frame: &Received<'_>) -> bool {
        let Some((ethernet, packet)) = frame.private.split_first_chunk::<MIN_FRAME>() else {
            return false;
        };
        if ethernet[6..12] != self.mac {
            return false;
        }
        match ethernet[12..] {
            [0x08, 0x00] => packet
                .get(12..16)
                .is_some_and(|source| source == self.bound.ipv4 || source == self.vouched),
            // Neighbour discovery is a packet whose claims are inside.
            [0x86, 0xdd] => {
                packet.get(8..24) == Some(&self.bound.ipv6)
                    && matches!(packet.get(6), Some(&(protocol::TCP | protocol::UDP)))
            }
            _ => false,
        }
    }

    /// Checks a frame of the peer's. Returns as an error an address that it claims and that is not
    /// the peer's.
    #[cold]
    pub(super) fn judge(&self, frame: &Received<'_>) -> Result<(), Claim> {
        let Ok(header) = Frame::new(frame.private) else {
            // The receiver of the frame counts it as malformed.
            return Ok(());
        };
        if header.src().0 != self.mac {
            return Err(Claim::Mac);
        }
        self.judge_packet(frame, &header, Some(self.mac))
    }

    /// Checks a frame that a gateway passes on for what is beyond it.
    #[cold]
    pub(super) fn judge_beyond(&self, frame: &Received<'_>) -> Result<(), Claim> {
        match Frame::new(frame.private) {
            Ok(header) => self.judge_packet(frame, &header, None),
            Err(_) => Ok(()),
        }
    }

    /// `speaker` is the member that says it, or `None` for one beyond a gateway.
    fn judge_packet(
        &self,
        frame: &Received<'_>,
        header: &Frame<'_>,
        speaker: Option<[u8; 6]>,
    ) -> Result<(), Claim> {
        let start = header.header_len();
        let packet = frame.private.get(start..).unwrap_or_default();
        match header.ethertype() {
            EtherType::ARP => match Packet::parse(packet) {
                Ok(arp) => {
                    self.is_free(arp.sender_ip.into(), speaker)?;
                    self.leads_to(arp.sender_mac.0, arp.sender_ip.into(), speaker)
                }
                Err(_) => Ok(()),
            },
            EtherType::IPV4 => match packet.get(12..16).and_then(<[u8]>::first_chunk::<4>) {
                Some(source) => self.is_free(IpAddr::from(*source), speaker),
                None => Ok(()),
            },
            EtherType::IPV6 => self.judge_ipv6(frame, start, speaker),
            _ => Ok(()),
        }
    }

    /// Whether an address is the speaker's, or no member's.
    fn is_free(&self, address: IpAddr, speaker: Option<[u8; 6]>) -> Result<(), Claim> {
        match self.bindings.owner(address) {
            Some(owner) if Some(owner) != speaker => Err(Claim::Ip(address, owner)),
            _ => Ok(()),
        }
    }

    /// Checks that frames for an address may be led to a hardware address. A member's address may
    /// lead to that member only. Any other address may lead to no member but the speaker.
    fn leads_to(&self, mac: [u8; 6], address: IpAddr, speaker: Option<[u8; 6]>) -> Result<(), Claim> {
        match (self.bindings.owner(address), speaker) {
            (Some(owner), _) if owner != mac => Err(Claim::Ip(address, owner)),
            (None, Some(speaker)) if mac != speaker && self.is_member(mac) => Err(Claim::Mac),
            (None, None) if self.is_member(mac) => Err(Claim::Mac),
            _ => Ok(()),
        }
    }

    /// Each member has at least the address that follows from its hardware address.
    fn is_member(&self, mac: [u8; 6]) -> bool {
        self.bindings.owner(link_local(mac).into()) == Some(mac)
    }

    fn judge_ipv6(&self, frame: &Received<'_>, start: usize, speaker: Option<[u8; 6]>) -> Result<(), Claim> {
        let mut copy = [0; LOOKED_THROUGH];
        let private = frame.private.get(start..).unwrap_or_default();
        let bytes = match frame.rest.is_empty() {
            true => private,
            false => {
                let head = private.len().min(copy.len());
                copy[..head].copy_from_slice(&private[..head]);
                let rest = frame.rest.copy_to(0, &mut copy[head..]);
                &copy[..head + rest]
            }
        };
        let Ok(packet) = ipv6::View::new(bytes, frame.len().saturating_sub(start)) else {
            return Ok(());
        };
        let source = packet.src();
        self.is_free(source.into(), speaker)?;
        let upper = match packet.upper() {
            Ok(upper) => upper,
            Err(ExtensionError::Truncated) if bytes.len() >= LOOKED_THROUGH => return Err(Claim::Hidden),
            Err(_) => return Ok(()),
        };
        //= RFC 6980 §5
        // Of neighbour discovery in fragments no receiver takes notice.
        if upper.protocol != protocol::ICMPV6 || upper.fragment.is_some() {
            return Ok(());
        }
        let message = packet.payload().get(upper.offset..).unwrap_or_default();
        self.judge_discovery(message, source, speaker)
    }

    fn judge_discovery(
        &self,
        message: &[u8],
        source: Ipv6Addr,
        speaker: Option<[u8; 6]>,
    ) -> Result<(), Claim> {
        let Some(target) = message.get(TARGET).and_then(<[u8]>::first_chunk::<16>) else {
            return Ok(());
        };
        let target = IpAddr::from(*target);
        let (subject, option) = match message[0] {
            NEIGHBOR_ADVERTISEMENT => {
                self.is_free(target, speaker)?;
                (target, TARGET_LINK)
            }
            NEIGHBOR_SOLICITATION if source.is_unspecified() => {
                //= RFC 4862 §5.4.3
                // A member that wants another one's address for itself would take it from that one.
                // Of a host beyond, the member that has the address tells it so.
                return match speaker {
                    Some(_) => self.is_free(target, speaker),
                    None => Ok(()),
                };
            }
            NEIGHBOR_SOLICITATION => (source.into(), SOURCE_LINK),
            _ => return Ok(()),
        };
        for mac in link_addresses(&message[NEIGHBOR_LEN..], option) {
            self.leads_to(mac, subject, speaker)?;
        }
        Ok(())
    }
}

/// The hardware addresses in options of a kind. What is malformed ends them: no receiver takes it.
//= RFC 4861 §4.6
fn link_addresses(mut options: &[u8], wanted: u8) -> impl Iterator<Item = [u8; 6]> {
    std::iter::from_fn(move || {
        loop {
            let &[kind, units, ..] = options else {
                return None;
            };
            let (option, rest) = options.split_at_checked(usize::from(units) * 8)?;
            let mac = option.get(2..)?.first_chunk::<6>().copied()?;
            options = rest;
            if kind == wanted {
                return Some(mac);
            }
        }
    })
}

#[cfg(test)]
mod tests;
