//! Ids by keyed hash, in buckets of one cache line.
//!
//! A bucket of 64 bytes holds up to twelve ids, each with 16 bits of its hash. One line tells where
//! an id is, and nearly always that a tuple has none. The tuples themselves lie elsewhere, see
//! [`Tuples`].
//!
//! The table begins small, so that the buckets of few connections stay in the caches. It doubles
//! until it has the buckets that its capacity needs. Growth takes no pause: a new [`Generation`]
//! takes all insertions from then on. Every insertion also moves the contents of one bucket of the
//! former generation. If ids pile up far beyond chance, an attacker knows the key. Then the new
//! generation has another key in place of more buckets. Until the former generation is empty, a
//! look-up that misses in the new one also searches the former.
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

/// The table begins with fewer than twice this many buckets: 4 KiB, and no more than a few pages.
const FEW: u32 = 64;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    /// Which generation takes insertions.
    current: u32,
    /// The bucket of the former generation that is moved next, plus 1; 0: it is empty.
    moving: u32,
    /// How often the key was changed.
    rekeyed: u32,
    reserved: u32,
}

/// Returns a function that replaces a hash, for a number of key changes.
#[cfg(test)]
type Hook = fn(u32) -> fn(u64) -> u64;

/// Ids by tuple.
#[derive(Debug)]
pub(crate) struct FlowIndex {
    head: Table<Head>,
    generations: [Generation; 2],
    /// Buckets that the capacity needs.
    most_buckets: u32,
    /// Lets tests act as an attacker that knows the key.
    #[cfg(test)]
    hook: Option<Hook>,
}

fn buckets_needed(capacity: u32) -> u32 {
    capacity.div_ceil(PLANNED).max(2)
}

/// The size of a table that shall have more than `above` buckets. It is the capacity's number of
/// buckets, halved as long as the result stays above `above`.
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

    /// The part of [`FlowIndex::bytes_needed`] that is touched only when the key of a large table
    /// changes. While the table grows, at most half of its buckets are in the second generation.
    pub(crate) fn bytes_in_reserve(capacity: u32) -> usize {
        buckets_needed(capacity) as usize / 2 * size_of::<Bucket>()
    }

    /// Creates an empty index of ids below `capacity`, or attaches to the existing one.
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

    /// The generation that takes insertions.
    #[inline]
    fn current(&self) -> &Generation {
        &self.generations[self.head[0].current as usize % 2]
    }

    /// The current generation and the former one.
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

    /// Whether the former generation still holds ids.
    #[inline]
    pub(crate) fn is_moving(&self) -> bool {
        self.head[0].moving != 0
    }

    pub(crate) fn len(&self) -> u32 {
        self.current().len().wrapping_add(self.former().len())
    }

    /// The ids of up to [`BURST`](crate::sip::BURST) tuples, [`NONE`] for unknown tuples.
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

    /// The probable ids of up to [`BURST`](crate::sip::BURST) tuples.
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

    /// Removes all ids. It may be called after a process died in the middle of a change.
    pub(crate) fn forget(&mut self) {
        self.head[0].moving = 0;
        self.generations.iter_mut().for_each(Generation::forget);
    }

    /// Inserts an id whose tuple `tuples` already knows and the index does not hold.
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

    /// Removes an id whose tuple `tuples` still knows. Returns whether it was there.
    pub(crate) fn remove(&mut self, id: u32, tuples: &(impl Tuples + ?Sized)) -> bool {
        self.move_some(tuples);
        let is_moving = self.is_moving();
        let (current, former) = self.both();
        current.remove(id, tuples) || (is_moving && former.remove(id, tuples))
    }

    /// Begins a generation with another key. Does nothing while an earlier change is incomplete: no
    /// attacker can know that key yet.
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
        // The order leaves a complete generation behind if the process is killed here.
        compiler_fence(Release);
        self.head[0].current ^= 1;
        self.head[0].moving = 1;
        #[cfg(test)]
        self.set_hook(self.hook);
    }

    /// Moves the contents of one bucket of the former generation, if there is one.
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
            // Only a new key worse than chance leaves no place. Then the id stays, is found, and
            // the next call tries again.
            if current.settle(id, tuples) == Settled::Nowhere {
                return;
            }
            former.remove(id, tuples);
        }
        // An id of the stash may have moved into the free slot.
        if former.ids_in(bucket, tuples).1 == 0 {
            let was_last = bucket >= former.bucket_count();
            self.head[0].moving = if was_last { 0 } else { bucket.wrapping_add(2) };
        }
    }
}

/// Access for tests.
#[cfg(test)]
impl FlowIndex {
    /// Sets the function that replaces a hash.
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

    /// The whole memory of the index, as bytes.
    pub(super) fn contents(&self) -> Vec<u8> {
        let generations = self.generations.iter().flat_map(Generation::contents);
        self.head.as_bytes().iter().copied().chain(generations).collect()
    }

    /// Whether all bytes are zero, as in a new index.
    pub(super) fn is_pristine(&self) -> bool {
        self.generations.iter().all(Generation::is_pristine)
    }
}
