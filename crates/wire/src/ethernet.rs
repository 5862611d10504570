//! Ethernet II frames, with or without one VLAN tag.

use core::fmt;

use crate::{Mac, Result, WireError, start};

/// Bytes of a header without VLAN tag.
pub const HEADER_LEN: usize = 14;
/// Bytes of a header with VLAN tag.
pub const TAGGED_HEADER_LEN: usize = 18;

/// Tag protocol identifier of IEEE 802.1Q.
const TPID: [u8; 2] = 0x8100u16.to_be_bytes();

/// The type of a frame's payload. Values below 1536 are lengths of IEEE 802.3
/// frames, which this crate does not read.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// Address resolution (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// IPv6 (RFC 2464).
    pub const IPV6: Self = Self(0x86dd);
    /// A VLAN tag of IEEE 802.1Q. As the type of a tagged frame, a second tag.
    pub const VLAN: Self = Self(0x8100);
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// The tag control information of IEEE 802.1Q.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VlanTag(pub u16);

impl VlanTag {
    /// Creates the tag of a VLAN, 0 to 4095, with a priority, 0 to 7. Higher bits
    /// of either are ignored.
    #[must_use]
    pub const fn new(vlan: u16, priority: u8) -> Self {
        Self(((priority as u16) & 7) << 13 | vlan & 0xfff)
    }

    /// The VLAN's number; 0 if the tag carries a priority only.
    #[inline]
    #[must_use]
    pub const fn vlan(self) -> u16 {
        self.0 & 0xfff
    }

    /// Priority code point, 0 to 7.
    #[inline]
    #[must_use]
    pub const fn priority(self) -> u8 {
        (self.0 >> 13) as u8
    }
}

/// A received frame.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    bytes: &'a [u8],
    dst: Mac,
    src: Mac,
    vlan: Option<VlanTag>,
    ethertype: EtherType,
}

impl<'a> Frame<'a> {
    /// Views the frame at the start of `bytes`, which hold at least its header.
    ///
    /// # Errors
    ///
    /// `Truncated` if the header is not complete.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        let &[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] =
            bytes.first_chunk::<HEADER_LEN>().ok_or(WireError::Truncated)?;
        let (vlan, ethertype) = if [t0, t1] == TPID {
            tagged(bytes)?
        } else {
            (None, u16::from_be_bytes([t0, t1]))
        };
        Ok(Self {
            bytes,
            dst: Mac([d0, d1, d2, d3, d4, d5]),
            src: Mac([s0, s1, s2, s3, s4, s5]),
            vlan,
            ethertype: EtherType(ethertype),
        })
    }

    /// The destination address.
    #[inline]
    #[must_use]
    pub fn dst(&self) -> Mac {
        self.dst
    }

    /// The source address.
    #[inline]
    #[must_use]
    pub fn src(&self) -> Mac {
        self.src
    }

    /// The VLAN tag, if the frame has one.
    #[inline]
    #[must_use]
    pub fn vlan(&self) -> Option<VlanTag> {
        self.vlan
    }

    /// The type of the payload.
    #[inline]
    #[must_use]
    pub fn ethertype(&self) -> EtherType {
        self.ethertype
    }

    /// Length of the header in bytes: the payload's offset.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        if self.vlan.is_some() {
            TAGGED_HEADER_LEN
        } else {
            HEADER_LEN
        }
    }

    /// The bytes behind the header, padding included.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(self.header_len()..).unwrap_or(&[])
    }

    /// The header as a structure.
    #[inline]
    #[must_use]
    pub fn header(&self) -> Header {
        Header {
            dst: self.dst,
            src: self.src,
            vlan: self.vlan,
            ethertype: self.ethertype,
        }
    }
}

/// Reads the VLAN tag and the type behind it.
#[cold]
fn tagged(bytes: &[u8]) -> Result<(Option<VlanTag>, u16)> {
    let [.., c0, c1, t0, t1] = *bytes
        .first_chunk::<TAGGED_HEADER_LEN>()
        .ok_or(WireError::Truncated)?;
    Ok((
        Some(VlanTag(u16::from_be_bytes([c0, c1]))),
        u16::from_be_bytes([t0, t1]),
    ))
}

/// A header for sending.
///
/// ```
/// use toehold_wire::Mac;
/// use toehold_wire::ethernet::{EtherType, Frame, Header};
/// let header = Header {
///     dst: Mac::BROADCAST,
///     src: Mac([2, 0, 0, 0, 0, 1]),
///     vlan: None,
///     ethertype: EtherType::ARP,
/// };
/// let mut bytes = [0; 60];
/// assert_eq!(header.emit(&mut bytes), 14);
/// assert_eq!(Frame::new(&bytes)?.header(), header);
/// # Ok::<(), toehold_wire::WireError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// The destination address.
    pub dst: Mac,
    /// The source address.
    pub src: Mac,
    /// The VLAN tag, if the frame gets one.
    pub vlan: Option<VlanTag>,
    /// The type of the payload. A tagged frame may not carry another tag: its type
    /// cannot be [`EtherType::VLAN`].
    pub ethertype: EtherType,
}

impl Header {
    /// Length of the header in bytes.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        if self.vlan.is_some() {
            TAGGED_HEADER_LEN
        } else {
            HEADER_LEN
        }
    }

    /// Returns `false`: a header is never empty.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header and returns its length.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`Header::len`].
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let ethertype = self.ethertype.0.to_be_bytes();
        let bytes: &mut [u8; HEADER_LEN] = start(buffer);
        bytes[0..6].copy_from_slice(&self.dst.0);
        bytes[6..12].copy_from_slice(&self.src.0);
        bytes[12..14].copy_from_slice(&ethertype);
        if let Some(tag) = self.vlan {
            let bytes: &mut [u8; TAGGED_HEADER_LEN] = start(buffer);
            bytes[12..14].copy_from_slice(&TPID);
            bytes[14..16].copy_from_slice(&tag.0.to_be_bytes());
            bytes[16..18].copy_from_slice(&ethertype);
        }
        self.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tag_shifts_payload() {
        let mut bytes = [0; 19];
        let header = Header {
            dst: Mac([2, 0, 0, 0, 0, 1]),
            src: Mac([2, 0, 0, 0, 0, 2]),
            vlan: Some(VlanTag::new(7, 5)),
            ethertype: EtherType::IPV6,
        };
        assert_eq!(header.emit(&mut bytes), 18);
        assert_eq!(bytes[12..18], [0x81, 0x00, 0xa0, 0x07, 0x86, 0xdd]);
        bytes[18] = 9;
        let frame = Frame::new(&bytes).unwrap();
        assert_eq!(
            (frame.vlan().unwrap().vlan(), frame.vlan().unwrap().priority()),
            (7, 5)
        );
        assert_eq!(frame.payload(), [9]);
        assert_eq!(Frame::new(&bytes[..17]).unwrap_err(), WireError::Truncated);
    }

    proptest! {
        #[test]
        fn header_round_trips(dst: [u8; 6], src: [u8; 6], tag in any::<Option<u16>>(), ethertype: u16) {
            prop_assume!(tag.is_some() || ethertype != EtherType::VLAN.0);
            let header =
                Header { dst: Mac(dst), src: Mac(src), vlan: tag.map(VlanTag), ethertype: EtherType(ethertype) };
            let mut bytes = [0; 20];
            let len = header.emit(&mut bytes);
            prop_assert_eq!(len, header.len());
            let frame = Frame::new(&bytes).unwrap();
            prop_assert_eq!(frame.header(), header);
            prop_assert_eq!(frame.header_len(), len);
            prop_assert_eq!(frame.payload().len(), 20 - len);
        }

        #[test]
        fn parse_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(frame) = Frame::new(&bytes) {
                prop_assert_eq!(frame.header_len() + frame.payload().len(), bytes.len());
            }
        }
    }
}
