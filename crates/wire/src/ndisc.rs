//! Neighbour discovery (RFC 4861): IPv6's address resolution and router
//! discovery.

use core::net::Ipv6Addr;

use crate::icmpv6::{self, View, pseudo_header};
use crate::{Mac, Result, WireError, icmp, put};

/// First type of a neighbour discovery message in ICMPv6.
pub(crate) const FIRST_TYPE: u8 = ROUTER_SOLICITATION;
/// Last type of a neighbour discovery message in ICMPv6: redirect.
pub(crate) const LAST_TYPE: u8 = 137;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;

const OPTION_SOURCE_LINK: u8 = 1;
const OPTION_TARGET_LINK: u8 = 2;
const OPTION_MTU: u8 = 5;

/// Bytes of every option that this crate uses.
const OPTION_LEN: usize = 8;
/// Bytes of a router advertisement before its options.
const ROUTER_ADVERTISEMENT_LEN: usize = 16;
/// Bytes of a message about a neighbour before its options.
const NEIGHBOR_LEN: usize = 24;

const ROUTER_FLAG: u8 = 0x80;
const SOLICITED_FLAG: u8 = 0x40;
const OVERRIDE_FLAG: u8 = 0x20;

/// The hop limit of every message: proof that it crossed no router.
pub const HOP_LIMIT: u8 = 255;

/// Length in bytes of the longest message that [`Message::emit`] writes.
pub const MAX_LEN: usize = NEIGHBOR_LEN + OPTION_LEN;

/// The IPv6 header's fields that decide whether a message is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// The source address.
    pub src: Ipv6Addr,
    /// The destination address.
    pub dst: Ipv6Addr,
    /// Remaining hops.
    pub hop_limit: u8,
}

/// A neighbour discovery message.
///
/// ```
/// use std::net::Ipv6Addr;
/// use toehold_wire::{Mac, icmpv6, ndisc};
/// let src: Ipv6Addr = "fe80::1".parse()?;
/// let target: Ipv6Addr = "fe80::2".parse()?;
/// let dst = ndisc::solicited_node(target);
/// let message =
///     ndisc::Message::NeighborSolicitation { target, source_link: Some(Mac([2, 0, 0, 0, 0, 1])) };
/// let mut bytes = [0; ndisc::MAX_LEN];
/// let len = message.emit(src, dst, &mut bytes);
/// let view = icmpv6::View::new(&bytes[..len])?;
/// assert!(view.verify(icmpv6::pseudo_header(src, dst, len), 0));
/// let delivery = ndisc::Delivery { src, dst, hop_limit: ndisc::HOP_LIMIT };
/// assert_eq!(ndisc::Message::parse(&view, &delivery)?, message);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Message {
    /// Asks routers to advertise themselves.
    RouterSolicitation {
        /// The sender's hardware address.
        source_link: Option<Mac>,
    },
    /// Announces a router. Its prefixes are not read.
    RouterAdvertisement {
        /// Hop limit for sent packets; 0 if unspecified.
        hop_limit: u8,
        /// Time in seconds for which the router may be the default router. 0:
        /// never.
        lifetime_s: u16,
        /// Time in milliseconds for which a neighbour is reachable; 0 if
        /// unspecified.
        reachable_ms: u32,
        /// Time between solicitations in milliseconds; 0 if unspecified.
        retransmit_ms: u32,
        /// The router's hardware address.
        source_link: Option<Mac>,
        /// The link's MTU in bytes.
        mtu: Option<u32>,
    },
    /// Asks for the hardware address of an IP address.
    NeighborSolicitation {
        /// The IP address.
        target: Ipv6Addr,
        /// The sender's hardware address.
        source_link: Option<Mac>,
    },
    /// Announces the hardware address of an IP address.
    NeighborAdvertisement {
        /// Whether the sender is a router.
        router: bool,
        /// Whether the message answers a solicitation.
        solicited: bool,
        /// The override flag: whether the receiver replaces a known hardware
        /// address.
        overrides: bool,
        /// The IP address.
        target: Ipv6Addr,
        /// The target's hardware address.
        target_link: Option<Mac>,
    },
}

impl Message {
    /// Reads a message and validates it as RFC 4861 requires. `view` has the
    /// whole message, and its checksum has been verified.
    ///
    /// # Errors
    ///
    /// `BadField` if the message crossed a router, or if a code, an address or
    /// a flag is invalid. `Truncated`. `BadOption`. `Unsupported` for a
    /// redirect and for other ICMPv6 messages.
    pub fn parse(view: &View<'_>, delivery: &Delivery) -> Result<Self> {
        let bytes = view.bytes();
        let &[kind, code, ..] = bytes else {
            return Err(WireError::Truncated);
        };
        //= RFC 4861 §7.1.1
        //= RFC 4861 §7.1.2
        if delivery.hop_limit != HOP_LIMIT || code != 0 {
            return Err(WireError::BadField);
        }
        match kind {
            ROUTER_SOLICITATION => router_solicitation(bytes, delivery),
            ROUTER_ADVERTISEMENT => router_advertisement(bytes, delivery),
            NEIGHBOR_SOLICITATION => neighbor_solicitation(bytes, delivery),
            NEIGHBOR_ADVERTISEMENT => neighbor_advertisement(bytes, delivery),
            _ => Err(WireError::Unsupported),
        }
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        let (fixed, options) = match self {
            Self::RouterSolicitation { source_link } => {
                (icmpv6::HEADER_LEN, usize::from(source_link.is_some()))
            }
            Self::RouterAdvertisement { source_link, mtu, .. } => (
                ROUTER_ADVERTISEMENT_LEN,
                usize::from(source_link.is_some()) + usize::from(mtu.is_some()),
            ),
            Self::NeighborSolicitation {
                source_link: link, ..
            }
            | Self::NeighborAdvertisement {
                target_link: link, ..
            } => (NEIGHBOR_LEN, usize::from(link.is_some())),
        };
        fixed + options * OPTION_LEN
    }

    /// Returns `false`: a message is never empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the message with the checksum for a packet from `src` to `dst`.
    /// Returns the length, at most [`MAX_LEN`].
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`Message::len`].
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, buffer: &mut [u8]) -> usize {
        let len = match *self {
            Self::RouterSolicitation { source_link } => {
                let at = icmp::emit(buffer, ROUTER_SOLICITATION, 0, [0; 4], &[]);
                at + emit_link(&mut buffer[at..], OPTION_SOURCE_LINK, source_link)
            }
            Self::RouterAdvertisement {
                hop_limit,
                lifetime_s,
                reachable_ms,
                retransmit_ms,
                source_link,
                mtu,
            } => {
                let [high, low] = lifetime_s.to_be_bytes();
                let times = u64::from(reachable_ms) << 32 | u64::from(retransmit_ms);
                let word = [hop_limit, 0, high, low];
                let at = icmp::emit(buffer, ROUTER_ADVERTISEMENT, 0, word, &times.to_be_bytes());
                let at = at + emit_link(&mut buffer[at..], OPTION_SOURCE_LINK, source_link);
                at + emit_mtu(&mut buffer[at..], mtu)
            }
            Self::NeighborSolicitation { target, source_link } => {
                let at = icmp::emit(buffer, NEIGHBOR_SOLICITATION, 0, [0; 4], &target.octets());
                at + emit_link(&mut buffer[at..], OPTION_SOURCE_LINK, source_link)
            }
            Self::NeighborAdvertisement {
                router,
                solicited,
                overrides,
                target,
                target_link,
            } => {
                let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
                let flags = flag(router, ROUTER_FLAG)
                    | flag(solicited, SOLICITED_FLAG)
                    | flag(overrides, OVERRIDE_FLAG);
                let at = icmp::emit(
                    buffer,
                    NEIGHBOR_ADVERTISEMENT,
                    0,
                    [flags, 0, 0, 0],
                    &target.octets(),
                );
                at + emit_link(&mut buffer[at..], OPTION_TARGET_LINK, target_link)
            }
        };
        icmpv6::set_checksum(&mut buffer[..len], pseudo_header(src, dst, len), 0);
        len
    }
}

fn router_solicitation(bytes: &[u8], delivery: &Delivery) -> Result<Message> {
    //= RFC 4861 §6.1.1
    let options = Options::parse(bytes.get(icmpv6::HEADER_LEN..).ok_or(WireError::Truncated)?)?;
    if delivery.src.is_unspecified() && options.source_link.is_some() {
        return Err(WireError::BadField);
    }
    Ok(Message::RouterSolicitation {
        source_link: options.source_link,
    })
}

fn router_advertisement(bytes: &[u8], delivery: &Delivery) -> Result<Message> {
    //= RFC 4861 §6.1.2
    if !delivery.src.is_unicast_link_local() {
        return Err(WireError::BadField);
    }
    let (fixed, options) = bytes
        .split_first_chunk::<ROUTER_ADVERTISEMENT_LEN>()
        .ok_or(WireError::Truncated)?;
    let options = Options::parse(options)?;
    let [.., hop_limit, _, l0, l1, a, b, c, d, e, f, g, h] = *fixed;
    Ok(Message::RouterAdvertisement {
        hop_limit,
        lifetime_s: u16::from_be_bytes([l0, l1]),
        reachable_ms: u32::from_be_bytes([a, b, c, d]),
        retransmit_ms: u32::from_be_bytes([e, f, g, h]),
        source_link: options.source_link,
        mtu: options.mtu,
    })
}

fn neighbor_solicitation(bytes: &[u8], delivery: &Delivery) -> Result<Message> {
    let (_, target, options) = neighbor(bytes)?;
    //= RFC 4861 §7.1.1
    // A sender without an address asks the target's group and gives no source
    // link address.
    let nameless = delivery.src.is_unspecified();
    if nameless && (options.source_link.is_some() || delivery.dst != solicited_node(target)) {
        return Err(WireError::BadField);
    }
    Ok(Message::NeighborSolicitation {
        target,
        source_link: options.source_link,
    })
}

fn neighbor_advertisement(bytes: &[u8], delivery: &Delivery) -> Result<Message> {
    let (flags, target, options) = neighbor(bytes)?;
    let solicited = flags & SOLICITED_FLAG != 0;
    //= RFC 4861 §7.1.2
    if solicited && delivery.dst.is_multicast() {
        return Err(WireError::BadField);
    }
    Ok(Message::NeighborAdvertisement {
        router: flags & ROUTER_FLAG != 0,
        solicited,
        overrides: flags & OVERRIDE_FLAG != 0,
        target,
        target_link: options.target_link,
    })
}

/// Reads flags, target and options of a neighbour solicitation or
/// advertisement.
fn neighbor(bytes: &[u8]) -> Result<(u8, Ipv6Addr, Options)> {
    let (fixed, options) = bytes
        .split_first_chunk::<NEIGHBOR_LEN>()
        .ok_or(WireError::Truncated)?;
    let target: &[u8; 16] = fixed.last_chunk().ok_or(WireError::Truncated)?;
    let target = Ipv6Addr::from(*target);
    if target.is_multicast() {
        return Err(WireError::BadField);
    }
    Ok((fixed[4], target, Options::parse(options)?))
}

/// The options that this crate reads.
#[derive(Debug, Default)]
struct Options {
    source_link: Option<Mac>,
    target_link: Option<Mac>,
    mtu: Option<u32>,
}

impl Options {
    fn parse(list: &[u8]) -> Result<Self> {
        let mut options = Self::default();
        let mut rest = list;
        while !rest.is_empty() {
            let &[kind, units, ..] = rest else {
                return Err(WireError::BadOption);
            };
            //= RFC 4861 §4.6
            // An option of length zero invalidates the whole message (RFC 4861
            // §4.6).
            let (option, after) = rest
                .split_at_checked(usize::from(units) * 8)
                .ok_or(WireError::BadOption)?;
            match (kind, option) {
                (_, []) => return Err(WireError::BadOption),
                (OPTION_SOURCE_LINK, &[_, _, a, b, c, d, e, f]) => {
                    options.source_link = link([a, b, c, d, e, f])?
                }
                (OPTION_TARGET_LINK, &[_, _, a, b, c, d, e, f]) => {
                    options.target_link = link([a, b, c, d, e, f])?
                }
                (OPTION_MTU, &[_, _, _, _, a, b, c, d]) => {
                    options.mtu = Some(u32::from_be_bytes([a, b, c, d]))
                }
                (OPTION_SOURCE_LINK | OPTION_TARGET_LINK | OPTION_MTU, _) => {
                    return Err(WireError::BadOption);
                }
                // Unknown options are skipped.
                _ => {}
            }
            rest = after;
        }
        Ok(options)
    }
}

/// Reads a neighbour's hardware address, which is never multicast and never
/// zero.
fn link(octets: [u8; 6]) -> Result<Option<Mac>> {
    let mac = Mac(octets);
    if mac.is_unicast() {
        Ok(Some(mac))
    } else {
        Err(WireError::BadField)
    }
}

fn emit_link(buffer: &mut [u8], kind: u8, link: Option<Mac>) -> usize {
    let Some(Mac([a, b, c, d, e, f])) = link else {
        return 0;
    };
    put(buffer, [kind, 1, a, b, c, d, e, f]);
    OPTION_LEN
}

fn emit_mtu(buffer: &mut [u8], mtu: Option<u32>) -> usize {
    let Some([a, b, c, d]) = mtu.map(u32::to_be_bytes) else {
        return 0;
    };
    put(buffer, [OPTION_MTU, 1, 0, 0, a, b, c, d]);
    OPTION_LEN
}

/// The group in which an address's owner listens for solicitations.
///
/// ```
/// use toehold_wire::ndisc::solicited_node;
/// assert_eq!(solicited_node("2001:db8::1:2:3456".parse().unwrap()).to_string(), "ff02::1:ff02:3456");
/// ```
#[must_use]
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    //= RFC 4291 §2.7.1
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

#[cfg(test)]
mod tests;
