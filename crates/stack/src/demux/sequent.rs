//! Hash chains, each with a one-entry cache: the demux paper's §3.3, by Ken Dove.
//!
//! The cache of a chain holds what was last found in it, and is looked at
//! first. The hash is keyed, since chains of an attacker's choosing would be as
//! long as he likes.

use toehold_shm::{Carver, OutOfMemory, Table};

use super::chains::{Chains, chain_of};
use super::{Demux, Full, Observer, Tuples};
use crate::keyed::{Key, Purpose};
use crate::tuple::FourTuple;

/// Chains, and what was last found in each.
#[derive(Debug)]
pub struct Sequent {
    key: Table<Key>,
    chains: Chains,
}

impl Sequent {
    pub(super) fn bytes_needed(chains: u32, capacity: u32) -> usize {
        Table::<Key>::bytes_needed(1) + Chains::bytes_needed(chains, capacity)
    }

    pub(super) fn create(
        carver: &mut Carver,
        chains: u32,
        capacity: u32,
        secret: &[u8; 16],
    ) -> Result<Self, OutOfMemory> {
        let mut new = Self {
            key: carver.table(1)?,
            chains: Chains::create(carver, chains, capacity)?,
        };
        if carver.is_fresh() {
            new.key[0] = Key::derive(secret, Purpose::Flows);
        }
        Ok(new)
    }

    #[inline]
    fn chain_of(&self, tuple: &FourTuple) -> usize {
        chain_of(self.key[0].flow(tuple), self.chains.count())
    }
}

impl Demux for Sequent {
    #[inline]
    fn lookup<T: Tuples + ?Sized>(
        &mut self,
        tuple: &FourTuple,
        tuples: &T,
        observer: &mut impl Observer,
    ) -> Option<u32> {
        let chain = self.chain_of(tuple);
        self.chains.lookup_cached(chain, tuple, tuples, observer)
    }

    fn insert<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> Result<(), Full> {
        let chain = self.chain_of(tuples.tuple(id));
        self.chains.insert(chain, id)
    }

    fn remove<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> bool {
        let chain = self.chain_of(tuples.tuple(id));
        self.chains.remove(chain, id)
    }

    fn len(&self) -> u32 {
        self.chains.len()
    }
}
