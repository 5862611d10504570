//! The fixed header, and the numbers of the kinds.

use super::{PacketFlags, Seq};
use crate::{Result, WireError, start};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 24;

/// The version that this crate reads and writes.
pub const VERSION: u8 = 1;

/// The kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketKind {
    /// A whole message.
    Eager = 0,
    /// A piece of an eager message, where packets are shorter than messages.
    Part = 1,
    /// A message whose bytes stay with the sender until they are asked for.
    Offer = 2,
    /// The receiver of an offer asks for a range.
    Pull = 3,
    /// Bytes of a range that was asked for.
    Piece = 4,
    /// The receiver has all that it wants of an offer, or has placed a message.
    Done = 5,
    /// Acknowledges and grants.
    Ack = 6,
    /// Acknowledges, and names missing packets.
    Nack = 7,
    /// Finds the longest packet of a path.
    Hello = 8,
    /// The receiver of a packet does not know its life, or has died.
    Reset = 9,
    /// An orderly end.
    Bye = 10,
}

impl PacketKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::Eager,
        Self::Part,
        Self::Offer,
        Self::Pull,
        Self::Piece,
        Self::Done,
        Self::Ack,
        Self::Nack,
        Self::Hello,
        Self::Reset,
        Self::Bye,
    ];

    /// Returns `true` if packets of this kind are numbered, acknowledged and repeated.
    #[must_use]
    pub const fn is_sequenced(self) -> bool {
        !matches!(self, Self::Ack | Self::Nack | Self::Hello | Self::Reset)
    }

    /// Returns `true` if packets of this kind begin or are a message.
    #[must_use]
    pub const fn is_message(self) -> bool {
        matches!(self, Self::Eager | Self::Part | Self::Offer)
    }

    /// The flags that a packet of this kind may have.
    pub(super) fn allowed_flags(self) -> PacketFlags {
        let always = PacketFlags::FIRST | PacketFlags::CHECKSUM | PacketFlags::ACK_NOW;
        match self {
            Self::Eager | Self::Part | Self::Offer => {
                always | PacketFlags::DATA | PacketFlags::UNTAGGED | PacketFlags::DELIVERED
            }
            Self::Done => always | PacketFlags::DELIVERED,
            Self::Reset => PacketFlags::CHECKSUM,
            _ => always,
        }
    }
}

/// The fields of the fixed header, as they stand there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fixed {
    pub(super) kind: PacketKind,
    pub(super) flags: PacketFlags,
    pub(super) credit: u16,
    pub(super) check: u32,
    pub(super) seq: Seq,
    pub(super) ack: Seq,
    pub(super) tag: u64,
}

impl Fixed {
    /// Reads the fixed header, and returns the bytes behind it.
    ///
    /// # Errors
    ///
    /// `Truncated`, `BadVersion`, `Unsupported` for a kind without meaning, `BadField` for
    /// a flag without meaning.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, &[u8])> {
        let (fixed, rest) = bytes
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(WireError::Truncated)?;
        let &[
            v,
            f,
            c0,
            c1,
            k0,
            k1,
            k2,
            k3,
            s0,
            s1,
            s2,
            s3,
            a0,
            a1,
            a2,
            a3,
            ref tag @ ..,
        ] = fixed;
        if v >> 4 != VERSION {
            return Err(WireError::BadVersion);
        }
        let kind = PacketKind::ALL
            .get(usize::from(v & 15))
            .copied()
            .ok_or(WireError::Unsupported)?;
        let flags = PacketFlags::from_bits(f).ok_or(WireError::BadField)?;
        if !kind.allowed_flags().contains(flags) {
            return Err(WireError::BadField);
        }
        let fixed = Self {
            kind,
            flags,
            credit: u16::from_le_bytes([c0, c1]),
            check: u32::from_le_bytes([k0, k1, k2, k3]),
            seq: Seq(u32::from_le_bytes([s0, s1, s2, s3])),
            ack: Seq(u32::from_le_bytes([a0, a1, a2, a3])),
            tag: u64::from_le_bytes(*tag),
        };
        Ok((fixed, rest))
    }

    /// Writes the fixed header.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`HEADER_LEN`].
    pub(super) fn emit(&self, buffer: &mut [u8]) {
        let place: &mut [u8; HEADER_LEN] = start(buffer);
        place[0] = VERSION << 4 | self.kind as u8;
        place[1] = self.flags.bits();
        place[2..4].copy_from_slice(&self.credit.to_le_bytes());
        place[4..8].copy_from_slice(&self.check.to_le_bytes());
        place[8..12].copy_from_slice(&self.seq.0.to_le_bytes());
        place[12..16].copy_from_slice(&self.ack.0.to_le_bytes());
        place[16..24].copy_from_slice(&self.tag.to_le_bytes());
    }
}
