//! A list with a one-entry cache: the demux paper's §3.1.
//!
//! A look-up examines the id found last first, which serves trains of segments. Any other id costs
//! half the list on average, and an unknown tuple costs all of it.

use toehold_shm::{Carver, OutOfMemory};

use super::chains::Chains;
use super::{Demux, Full, Observer, Tuples};
use crate::tuple::FourTuple;

/// A list and the id found last in it.
#[derive(Debug)]
pub struct Bsd {
    list: Chains,
}

impl Bsd {
    pub(super) fn bytes_needed(capacity: u32) -> usize {
        Chains::bytes_needed(1, capacity)
    }

    pub(super) fn create(carver: &mut Carver, capacity: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            list: Chains::create(carver, 1, capacity)?,
        })
    }
}

impl Demux for Bsd {
    #[inline]
    fn lookup<T: Tuples + ?Sized>(
        &mut self,
        tuple: &FourTuple,
        tuples: &T,
        observer: &mut impl Observer,
    ) -> Option<u32> {
        self.list.lookup_cached(0, tuple, tuples, observer)
    }

    fn insert<T: Tuples + ?Sized>(&mut self, id: u32, _tuples: &T) -> Result<(), Full> {
        self.list.insert(0, id)
    }

    fn remove<T: Tuples + ?Sized>(&mut self, id: u32, _tuples: &T) -> bool {
        self.list.remove(0, id)
    }

    fn forget(&mut self) {
        self.list.forget();
    }

    fn len(&self) -> u32 {
        self.list.len()
    }
}
