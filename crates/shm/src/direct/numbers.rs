//! Numbers of a bank: the side that opens connections gives them out.

use core::num::NonZeroU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::accept_queue::ConnectionId;
use super::bank::{CONNECTIONS, READY_WORDS, USER_WORDS};
use super::ends::Ends;

/// An owner word, taken apart.
fn parts(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

fn word(generation: u32, process: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(process)
}

impl Ends {
    /// Reserves a free number for process `process`, the node's own number of it, never 0, and
    /// gives it a generation that it never had. `None` if every number is taken.
    ///
    /// Each process begins elsewhere, so that they seldom want the same one.
    pub fn reserve(&self, process: u16) -> Option<ConnectionId> {
        let line = self.number_line();
        self.note_user(process);
        let start = usize::from(process).wrapping_mul(7) % READY_WORDS;
        for index in (0..READY_WORDS).map(|at| (start + at) % READY_WORDS) {
            let mut found = line.taken[index].load(Relaxed);
            while found != u64::MAX {
                let bit = found.trailing_ones();
                found |= 1 << bit;
                let number = (index * 64) as u16 + bit as u16;
                if let Some(connection) = self.reserve_number(number, process) {
                    line.taken[index].fetch_or(1 << bit, Relaxed);
                    return Some(connection);
                }
            }
        }
        None
    }

    fn reserve_number(&self, number: u16, process: u16) -> Option<ConnectionId> {
        let owner = &self.end(number).state.owner;
        let free = owner.load(Acquire);
        let (last, taken) = parts(free);
        if taken != 0 {
            return None;
        }
        let generation = last.wrapping_add(1).max(1);
        let mine = word(generation, process.into());
        owner.compare_exchange(free, mine, AcqRel, Relaxed).ok()?;
        Some(ConnectionId { number, generation })
    }

    /// Frees a number whose connection was [released](super::End::release), or never begun.
    /// Returns `false` if it was freed before: another process may have it already.
    pub fn free(&self, connection: ConnectionId) -> bool {
        let ConnectionId { number, generation } = connection;
        let owner = &self.end(number).state.owner;
        let found = owner.load(Acquire);
        if parts(found).0 != generation || parts(found).1 == 0 {
            return false;
        }
        let freed = owner.compare_exchange(found, word(generation, 0), AcqRel, Relaxed);
        if freed.is_err() {
            return false;
        }
        self.clear_bit(number);
        true
    }

    /// The bit is a hint. If another process has the number again by now, others look at
    /// the owner in vain.
    fn clear_bit(&self, number: u16) {
        let word = &self.number_line().taken[usize::from(number) / 64];
        word.fetch_and(!(1 << (number % 64)), Relaxed);
    }

    /// The numbers that a process has, with the generations that they have. Clears bits that a
    /// process has left which died while it freed a number.
    pub fn owned_by(&self, process: u16) -> impl Iterator<Item = ConnectionId> + '_ {
        (0..CONNECTIONS as u16).filter_map(move |number| {
            let (generation, owner) = parts(self.end(number).state.owner.load(Acquire));
            if owner == 0 {
                self.clear_bit(number);
            }
            (owner == u32::from(process)).then_some(ConnectionId { number, generation })
        })
    }

    /// Notes that a process opens or accepts connections of the bank. Precedes the first one.
    #[inline]
    pub(super) fn note_user(&self, process: u16) {
        let word = &self.number_line().users[usize::from(process) / 64 % USER_WORDS];
        let bit = 1 << (process % 64);
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, AcqRel);
        }
    }

    /// Forgets that a process has opened or accepted connections of the bank. Returns whether it
    /// had. For the engine, after the end of the process.
    pub fn forget_user(&self, process: u16) -> bool {
        let word = &self.number_line().users[usize::from(process) / 64 % USER_WORDS];
        let bit = 1 << (process % 64);
        word.load(Acquire) & bit != 0 && word.fetch_and(!bit, AcqRel) & bit != 0
    }

    /// Whether a process has a number in the connection's generation.
    pub(super) fn is_owned_by(&self, connection: ConnectionId, process: u16) -> bool {
        let owner = self.end(connection.number).state.owner.load(Acquire);
        owner == word(connection.generation, process.into())
    }

    /// The process that has a number; `None` if it is free.
    pub fn owner(&self, number: u16) -> Option<NonZeroU32> {
        NonZeroU32::new(parts(self.end(number).state.owner.load(Acquire)).1)
    }

    /// Hands a connection's number to another process, the engine for a dead one. Returns
    /// `false` if it was freed.
    pub fn set_owner(&self, connection: ConnectionId, process: u16) -> bool {
        let owner = &self.end(connection.number).state.owner;
        let mine = word(connection.generation, process.into());
        let change = owner.fetch_update(AcqRel, Acquire, |found| {
            let (generation, taken) = parts(found);
            (generation == connection.generation && taken != 0).then_some(mine)
        });
        change.is_ok()
    }

    /// Generation of the connection that this side has at a number; 0 if it has none.
    pub fn generation(&self, number: u16) -> u32 {
        self.end(number).state.generation.load(Acquire) as u32
    }

    /// The numbers at which this side has a connection.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        (0..CONNECTIONS as u16).filter_map(|number| {
            let generation = self.generation(number);
            (generation != 0).then_some(ConnectionId { number, generation })
        })
    }

    /// Numbers that are reserved or in use; a guess while others change that.
    pub fn in_use(&self) -> usize {
        let words = self.number_line().taken.iter();
        words.map(|word| word.load(Relaxed).count_ones() as usize).sum()
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_out_once_each_until_none_is_left() {
        let ends = Ends::create("toehold-test", 1).unwrap();
        let mut all: Vec<_> = (0..CONNECTIONS)
            .map(|at| ends.reserve(1 + (at % 5) as u16).unwrap())
            .collect();
        assert_eq!((ends.reserve(9), ends.in_use()), (None, CONNECTIONS));
        assert_eq!(ends.connections().count(), 0, "none was begun");
        let one = all[77];
        assert_eq!(ends.owner(one.number).map(u32::from), Some(1 + 77 % 5));
        assert!(ends.free(one) && !ends.free(one));
        let again = ends.reserve(9).unwrap();
        assert_eq!((again.number, again.generation), (one.number, one.generation + 1));
        assert!(!ends.free(one), "the number stands for another connection");
        assert!(ends.set_owner(again, 7) && !ends.set_owner(one, 8));
        assert_eq!(ends.owner(again.number).map(u32::from), Some(7));
        all.sort_by_key(|connection| connection.number);
        all.dedup();
        assert_eq!(all.len(), CONNECTIONS);
    }

    #[test]
    fn numbers_of_a_process_are_found_and_bits_of_free_ones_cleared() {
        let ends = Ends::create("toehold-test", 1).unwrap();
        let [one, other] = [(); 2].map(|()| ends.reserve(3).unwrap());
        ends.reserve(4).unwrap();
        // Killed when it had freed one, before the bit was cleared.
        ends.number_line().taken[9].store(u64::MAX, Relaxed);
        assert_eq!(ends.owned_by(3).collect::<Vec<_>>(), [one, other]);
        assert_eq!((ends.in_use(), ends.number_line().taken[9].load(Relaxed)), (3, 0));
    }

    #[test]
    fn process_that_reserves_numbers_uses_the_bank_until_it_is_forgotten() {
        let ends = Ends::create("toehold-test", 1).unwrap();
        let last = crate::direct::PROCESSES as u16 - 1;
        ends.reserve(last).unwrap();
        assert!(!ends.forget_user(63) && !ends.forget_user(last - 1));
        assert!(ends.forget_user(last) && !ends.forget_user(last));
    }

    #[test]
    fn numbers_reserved_and_freed_by_two_threads_have_one_owner_and_new_generations() {
        const EACH: usize = 500_000;
        let ends = Ends::create("toehold-test", 1).unwrap();
        // Two numbers are left, so that they are used again all the time.
        for _ in 0..CONNECTIONS - 2 {
            ends.reserve(1).unwrap();
        }
        std::thread::scope(|scope| {
            for process in [2, 3] {
                let ends = &ends;
                scope.spawn(move || {
                    for _ in 0..EACH {
                        let connection = loop {
                            // The other thread may have changed numbers during the search.
                            if let Some(connection) = ends.reserve(process) {
                                break connection;
                            }
                        };
                        assert_eq!(ends.owner(connection.number).map(u32::from), Some(process.into()));
                        assert!(ends.free(connection));
                    }
                });
            }
        });
        assert_eq!(ends.in_use(), CONNECTIONS - 2);
        let last: u64 = [ends.reserve(1), ends.reserve(1)]
            .map(|connection| u64::from(connection.unwrap().generation))
            .iter()
            .sum();
        assert_eq!(last, 2 * EACH as u64 + 2);
    }
}
