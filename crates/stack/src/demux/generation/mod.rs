//! A generation of the flow table: a number of buckets, under one key.
//!
//! A tuple has two buckets. Its id goes into the second if the first is full. The first bucket
//! counts the ids it displaced, so that a look-up reads the second only if needed. If both buckets
//! are full, an id in them moves to its own other bucket. An id that still finds no place goes into
//! a small stash. There are no deletion marks: removal leaves a slot as if it had never been used.

mod changes;

use toehold_shm::{Carver, NONE, OutOfMemory, Table, prefetch};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::bucket::Bucket;
use super::{Observer, Tuples, same};
pub(super) use changes::Settled;

use crate::flow_key::FlowKey;
use crate::sip::{BURST, Hashes};
use crate::tuple::FourTuple;

/// Ids planned for a bucket. With two buckets to choose from, three quarters full is loose enough
/// that the stash stays empty.
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

/// The buckets and the tag of a hash.
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
    /// Lets tests act as an attacker that knows the key.
    #[cfg(test)]
    pub(super) hook: Option<fn(u64) -> u64>,
}

#[inline]
fn tag(hash: u64) -> u16 {
    (hash as u16).max(1)
}

/// Maps 24 bits to one of `buckets` buckets.
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

    /// Creates a generation of at most this many buckets, none of which is in use.
    pub(super) fn create(carver: &mut Carver, buckets: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            head: carver.table(1)?,
            buckets: carver.table(buckets as usize)?,
            stash: carver.table(STASH)?,
            #[cfg(test)]
            hook: None,
        })
    }

    /// Takes this many empty buckets into use.
    pub(super) fn begin(&mut self, buckets: u32, key: FlowKey) {
        self.head[0] = Head {
            key,
            buckets,
            len: 0,
            stashed: 0,
            elsewhere: 0,
        };
    }

    /// Removes all ids. It may be called after a process died in the middle of a change.
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

    /// The places of a hash: 24 bits for each bucket, 16 for the tag. No bit is used twice.
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
    /// first bucket, [`NONE`] without one. Calls `guessed` with each id. Returns the hashes, and
    /// the positions of tuples that may still be in the table. It hashes all tuples, then reads all
    /// buckets, so that the memory accesses overlap.
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

    /// The probable ids of up to [`BURST`] tuples.
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

    /// The ids of up to [`BURST`] tuples, [`NONE`] for unknown tuples.
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
                // Nearly always the first id with the same tag is the right one.
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

    /// The ids in a bucket; behind the last bucket, those of the stash. Their records are
    /// prefetched.
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

    /// The whole memory of the generation, as bytes.
    #[cfg(test)]
    pub(super) fn contents(&self) -> Vec<u8> {
        let head = self.head.as_bytes();
        [head, self.buckets.as_bytes(), self.stashed().as_bytes()].concat()
    }

    /// Whether all buckets are zero, as in a new table.
    #[cfg(test)]
    pub(super) fn is_pristine(&self) -> bool {
        let head = &self.head[0];
        (head.len, head.stashed, head.elsewhere) == (0, 0, 0) && self.buckets.iter().all(Bucket::is_pristine)
    }
}
