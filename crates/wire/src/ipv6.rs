//! IPv6 headers (RFC 8200).

use core::net::Ipv6Addr;

mod extension;

pub use extension::{
    ExtensionError, FRAGMENT_HEADER_LEN, Fragment, FragmentHeader, MAX_EXTENSION_HEADERS, MAX_OPTIONS,
    Problem, Upper, walk,
};

use crate::{Result, WireError, start};

/// Bytes of a header without extensions.
pub const HEADER_LEN: usize = 40;

/// A received packet.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    fixed: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Views the packet at the start of `bytes`, which hold at least its
    /// header. `available` is the packet's length in bytes as received, with
    /// link-layer padding.
    ///
    /// # Errors
    ///
    /// `Truncated` if the header is not complete. `BadVersion`. `BadLength` if
    /// the header claims more bytes than are available.
    #[inline]
    pub fn new(bytes: &'a [u8], available: usize) -> Result<Self> {
        let view = Self::quoted(bytes)?;
        let payload_len = usize::from(view.payload_len());
        if payload_len + HEADER_LEN > available {
            return Err(WireError::BadLength);
        }
        let payload = view.payload.get(..payload_len).unwrap_or(view.payload);
        Ok(Self { payload, ..view })
    }

    /// Views a packet whose beginning an ICMP message quotes. The length is not
    /// checked, and the payload may be cut short.
    ///
    /// # Errors
    ///
    /// `Truncated` or `BadVersion` if there is no IPv6 header.
    #[inline]
    pub fn quoted(bytes: &'a [u8]) -> Result<Self> {
        let (fixed, payload) = bytes
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(WireError::Truncated)?;
        if fixed[0] >> 4 != 6 {
            return Err(WireError::BadVersion);
        }
        Ok(Self { fixed, payload })
    }

    /// Traffic class: DSCP in the upper six bits, ECN in the lower two.
    #[inline]
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        self.fixed[0] << 4 | self.fixed[1] >> 4
    }

    /// The two ECN bits (RFC 3168 §5).
    #[inline]
    #[must_use]
    pub fn ecn(&self) -> u8 {
        self.traffic_class() & 3
    }

    /// The flow label, 20 bits (RFC 6437).
    #[inline]
    #[must_use]
    pub fn flow_label(&self) -> u32 {
        u32::from_be_bytes([0, self.fixed[1] & 15, self.fixed[2], self.fixed[3]])
    }

    /// Number of bytes behind the header, extension headers included.
    #[inline]
    #[must_use]
    pub fn payload_len(&self) -> u16 {
        u16::from_be_bytes([self.fixed[4], self.fixed[5]])
    }

    /// Kind of the header or protocol behind this header, see
    /// [`crate::protocol`].
    #[inline]
    #[must_use]
    pub fn next_header(&self) -> u8 {
        self.fixed[6]
    }

    /// Remaining hops.
    #[inline]
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        self.fixed[7]
    }

    /// The source address.
    #[inline]
    #[must_use]
    pub fn src(&self) -> Ipv6Addr {
        self.address_at::<8>()
    }

    /// The destination address.
    #[inline]
    #[must_use]
    pub fn dst(&self) -> Ipv6Addr {
        self.address_at::<24>()
    }

    #[inline]
    fn address_at<const AT: usize>(&self) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.fixed[AT..AT + 16]);
        Ipv6Addr::from(octets)
    }

    /// The given bytes behind the header, without link-layer padding. Shorter
    /// than [`View::payload_len`] if the given bytes end early.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Walks the extension headers down to the transport protocol.
    ///
    /// # Errors
    ///
    /// The errors of [`walk`].
    #[inline]
    pub fn upper(&self) -> core::result::Result<Upper, ExtensionError> {
        walk(self.next_header(), self.payload, usize::from(self.payload_len()))
    }
}

/// A header for sending.
///
/// ```
/// use std::net::Ipv6Addr;
/// use toehold_wire::{ipv6, protocol};
/// let header = ipv6::Header {
///     payload_len: 4,
///     next_header: protocol::TCP,
///     ..ipv6::Header::new(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST)
/// };
/// let mut packet = [0; 44];
/// assert_eq!(header.emit(&mut packet), 40);
/// let view = ipv6::View::new(&packet, packet.len())?;
/// assert_eq!(view.upper().unwrap().protocol, protocol::TCP);
/// # Ok::<(), toehold_wire::WireError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// The flow label; the upper 12 bits are ignored.
    pub flow_label: u32,
    /// Number of bytes behind the header, extension headers included.
    pub payload_len: u16,
    /// Kind of the header or protocol behind this header, see
    /// [`crate::protocol`].
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// The source address.
    pub src: Ipv6Addr,
    /// The destination address.
    pub dst: Ipv6Addr,
}

impl Header {
    /// Creates a header with the usual values: no payload, no flow label, 64
    /// hops.
    #[inline]
    #[must_use]
    pub const fn new(src: Ipv6Addr, dst: Ipv6Addr) -> Self {
        let next_header = crate::protocol::NO_NEXT_HEADER;
        Self {
            traffic_class: 0,
            flow_label: 0,
            payload_len: 0,
            next_header,
            hop_limit: 64,
            src,
            dst,
        }
    }

    /// Writes the header and returns its length.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`HEADER_LEN`].
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        let bytes: &mut [u8; HEADER_LEN] = start(buffer);
        bytes[0..4].copy_from_slice(&first.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        bytes[6] = self.next_header;
        bytes[7] = self.hop_limit;
        bytes[8..24].copy_from_slice(&self.src.octets());
        bytes[24..40].copy_from_slice(&self.dst.octets());
        HEADER_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn padding_is_left_out_and_missing_bytes_are_noticed() {
        let mut bytes = [0; 60];
        Header {
            payload_len: 5,
            ..Header::new(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST)
        }
        .emit(&mut bytes);
        assert_eq!(View::new(&bytes, 60).unwrap().payload().len(), 5);
        assert_eq!(View::new(&bytes[..42], 45).unwrap().payload().len(), 2);
        assert_eq!(View::new(&bytes[..44], 44).unwrap_err(), WireError::BadLength);
        assert_eq!(View::new(&bytes[..39], 45).unwrap_err(), WireError::Truncated);
        bytes[0] = 0x45;
        assert_eq!(View::new(&bytes, 60).unwrap_err(), WireError::BadVersion);
    }

    proptest! {
        #[test]
        fn header_round_trips(
            traffic_class: u8, flow_label in 0u32..1 << 20, payload_len: u16, next_header: u8, hop_limit: u8,
            src: [u8; 16], dst: [u8; 16]
        ) {
            let header = Header {
                traffic_class, flow_label, payload_len, next_header, hop_limit, src: src.into(), dst: dst.into(),
            };
            let mut bytes = [0; HEADER_LEN + 1];
            prop_assert_eq!(header.emit(&mut bytes), HEADER_LEN);
            let view = View::new(&bytes, 70000).unwrap();
            let again = Header {
                traffic_class: view.traffic_class(), flow_label: view.flow_label(), payload_len: view.payload_len(),
                next_header: view.next_header(), hop_limit: view.hop_limit(), src: view.src(), dst: view.dst(),
            };
            prop_assert_eq!(again, header);
            prop_assert_eq!(view.ecn(), traffic_class & 3);
        }

        #[test]
        fn parse_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), extra in 0usize..70000) {
            if let Some(first) = bytes.first_mut() {
                *first = 0x60 | *first & 15;
            }
            if let Ok(view) = View::new(&bytes, bytes.len() + extra) {
                prop_assert!(view.payload().len() <= usize::from(view.payload_len()));
                let _ = view.upper();
            }
        }
    }
}
