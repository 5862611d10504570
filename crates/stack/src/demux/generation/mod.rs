//! A generation of the flow table: so many buckets, under one key.
//!
//! A tuple has two buckets. It goes into the second one if the first is full; the first counts
//! those it turned away, so that the second is only looked at if there can be something. If both
//! are full, an id in them makes room by going to its own other bucket. What finds no place even
//! so goes into a small stash. Nothing is ever marked as deleted: taking an id out leaves its
//! place as if it had never been there.

mod changes;

use toehold_shm::{Carver, NONE, OutOfMemory, Table, prefetch};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::bucket::Bucket;
use super::{Observer, Tuples, same};
pub(super) use changes::Settled;

use crate::flow_key::FlowKey;
use crate::sip::{BURST, Hashes};
use crate::tuple::FourTuple;

/// Ids a bucket is planned for: with two buckets to choose from, three quarters
/// full is so loose that the stash stays empty.
pub(super) const PLANNED: u32 = 9;

/// Ids in the stash.
pub(super) const STASH: usize = 32;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Stashed {
    hash: u64,
    id: u32,
    reserved: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    key: FlowKey,
    /// Buckets in use.
    buckets: u32,
    len: u32,
    stashed: u32,
    /// Ids that are not in their first bucket.
    elsewhere: u32,
}

/// Where a hash leads.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Places {
    first: usize,
    second: usize,
    tag: u16,
}

/// Ids by tuple.
#[derive(Debug)]
pub(super) struct Generation {
    head: Table<Head>,
    buckets: Table<Bucket>,
    stash: Table<Stashed>,
    /// Lets tests do what only somebody who knows the key could.
    #[cfg(test)]
    pub(super) hook: Option<fn(u64) -> u64>,
}

#[inline]
fn tag(hash: u64) -> u16 {
    (hash as u16).max(1)
}

/// One of so many buckets, for 24 bits.
#[inline]
fn reduce(bits: u64, buckets: usize) -> usize {
    ((bits * buckets as u64) >> 24) as usize
}

impl Generation {
    pub(super) fn bytes_needed(buckets: u32) -> usize {
        Table::<Head>::bytes_needed(1)
            + Table::<Bucket>::bytes_needed(buckets as usize)
            + Table::<Stashed>::bytes_needed(STASH)
    }

    /// A generation that can have so many buckets, none of which is in use.
    pub(super) fn create(carver: &mut Carver, buckets: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            head: carver.table(1)?,
            buckets: carver.table(buckets as usize)?,
            stash: carver.table(STASH)?,
            #[cfg(test)]
            hook: None,
        })
    }

    /// Takes so many buckets into use. There is nothing in it.
    pub(super) fn begin(&mut self, buckets: u32, key: FlowKey) {
        self.head[0] = Head {
            key,
            buckets,
            len: 0,
            stashed: 0,
            elsewhere: 0,
        };
    }

    /// Takes all ids out, whatever somebody who died has left of the buckets.
    pub(super) fn forget(&mut self) {
        let used = self.used().len();
        self.buckets[..used].as_mut_bytes().fill(0);
        let head = &mut self.head[0];
        (head.len, head.stashed, head.elsewhere) = (0, 0, 0);
    }

    pub(super) fn key(&self) -> &FlowKey {
        &self.head[0].key
    }

    /// Buckets in use.
    pub(super) fn bucket_count(&self) -> u32 {
        self.head[0].buckets
    }

    pub(super) fn len(&self) -> u32 {
        self.head[0].len
    }

    #[inline]
    fn hash(&self, tuple: &FourTuple) -> u64 {
        let hash = self.head[0].key.hash(tuple);
        #[cfg(test)]
        if let Some(hook) = self.hook {
            return hook(hash);
        }
        hash
    }

    #[inline]
    fn hash_burst(&self, tuples: &[FourTuple]) -> Hashes {
        #[cfg(test)]
        if self.hook.is_some() {
            let mut hashes = Hashes::default();
            for (hash, tuple) in hashes.as_flattened_mut().iter_mut().zip(tuples) {
                *hash = self.hash(tuple);
            }
            return hashes;
        }
        self.head[0].key.hashes(tuples)
    }

    /// The buckets in use.
    #[inline]
    fn used(&self) -> &[Bucket] {
        let used = (self.head[0].buckets as usize).min(self.buckets.len());
        &self.buckets[..used]
    }

    /// 24 bits of the hash for each bucket, 16 for the tag: nothing is used twice.
    #[inline]
    fn places(&self, hash: u64) -> Places {
        let count = self.used().len();
        let first = reduce(hash >> 40, count);
        let second = reduce((hash >> 16) & 0xff_ffff, count);
        let beside = if first + 1 == count { 0 } else { first + 1 };
        Places {
            first,
            second: if second == first { beside } else { second },
            tag: tag(hash),
        }
    }

    /// Sets the id of each of up to [`BURST`] tuples to the first one with the same tag in its
    /// first bucket, which `guessed` is told, [`NONE`] where there is none. Returns the hashes,
    /// and by position those without an id of whom their bucket does not tell that they are not
    /// there. In passes, so that the ways to memory overlap: all hashes, then all buckets.
    #[inline]
    fn guess_first(
        &self,
        wanted: &[FourTuple],
        ids: &mut [u32],
        mut guessed: impl FnMut(u32),
    ) -> (Hashes, u32) {
        let all = self.hash_burst(wanted);
        let hashes = &all.as_flattened()[..wanted.len()];
        let buckets = self.used();
        for &hash in hashes {
            prefetch(&buckets[reduce(hash >> 40, buckets.len())]);
        }
        let mut elsewhere = 0_u32;
        for (at, (id, &hash)) in ids.iter_mut().zip(hashes).enumerate() {
            let bucket = &buckets[reduce(hash >> 40, buckets.len())];
            let tag = tag(hash);
            *id = match bucket.matches(tag).next() {
                Some(way) => {
                    let id = bucket.id(way);
                    guessed(id);
                    id
                }
                None => {
                    if bucket.turned_away(tag) != 0 {
                        elsewhere |= 1 << at;
                        prefetch(&buckets[self.places(hash).second]);
                    }
                    NONE
                }
            };
        }
        (all, elsewhere)
    }

    /// The ids that up to [`BURST`] tuples probably have.
    #[inline]
    pub(super) fn guess_burst(&self, wanted: &[FourTuple], guessed: &mut impl FnMut(u32)) {
        let mut ids = [NONE; BURST];
        let (hashes, elsewhere) = self.guess_first(wanted, &mut ids[..wanted.len()], &mut *guessed);
        for (at, &hash) in hashes.as_flattened().iter().enumerate() {
            if elsewhere & 1 << at != 0 {
                let places = self.places(hash);
                let bucket = &self.buckets[places.second];
                bucket.matches(places.tag).for_each(|way| guessed(bucket.id(way)));
            }
        }
    }

    /// The ids of up to [`BURST`] tuples, [`NONE`] for those there are not.
    #[inline]
    pub(super) fn find_burst(
        &self,
        wanted: &[FourTuple],
        ids: &mut [u32],
        tuples: &(impl Tuples + ?Sized),
        observer: &mut impl Observer,
    ) {
        let (hashes, elsewhere) = self.guess_first(wanted, ids, |id| tuples.prefetch(id));
        let hashes = &hashes.as_flattened()[..wanted.len()];
        for (at, ((id, &hash), tuple)) in ids.iter_mut().zip(hashes).zip(wanted).enumerate() {
            if *id == NONE && elsewhere & 1 << at == 0 {
                observer.touch();
            } else if *id != NONE && same(tuples.tuple(*id), tuple) {
                // Nearly always it is the first one with the same tag.
                observer.touch();
                observer.examine();
            } else {
                *id = self.find_hashed(hash, tuple, tuples, observer).unwrap_or(NONE);
            }
        }
    }

    /// The id of a tuple.
    #[inline]
    pub(super) fn find(
        &self,
        tuple: &FourTuple,
        tuples: &(impl Tuples + ?Sized),
        observer: &mut impl Observer,
    ) -> Option<u32> {
        self.find_hashed(self.hash(tuple), tuple, tuples, observer)
    }

    #[inline]
    fn find_hashed(
        &self,
        hash: u64,
        tuple: &FourTuple,
        tuples: &(impl Tuples + ?Sized),
        observer: &mut impl Observer,
    ) -> Option<u32> {
        let buckets = self.used();
        let bucket = &buckets[reduce(hash >> 40, buckets.len())];
        let tag = tag(hash);
        observer.touch();
        for way in bucket.matches(tag) {
            let id = bucket.id(way);
            observer.examine();
            if same(tuples.tuple(id), tuple) {
                return Some(id);
            }
        }
        if bucket.turned_away(tag) == 0 {
            return None;
        }
        self.find_elsewhere(hash, tuple, tuples, observer)
    }

    #[cold]
    fn find_elsewhere(
        &self,
        hash: u64,
        tuple: &FourTuple,
        tuples: &(impl Tuples + ?Sized),
        observer: &mut impl Observer,
    ) -> Option<u32> {
        let places = self.places(hash);
        let bucket = &self.buckets[places.second];
        let in_bucket = bucket.matches(places.tag).map(|way| bucket.id(way));
        let in_stash = self
            .stashed()
            .iter()
            .filter(|entry| entry.hash == hash)
            .map(|entry| entry.id);
        observer.touch();
        in_bucket.chain(in_stash).find(|&id| {
            observer.examine();
            same(tuples.tuple(id), tuple)
        })
    }

    fn stashed(&self) -> &[Stashed] {
        &self.stash[..(self.head[0].stashed as usize).min(STASH)]
    }

    /// The ids in a bucket; behind the last bucket, those of the stash. Their records are fetched.
    pub(super) fn ids_in(&self, bucket: u32, tuples: &(impl Tuples + ?Sized)) -> ([u32; STASH], usize) {
        let mut ids = [0; STASH];
        let mut count = 0;
        let mut take = |id| {
            tuples.prefetch(id);
            ids[count] = id;
            count += 1;
        };
        match self.used().get(bucket as usize) {
            Some(bucket) => bucket.ids().for_each(&mut take),
            None => self.stashed().iter().for_each(|entry| take(entry.id)),
        }
        (ids, count)
    }

    #[cfg(test)]
    pub(super) fn stash_len(&self) -> u32 {
        self.head[0].stashed
    }

    /// Everything there is, as bytes.
    #[cfg(test)]
    pub(super) fn contents(&self) -> Vec<u8> {
        let head = self.head.as_bytes();
        [head, self.buckets.as_bytes(), self.stashed().as_bytes()].concat()
    }

    /// Whether nothing but zeroes is left in the buckets, as in a new one.
    #[cfg(test)]
    pub(super) fn is_pristine(&self) -> bool {
        let head = &self.head[0];
        (head.len, head.stashed, head.elsewhere) == (0, 0, 0) && self.buckets.iter().all(Bucket::is_pristine)
    }
}
