//! Address resolution for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use crate::{Mac, Result, WireError, put};

/// Length of an ARP packet in bytes.
pub const PACKET_LEN: usize = 28;

/// Leading bytes of every packet: Ethernet, IPv4, addresses of 6 and 4 bytes.
const LEAD: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// The operation of an ARP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The sender asks for the hardware address of the target's IP address.
    Request,
    /// The sender announces its own hardware address.
    Reply,
}

/// An ARP packet.
///
/// ```
/// use std::net::Ipv4Addr;
/// use toehold_wire::{Mac, arp};
/// let request = arp::Packet {
///     operation: arp::Operation::Request,
///     sender_mac: Mac([2, 0, 0, 0, 0, 1]),
///     sender_ip: Ipv4Addr::new(10, 0, 0, 1),
///     target_mac: Mac::UNSPECIFIED,
///     target_ip: Ipv4Addr::new(10, 0, 0, 2),
/// };
/// let mut bytes = [0; arp::PACKET_LEN];
/// request.emit(&mut bytes);
/// assert_eq!(arp::Packet::parse(&bytes)?, request);
/// # Ok::<(), toehold_wire::WireError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Request or reply.
    pub operation: Operation,
    /// The sender's hardware address.
    pub sender_mac: Mac,
    /// The sender's IP address; unspecified in a probe (RFC 5227).
    pub sender_ip: Ipv4Addr,
    /// The target's hardware address; zero in a request.
    pub target_mac: Mac,
    /// The target's IP address.
    pub target_ip: Ipv4Addr,
}

impl Packet {
    /// Reads a packet. Bytes behind it are padding.
    ///
    /// # Errors
    ///
    /// `Truncated`. `Unsupported` if the packet is not about IPv4 over Ethernet, or
    /// is neither request nor reply. `BadField` if the sender's hardware address is
    /// multicast or zero.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let bytes: &[u8; PACKET_LEN] = bytes.first_chunk().ok_or(WireError::Truncated)?;
        if bytes[..6] != LEAD {
            return Err(WireError::Unsupported);
        }
        let operation = match [bytes[6], bytes[7]] {
            [0, 1] => Operation::Request,
            [0, 2] => Operation::Reply,
            _ => return Err(WireError::Unsupported),
        };
        let mac = |at: usize| Mac(core::array::from_fn(|byte| bytes[at + byte]));
        let ip = |at: usize| Ipv4Addr::from(core::array::from_fn::<u8, 4, _>(|byte| bytes[at + byte]));
        let packet = Self {
            operation,
            sender_mac: mac(8),
            sender_ip: ip(14),
            target_mac: mac(18),
            target_ip: ip(24),
        };
        if packet.sender_mac.is_unicast() {
            Ok(packet)
        } else {
            Err(WireError::BadField)
        }
    }

    /// Writes the packet and returns its length.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`PACKET_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut bytes = [0; PACKET_LEN];
        bytes[..6].copy_from_slice(&LEAD);
        bytes[7] = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        bytes[8..14].copy_from_slice(&self.sender_mac.0);
        bytes[14..18].copy_from_slice(&self.sender_ip.octets());
        bytes[18..24].copy_from_slice(&self.target_mac.0);
        bytes[24..28].copy_from_slice(&self.target_ip.octets());
        put(buffer, bytes);
        PACKET_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REPLY: [u8; PACKET_LEN] = [
        0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2,
    ];

    #[test]
    fn known_reply_is_read_and_written() {
        let packet = Packet::parse(&REPLY).unwrap();
        let expected = Packet {
            operation: Operation::Reply,
            sender_mac: Mac([2, 0, 0, 0, 0, 1]),
            sender_ip: Ipv4Addr::new(10, 0, 0, 1),
            target_mac: Mac([2, 0, 0, 0, 0, 2]),
            target_ip: Ipv4Addr::new(10, 0, 0, 2),
        };
        assert_eq!(packet, expected);
    }

    #[test]
    fn other_kinds_return_errors() {
        for at in 0..8 {
            let mut bytes = REPLY;
            bytes[at] ^= 0x40;
            assert_eq!(Packet::parse(&bytes), Err(WireError::Unsupported), "{at}");
        }
        let mut bytes = REPLY;
        bytes[8] |= 1;
        assert_eq!(Packet::parse(&bytes), Err(WireError::BadField));
        assert_eq!(Packet::parse(&REPLY[..PACKET_LEN - 1]), Err(WireError::Truncated));
    }

    proptest! {
        #[test]
        fn packet_round_trips(
            request: bool, sender_mac: [u8; 6], sender_ip: [u8; 4], target_mac: [u8; 6], target_ip: [u8; 4],
            padding in 0usize..20
        ) {
            let packet = Packet {
                operation: if request { Operation::Request } else { Operation::Reply },
                sender_mac: Mac([sender_mac[0] & !1 | 2, sender_mac[1], sender_mac[2], sender_mac[3], sender_mac[4], sender_mac[5]]),
                sender_ip: sender_ip.into(),
                target_mac: Mac(target_mac),
                target_ip: target_ip.into(),
            };
            let mut bytes = vec![0xee; PACKET_LEN + padding];
            prop_assert_eq!(packet.emit(&mut bytes), PACKET_LEN);
            prop_assert_eq!(Packet::parse(&bytes), Ok(packet));
        }

        #[test]
        fn parse_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40), lead: bool) {
            let bytes = if lead { [&LEAD[..], &bytes].concat() } else { bytes };
            if let Ok(packet) = Packet::parse(&bytes) {
                let mut again = [0; PACKET_LEN];
                packet.emit(&mut again);
                prop_assert_eq!(&again[..], &bytes[..PACKET_LEN]);
            }
        }
    }
}
