//! A hierarchical timing wheel: deadlines of up to a fixed number of ids.
//!
//! A level has 64 slots. A slot is as wide as the whole level below. The eleven levels cover every
//! [`Instant`] to the nanosecond, so that deadlines are neither rounded nor overflow. The level of
//! an entry is that of the highest digit (base 64) in which its deadline differs from the wheel's
//! time. Its slot is that digit. Every slot is a list through the entries, and stores a lower bound
//! of its deadlines.
//!
//! Scheduling, cancelling and asking for the next deadline take constant time for any number of
//! entries. An entry moves to a lower level at most once per level before it expires. No call moves
//! more than [`MOVES`] entries: later calls move the rest. Empty slots cost nothing, so a jump of
//! hours is no more work than one of a microsecond.

use toehold_shm::{Carver, OutOfMemory, Table};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::time::Instant;

/// Bits of a digit: a level has `1 << DIGIT` slots.
const DIGIT: u32 = 6;
const SLOTS: usize = 1 << DIGIT;
const LEVELS: usize = (u64::BITS as usize).div_ceil(DIGIT as usize);

/// Most entries that one call of [`Wheel::pop_expired`] moves to lower levels.
pub(crate) const MOVES: u32 = 128;

/// In an [`Entry`]'s `previous`: the entry is the first of the slot in the lower bits.
const FIRST: u32 = 1 << 31;

/// The wheel's scalar state. All zeroes: an empty wheel at time zero.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Hub {
    /// Deadlines are placed relative to this time, which never passes an entry.
    elapsed: u64,
    /// Slot whose entries are being moved to lower levels, plus 1; 0: none.
    moving: u64,
    /// Entries examined by [`Wheel::pop_expired`] so far.
    examined: u64,
    /// Levels with entries, one bit each.
    levels: u64,
    /// Slots with entries, by level, one bit each.
    slots: [u64; LEVELS],
}

/// All zeroes: an empty slot.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Slot {
    /// Not later than any deadline in the slot.
    earliest: u64,
    /// First entry, plus 1; 0: none.
    first: u32,
    reserved: u32,
}

/// All zeroes: the id has no deadline.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Entry {
    deadline: u64,
    /// Next entry of the slot, plus 1; 0: none.
    next: u32,
    /// Previous entry of the slot, plus 1; or the slot, with [`FIRST`]; 0: no deadline.
    previous: u32,
}

/// Deadlines of ids from 0 up to a capacity, at most one an id.
#[derive(Debug)]
pub(crate) struct Wheel {
    hub: Table<Hub>,
    slots: Table<Slot>,
    entries: Table<Entry>,
}

impl Wheel {
    /// Bytes of a region that a wheel for `capacity` ids takes.
    pub(crate) fn bytes_needed(capacity: u32) -> usize {
        Table::<Hub>::bytes_needed(1)
            + Table::<Slot>::bytes_needed(LEVELS * SLOTS)
            + Table::<Entry>::bytes_needed(capacity as usize)
    }

    /// Creates a wheel for the ids below `capacity`, or attaches to the existing one.
    pub(crate) fn create(carver: &mut Carver, capacity: u32) -> Result<Self, OutOfMemory> {
        assert!(capacity < FIRST, "ids have 31 bits");
        Ok(Self {
            hub: carver.table(1)?,
            slots: carver.table(LEVELS * SLOTS)?,
            entries: carver.table(capacity as usize)?,
        })
    }

    /// Sets the deadline of `id`, in place of any other.
    ///
    /// # Panics
    /// If `id` is not below the capacity.
    #[inline]
    pub(crate) fn schedule(&mut self, id: u32, deadline: Instant) {
        let entry = &self.entries[id as usize];
        if entry.previous != 0 {
            self.unlink(id);
        }
        self.entries[id as usize].deadline = deadline.0;
        self.link(id);
    }

    /// Removes the deadline of `id`, if it has one.
    #[inline]
    pub(crate) fn cancel(&mut self, id: u32) {
        if self.entries[id as usize].previous != 0 {
            self.unlink(id);
        }
    }

    /// Removes all deadlines; `ids` are those that may have one. It may be called after a process
    /// died in the middle of a change.
    pub(crate) fn forget(&mut self, ids: impl Iterator<Item = u32>) {
        for id in ids {
            self.entries[id as usize].previous = 0;
        }
        self.slots.as_mut_bytes().fill(0);
        let hub = &mut self.hub[0];
        (hub.moving, hub.levels, hub.slots) = (0, 0, [0; LEVELS]);
    }

    /// The deadline of `id`.
    #[cfg(test)]
    pub(crate) fn deadline(&self, id: u32) -> Option<Instant> {
        let entry = self.entries.get(id as usize)?;
        (entry.previous != 0).then_some(Instant(entry.deadline))
    }

    /// When to call [`Wheel::pop_expired`] next: never later than the earliest deadline. It is
    /// earlier only if the earliest entry of a slot was cancelled, or if entries are still to be
    /// moved. Such a call then makes progress.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let moving = self.moving().map(|slot| self.slots[slot].earliest);
        let first = self.first_slot().map(|slot| self.slots[slot].earliest);
        match (moving, first) {
            (Some(a), Some(b)) => Some(Instant(a.min(b))),
            (a, b) => a.or(b).map(Instant),
        }
    }

    /// Entries examined so far to find expired ones: the cost of the wheel.
    pub(crate) fn examined(&self) -> u64 {
        self.hub[0].examined
    }

    /// Removes an id whose deadline is not after `now`. Returns `None` if there is no more, or this
    /// call's share of [`MOVES`] is used up. In the latter case [`Wheel::next_deadline`] is not
    /// after `now`.
    #[inline]
    pub(crate) fn pop_expired(&mut self, now: Instant) -> Option<u32> {
        if self.next_deadline()? > now {
            return None;
        }
        // The wheel's time never goes back, whatever the caller's clock does.
        self.pop_due(now.0.max(self.hub[0].elapsed))
    }

    fn pop_due(&mut self, now: u64) -> Option<u32> {
        let mut moves = MOVES;
        // A slot that is being moved is emptied before another is begun.
        while let Some(slot) = self.moving() {
            if moves == 0 {
                break;
            }
            moves -= 1;
            if let Some(id) = self.take_or_move(slot, now) {
                return Some(id);
            }
        }
        while let Some(slot) = self.first_slot() {
            if self.slots[slot].earliest > now {
                return None;
            }
            let id = self.first_of(slot);
            self.hub[0].examined = self.hub[0].examined.wrapping_add(1);
            if self.entries[id as usize].deadline <= now {
                self.unlink(id);
                return Some(id);
            }
            if moves == 0 {
                return None;
            }
            // The slot begins before `now` and ends after it, and every slot before it is empty.
            self.hub[0].elapsed = now;
            self.hub[0].moving = slot as u64 + 1;
            while self.slots[slot].first != 0 && moves > 0 {
                moves -= 1;
                if let Some(id) = self.take_or_move(slot, now) {
                    return Some(id);
                }
            }
        }
        None
    }

    /// The first entry of a non-empty slot.
    ///
    /// # Panics
    ///
    /// If it is empty: another process has damaged the memory.
    #[inline]
    fn first_of(&self, slot: usize) -> u32 {
        let first = self.slots[slot].first;
        assert_ne!(first, 0, "a slot of the wheel is damaged");
        first - 1
    }

    /// Removes the first entry of a slot if it is due, and otherwise moves it to its slot relative
    /// to the wheel's time.
    fn take_or_move(&mut self, slot: usize, now: u64) -> Option<u32> {
        let id = self.first_of(slot);
        self.hub[0].examined = self.hub[0].examined.wrapping_add(1);
        self.unlink(id);
        if self.entries[id as usize].deadline <= now {
            return Some(id);
        }
        self.link(id);
        None
    }

    /// The slot whose entries are being moved, if any are left.
    #[inline]
    fn moving(&self) -> Option<usize> {
        let slot = (self.hub[0].moving as usize).checked_sub(1)?;
        (self.slots[slot].first != 0).then_some(slot)
    }

    /// The first slot in time, except the one being moved.
    #[inline]
    fn first_slot(&self) -> Option<usize> {
        let hub = &self.hub[0];
        if hub.levels == 0 {
            return None;
        }
        let level = hub.levels.trailing_zeros() as usize;
        Some(level * SLOTS + (hub.slots[level].trailing_zeros() as usize))
    }

    /// The slot of a deadline, relative to the wheel's time.
    #[inline]
    fn place(&self, deadline: u64) -> usize {
        let elapsed = self.hub[0].elapsed;
        // An overdue deadline belongs to the slot of the wheel's time itself.
        let deadline = deadline.max(elapsed);
        let level = ((deadline ^ elapsed) | 1).ilog2() / DIGIT;
        let digit = (deadline >> (level * DIGIT)) as usize % SLOTS;
        level as usize * SLOTS + digit
    }

    fn link(&mut self, id: u32) {
        let deadline = self.entries[id as usize].deadline;
        let place = self.place(deadline);
        let slot = &mut self.slots[place];
        let next = slot.first;
        slot.first = id + 1;
        if next == 0 {
            slot.earliest = deadline;
            let (level, digit) = (place / SLOTS, place % SLOTS);
            self.hub[0].slots[level] |= 1 << digit;
            self.hub[0].levels |= 1 << level;
        } else {
            slot.earliest = slot.earliest.min(deadline);
            self.entries[(next - 1) as usize].previous = id + 1;
        }
        let entry = &mut self.entries[id as usize];
        entry.next = next;
        entry.previous = FIRST | place as u32;
    }

    fn unlink(&mut self, id: u32) {
        let entry = &mut self.entries[id as usize];
        let (previous, next) = (entry.previous, entry.next);
        entry.previous = 0;
        if next != 0 {
            self.entries[(next - 1) as usize].previous = previous;
        }
        let before = if previous & FIRST != 0 {
            &mut self.slots[(previous & !FIRST) as usize].first
        } else {
            &mut self.entries[previous.wrapping_sub(1) as usize].next
        };
        // Without the panic, a caller that empties the wheel might find this entry again and never
        // end.
        assert_eq!(*before, id + 1, "the wheel is damaged");
        *before = next;
        if previous & FIRST != 0 && next == 0 {
            self.note_empty((previous & !FIRST) as usize);
        }
    }

    fn note_empty(&mut self, place: usize) {
        let (level, digit) = (place / SLOTS, place % SLOTS);
        let hub = &mut self.hub[0];
        hub.slots[level] &= !(1 << digit);
        if hub.slots[level] == 0 {
            hub.levels &= !(1 << level);
        }
    }
}

#[cfg(test)]
mod tests;
