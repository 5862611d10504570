//! The default strategy: a [`FlowIndex`] over a table of tuples, behind a cache
//! of the one tuple found last.
//!
//! One line decides and a second one confirms, whatever the number of
//! connections. The cache serves trains of segments (one connection busy at a
//! time), which then cost neither a hash nor a bucket.

use toehold_shm::{Carver, NONE, OutOfMemory, Table};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Demux, DemuxCounters, FlowIndex, Full, same};
use crate::keyed::{Key, Purpose};
use crate::tuple::FourTuple;

/// Look-ups whose memory accesses overlap.
const BURST: usize = 16;

/// All zeroes: nothing found yet.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Front {
    counters: DemuxCounters,
    /// The id found last, plus 1; 0: none.
    last: u32,
    reserved: u32,
}

/// Tuples by id, ids by tuple.
#[derive(Debug)]
pub(crate) struct FlowTable {
    front: Table<Front>,
    tuples: Table<FourTuple>,
    pub(super) index: FlowIndex,
}

impl FlowTable {
    pub(super) fn bytes_needed(capacity: u32) -> usize {
        Table::<Front>::bytes_needed(1)
            + Table::<FourTuple>::bytes_needed(capacity as usize)
            + FlowIndex::bytes_needed(capacity)
    }

    pub(super) fn create(carver: &mut Carver, capacity: u32, secret: &[u8; 16]) -> Result<Self, OutOfMemory> {
        Ok(Self {
            front: carver.table(1)?,
            tuples: carver.table(capacity as usize)?,
            index: FlowIndex::create(carver, capacity, Key::derive(secret, Purpose::Flows))?,
        })
    }

    #[inline]
    fn lookup_hashed(&mut self, hash: u64, tuple: &FourTuple) -> Option<u32> {
        let front = &mut self.front[0];
        let found = self
            .index
            .find(hash, tuple, &self.tuples, &mut front.counters.examined);
        if let Some(id) = found {
            front.last = id + 1;
        }
        found
    }
}

impl Demux for FlowTable {
    #[inline]
    fn lookup(&mut self, tuple: &FourTuple) -> Option<u32> {
        let front = &mut self.front[0];
        front.counters.lookups += 1;
        if let Some(last) = front.last.checked_sub(1) {
            front.counters.examined += 1;
            if same(&self.tuples[last as usize], tuple) {
                front.counters.cache_hits += 1;
                return Some(last);
            }
        }
        let hash = self.index.hash(tuple);
        self.lookup_hashed(hash, tuple)
    }

    fn lookup_burst(&mut self, tuples: &[FourTuple], ids: &mut [u32]) {
        assert_eq!(tuples.len(), ids.len());
        for (tuples, ids) in tuples.chunks(BURST).zip(ids.chunks_mut(BURST)) {
            self.front[0].counters.lookups += tuples.len() as u64;
            let mut hashes = [0; BURST];
            for (hash, tuple) in hashes.iter_mut().zip(tuples) {
                *hash = self.index.hash(tuple);
            }
            // The loads of one pass do not depend on each other, so the
            // processor has several under way at once.
            for (id, hash) in ids.iter_mut().zip(hashes) {
                *id = self.index.candidate(hash).unwrap_or(NONE);
            }
            for ((id, hash), tuple) in ids.iter_mut().zip(hashes).zip(tuples) {
                let candidate = self.tuples.get(*id as usize);
                if candidate.is_some_and(|candidate| same(candidate, tuple)) {
                    self.front[0].counters.examined += 1;
                } else {
                    *id = self.lookup_hashed(hash, tuple).unwrap_or(NONE);
                }
            }
        }
    }

    fn insert(&mut self, tuple: FourTuple, id: u32) -> Result<(), Full> {
        *self.tuples.get_mut(id as usize).ok_or(Full)? = tuple;
        self.index.insert(id, &self.tuples)
    }

    fn remove(&mut self, tuple: &FourTuple) -> Option<u32> {
        let id = self.index.remove(tuple, &self.tuples)?;
        let front = &mut self.front[0];
        if front.last == id + 1 {
            front.last = 0;
        }
        Some(id)
    }

    fn len(&self) -> u32 {
        self.index.len()
    }

    fn counters(&self) -> DemuxCounters {
        self.front[0].counters
    }
}
