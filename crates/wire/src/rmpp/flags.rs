//! The flags of a packet.

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

/// The flags of a packet, one bit each. The parser refuses bits without meaning.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PacketFlags(u8);

impl PacketFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// Both incarnations follow the header. The sender has heard nothing of the peer's
    /// present life.
    pub const FIRST: Self = Self(1);
    /// Eight bytes for the receiver's completion follow.
    pub const DATA: Self = Self(2);
    /// The message has no tag.
    pub const UNTAGGED: Self = Self(4);
    /// The sender waits for an acknowledgement or a grant.
    pub const ACK_NOW: Self = Self(8);
    /// On a message: asks for a DONE after placement. On a DONE: answers that, with the
    /// message's sequence number as token.
    pub const DELIVERED: Self = Self(16);
    /// A CRC32C of the packet follows its last byte.
    pub const CHECKSUM: Self = Self(32);

    const ALL: u8 = 63;

    /// Reads a byte. Returns `None` if a bit has no meaning.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::ALL == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }

    /// Returns the byte that stands for these flags.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns `true` if all flags of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns these flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for PacketFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for PacketFlags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for PacketFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 6] = ["FIRST", "DATA", "UNTAGGED", "ACK_NOW", "DELIVERED", "CHECKSUM"];
        let set = (0..NAMES.len()).filter(|bit| self.0 >> bit & 1 != 0);
        f.debug_set().entries(set.map(|bit| NAMES[bit])).finish()
    }
}
