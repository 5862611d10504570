//! Hash chains, each with a one-entry cache: the demux paper's §3.4.
//!
//! The cache of a chain holds what was last found in it, and is looked at
//! first. The hash is keyed, since chains of an attacker's choosing would be as
//! long as he likes.

use toehold_shm::{Carver, NONE, OutOfMemory, Steps, Table};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Demux, DemuxCounters, Full, Tuples, same};
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

/// Chains of ids.
#[derive(Debug)]
pub struct Sequent {
    head: Table<Head>,
    chains: Table<Chain>,
    /// By id, the next of its chain, plus 1; 0: none.
    next: Table<u32>,
}

impl Sequent {
    pub(super) fn bytes_needed(chains: u32, capacity: u32) -> usize {
        Table::<Head>::bytes_needed(1)
            + Table::<Chain>::bytes_needed(chains.max(1) as usize)
            + Table::<u32>::bytes_needed(capacity as usize)
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
            next: carver.table(capacity as usize)?,
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
    fn examine<T: Tuples + ?Sized>(&mut self, id: u32, tuple: &FourTuple, tuples: &T) -> bool {
        self.head[0].counters.examined += 1;
        same(tuples.tuple(id), tuple)
    }

    /// Walks a chain. Returns the id and the link before the one that leads to it.
    fn walk<T: Tuples + ?Sized>(
        &mut self,
        chain: usize,
        tuple: &FourTuple,
        tuples: &T,
    ) -> Option<(u32, u32)> {
        let mut previous = 0;
        let mut link = self.chains[chain].first;
        let mut steps = Steps::along(self.next.len() as u32);
        while let Some(id) = link.checked_sub(1) {
            steps.count();
            if self.examine(id, tuple, tuples) {
                return Some((id, previous));
            }
            previous = link;
            link = self.next[id as usize];
        }
        None
    }
}

impl Demux for Sequent {
    fn lookup<T: Tuples + ?Sized>(&mut self, tuple: &FourTuple, tuples: &T) -> Option<u32> {
        let chain = self.chain_of(tuple);
        self.head[0].counters.lookups += 1;
        if let Some(cached) = self.chains[chain].cache.checked_sub(1)
            && self.examine(cached, tuple, tuples)
        {
            self.head[0].counters.cache_hits += 1;
            return Some(cached);
        }
        let (id, _) = self.walk(chain, tuple, tuples)?;
        self.chains[chain].cache = id + 1;
        Some(id)
    }

    fn lookup_burst<T: Tuples + ?Sized>(&mut self, wanted: &[FourTuple], ids: &mut [u32], tuples: &T) {
        assert_eq!(wanted.len(), ids.len());
        for (tuple, id) in wanted.iter().zip(ids) {
            *id = self.lookup(tuple, tuples).unwrap_or(NONE);
        }
    }

    fn insert<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> Result<(), Full> {
        if id as usize >= self.next.len() {
            return Err(Full);
        }
        let chain = self.chain_of(tuples.tuple(id));
        self.next[id as usize] = self.chains[chain].first;
        self.chains[chain].first = id + 1;
        self.head[0].len += 1;
        Ok(())
    }

    fn remove<T: Tuples + ?Sized>(&mut self, tuple: &FourTuple, tuples: &T) -> Option<u32> {
        let counters = self.head[0].counters;
        let chain = self.chain_of(tuple);
        let found = self.walk(chain, tuple, tuples);
        // The figures are those of looking segments up.
        self.head[0].counters = counters;
        let (id, previous) = found?;
        let next = self.next[id as usize];
        match previous.checked_sub(1) {
            Some(previous) => self.next[previous as usize] = next,
            None => self.chains[chain].first = next,
        }
        if self.chains[chain].cache == id + 1 {
            self.chains[chain].cache = 0;
        }
        self.head[0].len = self.head[0].len.wrapping_sub(1);
        Some(id)
    }

    fn len(&self) -> u32 {
        self.head[0].len
    }

    fn counters(&self) -> DemuxCounters {
        self.head[0].counters
    }
}
