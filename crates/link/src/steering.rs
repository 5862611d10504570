//! Selects the shard of a node that a frame is for, as a network card with several
//! queues does.
//!
//! A *shard* is one of several independent stacks of a node. A keyed hash of a
//! connection's ends selects its shard. The hash is symmetric, so that a connection
//! between two sockets of one node belongs to one shard. The key keeps an attacker
//! that chooses ends from choosing the shard. Nodes of one fabric know it, since
//! they put frames into a shard's queue.
//!
//! The ends of a UDP datagram also select its shard. All other frames belong to
//! every shard. Only the ends are read here. The stack decides whether an apparent
//! segment is valid.

use core::hash::Hasher;

use siphasher::sip::SipHasher13;
use toehold_wire::{ethernet, ipv4, ipv6, protocol};

/// Most shards of a node.
pub const MAX_SHARDS: u8 = 16;

/// A shard of a node, and the distribution of connections over all shards.
#[derive(Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Steering {
    /// Number of the shard, from 0 on. The first one acts for the node where only
    /// one shard should.
    pub index: u8,
    /// Number of shards: 1 to [`MAX_SHARDS`].
    pub count: u8,
    /// The key of the hash; without meaning if there is one shard.
    pub key: [u8; 16],
}

impl Steering {
    /// The only shard of a node.
    pub const SOLE: Steering = Steering {
        index: 0,
        count: 1,
        key: [0; 16],
    };

    /// Returns whether such a shard is possible.
    pub fn is_valid(&self) -> bool {
        self.count <= MAX_SHARDS && self.index < self.count
    }

    /// Returns the shard that a connection belongs to.
    #[inline]
    pub fn shard_of(&self, flow: &Flow) -> u8 {
        if self.count == 1 {
            return 0;
        }
        let mut hasher = SipHasher13::new_with_key(&self.key);
        flow.feed(&mut hasher);
        // The high bits of a product give equal shares for any count.
        ((u128::from(hasher.finish()) * u128::from(self.count)) >> 64) as u8
    }

    /// Returns whether a connection belongs to this shard.
    #[inline]
    pub fn is_own(&self, flow: &Flow) -> bool {
        self.count == 1 || self.shard_of(flow) == self.index
    }
}

impl Default for Steering {
    fn default() -> Self {
        Self::SOLE
    }
}

impl core::fmt::Debug for Steering {
    /// Hides the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "shard {} of {}", self.index, self.count)
    }
}

/// One end of a connection: an IP address, IPv4's in its IPv6-mapped form, and a port.
pub type End = ([u8; 16], u16);

/// The ends of a connection, unordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    ends: [End; 2],
}

impl Flow {
    /// Creates the flow between two ends.
    #[inline]
    pub fn between(one: End, other: End) -> Flow {
        let ends = if one <= other { [one, other] } else { [other, one] };
        Flow { ends }
    }

    /// Returns the flow of the TCP segment or UDP datagram in an Ethernet frame
    /// that begins with these bytes. Returns `None` for other frames, and behind a
    /// VLAN tag, extension headers or in fragments.
    pub fn of_frame(frame: &[u8]) -> Option<Flow> {
        Packet::in_frame(frame)?.flow()
    }

    /// Returns the flow of the packet in an Ethernet frame, for a queue that keeps
    /// packets in order. For TCP and UDP the flow has ports, for other IP packets
    /// only addresses. Returns `None` for other frames, and behind a VLAN tag.
    pub fn of_packet(frame: &[u8]) -> Option<Flow> {
        let packet = Packet::in_frame(frame)?;
        let addresses = || Self::between((packet.source, 0), (packet.destination, 0));
        Some(packet.flow().unwrap_or_else(addresses))
    }

    #[inline]
    fn feed(&self, hasher: &mut impl Hasher) {
        let [(one, port), (other, other_port)] = &self.ends;
        hasher.write(one);
        hasher.write(other);
        hasher.write_u32(u32::from(*port) << 16 | u32::from(*other_port));
    }
}

/// The fixed header of a packet.
struct Packet<'a> {
    source: [u8; 16],
    destination: [u8; 16],
    /// The protocol, and the bytes behind the header. A fragment has none.
    transport: (u8, &'a [u8]),
}

impl<'a> Packet<'a> {
    fn in_frame(frame: &'a [u8]) -> Option<Packet<'a>> {
        let (ethernet, packet) = frame.split_at_checked(ethernet::HEADER_LEN)?;
        match ethernet.last_chunk()? {
            [0x08, 0x00] => Self::of_ipv4(packet),
            [0x86, 0xdd] => Self::of_ipv6(packet),
            _ => None,
        }
    }

    /// Returns the flow by ports, if the packet has any.
    fn flow(&self) -> Option<Flow> {
        let (protocol::TCP | protocol::UDP, header) = self.transport else {
            return None;
        };
        let &[a, b, c, d] = header.first_chunk()?;
        let ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
        Some(Flow::between(
            (self.source, ports[0]),
            (self.destination, ports[1]),
        ))
    }

    fn of_ipv4(packet: &'a [u8]) -> Option<Packet<'a>> {
        let header: &[u8; ipv4::HEADER_LEN] = packet.first_chunk()?;
        if header[0] >> 4 != 4 {
            return None;
        }
        // The mask leaves out a reserved bit and "don't fragment".
        let whole = u16::from_be_bytes([header[6], header[7]]) & 0x3fff == 0;
        let mapped = |at: usize| {
            let mut address = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0];
            address[12..].copy_from_slice(&header[at..at + 4]);
            address
        };
        let rest = packet.get(usize::from(header[0] & 0xf) * 4..)?;
        Some(Packet {
            source: mapped(12),
            destination: mapped(16),
            transport: (header[9], if whole { rest } else { &[] }),
        })
    }

    fn of_ipv6(packet: &'a [u8]) -> Option<Packet<'a>> {
        let (header, rest) = packet.split_first_chunk::<{ ipv6::HEADER_LEN }>()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let address = |at: usize| header[at..at + 16].try_into().ok();
        Some(Packet {
            source: address(8)?,
            destination: address(24)?,
            transport: (header[6], rest),
        })
    }
}

#[cfg(test)]
mod tests;
