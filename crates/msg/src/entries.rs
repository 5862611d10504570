//! Bounded tables of entries that are named by index and generation.

use core::fmt;
use core::marker::PhantomData;

/// The name of an entry of an endpoint's table: its place, and which of the place's entries it is.
///
/// `K` tells kinds of entries apart. A name outlives its entry and then leads nowhere, so a peer may hold one as a token.
pub struct EntryId<K> {
    index: u32,
    generation: u32,
    kind: PhantomData<fn() -> K>,
}

impl<K> EntryId<K> {
    const fn new(index: u32, generation: u32) -> Self {
        Self {
            index,
            generation,
            kind: PhantomData,
        }
    }

    /// Returns the entry's place, below the table's capacity.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Returns the name as a number.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.index as u64 | (self.generation as u64) << 32
    }

    /// Returns the name that a number stands for. It may name no entry.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self::new(bits as u32, (bits >> 32) as u32)
    }
}

impl<K> Clone for EntryId<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for EntryId<K> {}

impl<K> PartialEq for EntryId<K> {
    fn eq(&self, other: &Self) -> bool {
        self.to_bits() == other.to_bits()
    }
}

impl<K> Eq for EntryId<K> {}

impl<K> fmt::Debug for EntryId<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

#[derive(Debug)]
struct EntrySlot<T> {
    generation: u32,
    value: Option<T>,
}

/// A table of at most so many entries, whose names have kind `K`. Its memory grows with use and is not given back.
///
/// Slabs of the shared-memory crate have no generations. This table is the place that
/// changes when the state moves into a region.
#[derive(Debug)]
pub(crate) struct Entries<K, T> {
    slots: Vec<EntrySlot<T>>,
    free: Vec<u32>,
    capacity: u32,
    kind: PhantomData<fn() -> K>,
}

impl<K, T> Entries<K, T> {
    /// Creates an empty table with a bound.
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            capacity,
            kind: PhantomData,
        }
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> u32 {
        self.slots.len() as u32 - self.free.len() as u32
    }

    /// Whether the next [`Entries::insert`] finds room.
    pub(crate) fn has_room(&self) -> bool {
        self.len() < self.capacity
    }

    /// Adds an entry. Returns `None` if the table is full.
    pub(crate) fn insert(&mut self, value: T) -> Option<EntryId<K>> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Some(EntryId::new(index, slot.generation));
        }
        let index = self.slots.len() as u32;
        if index >= self.capacity {
            return None;
        }
        let value = Some(value);
        self.slots.push(EntrySlot { generation: 0, value });
        Some(EntryId::new(index, 0))
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, id: EntryId<K>) -> Option<T> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        Some(value)
    }

    /// The entry with this name, if it is still there.
    pub(crate) fn get(&self, id: EntryId<K>) -> Option<&T> {
        let slot = self.slots.get(id.index as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == id.generation)
    }

    /// The entry with this name, to be changed.
    pub(crate) fn get_mut(&mut self, id: EntryId<K>) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.index as usize)?;
        slot.value.as_mut().filter(|_| slot.generation == id.generation)
    }

    /// The name of the entry at a place, if one is there.
    pub(crate) fn at(&self, index: u32) -> Option<EntryId<K>> {
        let slot = self.slots.get(index as usize)?;
        slot.value.as_ref()?;
        Some(EntryId::new(index, slot.generation))
    }

    /// The names of all entries, by place.
    pub(crate) fn ids(&self) -> impl Iterator<Item = EntryId<K>> + '_ {
        (0..self.slots.len() as u32).filter_map(|index| self.at(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_table_refuses_and_reused_place_has_another_name() {
        let mut entries = Entries::<(), _>::new(2);
        let first = entries.insert('a').unwrap();
        let second = entries.insert('b').unwrap();
        assert_eq!(entries.insert('c'), None);
        assert_eq!(entries.remove(first), Some('a'));
        assert_eq!(entries.remove(first), None);
        let third = entries.insert('c').unwrap();
        assert_eq!(third.index(), first.index());
        assert_ne!(third, first);
        assert_eq!(
            (entries.get(first), entries.get(third), entries.get(second)),
            (None, Some(&'c'), Some(&'b'))
        );
        assert_eq!(EntryId::from_bits(third.to_bits()), third);
        assert_eq!(entries.ids().count(), 2);
    }

    #[test]
    fn foreign_number_names_no_entry() {
        let mut entries = Entries::<(), _>::new(2);
        entries.insert(()).unwrap();
        for bits in [1, u64::MAX, 1 << 32, u64::from(u32::MAX)] {
            assert_eq!(entries.get(EntryId::from_bits(bits)), None);
            assert_eq!(entries.remove(EntryId::from_bits(bits)), None);
        }
    }
}
