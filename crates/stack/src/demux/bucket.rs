//! A bucket of the flow table: a cache line of ids, each with some bits of its hash.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Ids in a bucket: four tags fit a word, and three words leave room for the ids.
pub(super) const WAYS: usize = 12;
const LANES: usize = 4;
pub(super) const WORDS: usize = WAYS / LANES;

/// A one in every lane of a word, and all bits but the highest.
const ONES: u64 = 0x0001_0001_0001_0001;
const LOW_BITS: u64 = 0x7fff_7fff_7fff_7fff;

/// All zeroes: an empty bucket.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Bucket {
    /// 16 bits of the hash, four in a word; 0: the place is free.
    pub(super) tags: [u64; WORDS],
    low: [u16; WAYS],
    high: [u8; WAYS],
    /// Ids whose first bucket this is, but which are elsewhere.
    pub(super) turned_away: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// Places in a bucket, as bits: place `4 * word + lane` is bit `16 * lane + word`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Ways(u64);

impl Iterator for Ways {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit % 16 * LANES + bit / 16)
    }
}

impl Bucket {
    /// An id is elsewhere whose first bucket this is.
    #[inline]
    pub(super) fn turn_away(&mut self) {
        self.turned_away = self.turned_away.wrapping_add(1);
    }

    /// One that was is no more.
    #[inline]
    pub(super) fn take_back(&mut self) {
        self.turned_away = self.turned_away.wrapping_sub(1);
    }

    #[inline]
    pub(super) fn id(&self, way: usize) -> u32 {
        u32::from(self.high[way]) << 16 | u32::from(self.low[way])
    }

    /// The places with this tag.
    #[inline]
    pub(super) fn matches(&self, tag: u16) -> Ways {
        let wanted = u64::from(tag) * ONES;
        let mut ways = 0;
        for (word, tags) in self.tags.iter().enumerate() {
            // The highest bit of a lane is set if none of its bits are: adding
            // carries into it from any other bit, and never beyond it.
            let differ = tags ^ wanted;
            let zero = !(((differ & LOW_BITS) + LOW_BITS) | differ | LOW_BITS);
            ways |= zero >> (15 - word);
        }
        Ways(ways)
    }

    #[inline]
    pub(super) fn free(&self) -> Option<usize> {
        self.matches(0).next()
    }

    pub(super) fn set(&mut self, way: usize, tag: u16, id: u32) {
        let shift = way % LANES * 16;
        let word = &mut self.tags[way / LANES];
        *word = (*word & !(0xffff << shift)) | u64::from(tag) << shift;
        self.low[way] = id as u16;
        self.high[way] = (id >> 16) as u8;
    }

    pub(super) fn is_free(&self, way: usize) -> bool {
        self.tags[way / LANES] >> (way % LANES * 16) & 0xffff == 0
    }
}
