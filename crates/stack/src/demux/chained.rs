//! The demux paper's strategies: linked lists of ids, one or many, in one of two orders.
//!
//! [`ChainedDemux`] has two parameters: how a tuple's chain is chosen ([`ChainChoice`]), and how a
//! chain is searched ([`ChainSearch`]). Their four combinations have names: [`Bsd`],
//! [`MoveToFront`], [`Sequent`] and [`HashedMoveToFront`].

use core::marker::PhantomData;

use toehold_shm::{Carver, OutOfMemory, Table};

use super::chains::Chains;
use super::{Demux, Full, Observer, Tuples};
use crate::keyed::{Key, Purpose};
use crate::tuple::FourTuple;

/// A list with a one-entry cache: the demux paper's §3.1.
///
/// A look-up examines the id found last first, which serves trains of segments. Any other id costs
/// half the list on average, and an unknown tuple costs all of it.
pub type Bsd = ChainedDemux<OneChain, CachedSearch>;

/// A list in the order of last use: the demux paper's §3.2, by Jon Crowcroft.
///
/// The cost of a segment is the number of connections that were busy since the connection's last
/// segment. A segment after a long pause costs more than in an unordered list.
pub type MoveToFront = ChainedDemux<OneChain, MovingSearch>;

/// Hash chains, each with a one-entry cache: the demux paper's §3.3, by Ken Dove.
///
/// The cache of a chain holds the id found last in it, and a look-up examines it first.
pub type Sequent = ChainedDemux<HashedChain, CachedSearch>;

/// Hash chains in the order of last use: the combination that the demux paper mentions in §3.4 and
/// does not evaluate.
///
/// The first entry of a chain is the one that a one-entry cache would hold.
pub type HashedMoveToFront = ChainedDemux<HashedChain, MovingSearch>;

/// Chooses the chain of a tuple.
pub trait ChainChoice: Sized {
    /// Bytes of a region that the choice takes.
    fn bytes_needed() -> usize;

    /// Creates the choice, or attaches to the existing one.
    fn create(carver: &mut Carver, secret: &[u8; 16]) -> Result<Self, OutOfMemory>;

    /// The chain of a tuple, below `chains`.
    fn chain_of(&self, tuple: &FourTuple, chains: usize) -> usize;
}

/// One chain for all tuples.
#[derive(Debug)]
pub struct OneChain;

impl ChainChoice for OneChain {
    fn bytes_needed() -> usize {
        0
    }

    fn create(_carver: &mut Carver, _secret: &[u8; 16]) -> Result<Self, OutOfMemory> {
        Ok(Self)
    }

    #[inline]
    fn chain_of(&self, _tuple: &FourTuple, _chains: usize) -> usize {
        0
    }
}

/// The chain that a keyed hash of the tuple names by its highest bits.
#[derive(Debug)]
pub struct HashedChain {
    key: Table<Key>,
}

impl ChainChoice for HashedChain {
    fn bytes_needed() -> usize {
        Table::<Key>::bytes_needed(1)
    }

    fn create(carver: &mut Carver, secret: &[u8; 16]) -> Result<Self, OutOfMemory> {
        let mut key = carver.table(1)?;
        if carver.is_fresh() {
            key[0] = Key::derive(secret, Purpose::Flows);
        }
        Ok(Self { key })
    }

    /// The chain of a tuple; even for any number of chains.
    #[inline]
    fn chain_of(&self, tuple: &FourTuple, chains: usize) -> usize {
        let hash = self.key[0].flow(tuple);
        ((u128::from(hash) * chains as u128) >> 64) as usize
    }
}

/// Searches a chain.
pub trait ChainSearch {
    /// Searches a chain for a tuple, and may change the chain so that the next search is shorter.
    fn search<T: Tuples + ?Sized>(
        chains: &mut Chains,
        chain: usize,
        tuple: &FourTuple,
        tuples: &T,
        observer: &mut impl Observer,
    ) -> Option<u32>;
}

/// Examines the id found last in the chain first.
#[derive(Debug)]
pub struct CachedSearch;

impl ChainSearch for CachedSearch {
    #[inline]
    fn search<T: Tuples + ?Sized>(
        chains: &mut Chains,
        chain: usize,
        tuple: &FourTuple,
        tuples: &T,
        observer: &mut impl Observer,
    ) -> Option<u32> {
        chains.lookup_cached(chain, tuple, tuples, observer)
    }
}

/// Moves the entry found to the front of its chain.
#[derive(Debug)]
pub struct MovingSearch;

impl ChainSearch for MovingSearch {
    #[inline]
    fn search<T: Tuples + ?Sized>(
        chains: &mut Chains,
        chain: usize,
        tuple: &FourTuple,
        tuples: &T,
        observer: &mut impl Observer,
    ) -> Option<u32> {
        chains.lookup_to_front(chain, tuple, tuples, observer)
    }
}

/// Chains of ids, the choice of a chain, and the way of searching it.
#[derive(Debug)]
pub struct ChainedDemux<C, S> {
    choice: C,
    chains: Chains,
    search: PhantomData<S>,
}

impl<C: ChainChoice, S> ChainedDemux<C, S> {
    pub(super) fn bytes_needed(chains: u32, capacity: u32) -> usize {
        C::bytes_needed() + Chains::bytes_needed(chains, capacity)
    }

    pub(super) fn create(
        carver: &mut Carver,
        chains: u32,
        capacity: u32,
        secret: &[u8; 16],
    ) -> Result<Self, OutOfMemory> {
        Ok(Self {
            choice: C::create(carver, secret)?,
            chains: Chains::create(carver, chains, capacity)?,
            search: PhantomData,
        })
    }

    #[inline]
    fn chain_of(&self, tuple: &FourTuple) -> usize {
        self.choice.chain_of(tuple, self.chains.count())
    }
}

impl<S> ChainedDemux<HashedChain, S> {
    /// The hash that chooses chains with this secret, by its highest bits. An attacker would need
    /// it to choose tuples.
    pub fn hash_under(secret: &[u8; 16]) -> impl Fn(&FourTuple) -> u64 + use<S> {
        let key = Key::derive(secret, Purpose::Flows);
        move |tuple| key.flow(tuple)
    }
}

impl<C: ChainChoice, S: ChainSearch> Demux for ChainedDemux<C, S> {
    #[inline]
    fn lookup<T: Tuples + ?Sized>(
        &mut self,
        tuple: &FourTuple,
        tuples: &T,
        observer: &mut impl Observer,
    ) -> Option<u32> {
        let chain = self.chain_of(tuple);
        S::search(&mut self.chains, chain, tuple, tuples, observer)
    }

    fn insert<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> Result<(), Full> {
        let chain = self.chain_of(tuples.tuple(id));
        self.chains.insert(chain, id)
    }

    fn remove<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> bool {
        let chain = self.chain_of(tuples.tuple(id));
        self.chains.remove(chain, id)
    }

    fn forget(&mut self) {
        self.chains.forget();
    }

    fn len(&self) -> u32 {
        self.chains.len()
    }
}
