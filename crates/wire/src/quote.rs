//! The packet that an ICMP error message quotes. The quotation holds enough to
//! find the packet's connection.

use core::net::IpAddr;

use crate::tcp::Seq;
use crate::{Result, WireError, ipv4, ipv6, protocol};

/// The known fields of a quoted packet, which this host had sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quote {
    /// The packet's source address.
    pub src: IpAddr,
    /// The packet's destination address.
    pub dst: IpAddr,
    /// The protocol number: TCP or UDP.
    pub protocol: u8,
    /// The source port.
    pub src_port: u16,
    /// The destination port.
    pub dst_port: u16,
    /// The segment's sequence number; `None` for UDP.
    pub seq: Option<Seq>,
    /// The packet's total length in bytes as its header claims.
    pub packet_len: u32,
}

impl Quote {
    /// Reads the IPv4 packet at the start of `bytes`.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the packet is neither TCP nor UDP, or not a first
    /// fragment. Otherwise the header's error.
    pub fn v4(bytes: &[u8]) -> Result<Self> {
        let packet = ipv4::View::quoted(bytes)?;
        if packet.fragment_offset() != 0 {
            return Err(WireError::Unsupported);
        }
        // RFC 792 quotes the header and 64 more bits: ports and sequence
        // number.
        let (src, dst) = (packet.src().into(), packet.dst().into());
        Self::transport(
            src,
            dst,
            packet.protocol(),
            packet.payload(),
            packet.total_len().into(),
        )
    }

    /// Reads the IPv6 packet at the start of `bytes`.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the packet is neither TCP nor UDP, or not a first
    /// fragment. Otherwise the header's error.
    pub fn v6(bytes: &[u8]) -> Result<Self> {
        let packet = ipv6::View::quoted(bytes)?;
        let upper = packet.upper().map_err(|_| WireError::BadOption)?;
        if upper.fragment.is_some_and(|fragment| fragment.offset != 0) {
            return Err(WireError::Unsupported);
        }
        let payload = packet.payload().get(upper.offset..).ok_or(WireError::Truncated)?;
        let packet_len = u32::from(packet.payload_len()) + ipv6::HEADER_LEN as u32;
        Self::transport(
            packet.src().into(),
            packet.dst().into(),
            upper.protocol,
            payload,
            packet_len,
        )
    }

    fn transport(src: IpAddr, dst: IpAddr, protocol: u8, bytes: &[u8], packet_len: u32) -> Result<Self> {
        if !matches!(protocol, protocol::TCP | protocol::UDP) {
            return Err(WireError::Unsupported);
        }
        let &[s0, s1, d0, d1, a, b, c, d] = bytes.first_chunk().ok_or(WireError::Truncated)?;
        Ok(Self {
            src,
            dst,
            protocol,
            src_port: u16::from_be_bytes([s0, s1]),
            dst_port: u16::from_be_bytes([d0, d1]),
            seq: (protocol == protocol::TCP).then_some(Seq(u32::from_be_bytes([a, b, c, d]))),
            packet_len,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    const PORTS_AND_SEQ: [u8; 8] = [0x9c, 0x40, 0, 80, 0xde, 0xad, 0xbe, 0xef];

    #[test]
    fn quoted_ipv4_segment_is_read() {
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut bytes = [0; 28];
        let header = ipv4::Header {
            protocol: protocol::TCP,
            payload_len: 1480,
            ..ipv4::Header::new(src, dst)
        };
        header.emit(&mut bytes);
        bytes[20..].copy_from_slice(&PORTS_AND_SEQ);
        let quote = Quote::v4(&bytes).unwrap();
        assert_eq!((quote.src, quote.dst), (src.into(), dst.into()));
        assert_eq!((quote.src_port, quote.dst_port), (40000, 80));
        assert_eq!((quote.seq, quote.packet_len), (Some(Seq(0xdead_beef)), 1500));
        assert_eq!(Quote::v4(&bytes[..27]), Err(WireError::Truncated));
        ipv4::Header {
            fragment_offset: 8,
            ..header
        }
        .emit(&mut bytes);
        assert_eq!(Quote::v4(&bytes), Err(WireError::Unsupported));
        ipv4::Header {
            protocol: protocol::ICMPV4,
            ..header
        }
        .emit(&mut bytes);
        assert_eq!(Quote::v4(&bytes), Err(WireError::Unsupported));
    }

    #[test]
    fn quoted_ipv6_datagram_behind_extension_is_read() {
        let mut bytes = [0; 56];
        let header = ipv6::Header {
            next_header: protocol::DESTINATION_OPTIONS,
            payload_len: 1200,
            ..ipv6::Header::new(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED)
        };
        header.emit(&mut bytes);
        bytes[40] = protocol::UDP;
        bytes[48..].copy_from_slice(&PORTS_AND_SEQ);
        let quote = Quote::v6(&bytes).unwrap();
        assert_eq!(
            (quote.protocol, quote.src_port, quote.dst_port),
            (protocol::UDP, 40000, 80)
        );
        assert_eq!((quote.seq, quote.packet_len), (None, 1240));
        assert_eq!(Quote::v6(&bytes[..55]), Err(WireError::Truncated));
    }

    proptest! {
        #[test]
        fn parse_never_panics(mut bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(6), Just(60), Just(0)], 0..120)) {
            for version in [0x45, 0x60] {
                if let Some(first) = bytes.first_mut() {
                    *first = version;
                }
                let _ = (Quote::v4(&bytes), Quote::v6(&bytes));
            }
        }
    }
}
