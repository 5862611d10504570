//! The default strategy: a [`FlowIndex`] behind a cache of the id found last.
//!
//! A look-up reads one line of the table and one line of the record that confirms it, for any
//! number of connections. The cache serves trains of segments (one connection busy at a time),
//! which then cost neither a hash nor a bucket.

use toehold_shm::{Carver, OutOfMemory, Table};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Demux, FlowIndex, Full, Observer, Tuples, same};
use crate::flow_key::FlowKey;
use crate::keyed::{Key, Purpose};
use crate::sip::BURST;
use crate::tuple::FourTuple;

/// All zeroes: no id found yet.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Front {
    /// The id found last, plus 1; 0: none.
    last: u32,
}

/// Ids by tuple.
#[derive(Debug)]
pub struct FlowTable {
    front: Table<Front>,
    capacity: u32,
    pub(super) index: FlowIndex,
}

impl FlowTable {
    pub(super) fn bytes_needed(capacity: u32) -> usize {
        Table::<Front>::bytes_needed(1) + FlowIndex::bytes_needed(capacity)
    }

    /// The initial hash of a table with this secret, which an attacker would need to choose tuples.
    pub fn hash_under(secret: &[u8; 16]) -> impl Fn(&FourTuple) -> u64 + use<> {
        let key = FlowKey::new(Key::derive(secret, Purpose::Flows));
        move |tuple| key.hash(tuple)
    }

    pub(super) fn create(carver: &mut Carver, capacity: u32, secret: &[u8; 16]) -> Result<Self, OutOfMemory> {
        Ok(Self {
            front: carver.table(1)?,
            capacity,
            index: FlowIndex::create(carver, capacity, Key::derive(secret, Purpose::Flows))?,
        })
    }
}

impl Demux for FlowTable {
    #[inline]
    fn lookup<T: Tuples + ?Sized>(
        &mut self,
        tuple: &FourTuple,
        tuples: &T,
        observer: &mut impl Observer,
    ) -> Option<u32> {
        observer.look_up(1);
        observer.touch();
        if let Some(last) = self.front[0].last.checked_sub(1) {
            observer.examine();
            if same(tuples.tuple(last), tuple) {
                observer.hit();
                return Some(last);
            }
        }
        // Look-ups must move ids too: without insertions no other call would.
        self.index.move_some(tuples);
        let found = self.index.find(tuple, tuples, observer);
        if let Some(id) = found {
            self.front[0].last = id + 1;
        }
        found
    }

    fn lookup_burst<T: Tuples + ?Sized>(
        &mut self,
        wanted: &[FourTuple],
        ids: &mut [u32],
        tuples: &T,
        observer: &mut impl Observer,
    ) {
        assert_eq!(wanted.len(), ids.len());
        observer.look_up(wanted.len() as u64);
        for (wanted, ids) in wanted.chunks(BURST).zip(ids.chunks_mut(BURST)) {
            self.index.move_some(tuples);
            self.index.find_burst(wanted, ids, tuples, observer);
        }
    }

    fn guess_burst(&self, wanted: &[FourTuple], mut guessed: impl FnMut(u32)) {
        for wanted in wanted.chunks(BURST) {
            self.index.guess_burst(wanted, &mut guessed);
        }
    }

    fn insert<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> Result<(), Full> {
        if id >= self.capacity {
            return Err(Full);
        }
        self.index.insert(id, tuples)
    }

    fn remove<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> bool {
        let front = &mut self.front[0];
        if front.last == id + 1 {
            front.last = 0;
        }
        self.index.remove(id, tuples)
    }

    fn forget(&mut self) {
        self.front[0].last = 0;
        self.index.forget();
    }

    fn len(&self) -> u32 {
        self.index.len()
    }
}
