//! The layout of a section, on which two processes of possibly different builds agree. Every change
//! of it changes [`VERSION`].
//!
//! Each side of a link owns one section. It alone writes the section, and the other side maps it
//! for reading:
//!
//! | offset | what |
//! | --- | --- |
//! | 0 | [`SectionHeader`], written once |
//! | [`CONSUMED`] | how far this side has consumed the *other* side's records |
//! | [`SLEEPING`] | odd while this side sleeps until the other side sends; with [`FENCE_YOURSELF`] |
//! | [`STARVING`] | odd while this side waits until the other side makes room |
//! | [`NUMBER`] | the number that the other side sends when it rings this one; written before it may ring |
//! | [`RECORDS`] | the records this side sends: `capacity` bytes |
//!
//! Positions count bytes since the beginning and never wrap. The place of a position is the
//! position modulo the capacity. Records lie at multiples of [`RECORD_ALIGN`], begin with a
//! [`RecordHeader`] and never cross the end: a padding record fills the space before it.
//!
//! Memory holds no position of the producer. A record is present once its header is not zero.
//! Before a record becomes visible, the producer zeroes the header after it. A message therefore
//! costs the consumer the transfer of one cache line, that of the record. A position would cost a
//! second one, in sequence.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// "toehold\n" in memory on a little-endian machine.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"toehold\n");

/// Version of the layout of sections and records. Two sides must have the same.
pub const VERSION: u16 = 5;

/// Offset of the consumer's position.
pub(super) const CONSUMED: usize = 128;
/// Offset of the consumer's sleeping word.
pub(super) const SLEEPING: usize = 256;
/// Set in the sleeping word while the producer has to fence before it trusts that word. A consumer
/// that sleeps often does not fence for both, see [`super::barrier`].
pub(super) const FENCE_YOURSELF: u64 = 1 << 63;
/// Offset of the producer's starving word.
pub(super) const STARVING: usize = 384;
/// Offset of this side's number for the other side.
pub(super) const NUMBER: usize = 512;
/// Offset of the records.
pub(super) const RECORDS: usize = 4096;

/// Records begin at multiples of this: a cache line.
pub(super) const RECORD_ALIGN: u64 = 64;

/// Fewest bytes for records.
pub(super) const MIN_CAPACITY: u64 = 4096;
/// Most bytes for records, so that lengths are far from the limits of `u32`.
pub(super) const MAX_CAPACITY: u64 = 1 << 30;

/// The beginning of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct SectionHeader {
    /// [`MAGIC`].
    pub(super) magic: u64,
    /// [`VERSION`].
    pub(super) version: u16,
    /// 1 if this side executes a fence in every registered process before it sleeps. Then the other
    /// side need not fence after it has sent.
    pub(super) fences_everywhere: u16,
    /// [`RECORDS`].
    pub(super) records: u32,
    /// Random number that distinguishes this section from any other.
    pub(super) incarnation: u64,
    /// Bytes for records: a power of two.
    pub(super) capacity: u64,
}

/// The fields of the word at the beginning of a record. As a word it is never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordHeader {
    /// Bytes of the record after the header.
    pub(super) len: u32,
    /// The kind of the record; never 0.
    pub(super) kind: u16,
    /// Low bits of the record's position divided by [`RECORD_ALIGN`]. They distinguish a record
    /// from bytes of an earlier lap.
    pub(super) sequence: u16,
}

/// Bytes of a [`RecordHeader`].
pub(super) const HEADER_LEN: u64 = 8;

/// Kind of a record that only fills the space before the end.
pub(super) const PADDING: u16 = u16::MAX;

impl RecordHeader {
    #[inline]
    pub(super) fn new(position: u64, kind: u16, len: u32) -> Self {
        Self {
            len,
            kind,
            sequence: (position / RECORD_ALIGN) as u16,
        }
    }

    #[inline]
    pub(super) fn to_word(self) -> u64 {
        u64::from(self.len) | u64::from(self.kind) << 32 | u64::from(self.sequence) << 48
    }

    #[inline]
    pub(super) fn from_word(word: u64) -> Self {
        Self {
            len: word as u32,
            kind: (word >> 32) as u16,
            sequence: (word >> 48) as u16,
        }
    }

    /// Bytes of the whole record in the ring.
    #[inline]
    pub(super) fn size(self) -> u64 {
        record_size(u64::from(self.len))
    }
}

/// Bytes of a record with `len` bytes of content in the ring; `len` must be far from 2⁶⁴.
#[inline]
pub(super) fn record_size(len: u64) -> u64 {
    (len + HEADER_LEN + RECORD_ALIGN - 1) & !(RECORD_ALIGN - 1)
}

/// The longest record of a ring: it fits even if half the ring has to be padded.
#[inline]
pub(super) fn max_record(capacity: u64) -> u64 {
    capacity / 2 - HEADER_LEN
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<SectionHeader>() == 32);
    assert!(offset_of!(SectionHeader, magic) == 0);
    assert!(offset_of!(SectionHeader, version) == 8);
    assert!(offset_of!(SectionHeader, records) == 12);
    assert!(offset_of!(SectionHeader, incarnation) == 16);
    assert!(offset_of!(SectionHeader, capacity) == 24);
    // Words that one side writes often share no pair of cache lines with others.
    assert!(size_of::<SectionHeader>() <= CONSUMED && CONSUMED.is_multiple_of(128));
    assert!(SLEEPING - CONSUMED >= 128 && STARVING - SLEEPING >= 128 && NUMBER - STARVING >= 128);
    assert!(RECORDS - NUMBER >= 128);
    assert!(RECORDS.is_multiple_of(RECORD_ALIGN as usize) && MIN_CAPACITY.is_power_of_two());
    assert!(MIN_CAPACITY >= 2 * RECORD_ALIGN && MAX_CAPACITY <= u32::MAX as u64);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_conversion_to_word() {
        let header = RecordHeader::new(64 * 0x1_2345, 7, 0xdead_beef);
        assert_eq!(header.sequence, 0x2345);
        assert_eq!(RecordHeader::from_word(header.to_word()), header);
        assert_ne!(RecordHeader::new(0, 1, 0).to_word(), 0);
    }

    #[test]
    fn sizes_are_whole_lines() {
        assert_eq!(record_size(0), 64);
        assert_eq!(record_size(56), 64);
        assert_eq!(record_size(57), 128);
        assert_eq!(record_size(max_record(4096)), 2048);
    }
}
