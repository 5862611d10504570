//! The layout of a segment, on which members agree. They may have different builds, on different
//! machines. Every change of it changes [`VERSION`].
//!
//! | offset | what |
//! | --- | --- |
//! | 0 | the word that describes the segment, see [`Geometry::to_word`] |
//! | [`SLOTS`] | a slot of [`SLOT`] bytes for each member |
//! | behind, at a whole page | a way for each ordered pair of members: [`HEAD`] bytes of words, and the ring |
//!
//! A segment of zeros is a fresh one: the first member describes it in one store, and no other
//! state needs initialisation. Its rings and records are those of [sections](super::super::layout).

use super::super::layout::{MAX_CAPACITY, MIN_CAPACITY, VERSION as RING_VERSION};
use super::SegmentError;

/// "toes" in memory on a little-endian machine.
const MAGIC: u32 = u32::from_le_bytes(*b"toes");

/// Version of the layout of segments, beside that of rings.
pub(super) const VERSION: u8 = 1;
// The fifth version of rings concerns the heads of sections, which segments do not have.
const _: () = assert!(RING_VERSION == 5, "a change of rings is one of segments");

/// Most members.
pub const MAX_MEMBERS: usize = 64;

/// Offset of the slots.
pub(super) const SLOTS: usize = 4096;
/// Bytes of a slot. The words of one member share no pair of cache lines with another's.
pub(super) const SLOT: usize = 256;
/// Bytes in front of the ring of a way.
pub(super) const HEAD: usize = 512;

/// Offset in a way's head of the words that its sender writes.
pub(super) const SESSION: usize = 0;
/// Offset in a way's head of the words that its receiver writes.
pub(super) const CONSUMED: usize = 128;
pub(super) const OFFER: usize = 136;
pub(super) const OFFERED_BY: usize = 144;
pub(super) const OFFERED_TO: usize = 152;
/// Offset of the sleepers' words: no thread rings or writes them here.
pub(super) const UNUSED: usize = 256;

const PAGE: usize = 4096;
/// Parts begin at multiples of this, a multiple of every system's page size.
const LONGEST_PAGE: usize = 64 << 10;

/// Most parts of a memory.
pub const MAX_PARTS: u8 = 16;

/// The part of the memory that a segment occupies. All parts have the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Counted from 0.
    pub index: u8,
    /// The number of parts: 1 to [`MAX_PARTS`].
    pub count: u8,
}

impl Part {
    /// The only part.
    pub const ALL: Part = Part { index: 0, count: 1 };

    /// The offset and length of the part in a memory of `len` bytes. If that is too short, the part
    /// has an offset only, which is too short for any segment.
    pub(super) fn within(self, len: usize) -> (usize, usize) {
        if self.count <= 1 {
            return (0, len);
        }
        let each = len / usize::from(self.count) / LONGEST_PAGE * LONGEST_PAGE;
        match each {
            0 => (0, len.min(size_of::<u64>())),
            each => (usize::from(self.index) * each, each),
        }
    }
}

/// The number of members, and the room for each way between two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) members: usize,
    /// Bytes of each ring: a power of two.
    pub(super) capacity: u64,
}

impl Geometry {
    /// The geometry with the longest rings that fit into `len` bytes.
    pub(super) fn within(len: usize, members: usize) -> Result<Geometry, SegmentError> {
        if !(2..=MAX_MEMBERS).contains(&members) {
            return Err(SegmentError::Members(members));
        }
        let mut capacity = MAX_CAPACITY;
        while capacity >= MIN_CAPACITY {
            let geometry = Geometry { members, capacity };
            if geometry.bytes_needed() <= len {
                return Ok(geometry);
            }
            capacity /= 2;
        }
        Err(SegmentError::TooShort { len, members })
    }

    /// The geometry and the part as one word, which is never zero.
    pub(super) fn to_word(self, part: Part) -> u64 {
        let [members, order] = [self.members as u64, self.capacity.ilog2().into()];
        let [index, count] = [part.index, part.count].map(u64::from);
        let part = (count - 1) << 56 | index << 60;
        u64::from(MAGIC) | u64::from(VERSION) << 32 | members << 40 | order << 48 | part
    }

    /// The geometry of a word, if it describes a segment in this part, of `len` bytes.
    pub(super) fn from_word(word: u64, len: usize, part: Part) -> Result<Geometry, SegmentError> {
        if word as u32 != MAGIC {
            return Err(SegmentError::NotASegment);
        }
        let version = (word >> 32) as u8;
        if version != VERSION {
            return Err(SegmentError::Version(version));
        }
        let there = (word >> 56) as u8 % MAX_PARTS + 1;
        if there != part.count {
            return Err(SegmentError::Parts {
                there,
                wanted: part.count,
            });
        }
        if (word >> 60) as u8 != part.index {
            return Err(SegmentError::NotASegment);
        }
        let geometry = Geometry {
            members: usize::from((word >> 40) as u8),
            capacity: 1_u64.checked_shl(u32::from((word >> 48) as u8)).unwrap_or(0),
        };
        let is_possible = (2..=MAX_MEMBERS).contains(&geometry.members)
            && (MIN_CAPACITY..=MAX_CAPACITY).contains(&geometry.capacity)
            && geometry.bytes_needed() <= len;
        match is_possible {
            true => Ok(geometry),
            false => Err(SegmentError::NotASegment),
        }
    }

    /// Bytes of the whole segment.
    fn bytes_needed(self) -> usize {
        self.first_way() + self.members * (self.members - 1) * self.way_len()
    }

    /// Offset of a member's slot.
    pub(super) fn slot(self, member: usize) -> usize {
        SLOTS + member * SLOT
    }

    /// Offset of the way from one member to another.
    pub(super) fn way(self, from: usize, to: usize) -> usize {
        let column = if to < from { to } else { to - 1 };
        self.first_way() + (from * (self.members - 1) + column) * self.way_len()
    }

    fn first_way(self) -> usize {
        (SLOTS + self.members * SLOT).next_multiple_of(PAGE)
    }

    fn way_len(self) -> usize {
        HEAD + self.capacity as usize
    }
}

const _: () = {
    assert!(CONSUMED - SESSION >= 128 && UNUSED - CONSUMED >= 128 && UNUSED + 16 <= HEAD);
    assert!(SLOT.is_multiple_of(128) && HEAD.is_multiple_of(128) && SLOTS.is_multiple_of(128));
    // The longest segment that any word describes is far from the limits of `usize`.
    assert!((MAX_CAPACITY as usize) < usize::MAX / (4 * MAX_MEMBERS * MAX_MEMBERS));
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_ways_fit_without_overlap() {
        for members in [2, 3, 8, MAX_MEMBERS] {
            let len = 64 << 20;
            let geometry = Geometry::within(len, members).unwrap();
            for part in [Part::ALL, Part { index: 15, count: 16 }] {
                assert_eq!(
                    Geometry::from_word(geometry.to_word(part), len, part),
                    Ok(geometry)
                );
            }
            let mut places: Vec<_> = (0..members).map(|member| (geometry.slot(member), SLOT)).collect();
            for from in 0..members {
                let others = (0..members).filter(|&to| to != from);
                places.extend(others.map(|to| (geometry.way(from, to), HEAD + geometry.capacity as usize)));
            }
            places.sort_unstable();
            assert!(places[0].0 >= 8);
            for pair in places.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0);
            }
            let (at, size) = places[places.len() - 1];
            assert!(at + size <= len && at + size == geometry.bytes_needed());
            let longer = Geometry {
                capacity: geometry.capacity * 2,
                ..geometry
            };
            assert!(longer.bytes_needed() > len, "rings as long as they can be");
        }
    }

    #[test]
    fn parts_fit_without_overlap() {
        for (len, count) in [
            (1 << 20, 3),
            (1 << 17, 2),
            (100_000, 16),
            (4095, 2),
            (3, 5),
            (12_345, 1),
        ] {
            let mut end = 0;
            for index in 0..count {
                let (offset, bytes) = Part { index, count }.within(len);
                assert!(offset.is_multiple_of(LONGEST_PAGE) && bytes > 0 && offset + bytes <= len);
                let is_too_short = Geometry::within(bytes, 2).is_err();
                assert!(offset == end || is_too_short, "{len} {count} {index}");
                end = offset + bytes;
            }
        }
        assert_eq!(Part::ALL.within(12_345), (0, 12_345));
    }

    #[test]
    fn false_words_are_refused() {
        let len = 1 << 20;
        let part = Part { index: 1, count: 3 };
        let from_word = |word, len| Geometry::from_word(word, len, part);
        let good = Geometry::within(len, 2).unwrap().to_word(part);
        for bit in 0..64 {
            let word = good ^ 1 << bit;
            match from_word(word, len) {
                Ok(other) => assert!(other.bytes_needed() <= len && other.members >= 2),
                Err(error) => assert!(matches!(
                    error,
                    SegmentError::NotASegment | SegmentError::Version(_) | SegmentError::Parts { .. }
                )),
            }
        }
        assert_eq!(from_word(good, len / 4), Err(SegmentError::NotASegment));
        assert_eq!(from_word(u64::MAX, len), Err(SegmentError::NotASegment));
        let other = Geometry::from_word(good, len, Part { index: 2, ..part });
        assert_eq!(other, Err(SegmentError::NotASegment));
        assert!(matches!(
            Geometry::within(12_000, 2),
            Err(SegmentError::TooShort { .. })
        ));
        assert_eq!(Geometry::within(len, 1), Err(SegmentError::Members(1)));
        assert_eq!(Geometry::within(len, 65), Err(SegmentError::Members(65)));
    }
}
