//! IPv4 headers (RFC 791).

use core::net::Ipv4Addr;

use crate::{Result, WireError, checksum, start};

/// Bytes of a header without options. Every sent header has this length.
pub const HEADER_LEN: usize = 20;
/// Largest packet in bytes.
pub const MAX_PACKET_LEN: usize = 65535;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_LOOSE_SOURCE_ROUTE: u8 = 131;
const OPTION_STRICT_SOURCE_ROUTE: u8 = 137;

/// A received packet.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    fixed: &'a [u8; HEADER_LEN],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Views the packet at the start of `bytes`, which hold at least its whole
    /// header. `available` is the packet's length in bytes as received, with
    /// link-layer padding.
    ///
    /// # Errors
    ///
    /// `Truncated` if the header is not complete. `BadVersion`. `BadLength` if a
    /// length contradicts another one, or a fragment is impossible. `BadChecksum`
    /// for the header's. `BadOption` if the options are malformed.
    #[inline]
    pub fn new(bytes: &'a [u8], available: usize) -> Result<Self> {
        let mut view = Self::split(bytes)?;
        let header_len = view.header_len();
        let total_len = usize::from(view.total_len());
        if total_len < header_len || total_len > available {
            return Err(WireError::BadLength);
        }
        //= RFC 1122 §3.2.1.2
        let options_sum = if view.options.is_empty() {
            0
        } else {
            checksum::sum(view.options)
        };
        if !checksum::is_valid(checksum::combine(checksum::sum(view.fixed), options_sum, false)) {
            return Err(WireError::BadChecksum);
        }
        if !view.options.is_empty() && options(view.options).any(|option| option.is_err()) {
            return Err(WireError::BadOption);
        }
        if view.is_fragment() {
            view.check_fragment()?;
        }
        let payload_len = view.payload.len().min(total_len - header_len);
        view.payload = view.payload.get(..payload_len).unwrap_or(&[]);
        Ok(view)
    }

    /// Views a packet whose beginning an ICMP message quotes. Lengths and
    /// checksum are not checked, and the payload may be cut short.
    ///
    /// # Errors
    ///
    /// `Truncated`, `BadVersion` or `BadLength` if there is no IPv4 header.
    pub fn quoted(bytes: &'a [u8]) -> Result<Self> {
        Self::split(bytes)
    }

    /// Checks the lengths that keep accessors inside `bytes`.
    #[inline]
    fn split(bytes: &'a [u8]) -> Result<Self> {
        let (fixed, rest) = bytes
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(WireError::Truncated)?;
        //= RFC 1122 §3.2.1.1
        if fixed[0] >> 4 != 4 {
            return Err(WireError::BadVersion);
        }
        let options_len = (usize::from(fixed[0] & 15) * 4)
            .checked_sub(HEADER_LEN)
            .ok_or(WireError::BadLength)?;
        let (options, payload) = rest.split_at_checked(options_len).ok_or(WireError::Truncated)?;
        Ok(Self {
            fixed,
            options,
            payload,
        })
    }

    /// Checks a fragment's range. It must end within the largest packet. Only
    /// the last fragment's length may be no multiple of 8.
    #[cold]
    fn check_fragment(&self) -> Result<()> {
        //= RFC 791 §3.2
        let len = self.payload_len();
        let end = usize::from(self.fragment_offset()) + usize::from(len);
        let odd = self.more_fragments() && !len.is_multiple_of(8);
        if len == 0 || odd || end > MAX_PACKET_LEN - HEADER_LEN {
            Err(WireError::BadLength)
        } else {
            Ok(())
        }
    }

    #[inline]
    fn u16_at<const AT: usize>(&self) -> u16 {
        u16::from_be_bytes([self.fixed[AT], self.fixed[AT + 1]])
    }

    /// Length of the header in bytes.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Length of the packet in bytes, header included.
    #[inline]
    #[must_use]
    pub fn total_len(&self) -> u16 {
        self.u16_at::<2>()
    }

    /// Number of bytes behind the header.
    #[inline]
    #[must_use]
    pub fn payload_len(&self) -> u16 {
        self.total_len().saturating_sub(self.header_len() as u16)
    }

    /// Type of service: DSCP in the upper six bits, ECN in the lower two.
    #[inline]
    #[must_use]
    pub fn tos(&self) -> u8 {
        self.fixed[1]
    }

    /// The two ECN bits (RFC 3168 §5).
    #[inline]
    #[must_use]
    pub fn ecn(&self) -> u8 {
        self.tos() & 3
    }

    /// Identification; equal in all fragments of a packet.
    #[inline]
    #[must_use]
    pub fn id(&self) -> u16 {
        self.u16_at::<4>()
    }

    /// Returns whether routers must not fragment the packet.
    #[inline]
    #[must_use]
    pub fn dont_fragment(&self) -> bool {
        self.u16_at::<6>() & DONT_FRAGMENT != 0
    }

    /// Returns whether other fragments follow this one.
    #[inline]
    #[must_use]
    pub fn more_fragments(&self) -> bool {
        self.u16_at::<6>() & MORE_FRAGMENTS != 0
    }

    /// Offset in bytes of this payload in the original packet's payload.
    #[inline]
    #[must_use]
    pub fn fragment_offset(&self) -> u16 {
        (self.u16_at::<6>() & OFFSET_MASK) * 8
    }

    /// Returns whether this packet is a fragment.
    #[inline]
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        self.u16_at::<6>() & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// Time to live, in hops.
    #[inline]
    #[must_use]
    pub fn ttl(&self) -> u8 {
        self.fixed[8]
    }

    /// The payload's protocol, see [`crate::protocol`].
    #[inline]
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.fixed[9]
    }

    /// The source address.
    #[inline]
    #[must_use]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::new(self.fixed[12], self.fixed[13], self.fixed[14], self.fixed[15])
    }

    /// The destination address.
    #[inline]
    #[must_use]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::new(self.fixed[16], self.fixed[17], self.fixed[18], self.fixed[19])
    }

    /// Returns whether the packet has a source-route option.
    #[inline]
    #[must_use]
    pub fn has_source_route(&self) -> bool {
        options(self.options)
            .filter_map(Result::ok)
            .any(|kind| matches!(kind, OPTION_LOOSE_SOURCE_ROUTE | OPTION_STRICT_SOURCE_ROUTE))
    }

    /// The given bytes behind the header, without link-layer padding. Shorter
    /// than [`View::payload_len`] if the given bytes end early.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Iterates over the option kinds of a list. A malformed list ends with an
/// error.
fn options(list: &[u8]) -> impl Iterator<Item = Result<u8>> + '_ {
    let mut rest = list;
    core::iter::from_fn(move || {
        loop {
            match *rest {
                [] | [OPTION_END, ..] => return None,
                [OPTION_NOP, ref tail @ ..] => rest = tail,
                [kind, ref tail @ ..] => {
                    //= RFC 791 §3.1
                    // An option's length counts its kind and length bytes.
                    let len = tail.first().map_or(0, |len| usize::from(*len));
                    let Some(after) = rest.get(len..).filter(|_| len >= 2) else {
                        rest = &[];
                        return Some(Err(WireError::BadOption));
                    };
                    rest = after;
                    return Some(Ok(kind));
                }
            }
        }
    })
}

/// A header without options, for sending.
///
/// ```
/// use std::net::Ipv4Addr;
/// use toehold_wire::{ipv4, protocol};
/// let header = ipv4::Header {
///     payload_len: 4,
///     protocol: protocol::TCP,
///     ..ipv4::Header::new(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
/// };
/// let mut packet = [0; 24];
/// assert_eq!(header.emit(&mut packet), 20);
/// let view = ipv4::View::new(&packet, packet.len())?;
/// assert_eq!(view.dst(), Ipv4Addr::new(10, 0, 0, 2));
/// assert_eq!(view.payload().len(), 4);
/// # Ok::<(), toehold_wire::WireError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Type of service: DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// Identification; equal in all fragments of a packet.
    pub id: u16,
    /// Whether routers must not fragment the packet.
    pub dont_fragment: bool,
    /// Whether other fragments follow this one.
    pub more_fragments: bool,
    /// Offset in bytes of this payload in the original one: a multiple of 8.
    pub fragment_offset: u16,
    /// Time to live, in hops.
    pub ttl: u8,
    /// The payload's protocol, see [`crate::protocol`].
    pub protocol: u8,
    /// The source address.
    pub src: Ipv4Addr,
    /// The destination address.
    pub dst: Ipv4Addr,
    /// Number of bytes behind the header, at most 65515.
    pub payload_len: u16,
}

impl Header {
    /// Creates a header with the usual values: no payload, not to be
    /// fragmented, 64 hops.
    #[inline]
    #[must_use]
    pub const fn new(src: Ipv4Addr, dst: Ipv4Addr) -> Self {
        Self {
            tos: 0,
            id: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol: 0,
            src,
            dst,
            payload_len: 0,
        }
    }

    /// Writes the header with its checksum and returns its length.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`HEADER_LEN`].
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let flags = if self.dont_fragment { DONT_FRAGMENT } else { 0 };
        let flags = flags | if self.more_fragments { MORE_FRAGMENTS } else { 0 };
        let words = [
            u16::from_be_bytes([0x45, self.tos]),
            self.payload_len.saturating_add(HEADER_LEN as u16),
            self.id,
            flags | (self.fragment_offset / 8),
            u16::from_be_bytes([self.ttl, self.protocol]),
        ];
        let sum = words.iter().map(|word| u32::from(*word)).sum();
        let sum = checksum::combine(sum, checksum::pseudo_header_v4(self.src, self.dst, 0, 0), false);
        let bytes: &mut [u8; HEADER_LEN] = start(buffer);
        for (place, word) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        bytes[10..12].copy_from_slice(&checksum::finish(sum).to_be_bytes());
        bytes[12..16].copy_from_slice(&self.src.octets());
        bytes[16..20].copy_from_slice(&self.dst.octets());
        HEADER_LEN
    }
}

#[cfg(test)]
mod tests;
