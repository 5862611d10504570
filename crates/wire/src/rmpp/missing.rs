//! The ranges of sequence numbers that a NACK asks for.

use super::Seq;
use crate::{Result, WireError};

/// Most ranges in one NACK.
pub const MAX_RANGES: usize = 16;

/// Bytes of a range.
const RANGE_LEN: usize = 8;

/// A range of missing packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct MissingRange {
    /// The first missing sequence number.
    pub start: Seq,
    /// The sequence number behind the last missing one.
    pub end: Seq,
}

impl MissingRange {
    fn from_bytes([a, b, c, d, e, f, g, h]: [u8; RANGE_LEN]) -> Self {
        Self {
            start: Seq(u32::from_le_bytes([a, b, c, d])),
            end: Seq(u32::from_le_bytes([e, f, g, h])),
        }
    }

    fn to_bytes(self) -> [u8; RANGE_LEN] {
        let ([a, b, c, d], [e, f, g, h]) = (self.start.0.to_le_bytes(), self.end.0.to_le_bytes());
        [a, b, c, d, e, f, g, h]
    }

    fn is_empty(self) -> bool {
        !self.start.lt(self.end)
    }
}

/// A view of up to [`MAX_RANGES`] ranges in a packet. None is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingRanges<'a>(&'a [[u8; RANGE_LEN]]);

impl<'a> MissingRanges<'a> {
    /// Returns the number of ranges.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Iterates over the ranges in the packet's order.
    pub fn iter(&self) -> impl Iterator<Item = MissingRange> + use<'a> {
        self.0.iter().map(|bytes| MissingRange::from_bytes(*bytes))
    }

    /// The bytes of all ranges.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.0.as_flattened()
    }

    /// Views `count` ranges at the start of `bytes`.
    ///
    /// # Errors
    ///
    /// `BadLength` if there are none or too many, `Truncated` if the bytes end before, `BadField`
    /// if a range is empty.
    pub(super) fn parse(count: u64, bytes: &'a [u8]) -> Result<Self> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count == 0 || count > MAX_RANGES {
            return Err(WireError::BadLength);
        }
        let ranges = Self(bytes.as_chunks().0.get(..count).ok_or(WireError::Truncated)?);
        if ranges.iter().any(MissingRange::is_empty) {
            return Err(WireError::BadField);
        }
        Ok(ranges)
    }
}

/// Collects the ranges of a NACK.
#[derive(Debug, Clone, Default)]
pub struct RangeList {
    ranges: [[u8; RANGE_LEN]; MAX_RANGES],
    len: usize,
}

impl RangeList {
    /// Creates a list without ranges.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a range. Returns `false` if it is empty or if there is no room.
    pub fn push(&mut self, range: MissingRange) -> bool {
        let is_taken = !range.is_empty() && self.len < MAX_RANGES;
        if is_taken {
            self.ranges[self.len] = range.to_bytes();
            self.len += 1;
        }
        is_taken
    }

    /// Returns the ranges for a packet; `None` if there are none.
    #[must_use]
    pub fn ranges(&self) -> Option<MissingRanges<'_>> {
        (self.len > 0).then(|| MissingRanges(&self.ranges[..self.len]))
    }
}
