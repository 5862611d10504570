//! A list in the order of last use: the demux paper's §3.2, by Jon Crowcroft.
//!
//! The cost of a segment is the number of connections that were busy since the connection's last
//! segment. A segment after a long pause costs more than in an unordered list.

use toehold_shm::{Carver, OutOfMemory};

use super::chains::Chains;
use super::{Demux, Full, Observer, Tuples};
use crate::tuple::FourTuple;

/// A list in the order of last use.
#[derive(Debug)]
pub struct MoveToFront {
    list: Chains,
}

impl MoveToFront {
    pub(super) fn bytes_needed(capacity: u32) -> usize {
        Chains::bytes_needed(1, capacity)
    }

    pub(super) fn create(carver: &mut Carver, capacity: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            list: Chains::create(carver, 1, capacity)?,
        })
    }
}

impl Demux for MoveToFront {
    #[inline]
    fn lookup<T: Tuples + ?Sized>(
        &mut self,
        tuple: &FourTuple,
        tuples: &T,
        observer: &mut impl Observer,
    ) -> Option<u32> {
        self.list.lookup_to_front(0, tuple, tuples, observer)
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
