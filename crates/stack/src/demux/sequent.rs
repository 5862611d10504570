//! Hash chains, each with a one-entry cache: the demux paper's §3.4.
//!
//! The cache of a chain holds what was last found in it, and is looked at
//! first. The hash is keyed, since chains of an attacker's choosing would be as
//! long as he likes.

use toehold_shm::{Carver, NONE, OutOfMemory, Table};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Demux, DemuxCounters, Full, same};
use crate::keyed::{Key, Purpose};
use crate::tuple::FourTuple;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    counters: DemuxCounters,
    key: Key,
    len: u32,
    reserved: u32,
}

/// All zeroes: an empty chain.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Chain {
    /// First entry, plus 1; 0: none.
    first: u32,
    /// The entry last found, plus 1; 0: none.
    cache: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Entry {
    tuple: FourTuple,
    /// Next entry of the chain, plus 1; 0: none.
    next: u32,
}

/// Chains of entries.
#[derive(Debug)]
pub(crate) struct Sequent {
    head: Table<Head>,
    chains: Table<Chain>,
    entries: Table<Entry>,
}

impl Sequent {
    pub(super) fn bytes_needed(chains: u32, capacity: u32) -> usize {
        Table::<Head>::bytes_needed(1)
            + Table::<Chain>::bytes_needed(chains.max(1) as usize)
            + Table::<Entry>::bytes_needed(capacity as usize)
    }

    pub(super) fn create(
        carver: &mut Carver,
        chains: u32,
        capacity: u32,
        secret: &[u8; 16],
    ) -> Result<Self, OutOfMemory> {
        let mut new = Self {
            head: carver.table(1)?,
            chains: carver.table(chains.max(1) as usize)?,
            entries: carver.table(capacity as usize)?,
        };
        if carver.is_fresh() {
            new.head[0].key = Key::derive(secret, Purpose::Flows);
        }
        Ok(new)
    }

    #[inline]
    fn chain_of(&self, tuple: &FourTuple) -> usize {
        // The upper half of hash times chains: even for any number of chains.
        let hash = u128::from(self.head[0].key.flow(tuple));
        ((hash * self.chains.len() as u128) >> 64) as usize
    }

    #[inline]
    fn examine(&mut self, index: u32, tuple: &FourTuple) -> bool {
        self.head[0].counters.examined += 1;
        same(&self.entries[index as usize].tuple, tuple)
    }

    /// Walks a chain. Returns the entry and the link that leads to it.
    fn walk(&mut self, chain: usize, tuple: &FourTuple) -> Option<(u32, u32)> {
        let mut previous = 0;
        let mut link = self.chains[chain].first;
        while let Some(index) = link.checked_sub(1) {
            if self.examine(index, tuple) {
                return Some((index, previous));
            }
            previous = link;
            link = self.entries[index as usize].next;
        }
        None
    }
}

impl Demux for Sequent {
    fn lookup(&mut self, tuple: &FourTuple) -> Option<u32> {
        let chain = self.chain_of(tuple);
        self.head[0].counters.lookups += 1;
        if let Some(cached) = self.chains[chain].cache.checked_sub(1)
            && self.examine(cached, tuple)
        {
            self.head[0].counters.cache_hits += 1;
            return Some(cached);
        }
        let (index, _) = self.walk(chain, tuple)?;
        self.chains[chain].cache = index + 1;
        Some(index)
    }

    fn lookup_burst(&mut self, tuples: &[FourTuple], ids: &mut [u32]) {
        assert_eq!(tuples.len(), ids.len());
        for (tuple, id) in tuples.iter().zip(ids) {
            *id = self.lookup(tuple).unwrap_or(NONE);
        }
    }

    fn insert(&mut self, tuple: FourTuple, id: u32) -> Result<(), Full> {
        let chain = self.chain_of(&tuple);
        let next = self.chains[chain].first;
        *self.entries.get_mut(id as usize).ok_or(Full)? = Entry { tuple, next };
        self.chains[chain].first = id + 1;
        self.head[0].len += 1;
        Ok(())
    }

    fn remove(&mut self, tuple: &FourTuple) -> Option<u32> {
        let counters = self.head[0].counters;
        let chain = self.chain_of(tuple);
        let found = self.walk(chain, tuple);
        // The figures are those of looking segments up.
        self.head[0].counters = counters;
        let (index, previous) = found?;
        let next = self.entries[index as usize].next;
        match previous.checked_sub(1) {
            Some(previous) => self.entries[previous as usize].next = next,
            None => self.chains[chain].first = next,
        }
        if self.chains[chain].cache == index + 1 {
            self.chains[chain].cache = 0;
        }
        self.head[0].len -= 1;
        Some(index)
    }

    fn len(&self) -> u32 {
        self.head[0].len
    }

    fn counters(&self) -> DemuxCounters {
        self.head[0].counters
    }
}
