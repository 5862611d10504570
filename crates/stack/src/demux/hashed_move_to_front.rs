//! Hash chains in the order of last use: the combination that the demux paper mentions in §3.4 and
//! does not evaluate.
//!
//! The first entry of a chain is the one that a one-entry cache would hold.

use toehold_shm::{Carver, OutOfMemory};

use super::keyed_chains::KeyedChains;
use super::{Demux, Full, Observer, Tuples};
use crate::tuple::FourTuple;

/// Chains in the order of last use.
#[derive(Debug)]
pub struct HashedMoveToFront(KeyedChains);

impl HashedMoveToFront {
    pub(super) fn bytes_needed(chains: u32, capacity: u32) -> usize {
        KeyedChains::bytes_needed(chains, capacity)
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

impl Demux for HashedMoveToFront {
    #[inline]
    fn lookup<T: Tuples + ?Sized>(
        &mut self,
        tuple: &FourTuple,
        tuples: &T,
        observer: &mut impl Observer,
    ) -> Option<u32> {
        let chain = self.0.chain_of(tuple);
        self.0.chains.lookup_to_front(chain, tuple, tuples, observer)
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
