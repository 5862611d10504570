//! Ids by keyed hash, a cache line a bucket.
//!
//! A bucket of 64 bytes holds up to twelve ids, each with 16 bits of its hash: one line decides
//! where an id is, and nearly always that there is none. The tuples themselves lie elsewhere,
//! see [`Tuples`].
//!
//! The table begins small, so that the buckets of few connections stay in the caches, and
//! doubles until it has what its capacity needs. It does so without a pause: a new
//! [`Generation`] takes all that is entered from then on, and every insertion moves what is in
//! one bucket of the former generation to it. The same happens, with another key in place of more
//! buckets, when ids pile up as chance does not have it, which is to say that somebody knows the
//! key. Until the former generation is empty, what is not in the new one is looked for there.
//!
//! All memory is reserved from the start: twice what the capacity needs.

use core::sync::atomic::Ordering::Release;
use core::sync::atomic::compiler_fence;

use toehold_shm::{Carver, NONE, OutOfMemory, Table};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::bucket::Bucket;
use super::generation::{Generation, PLANNED, Settled};
use super::{Full, Observer, Tuples};
use crate::flow_key::FlowKey;
use crate::keyed::Key;
use crate::tuple::FourTuple;

/// Most connections and records of closed ones together: ids have 24 bits.
pub const MAX_FLOWS: u32 = 1 << 24;

/// The table begins with fewer than twice as many buckets: 4 KiB, and no more than a few pages.
const FEW: u32 = 64;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    /// Which generation takes what is entered.
    current: u32,
    /// The bucket of the former generation that is moved next, plus 1; 0: it is empty.
    moving: u32,
    /// How often the key was changed.
    rekeyed: u32,
    reserved: u32,
}

/// What makes another hash of a hash, by the number of changes of key.
#[cfg(test)]
type Hook = fn(u32) -> fn(u64) -> u64;

/// Ids by tuple.
#[derive(Debug)]
pub(crate) struct FlowIndex {
    head: Table<Head>,
    generations: [Generation; 2],
    /// Buckets that the capacity needs.
    most_buckets: u32,
    /// Lets tests do what only somebody who knows the key could.
    #[cfg(test)]
    hook: Option<Hook>,
}

fn buckets_needed(capacity: u32) -> u32 {
    capacity.div_ceil(PLANNED).max(2)
}

/// The size of a table that will have so many buckets, of more than `above`: the capacity's is
/// halved as often as that leaves enough.
fn size_above(above: u32, most: u32) -> u32 {
    let mut size = most;
    while size.div_ceil(2) > above.max(1) {
        size = size.div_ceil(2);
    }
    size
}

impl FlowIndex {
    pub(crate) fn bytes_needed(capacity: u32) -> usize {
        Table::<Head>::bytes_needed(1) + 2 * Generation::bytes_needed(buckets_needed(capacity))
    }

    /// Those of them that are not touched but when the key of a large table changes: as it grows,
    /// it has half of its buckets in the second generation at most.
    pub(crate) fn bytes_in_reserve(capacity: u32) -> usize {
        buckets_needed(capacity) as usize / 2 * size_of::<Bucket>()
    }

    /// Makes an empty index of ids below `capacity`, or attaches to the one there is.
    pub(crate) fn create(carver: &mut Carver, capacity: u32, key: Key) -> Result<Self, OutOfMemory> {
        assert!(capacity <= MAX_FLOWS, "the flow table's ids have 24 bits");
        let most_buckets = buckets_needed(capacity);
        let mut new = Self {
            head: carver.table(1)?,
            generations: [
                Generation::create(carver, most_buckets)?,
                Generation::create(carver, most_buckets)?,
            ],
            most_buckets,
            #[cfg(test)]
            hook: None,
        };
        if carver.is_fresh() {
            new.generations[0].begin(size_above(FEW, most_buckets), FlowKey::new(key));
        }
        Ok(new)
    }

    /// The generation that takes what is entered.
    #[inline]
    fn current(&self) -> &Generation {
        &self.generations[self.head[0].current as usize % 2]
    }

    /// The same, and the one before it.
    #[inline]
    fn both(&mut self) -> (&mut Generation, &mut Generation) {
        let [even, odd] = &mut self.generations;
        if self.head[0].current.is_multiple_of(2) {
            (even, odd)
        } else {
            (odd, even)
        }
    }

    fn former(&self) -> &Generation {
        &self.generations[(self.head[0].current as usize + 1) % 2]
    }

    /// Whether there is still something in the former generation.
    #[inline]
    pub(crate) fn is_moving(&self) -> bool {
        self.head[0].moving != 0
    }

    pub(crate) fn len(&self) -> u32 {
        self.current().len().wrapping_add(self.former().len())
    }

    /// The ids of up to [`BURST`](crate::sip::BURST) tuples, [`NONE`] for those there are not.
    #[inline]
    pub(crate) fn find_burst(
        &self,
        wanted: &[FourTuple],
        ids: &mut [u32],
        tuples: &(impl Tuples + ?Sized),
        observer: &mut impl Observer,
    ) {
        self.current().find_burst(wanted, ids, tuples, observer);
        if self.is_moving() {
            for (tuple, id) in wanted.iter().zip(ids).filter(|(_, id)| **id == NONE) {
                *id = self.find_former(tuple, tuples, observer).unwrap_or(NONE);
            }
        }
    }

    /// The ids that up to [`BURST`](crate::sip::BURST) tuples probably have.
    #[inline]
    pub(crate) fn guess_burst(&self, wanted: &[FourTuple], guessed: &mut impl FnMut(u32)) {
        self.current().guess_burst(wanted, guessed);
        if self.is_moving() {
            self.former().guess_burst(wanted, guessed);
        }
    }

    /// The id of a tuple.
    #[inline]
    pub(crate) fn find(
        &self,
        tuple: &FourTuple,
        tuples: &(impl Tuples + ?Sized),
        observer: &mut impl Observer,
    ) -> Option<u32> {
        let found = self.current().find(tuple, tuples, observer);
        if found.is_none() && self.is_moving() {
            return self.find_former(tuple, tuples, observer);
        }
        found
    }

    #[cold]
    fn find_former(
        &self,
        tuple: &FourTuple,
        tuples: &(impl Tuples + ?Sized),
        observer: &mut impl Observer,
    ) -> Option<u32> {
        self.former().find(tuple, tuples, observer)
    }

    /// Takes all ids out, whatever somebody who died has left of them.
    pub(crate) fn forget(&mut self) {
        self.head[0].moving = 0;
        self.generations.iter_mut().for_each(Generation::forget);
    }

    /// Enters an id, whose tuple `tuples` already knows and the index does not.
    pub(crate) fn insert(&mut self, id: u32, tuples: &(impl Tuples + ?Sized)) -> Result<(), Full> {
        debug_assert!(id < MAX_FLOWS);
        self.move_some(tuples);
        let (len, buckets) = (self.current().len(), self.current().bucket_count());
        if !self.is_moving() && len >= PLANNED.saturating_mul(buckets) && buckets < self.most_buckets {
            self.begin(size_above(buckets, self.most_buckets), *self.current().key());
        }
        match self.both().0.settle(id, tuples) {
            Settled::Well => {}
            Settled::Crowded => self.change_key(),
            Settled::Nowhere => {
                self.change_key();
                if self.both().0.settle(id, tuples) == Settled::Nowhere {
                    return Err(Full);
                }
            }
        }
        Ok(())
    }

    /// Takes an id out, whose tuple `tuples` still knows. Says whether it was there.
    pub(crate) fn remove(&mut self, id: u32, tuples: &(impl Tuples + ?Sized)) -> bool {
        self.move_some(tuples);
        let is_moving = self.is_moving();
        let (current, former) = self.both();
        current.remove(id, tuples) || (is_moving && former.remove(id, tuples))
    }

    /// Begins a generation with another key, unless one has begun that is not complete: of its
    /// key nobody can know as yet.
    #[cold]
    fn change_key(&mut self) {
        if !self.is_moving() {
            self.head[0].rekeyed = self.head[0].rekeyed.wrapping_add(1);
            let key = self.current().key().successor();
            self.begin(self.current().bucket_count(), key);
        }
    }

    /// Begins a generation.
    #[cold]
    fn begin(&mut self, buckets: u32, key: FlowKey) {
        self.both().1.begin(buckets, key);
        // Who is killed leaves a current generation that has begun.
        compiler_fence(Release);
        self.head[0].current ^= 1;
        self.head[0].moving = 1;
        #[cfg(test)]
        self.set_hook(self.hook);
    }

    /// Moves what is in one bucket of the former generation, if there is one.
    #[inline]
    pub(crate) fn move_some(&mut self, tuples: &(impl Tuples + ?Sized)) {
        if self.is_moving() {
            self.move_bucket(tuples);
        }
    }

    #[cold]
    fn move_bucket(&mut self, tuples: &(impl Tuples + ?Sized)) {
        let bucket = self.head[0].moving - 1;
        let (current, former) = self.both();
        let (ids, count) = former.ids_in(bucket, tuples);
        for &id in &ids[..count] {
            // Which is nowhere only if the new key is worse than chance: then it stays, is found,
            // and the next one to come here tries again.
            if current.settle(id, tuples) == Settled::Nowhere {
                return;
            }
            former.remove(id, tuples);
        }
        // One of the stash may have come into the room that became free.
        if former.ids_in(bucket, tuples).1 == 0 {
            let was_last = bucket >= former.bucket_count();
            self.head[0].moving = if was_last { 0 } else { bucket.wrapping_add(2) };
        }
    }
}

/// What tests look at.
#[cfg(test)]
impl FlowIndex {
    /// Sets what makes another hash of the hash.
    pub(super) fn set_hook(&mut self, hook: Option<Hook>) {
        self.hook = hook;
        let rekeyed = self.rekeyed();
        self.both().0.hook = hook.map(|hook| hook(rekeyed));
    }

    pub(super) fn stash_len(&self) -> u32 {
        self.current().stash_len()
    }

    pub(super) fn rekeyed(&self) -> u32 {
        self.head[0].rekeyed
    }

    pub(super) fn bucket_count(&self) -> u32 {
        self.current().bucket_count()
    }

    /// Everything there is, as bytes.
    pub(super) fn contents(&self) -> Vec<u8> {
        let generations = self.generations.iter().flat_map(Generation::contents);
        self.head.as_bytes().iter().copied().chain(generations).collect()
    }

    /// Whether nothing but zeroes is left, as in a new index.
    pub(super) fn is_pristine(&self) -> bool {
        self.generations.iter().all(Generation::is_pristine)
    }
}
