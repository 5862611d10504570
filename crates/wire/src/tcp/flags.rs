//! Control bits of a TCP header.

use core::fmt;
use core::ops::{BitAnd, BitOr, BitOrAssign, Not};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The control bits of a segment (RFC 9293 §3.1; ECE and CWR RFC 3168, AE RFC 9768).
///
/// ```
/// use toehold_wire::tcp::Flags;
/// let flags = Flags::SYN | Flags::ACK;
/// assert!(flags.contains(Flags::SYN));
/// assert_eq!(flags.to_string(), "SYN|ACK");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct Flags(pub u16);

impl Flags {
    /// No bit set.
    pub const NONE: Self = Self(0);
    /// The sender has no more data.
    pub const FIN: Self = Self(1);
    /// Synchronize sequence numbers.
    pub const SYN: Self = Self(1 << 1);
    /// Reset the connection.
    pub const RST: Self = Self(1 << 2);
    /// Push: the receiver passes data on at once.
    pub const PSH: Self = Self(1 << 3);
    /// The acknowledgement field is significant.
    pub const ACK: Self = Self(1 << 4);
    /// The urgent pointer is significant.
    pub const URG: Self = Self(1 << 5);
    /// ECN echo: the sender received a congestion mark.
    pub const ECE: Self = Self(1 << 6);
    /// The sender reduced its congestion window.
    pub const CWR: Self = Self(1 << 7);
    /// Accurate ECN.
    pub const AE: Self = Self(1 << 8);
    /// All named bits. The three reserved ones are ignored on receipt and sent
    /// as zero.
    pub const ALL: Self = Self(0x1ff);

    const NAMES: [(Self, &'static str); 9] = [
        (Self::FIN, "FIN"),
        (Self::SYN, "SYN"),
        (Self::RST, "RST"),
        (Self::PSH, "PSH"),
        (Self::ACK, "ACK"),
        (Self::URG, "URG"),
        (Self::ECE, "ECE"),
        (Self::CWR, "CWR"),
        (Self::AE, "AE"),
    ];

    /// Returns whether all bits of `other` are set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether any bit of `other` is set.
    #[inline]
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether no bit is set.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the bits of `self` that are not in `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Flags {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for Flags {
    type Output = Self;

    #[inline]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for Flags {
    type Output = Self;

    #[inline]
    fn not(self) -> Self {
        Self(!self.0 & Self::ALL.0)
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (flag, name) in Self::NAMES {
            if self.contains(flag) {
                write!(f, "{between}{name}")?;
                between = "|";
            }
        }
        if between.is_empty() {
            f.write_str("-")
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
