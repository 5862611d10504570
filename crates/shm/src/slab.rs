//! Values that are inserted and removed, addressed by index.

use core::fmt;
use core::ops::{Index, IndexMut};
use core::sync::atomic::Ordering::Release;
use core::sync::atomic::compiler_fence;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::carve::{Carver, OutOfMemory};
use crate::{Plain, Table};

/// State of a slot that holds a value. Any other state means a free slot: the next free one's index
/// + 1, or 0 at the end of the list.
const LIVE: u32 = u32::MAX;

/// All zero is an empty slab, so that fresh memory needs no initialisation.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    /// Slots below this were in use at some time; those above were never touched.
    touched: u32,
    /// Index + 1 of the first free slot below `touched`; 0 if there is none.
    free: u32,
    /// Values in the slab.
    len: u32,
    reserved: u32,
}

/// Holds up to a fixed number of values; inserting and removing take constant time.
///
/// Unused slots cost no memory.
pub struct Slab<T> {
    head: Table<Head>,
    states: Table<u32>,
    slots: Table<T>,
}

impl<T: Plain> Slab<T> {
    /// Bytes that a slab for `capacity` values takes from a region.
    pub fn bytes_needed(capacity: u32) -> usize {
        Table::<Head>::bytes_needed(1)
            .saturating_add(Table::<u32>::bytes_needed(capacity as usize))
            .saturating_add(Table::<T>::bytes_needed(capacity as usize))
    }

    pub(crate) fn carve(carver: &mut Carver, capacity: u32) -> Result<Self, OutOfMemory> {
        assert!(capacity < LIVE, "a slab has fewer than {LIVE} slots");
        let head = Table::carve(carver, 1)?;
        let states = Table::carve(carver, capacity as usize)?;
        let slots = Table::carve(carver, capacity as usize)?;
        Ok(Self { head, states, slots })
    }

    /// Puts `value` into a free slot and returns its index. `None` if all are in use.
    #[inline]
    pub fn insert(&mut self, value: T) -> Option<u32> {
        let head = &mut self.head[0];
        let index = if head.free != 0 {
            let index = head.free - 1;
            // The list is checked, not trusted: a slot in use is never given out.
            let state = self
                .states
                .get(index as usize)
                .copied()
                .filter(|&state| state != LIVE)?;
            head.free = state;
            index
        } else {
            let index = head.touched;
            if index as usize >= self.slots.len() {
                return None;
            }
            head.touched = index + 1;
            index
        };
        head.len = head.len.wrapping_add(1);
        self.slots[index as usize] = value;
        // A killed process thereby leaves a complete value or none.
        compiler_fence(Release);
        self.states[index as usize] = LIVE;
        Some(index)
    }

    /// Frees the slot. False, without any change, if it holds no value.
    #[inline]
    pub fn remove(&mut self, index: u32) -> bool {
        if !self.is_live(index) {
            return false;
        }
        let head = &mut self.head[0];
        self.states[index as usize] = head.free;
        head.free = index + 1;
        head.len = head.len.wrapping_sub(1);
        true
    }

    /// The value at `index`, if there is one.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        if self.is_live(index) {
            self.slots.get(index as usize)
        } else {
            None
        }
    }

    /// The value at `index`, if there is one.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        if self.is_live(index) {
            self.slots.get_mut(index as usize)
        } else {
            None
        }
    }

    /// Whether the slot holds a value. False for indices out of range.
    #[inline]
    pub fn is_live(&self, index: u32) -> bool {
        self.states.get(index as usize) == Some(&LIVE)
    }

    /// The contents of the slot at `index`, if that is in range: a value, or the remains of a
    /// removed one. Callers that can distinguish the two by the contents save a read of the slot's
    /// state.
    #[inline]
    pub fn peek(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)
    }

    /// Repairs the slab after a process died in the middle of a change. Keeps the values for which
    /// `keep` returns true, and frees all other slots. Takes time in proportion to the most values
    /// there ever were.
    pub fn mend(&mut self, mut keep: impl FnMut(u32, &T) -> bool) {
        let touched = (self.head[0].touched as usize).min(self.slots.len());
        let (mut free, mut len) = (0, 0);
        for index in (0..touched).rev() {
            if self.states[index] == LIVE && keep(index as u32, &self.slots[index]) {
                len += 1;
            } else {
                self.states[index] = free;
                free = index as u32 + 1;
            }
        }
        let head = &mut self.head[0];
        (head.free, head.len) = (free, len);
    }

    /// Leaves the head in a state that no complete change leaves.
    #[cfg(test)]
    pub(crate) fn disturb(&mut self) {
        let head = &mut self.head[0];
        (head.free, head.len) = (head.touched, 77);
    }

    /// The number of slots that ever held a value; they come first.
    pub fn touched(&self) -> u32 {
        self.head[0].touched.min(self.slots.len() as u32)
    }

    /// Number of values.
    #[inline]
    pub fn len(&self) -> u32 {
        self.head[0].len
    }

    /// Whether there are no values.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Most values the slab holds.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// All values with their indices, in ascending order. Takes time in proportion to the most
    /// values there ever were.
    pub fn iter_live(&self) -> impl Iterator<Item = (u32, &T)> {
        let touched = (self.head[0].touched as usize).min(self.slots.len());
        let pairs = self.states[..touched].iter().zip(&self.slots[..touched]).zip(0..);
        pairs
            .filter(|((state, _), _)| **state == LIVE)
            .map(|((_, value), index)| (index, value))
    }
}

/// Checks the index against the capacity only: access to a live slot needs no read of its state.
impl<T: Plain> Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.slots[index as usize]
    }
}

impl<T: Plain> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.slots[index as usize]
    }
}

impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab")
            .field("len", &self.head[0].len)
            .field("capacity", &self.slots.len())
            .finish()
    }
}
