//! The thread that drives the shard, and the threads that rest until they are needed: shared
//! memory.
//!
//! A *ticket* numbers a call that waits. A *waiter* is a thread that rests; its
//! slot is also that of its word in [`toehold_shm::Parking`].

use toehold_shm::{Carver, Lease, OutOfMemory, Slab, Table};
use toehold_stack::Instant;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::driver::Mode;

/// Threads of a node that rest at once, at most; those beyond yield instead.
pub(crate) const WAITERS: u32 = 1 << 12;

/// All zeroes: no thread drives or rests. Links are slots plus one; 0: none.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct State {
    /// The call that drives: the one that most lately began to wait. 0: none.
    driver: u64,
    last_ticket: u64,
    /// When the thread that sleeps at the link wakes up by itself.
    sleeper_until: Instant,
    /// The call that drove or slept at the link when the engine's driver looked last. 0: none.
    seen: u64,
    /// The process that drives.
    driver_process: u32,
    /// The thread that sleeps at the link.
    sleeper: u32,
    parked_first: u32,
    parked_last: u32,
    /// Whether the link was told that the node sleeps (not 0).
    armed: u32,
    /// The mode of the engine's driver, a [`Mode`].
    mode: u32,
    /// Counts the driver's periodic work.
    beat: u32,
    reserved: u32,
}

/// A thread that rests.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Waiter {
    /// The call in which the thread waits.
    pub(crate) ticket: u64,
    pub(crate) process: u16,
    /// The shard in which it has its word, which may be another one. A thread that waits for
    /// several shards has a slot in each of them, and one word.
    pub(crate) home: u8,
    /// The shard whose sleepers' bell wakes the thread where it sleeps on descriptors.
    pub(crate) bell: u8,
    next: u32,
    previous: u32,
    /// The number of the thread's word.
    pub(crate) word: u16,
    /// Whether the thread is among the parked (not 0).
    parked: u16,
}

const _: () = assert!(WAITERS <= 1 << 16 && size_of::<Waiter>() == 24);

/// The thread that drove or slept at the link at one moment, and how far it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pulse {
    driver: u64,
    sleeper: u32,
    beat: u32,
}

/// The seats of a shard.
#[derive(Debug)]
pub(crate) struct Seats {
    /// The shard's number in the node.
    index: u8,
    state: Table<State>,
    pub(crate) waiters: Slab<Waiter>,
}

impl Seats {
    pub(crate) fn bytes_needed() -> usize {
        Table::<State>::bytes_needed(1) + Slab::<Waiter>::bytes_needed(WAITERS)
    }

    pub(crate) fn create(carver: &mut Carver, index: u8) -> Result<Self, OutOfMemory> {
        Ok(Self {
            index,
            state: carver.table(1)?,
            waiters: carver.slab(WAITERS)?,
        })
    }

    #[inline]
    pub(crate) fn driver(&self) -> Option<u64> {
        Some(self.state[0].driver).filter(|&ticket| ticket != 0)
    }

    /// The shard's number in the node.
    #[inline]
    pub(crate) fn index(&self) -> u8 {
        self.index
    }

    /// The process of the call that drives.
    pub(crate) fn driver_process(&self) -> Option<u16> {
        self.driver().map(|_| self.state[0].driver_process as u16)
    }

    #[inline]
    pub(crate) fn set_driver(&mut self, process: u16, ticket: u64) {
        let state = &mut self.state[0];
        state.driver = ticket;
        state.driver_process = process.into();
    }

    #[inline]
    pub(crate) fn clear_driver(&mut self) {
        self.state[0].driver = 0;
    }

    /// Notes that the driver still drives.
    #[inline]
    pub(crate) fn beat(&mut self) {
        let state = &mut self.state[0];
        state.beat = state.beat.wrapping_add(1);
    }

    /// Changes within a fraction of a millisecond while a thread drives.
    pub(crate) fn pulse(&self) -> Pulse {
        let state = &self.state[0];
        Pulse {
            driver: state.driver,
            sleeper: state.sleeper,
            beat: state.beat,
        }
    }

    /// The number of a call that begins to wait.
    #[inline]
    pub(crate) fn next_ticket(&mut self) -> u64 {
        let state = &mut self.state[0];
        state.last_ticket = state.last_ticket.wrapping_add(1).max(1);
        state.last_ticket
    }

    /// The slot of the thread that sleeps at the link, and until when.
    #[inline]
    pub(crate) fn sleeper(&self) -> Option<(u32, Instant)> {
        let state = &self.state[0];
        Some((state.sleeper.checked_sub(1)?, state.sleeper_until))
    }

    /// Seats a thread at the link until a time, which may be [`Instant::NEVER`].
    pub(crate) fn set_sleeper(&mut self, slot: u32, until: Instant) {
        let state = &mut self.state[0];
        state.sleeper = slot + 1;
        state.sleeper_until = until;
    }

    pub(crate) fn clear_sleeper(&mut self) {
        self.state[0].sleeper = 0;
    }

    /// Notes that the thread of the slot does not sleep at the link any more.
    pub(crate) fn leave_link(&mut self, slot: u32) {
        if self.sleeper().is_some_and(|(sleeper, _)| sleeper == slot) {
            self.clear_sleeper();
        }
    }

    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        self.state[0].armed != 0
    }

    #[inline]
    pub(crate) fn set_armed(&mut self, armed: bool) {
        self.state[0].armed = armed.into();
    }

    #[inline]
    pub(crate) fn mode(&self) -> Mode {
        Mode::from_word(self.state[0].mode)
    }

    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.state[0].mode = mode as u32;
    }

    /// The call that drives or sleeps at the link, by its ticket.
    pub(crate) fn waiting_call(&self) -> Option<u64> {
        self.driver().or_else(|| {
            let (slot, _) = self.sleeper()?;
            self.waiters.get(slot).map(|waiter| waiter.ticket)
        })
    }

    /// The process that drives or sleeps at the link.
    pub(crate) fn seated_process(&self) -> Option<u16> {
        self.driver_process().or_else(|| {
            let (slot, _) = self.sleeper()?;
            self.waiters.get(slot).map(|waiter| waiter.process)
        })
    }

    /// Whether threads of other programs rest that rely on a process.
    pub(crate) fn relies_on(&self, process: u16) -> bool {
        let own = [process, Lease::ENGINE];
        let mut waiters = self.waiters.iter_live();
        process != Lease::ENGINE
            && waiters.any(|(_, waiter)| waiter.home == self.index && !own.contains(&waiter.process))
    }

    /// The first of the parked threads that is of another process.
    pub(crate) fn parked_beside(&self, process: u16) -> Option<u32> {
        let is_other = |slot: &u32| {
            self.waiters
                .get(*slot)
                .is_some_and(|waiter| waiter.process != process)
        };
        self.parked().find(is_other)
    }

    /// Whether the same call waits as when this was last asked.
    pub(crate) fn waits_as_before(&mut self) -> bool {
        let waiting = self.waiting_call().unwrap_or(0);
        std::mem::replace(&mut self.state[0].seen, waiting) == waiting && waiting != 0
    }

    #[inline]
    pub(crate) fn somebody_rests(&self) -> bool {
        let state = &self.state[0];
        state.sleeper != 0 || state.parked_first != 0
    }

    /// A slot for a thread that is about to rest; `None` if all are taken.
    pub(crate) fn take_slot(&mut self, process: u16, ticket: u64) -> Option<u32> {
        let slot = self.take_slot_for(process, ticket, (self.index, 0))?;
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.word = slot as u16;
        }
        Some(slot)
    }

    /// A slot for a thread that is about to rest, and whose word is elsewhere; `None` if all are
    /// taken.
    pub(crate) fn take_slot_for(
        &mut self,
        process: u16,
        ticket: u64,
        (home, word): (u8, u16),
    ) -> Option<u32> {
        self.waiters.insert(Waiter {
            ticket,
            process,
            home,
            bell: home,
            next: 0,
            previous: 0,
            word,
            parked: 0,
        })
    }

    /// Sets which shard's sleepers' bell wakes the thread of the slot.
    pub(crate) fn set_bell(&mut self, slot: u32, bell: u8) {
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.bell = bell;
        }
    }

    /// Gives the slot of a thread back that is awake, or dead.
    pub(crate) fn give_slot(&mut self, slot: u32) {
        self.unpark(slot);
        self.leave_link(slot);
        self.waiters.remove(slot);
    }

    /// Puts a waiter behind all others that are parked.
    pub(crate) fn park(&mut self, slot: u32) {
        let last = std::mem::replace(&mut self.state[0].parked_last, slot + 1);
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.parked = 1;
            waiter.previous = last;
            waiter.next = 0;
        }
        match last.checked_sub(1).and_then(|last| self.waiters.get_mut(last)) {
            Some(last) => last.next = slot + 1,
            None => self.state[0].parked_first = slot + 1,
        }
    }

    /// Takes a waiter from among the parked, if it is there.
    pub(crate) fn unpark(&mut self, slot: u32) {
        let Some(waiter) = self.waiters.get_mut(slot).filter(|waiter| waiter.parked != 0) else {
            return;
        };
        waiter.parked = 0;
        let (previous, next) = (waiter.previous, waiter.next);
        match previous
            .checked_sub(1)
            .and_then(|slot| self.waiters.get_mut(slot))
        {
            Some(previous) => previous.next = next,
            None => self.state[0].parked_first = next,
        }
        match next.checked_sub(1).and_then(|slot| self.waiters.get_mut(slot)) {
            Some(next) => next.previous = previous,
            None => self.state[0].parked_last = previous,
        }
    }

    /// Leaves list and seats as no change does, finished or not.
    #[cfg(test)]
    pub(super) fn disturb(&mut self, random: &mut impl FnMut() -> u64) {
        let mut link = || (random() % 100) as u32;
        let slots: Vec<u32> = self.waiters.iter_live().map(|(slot, _)| slot).collect();
        for slot in slots {
            let waiter = &mut self.waiters[slot];
            (waiter.next, waiter.previous) = (link(), link());
            waiter.word = if waiter.home == self.index { 0 } else { waiter.word };
        }
        let state = &mut self.state[0];
        (state.driver, state.driver_process) = (link().into(), link());
        (state.parked_first, state.parked_last) = (link(), link());
        (state.sleeper, state.armed) = (1000 + link(), link());
    }

    /// Mends the seats after a process died in the middle of a change: no thread drives, and the
    /// link was told nothing. Threads that are parked stay in the order in which they began to
    /// wait. The thread that sleeps at the link has its seat until it wakes up. All of them must be
    /// woken.
    pub(super) fn mend(&mut self) {
        let own = self.index;
        self.waiters.mend(|_, _| true);
        let mut parked = Vec::new();
        for slot in self.waiters.iter_live().map(|(slot, _)| slot).collect::<Vec<_>>() {
            let waiter = &mut self.waiters[slot];
            if waiter.home == own {
                // Its word has the number of its slot, which it may not have been told yet.
                waiter.word = slot as u16;
            }
            if waiter.parked != 0 {
                parked.push((waiter.ticket, slot));
            }
        }
        let state = &mut self.state[0];
        (state.driver, state.armed) = (0, 0);
        (state.parked_first, state.parked_last) = (0, 0);
        let sleeper = state.sleeper.checked_sub(1);
        if !sleeper.is_some_and(|slot| self.waiters.is_live(slot)) {
            self.clear_sleeper();
        }
        parked.sort_unstable();
        parked.into_iter().for_each(|(_, slot)| self.park(slot));
    }

    /// Waiters that are parked, the one that came first first.
    pub(crate) fn parked(&self) -> impl Iterator<Item = u32> {
        let mut link = self.state[0].parked_first;
        (0..self.waiters.len()).map_while(move |_| {
            let slot = link.checked_sub(1)?;
            link = self.waiters.get(slot)?.next;
            Some(slot)
        })
    }

    /// Threads that rest, but for the engine's own driver, and for those of other shards.
    pub(crate) fn programs_that_rest(&self) -> u32 {
        let waiters = self.waiters.iter_live();
        let own = |waiter: &Waiter| waiter.home == self.index && waiter.process != Lease::ENGINE;
        waiters.filter(|(_, waiter)| own(waiter)).count() as u32
    }

    /// Slots of the waiters of a process.
    pub(crate) fn waiters_of(&self, process: u16) -> Vec<u32> {
        let waiters = self.waiters.iter_live();
        let own = waiters.filter(|(_, waiter)| waiter.process == process);
        own.map(|(slot, _)| slot).collect()
    }
}

#[cfg(test)]
mod tests {
    use toehold_shm::Region;

    use super::*;

    #[test]
    fn there_are_as_many_slots_as_there_may_be_and_they_come_again() {
        let region = Region::private(Seats::bytes_needed()).unwrap();
        let mut seats = Seats::create(&mut Carver::new(region).unwrap(), 0).unwrap();
        let slots: Vec<u32> = (0..u64::from(WAITERS))
            .map(|ticket| seats.take_slot(1, ticket).unwrap())
            .collect();
        assert_eq!(seats.take_slot(1, 0), None);
        slots.iter().for_each(|&slot| seats.park(slot));
        assert_eq!(seats.parked().count(), slots.len());
        for slot in slots {
            seats.give_slot(slot);
        }
        assert_eq!((seats.somebody_rests(), seats.waiters.len()), (false, 0));
        assert!(seats.take_slot(1, 0).is_some());
    }

    #[test]
    fn the_parked_stay_in_order_while_some_leave() {
        let region = Region::private(Seats::bytes_needed()).unwrap();
        let mut seats = Seats::create(&mut Carver::new(region).unwrap(), 0).unwrap();
        let slots: Vec<u32> = (0..6).map(|ticket| seats.take_slot(1, ticket).unwrap()).collect();
        slots.iter().for_each(|&slot| seats.park(slot));
        for gone in [0, 5, 2] {
            seats.unpark(slots[gone]);
            seats.unpark(slots[gone]);
        }
        assert_eq!(seats.parked().collect::<Vec<_>>(), [slots[1], slots[3], slots[4]]);
        seats.park(slots[0]);
        seats.set_sleeper(slots[3], Instant::NEVER);
        seats.give_slot(slots[3]);
        assert_eq!(seats.sleeper(), None);
        assert_eq!(seats.parked().collect::<Vec<_>>(), [slots[1], slots[4], slots[0]]);
        for &slot in &slots {
            seats.give_slot(slot);
        }
        assert!(!seats.somebody_rests());
    }
}
