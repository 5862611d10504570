//! A packet: header, options and body.

use super::body::{put_words, words};
use super::header::Fixed;
use super::{HEADER_LEN, Lives, PacketBody, PacketFlags, PacketKind, Seq, crc32c};
use crate::{Result, WireError};

/// Length of the longest header with its options and fields, in bytes: a NACK's.
pub const MAX_HEADERS_LEN: usize = HEADER_LEN + 16 + 8 + super::MAX_RANGES * 8;

const CHECKSUM_LEN: usize = 4;

/// A packet, read or to be written.
///
/// ```
/// use toehold_wire::rmpp::{PacketBody, Packet};
/// let packet = Packet { check: 7, ..Packet::new(PacketBody::Eager { tag: 3, bytes: b"hello" }) };
/// let mut bytes = [0; 64];
/// let len = packet.emit(&mut bytes);
/// assert_eq!(len, 29);
/// assert_eq!(Packet::parse(&bytes[..len])?, packet);
/// # Ok::<(), toehold_wire::WireError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Flags that have no field of their own here: UNTAGGED, ACK_NOW, DELIVERED.
    pub flags: PacketFlags,
    /// Units that the peer may have sent so far, modulo 2^16.
    pub credit: u16,
    /// [`Lives::check`] of the flow.
    pub check: u32,
    /// The packet's number. In a packet of a kind without numbers: the next one.
    pub seq: Seq,
    /// The number that is expected next from the peer.
    pub ack: Seq,
    /// Both incarnations, if the packet has them (FIRST).
    pub lives: Option<Lives>,
    /// Bytes for the receiver's completion, if there are some (DATA).
    pub data: Option<u64>,
    /// Whether a CRC32C ends the packet (CHECKSUM).
    pub has_checksum: bool,
    /// What the packet says.
    pub body: PacketBody<'a>,
}

impl<'a> Packet<'a> {
    /// Creates a packet with this body, no options, and zero in all other fields.
    #[must_use]
    pub const fn new(body: PacketBody<'a>) -> Self {
        Self {
            flags: PacketFlags::NONE,
            credit: 0,
            check: 0,
            seq: Seq(0),
            ack: Seq(0),
            lives: None,
            data: None,
            has_checksum: false,
            body,
        }
    }

    /// Reads a packet. `bytes` begin behind the Ethernet header. Bytes behind the packet
    /// are padding, but for an EAGER packet, which ends with `bytes`.
    ///
    /// # Errors
    ///
    /// - `Truncated`, `BadVersion`, `BadChecksum`.
    /// - `Unsupported` for an unknown kind.
    /// - `BadField` for flags that are unknown, or that the kind does not have.
    /// - `BadLength` for a range or length that contradicts the packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let (fixed, rest) = Fixed::parse(bytes)?;
        let has_checksum = fixed.flags.contains(PacketFlags::CHECKSUM);
        let (lives, rest) = if fixed.flags.contains(PacketFlags::FIRST) {
            let ([sender, receiver], rest) = words(rest)?;
            (Some(Lives { sender, receiver }), rest)
        } else {
            (None, rest)
        };
        let (data, mut rest) = if fixed.flags.contains(PacketFlags::DATA) {
            let ([data], rest) = words(rest)?;
            (Some(data), rest)
        } else {
            (None, rest)
        };
        if has_checksum {
            let len = rest.len().checked_sub(CHECKSUM_LEN).ok_or(WireError::Truncated)?;
            rest = &rest[..len];
        }
        let body = PacketBody::parse(&fixed, rest, bytes.len())?;
        let packet = Self {
            flags: fixed.flags.without(OPTIONS),
            credit: fixed.credit,
            check: fixed.check,
            seq: fixed.seq,
            ack: fixed.ack,
            lives,
            data,
            has_checksum,
            body,
        };
        packet.verify(bytes)?;
        Ok(packet)
    }

    fn verify(&self, bytes: &[u8]) -> Result<()> {
        if !self.has_checksum {
            return Ok(());
        }
        let at = self.len() - CHECKSUM_LEN;
        let sum = bytes
            .get(at..)
            .and_then(|sum| sum.first_chunk())
            .ok_or(WireError::Truncated)?;
        if crc32c(0, &bytes[..at]) == u32::from_le_bytes(*sum) {
            Ok(())
        } else {
            Err(WireError::BadChecksum)
        }
    }

    /// Returns the kind of the packet.
    #[must_use]
    pub const fn kind(&self) -> PacketKind {
        self.body.kind()
    }

    /// Length of everything before the message bytes, in bytes; at most
    /// [`MAX_HEADERS_LEN`].
    #[must_use]
    pub fn headers_len(&self) -> usize {
        let options = usize::from(self.lives.is_some()) * 16 + usize::from(self.data.is_some()) * 8;
        HEADER_LEN + options + self.body.fields_len()
    }

    /// Length of the packet in bytes, checksum and a HELLO's zeroes included.
    #[must_use]
    pub fn len(&self) -> usize {
        let checksum = usize::from(self.has_checksum) * CHECKSUM_LEN;
        let len = self.headers_len() + self.body.bytes().len() + checksum;
        match self.body {
            PacketBody::Hello {
                len: asked,
                is_answer: false,
            } => len.max(asked as usize),
            _ => len,
        }
    }

    /// Returns `false`: a packet is never empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes everything before the message bytes, and returns its length. For a link
    /// that takes the message bytes by reference.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`Packet::headers_len`].
    pub fn emit_headers(&self, buffer: &mut [u8]) -> usize {
        let len = self.headers_len();
        self.fixed().emit(buffer);
        let mut rest = &mut buffer[HEADER_LEN..len];
        if let Some(Lives { sender, receiver }) = self.lives {
            put_words(rest, [sender, receiver]);
            rest = &mut rest[16..];
        }
        if let Some(data) = self.data {
            put_words(rest, [data]);
            rest = &mut rest[8..];
        }
        self.body.emit_fields(rest);
        len
    }

    fn fixed(&self) -> Fixed {
        let mut flags = self.flags.without(OPTIONS);
        for (is_set, flag) in [
            (self.lives.is_some(), PacketFlags::FIRST),
            (self.data.is_some(), PacketFlags::DATA),
            (self.has_checksum, PacketFlags::CHECKSUM),
        ] {
            if is_set {
                flags |= flag;
            }
        }
        Fixed {
            kind: self.kind(),
            flags,
            credit: self.credit,
            check: self.check,
            seq: self.seq,
            ack: self.ack,
            tag: self.body.tag(),
        }
    }

    /// Writes the whole packet, and returns its length.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`Packet::len`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let len = self.len();
        let buffer = &mut buffer[..len];
        let at = self.emit_headers(buffer);
        let (message, behind) = buffer[at..].split_at_mut(self.body.bytes().len());
        message.copy_from_slice(self.body.bytes());
        behind.fill(0);
        if self.has_checksum {
            let (covered, sum) = buffer.split_at_mut(len - CHECKSUM_LEN);
            sum.copy_from_slice(&crc32c(0, covered).to_le_bytes());
        }
        len
    }
}

/// Flags that [`Packet`] has fields for.
const OPTIONS: PacketFlags = {
    let bits = PacketFlags::FIRST.bits() | PacketFlags::DATA.bits() | PacketFlags::CHECKSUM.bits();
    match PacketFlags::from_bits(bits) {
        Some(flags) => flags,
        None => PacketFlags::NONE,
    }
};
