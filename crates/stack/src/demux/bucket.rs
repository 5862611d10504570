//! A bucket of the flow table: a cache line of ids, each with some bits of its hash.

use toehold_shm::equal;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Ids in a bucket: a cache line holds this many tags of 16 bits and ids of 24 bits.
pub(super) const WAYS: usize = 12;

/// Most displaced ids that a bucket counts for a group of tags.
pub(super) const MOST_TURNED_AWAY: u32 = 15;

/// All zeroes: an empty bucket.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Bucket {
    /// 16 bits of the hash; 0: the slot is free.
    tags: [u16; WAYS],
    low: [u16; WAYS],
    high: [u8; WAYS],
    /// Eight counters of four bits, indexed by the lowest bits of a tag. Each counts ids whose
    /// first bucket this is, but which lie elsewhere.
    turned_away: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// Slots of a bucket, as bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Ways(u32);

impl Iterator for Ways {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let way = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(way)
    }
}

impl Ways {
    pub(super) fn count_ones(self) -> u32 {
        self.0.count_ones()
    }
}

impl Bucket {
    /// The number of ids that lie elsewhere, whose first bucket this is and whose tag shares the
    /// counter.
    #[inline]
    pub(super) fn turned_away(&self, tag: u16) -> u32 {
        self.turned_away >> Self::shift(tag) & MOST_TURNED_AWAY
    }

    #[inline]
    fn shift(tag: u16) -> u32 {
        u32::from(tag % 8) * 4
    }

    /// Counts an id with this tag that goes elsewhere.
    pub(super) fn turn_away(&mut self, tag: u16) {
        self.turned_away = self.turned_away.wrapping_add(1 << Self::shift(tag));
    }

    /// Counts an id with this tag as removed from elsewhere.
    pub(super) fn take_back(&mut self, tag: u16) {
        self.turned_away = self.turned_away.wrapping_sub(1 << Self::shift(tag));
    }

    #[inline]
    pub(super) fn id(&self, way: usize) -> u32 {
        u32::from(self.high[way]) << 16 | u32::from(self.low[way])
    }

    /// The ids, in the order of their slots.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.taken().map(|way| self.id(way))
    }

    /// The slots with this tag.
    #[inline]
    pub(super) fn matches(&self, tag: u16) -> Ways {
        Ways(equal(&self.tags, tag))
    }

    /// The slots in use.
    pub(super) fn taken(&self) -> Ways {
        Ways(!self.matches(0).0 & ((1 << WAYS) - 1))
    }

    #[inline]
    pub(super) fn free(&self) -> Option<usize> {
        self.matches(0).next()
    }

    pub(super) fn set(&mut self, way: usize, tag: u16, id: u32) {
        self.tags[way] = tag;
        self.low[way] = id as u16;
        self.high[way] = (id >> 16) as u8;
    }

    /// Whether the bucket is all zeroes, as in a new table.
    #[cfg(test)]
    pub(super) fn is_pristine(&self) -> bool {
        self.as_bytes().iter().all(|byte| *byte == 0)
    }
}
