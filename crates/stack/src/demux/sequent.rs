//! Hash chains, each with a one-entry cache: the demux paper's §3.3, by Ken Dove.
//!
//! The cache of a chain holds the id found last in it, and a look-up examines it first.

use toehold_shm::{Carver, OutOfMemory};

use super::keyed_chains::KeyedChains;
use super::{Demux, Full, Observer, Tuples};
use crate::tuple::FourTuple;

/// Chains, and the id found last in each.
#[derive(Debug)]
pub struct Sequent(KeyedChains);

impl Sequent {
    pub(super) fn bytes_needed(chains: u32, capacity: u32) -> usize {
        KeyedChains::bytes_needed(chains, capacity)
    }

    /// The hash that chooses chains with this secret, by its highest bits. An attacker would need
    /// it to choose tuples.
    pub fn hash_under(secret: &[u8; 16]) -> impl Fn(&FourTuple) -> u64 + use<> {
        KeyedChains::hash_under(secret)
    }

    pub(super) fn create(
        carver: &mut Carver,
        chains: u32,
        capacity: u32,
        secret: &[u8; 16],
    ) -> Result<Self, OutOfMemory> {
        KeyedChains::create(carver, chains, capacity, secret).map(Self)
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
        let chain = self.0.chain_of(tuple);
        self.0.chains.lookup_cached(chain, tuple, tuples, observer)
    }

    fn insert<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> Result<(), Full> {
        self.0.insert(id, tuples)
    }

    fn remove<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> bool {
        self.0.remove(id, tuples)
    }

    fn forget(&mut self) {
        self.0.chains.forget();
    }

    fn len(&self) -> u32 {
        self.0.chains.len()
    }
}
