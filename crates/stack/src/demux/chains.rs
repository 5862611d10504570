//! Linked lists of ids, as the paper's strategies use them.
//!
//! The links lie in a table of their own, indexed by id, so that lists cost no memory beyond the
//! table. Lists are doubly linked, as in BSD: removal of a known entry needs no search.

use toehold_shm::{Carver, OutOfMemory, Steps, Table};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Full, Observer, Tuples, same};
use crate::tuple::FourTuple;

/// All zeroes: an empty chain.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    /// First entry, plus 1; 0: none.
    first: u32,
    /// The entry last found, plus 1; 0: none.
    cache: u32,
}

/// Neighbours of an entry, plus 1; 0: none.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Link {
    next: u32,
    previous: u32,
}

/// Chains of ids, each with a cache of the id found last.
#[derive(Debug)]
pub struct Chains {
    len: Table<u32>,
    heads: Table<Head>,
    links: Table<Link>,
}

impl Chains {
    pub(super) fn bytes_needed(chains: u32, capacity: u32) -> usize {
        Table::<u32>::bytes_needed(1)
            + Table::<Head>::bytes_needed(chains.max(1) as usize)
            + Table::<Link>::bytes_needed(capacity as usize)
    }

    pub(super) fn create(carver: &mut Carver, chains: u32, capacity: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            len: carver.table(1)?,
            heads: carver.table(chains.max(1) as usize)?,
            links: carver.table(capacity as usize)?,
        })
    }

    /// Removes all ids. It may be called after a process died in the middle of a change.
    pub(super) fn forget(&mut self) {
        self.len[0] = 0;
        self.heads.as_mut_bytes().fill(0);
        self.links.as_mut_bytes().fill(0);
    }

    /// The number of chains.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.heads.len()
    }

    /// The number of ids in all chains.
    pub(super) fn len(&self) -> u32 {
        self.len[0]
    }

    /// Looks at the cached id of the chain, then searches the chain.
    #[inline]
    pub(super) fn lookup_cached<T: Tuples + ?Sized>(
        &mut self,
        chain: usize,
        tuple: &FourTuple,
        tuples: &T,
        observer: &mut impl Observer,
    ) -> Option<u32> {
        observer.look_up(1);
        observer.touch();
        if let Some(cached) = self.heads[chain].cache.checked_sub(1) {
            observer.examine();
            if same(tuples.tuple(cached), tuple) {
                observer.hit();
                return Some(cached);
            }
        }
        let id = self.walk(chain, tuple, tuples, observer)?;
        self.heads[chain].cache = id + 1;
        Some(id)
    }

    /// Searches the chain and moves the entry found to its front.
    #[inline]
    pub(super) fn lookup_to_front<T: Tuples + ?Sized>(
        &mut self,
        chain: usize,
        tuple: &FourTuple,
        tuples: &T,
        observer: &mut impl Observer,
    ) -> Option<u32> {
        observer.look_up(1);
        observer.touch();
        let id = self.walk(chain, tuple, tuples, observer)?;
        if self.heads[chain].first != id + 1 {
            self.unlink(chain, id);
            self.link(chain, id);
        }
        Some(id)
    }

    #[inline]
    fn walk<T: Tuples + ?Sized>(
        &self,
        chain: usize,
        tuple: &FourTuple,
        tuples: &T,
        observer: &mut impl Observer,
    ) -> Option<u32> {
        let mut entry = self.heads[chain].first;
        let mut steps = Steps::along(self.links.len() as u32);
        while let Some(id) = entry.checked_sub(1) {
            steps.count();
            observer.examine();
            if same(tuples.tuple(id), tuple) {
                return Some(id);
            }
            observer.touch();
            entry = self.links[id as usize].next;
        }
        None
    }

    /// Inserts an id that is in no chain at the front of a chain.
    pub(super) fn insert(&mut self, chain: usize, id: u32) -> Result<(), Full> {
        if id as usize >= self.links.len() {
            return Err(Full);
        }
        self.link(chain, id);
        self.len[0] = self.len[0].wrapping_add(1);
        Ok(())
    }

    /// Removes an id from the only chain that can hold it. Returns whether it was there.
    pub(super) fn remove(&mut self, chain: usize, id: u32) -> bool {
        let is_first = self.heads[chain].first == id + 1;
        if !is_first && self.links[id as usize].previous == 0 {
            return false;
        }
        self.unlink(chain, id);
        if self.heads[chain].cache == id + 1 {
            self.heads[chain].cache = 0;
        }
        self.len[0] = self.len[0].wrapping_sub(1);
        true
    }

    fn link(&mut self, chain: usize, id: u32) {
        let next = std::mem::replace(&mut self.heads[chain].first, id + 1);
        self.links[id as usize] = Link { next, previous: 0 };
        if let Some(next) = next.checked_sub(1) {
            self.links[next as usize].previous = id + 1;
        }
    }

    fn unlink(&mut self, chain: usize, id: u32) {
        let Link { next, previous } = std::mem::take(&mut self.links[id as usize]);
        match previous.checked_sub(1) {
            Some(previous) => self.links[previous as usize].next = next,
            None => self.heads[chain].first = next,
        }
        if let Some(next) = next.checked_sub(1) {
            self.links[next as usize].previous = previous;
        }
    }
}
