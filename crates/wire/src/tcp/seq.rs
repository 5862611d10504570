//! TCP sequence numbers: positions on a circle of 2^32.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A TCP sequence number.
///
/// Comparison is only meaningful between numbers less than 2^31 apart, as any two
/// numbers of one connection are. `Ord` is deliberately not implemented: the
/// relation is not transitive around the circle.
///
/// ```
/// use toehold_wire::tcp::Seq;
/// let before = Seq(u32::MAX);
/// let after = before + 2;
/// assert_eq!(after, Seq(1));
/// assert!(before.lt(after));
/// assert_eq!(after.distance(before), 2);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct Seq(pub u32);

//= RFC 9293 §3.4
impl Seq {
    /// Returns the distance from `from` forward to this number around the
    /// circle.
    #[inline]
    #[must_use]
    pub const fn distance(self, from: Self) -> u32 {
        self.0.wrapping_sub(from.0)
    }

    /// Returns the distance from `earlier` forward to this number; 0 if it is
    /// not later.
    #[inline]
    #[must_use]
    pub const fn after(self, earlier: Self) -> u32 {
        if self.gt(earlier) {
            self.distance(earlier)
        } else {
            0
        }
    }

    /// Returns whether this number comes before `other`.
    #[inline]
    #[must_use]
    pub const fn lt(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Returns whether this number is before or equal to `other`.
    #[inline]
    #[must_use]
    pub const fn le(self, other: Self) -> bool {
        !other.lt(self)
    }

    /// Returns whether this number comes after `other`.
    #[inline]
    #[must_use]
    pub const fn gt(self, other: Self) -> bool {
        other.lt(self)
    }

    /// Returns whether this number is after or equal to `other`.
    #[inline]
    #[must_use]
    pub const fn ge(self, other: Self) -> bool {
        !self.lt(other)
    }

    /// Returns the later of two numbers.
    #[inline]
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        if self.lt(other) { other } else { self }
    }

    /// Returns the earlier of two numbers.
    #[inline]
    #[must_use]
    pub const fn min(self, other: Self) -> Self {
        if other.lt(self) { other } else { self }
    }

    /// Returns whether this number is one of the `len` numbers from `start` on.
    #[inline]
    #[must_use]
    pub const fn in_window(self, start: Self, len: u32) -> bool {
        self.distance(start) < len
    }
}

impl Add<u32> for Seq {
    type Output = Self;

    #[inline]
    fn add(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }
}

impl AddAssign<u32> for Seq {
    #[inline]
    fn add_assign(&mut self, count: u32) {
        *self = *self + count;
    }
}

impl Sub<u32> for Seq {
    type Output = Self;

    #[inline]
    fn sub(self, count: u32) -> Self {
        Self(self.0.wrapping_sub(count))
    }
}

impl SubAssign<u32> for Seq {
    #[inline]
    fn sub_assign(&mut self, count: u32) {
        *self = *self - count;
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
