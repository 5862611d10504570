//! Ids by keyed hash, a cache line a bucket.
//!
//! A bucket of 64 bytes holds up to twelve ids, each with 16 bits of its hash:
//! one line decides where an id is, and nearly always that there is none. A
//! tuple has two buckets. It goes into the second one if the first is full; the
//! first counts those it turned away, so that the second is only looked at if
//! there can be something. If both are full, an id in them makes room by going
//! to its own other bucket. What finds no place even so goes into a small
//! stash, and when that is full the hash gets a new key and everything a new
//! place. Nothing is ever marked as deleted: taking an id out leaves its place
//! as if it had never been there.
//!
//! The tuples themselves lie elsewhere, see [`Tuples`].

use toehold_shm::{Carver, NONE, OutOfMemory, Table, prefetch};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[cfg(test)]
use super::bucket::WORDS;
use super::bucket::{Bucket, WAYS};
use super::{Full, Observer, Tuples, same};
use crate::keyed::Key;
use crate::sip::Hashes;
use crate::tuple::FourTuple;

/// Ids a bucket is planned for: with two buckets to choose from, two thirds
/// full is so loose that the stash stays empty.
const PLANNED: u32 = 8;

/// Ids in the stash.
pub(super) const STASH: usize = 32;

/// Ids have 24 bits.
pub(crate) const MAX_CAPACITY: u32 = 1 << 24;

/// Keys that are tried, when the stash is full, before the answer is [`Full`].
/// One is enough unless the hash is not what it should be.
const NEW_KEYS: usize = 4;

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
    key: Key,
    len: u32,
    stashed: u32,
    /// How often the key was changed.
    rekeyed: u32,
    reserved: u32,
}

/// Where a hash leads.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Places {
    first: usize,
    second: usize,
    tag: u16,
}

/// Where an id is.
#[derive(Clone, Copy)]
enum Spot {
    Way(usize, usize),
    Stash(usize),
}

/// Ids by tuple.
#[derive(Debug)]
pub(crate) struct FlowIndex {
    head: Table<Head>,
    buckets: Table<Bucket>,
    stash: Table<Stashed>,
    /// Lets tests do what only somebody who knows the key could: makes another
    /// hash of the hash and the number of changes of key.
    #[cfg(test)]
    pub(super) hook: Option<fn(u64, u32) -> u64>,
}

#[inline]
fn tag(hash: u64) -> u16 {
    (hash as u16).max(1)
}

fn bucket_count(capacity: u32) -> usize {
    (capacity.div_ceil(PLANNED) as usize).max(2)
}

impl FlowIndex {
    pub(crate) fn bytes_needed(capacity: u32) -> usize {
        Table::<Head>::bytes_needed(1)
            + Table::<Bucket>::bytes_needed(bucket_count(capacity))
            + Table::<Stashed>::bytes_needed(STASH)
    }

    /// Makes an empty index of ids below `capacity`, or attaches to the one there is.
    pub(crate) fn create(carver: &mut Carver, capacity: u32, key: Key) -> Result<Self, OutOfMemory> {
        assert!(capacity <= MAX_CAPACITY, "the flow table's ids have 24 bits");
        let mut new = Self {
            head: carver.table(1)?,
            buckets: carver.table(bucket_count(capacity))?,
            stash: carver.table(STASH)?,
            #[cfg(test)]
            hook: None,
        };
        if carver.is_fresh() {
            new.head[0].key = key;
        }
        Ok(new)
    }

    pub(crate) fn len(&self) -> u32 {
        self.head[0].len
    }

    #[cfg(test)]
    pub(super) fn stash_len(&self) -> u32 {
        self.head[0].stashed
    }

    #[cfg(test)]
    pub(super) fn rekeyed(&self) -> u32 {
        self.head[0].rekeyed
    }

    /// Everything there is, as bytes.
    #[cfg(test)]
    pub(super) fn contents(&self) -> Vec<u8> {
        [
            self.head.as_bytes(),
            self.buckets.as_bytes(),
            self.stashed().as_bytes(),
        ]
        .concat()
    }

    /// Whether nothing but zeroes is left, as in a new index.
    #[cfg(test)]
    pub(super) fn is_pristine(&self) -> bool {
        self.head[0].len == 0
            && self.head[0].stashed == 0
            && self
                .buckets
                .iter()
                .all(|b| b.turned_away == 0 && b.tags == [0; WORDS])
    }

    #[inline]
    pub(crate) fn hash(&self, tuple: &FourTuple) -> u64 {
        let hash = self.head[0].key.flow(tuple);
        #[cfg(test)]
        if let Some(hook) = self.hook {
            return hook(hash, self.head[0].rekeyed);
        }
        hash
    }

    /// 24 bits of the hash for each bucket, 16 for the tag: nothing is used twice.
    #[inline]
    fn places(&self, hash: u64) -> Places {
        let count = self.buckets.len() as u64;
        let first = self.first(hash);
        let second = ((((hash >> 16) & 0xff_ffff) * count) >> 24) as usize;
        let beside = if first + 1 == count as usize { 0 } else { first + 1 };
        Places {
            first,
            second: if second == first { beside } else { second },
            tag: tag(hash),
        }
    }

    #[inline]
    fn first(&self, hash: u64) -> usize {
        (((hash >> 40) * self.buckets.len() as u64) >> 24) as usize
    }

    /// The ids of up to [`BURST`](crate::sip::BURST) tuples, [`NONE`] for those there are not. In passes, so
    /// that the ways to memory overlap: all hashes, then all buckets, then all records.
    #[inline]
    pub(crate) fn find_burst(
        &self,
        wanted: &[FourTuple],
        ids: &mut [u32],
        tuples: &(impl Tuples + ?Sized),
        observer: &mut impl Observer,
    ) {
        let hashes = self.hash_burst(wanted);
        let hashes = &hashes.as_flattened()[..wanted.len()];
        for &hash in hashes {
            prefetch(&self.buckets[self.first(hash)]);
        }
        // By position, those of whom this bucket does not tell that they are not there.
        let mut elsewhere = 0_u32;
        for (at, (id, &hash)) in ids.iter_mut().zip(hashes).enumerate() {
            let bucket = &self.buckets[self.first(hash)];
            *id = match bucket.matches(tag(hash)).next() {
                Some(way) => {
                    let id = bucket.id(way);
                    tuples.prefetch(id);
                    id
                }
                None => {
                    if bucket.turned_away != 0 {
                        elsewhere |= 1 << at;
                        prefetch(&self.buckets[self.places(hash).second]);
                    }
                    NONE
                }
            };
        }
        for (at, ((id, &hash), tuple)) in ids.iter_mut().zip(hashes).zip(wanted).enumerate() {
            if *id == NONE && elsewhere & 1 << at == 0 {
                observer.touch();
            } else if *id != NONE && same(tuples.tuple(*id), tuple) {
                // Nearly always it is the first one with the same tag.
                observer.touch();
                observer.examine();
            } else {
                *id = self.find(hash, tuple, tuples, observer).unwrap_or(NONE);
            }
        }
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
        self.head[0].key.flows(tuples)
    }

    /// The id of a tuple with this hash.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: u64,
        tuple: &FourTuple,
        tuples: &(impl Tuples + ?Sized),
        observer: &mut impl Observer,
    ) -> Option<u32> {
        let places = self.places(hash);
        let bucket = &self.buckets[places.first];
        observer.touch();
        for way in bucket.matches(places.tag) {
            let id = bucket.id(way);
            observer.examine();
            if same(tuples.tuple(id), tuple) {
                return Some(id);
            }
        }
        if bucket.turned_away == 0 {
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

    /// Where an id with this hash is.
    fn locate(&self, hash: u64, id: u32) -> Option<Spot> {
        let places = self.places(hash);
        for at in [places.first, places.second] {
            let bucket = &self.buckets[at];
            if let Some(way) = bucket.matches(places.tag).find(|&way| bucket.id(way) == id) {
                return Some(Spot::Way(at, way));
            }
        }
        self.stashed()
            .iter()
            .position(|entry| entry.id == id)
            .map(Spot::Stash)
    }

    /// Enters an id, whose tuple `tuples` already knows and the index does not.
    pub(crate) fn insert(&mut self, id: u32, tuples: &(impl Tuples + ?Sized)) -> Result<(), Full> {
        debug_assert!(id < MAX_CAPACITY);
        if !self.settle(id, tuples) && !self.rekey(id, tuples) {
            return Err(Full);
        }
        Ok(())
    }

    /// Finds a place for an id.
    fn settle(&mut self, id: u32, tuples: &(impl Tuples + ?Sized)) -> bool {
        let hash = self.hash(tuples.tuple(id));
        let places = self.places(hash);
        let settled = self.put(places.first, places, id)
            || self.put(places.second, places, id)
            || (self.make_room(places.first, tuples) && self.put(places.first, places, id))
            || (self.make_room(places.second, tuples) && self.put(places.second, places, id))
            || self.put_aside(hash, id);
        if settled {
            self.head[0].len = self.head[0].len.wrapping_add(1);
        }
        settled
    }

    fn put(&mut self, at: usize, places: Places, id: u32) -> bool {
        let Some(way) = self.buckets[at].free() else {
            return false;
        };
        self.buckets[at].set(way, places.tag, id);
        if at != places.first {
            self.buckets[places.first].turn_away();
        }
        true
    }

    fn put_aside(&mut self, hash: u64, id: u32) -> bool {
        let at = self.head[0].stashed as usize;
        if at >= STASH {
            return false;
        }
        self.stash[at] = Stashed {
            hash,
            id,
            reserved: 0,
        };
        self.head[0].stashed += 1;
        let first = self.places(hash).first;
        self.buckets[first].turn_away();
        true
    }

    /// Moves one id of a full bucket to its other bucket.
    fn make_room(&mut self, at: usize, tuples: &(impl Tuples + ?Sized)) -> bool {
        for way in 0..WAYS {
            let id = self.buckets[at].id(way);
            let places = self.places(self.hash(tuples.tuple(id)));
            let other = if places.first == at {
                places.second
            } else {
                places.first
            };
            if self.put(other, places, id) {
                self.vacate(at, way, places);
                return true;
            }
        }
        false
    }

    /// Empties a place; the id had these places.
    fn vacate(&mut self, at: usize, way: usize, places: Places) {
        self.buckets[at].set(way, 0, 0);
        if at != places.first {
            self.buckets[places.first].take_back();
        }
    }

    /// Takes an id out, whose tuple `tuples` still knows. Says whether it was there.
    pub(crate) fn remove(&mut self, id: u32, tuples: &(impl Tuples + ?Sized)) -> bool {
        let hash = self.hash(tuples.tuple(id));
        match self.locate(hash, id) {
            Some(Spot::Way(at, way)) => {
                self.vacate(at, way, self.places(hash));
                self.unstash_into(at);
            }
            Some(Spot::Stash(at)) => self.drop_stashed(at),
            None => return false,
        }
        self.head[0].len = self.head[0].len.wrapping_sub(1);
        true
    }

    fn drop_stashed(&mut self, at: usize) {
        let first = self.places(self.stash[at].hash).first;
        self.buckets[first].take_back();
        let last = self.head[0].stashed.wrapping_sub(1);
        self.head[0].stashed = last;
        self.stash[at] = self.stash[last as usize];
    }

    /// Gives the place that has become free in a bucket to one of the stash.
    fn unstash_into(&mut self, at: usize) {
        for index in 0..self.stashed().len() {
            let Stashed { hash, id, .. } = self.stash[index];
            let places = self.places(hash);
            if places.first == at || places.second == at {
                self.drop_stashed(index);
                self.put(at, places, id);
                return;
            }
        }
    }

    /// Enters everything anew, `id` with it, under another key. If that does not
    /// work either, all is left as it was.
    #[cold]
    fn rekey(&mut self, id: u32, tuples: &(impl Tuples + ?Sized)) -> bool {
        let (head, buckets, stash) = (self.head[0], self.buckets.to_vec(), self.stash.to_vec());
        let stashed = &stash[..(head.stashed as usize).min(STASH)];
        let mut key = head.key;
        for _ in 0..NEW_KEYS {
            key = key.successor();
            self.head[0] = Head {
                key,
                len: 0,
                stashed: 0,
                rekeyed: head.rekeyed + 1,
                reserved: 0,
            };
            self.buckets.fill(<Bucket as zerocopy::FromZeros>::new_zeroed());
            let in_buckets = buckets.iter().flat_map(|bucket| {
                (0..WAYS)
                    .filter(|&way| !bucket.is_free(way))
                    .map(|way| bucket.id(way))
            });
            let mut ids = in_buckets.chain(stashed.iter().map(|entry| entry.id)).chain([id]);
            if ids.all(|id| self.settle(id, tuples)) {
                return true;
            }
        }
        self.head[0] = head;
        self.buckets.copy_from_slice(&buckets);
        self.stash.copy_from_slice(&stash);
        false
    }
}
