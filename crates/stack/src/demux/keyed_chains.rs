//! Chains chosen by a keyed hash, so that an attacker cannot make one chain long.

use toehold_shm::{Carver, OutOfMemory, Table};

use super::chains::Chains;
use super::{Full, Tuples};
use crate::keyed::{Key, Purpose};
use crate::tuple::FourTuple;

/// Chains and the key of their hash.
#[derive(Debug)]
pub(super) struct KeyedChains {
    key: Table<Key>,
    pub(super) chains: Chains,
}

impl KeyedChains {
    pub(super) fn bytes_needed(chains: u32, capacity: u32) -> usize {
        Table::<Key>::bytes_needed(1) + Chains::bytes_needed(chains, capacity)
    }

    /// The hash that chooses chains under a secret, by its highest bits.
    pub(super) fn hash_under(secret: &[u8; 16]) -> impl Fn(&FourTuple) -> u64 + use<> {
        let key = Key::derive(secret, Purpose::Flows);
        move |tuple| key.flow(tuple)
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

    /// The chain of a tuple; even for any number of chains.
    #[inline]
    pub(super) fn chain_of(&self, tuple: &FourTuple) -> usize {
        let hash = self.key[0].flow(tuple);
        ((u128::from(hash) * self.chains.count() as u128) >> 64) as usize
    }

    pub(super) fn insert<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> Result<(), Full> {
        let chain = self.chain_of(tuples.tuple(id));
        self.chains.insert(chain, id)
    }

    pub(super) fn remove<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> bool {
        let chain = self.chain_of(tuples.tuple(id));
        self.chains.remove(chain, id)
    }
}
