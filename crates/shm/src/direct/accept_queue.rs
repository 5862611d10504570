//! Queues in which connecting ends put connections for a listener, in order.
//!
//! A slot is one word: the lap, and either nothing or the number and generation of
//! a connection. No step waits for another process: one that finds a slot changed moves the
//! queue's end on. The two sides can write anything there; what is taken is checked against the
//! connection's record, and a generation is taken once.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::bank::CONNECTIONS;
use crate::futex::AtomicU64;

/// A connection of a bank: its number, and what tells it from earlier ones of the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// The number, below [`CONNECTIONS`].
    pub number: u16,
    /// The generation; never 0.
    pub generation: u32,
}

/// Why a connection could not be offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum OfferError {
    /// As many connections wait as the listener allows, or the queue has slots.
    #[error("the listener's queue is full")]
    Full,
    /// The queue changes all the time, or its words are nonsense.
    #[error("the listener's queue is in disorder")]
    Disorder,
}

const LAP_BITS: u32 = 19;
const LAPS: u64 = (1 << LAP_BITS) - 1;
const FULL: u64 = 1 << 44;
const LAP_AT: u32 = 45;

/// Changes of others that one call makes up for. Each is a step that another process has made. With
/// honest processes as many come only if as many of them use the queue at once.
const TRIES: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    lap: u64,
    connection: Option<ConnectionId>,
}

impl Slot {
    fn empty(lap: u64) -> Slot {
        Slot {
            lap: lap & LAPS,
            connection: None,
        }
    }

    fn to_word(self) -> u64 {
        let filled = self.connection.map_or(0, |connection| {
            FULL | u64::from(connection.generation) << 12 | u64::from(connection.number)
        });
        self.lap << LAP_AT | filled
    }

    fn from_word(word: u64) -> Slot {
        let connection = ConnectionId {
            number: (word % CONNECTIONS as u64) as u16,
            generation: (word >> 12) as u32,
        };
        Slot {
            lap: word >> LAP_AT,
            connection: (word & FULL != 0).then_some(connection),
        }
    }
}

/// A listener's queue in one bank.
#[derive(Debug, Clone, Copy)]
pub(super) struct AcceptQueue<'a> {
    /// A power of two, at most [`QUEUE_LEN`](super::bank::QUEUE_LEN).
    pub(super) slots: &'a [AtomicU64],
    pub(super) head: &'a AtomicU64,
    pub(super) tail: &'a AtomicU64,
}

impl AcceptQueue<'_> {
    fn place(&self, position: u64) -> (&AtomicU64, u64) {
        let len = self.slots.len() as u64;
        (&self.slots[(position % len) as usize], (position / len) & LAPS)
    }

    /// Connections that wait; a guess while others use the queue.
    pub(super) fn pending(&self) -> u64 {
        let tail = self.tail.load(Relaxed);
        tail.saturating_sub(self.head.load(Relaxed))
    }

    /// Puts a connection at the end, unless `most` wait already.
    pub(super) fn offer(&self, connection: ConnectionId, most: u64) -> Result<(), OfferError> {
        for _ in 0..TRIES {
            let tail = self.tail.load(Acquire);
            if tail.saturating_sub(self.head.load(Acquire)) >= most {
                return Err(OfferError::Full);
            }
            let (slot, lap) = self.place(tail);
            let word = slot.load(Acquire);
            let found = Slot::from_word(word);
            if found == Slot::empty(lap) {
                let filled = Slot {
                    lap,
                    connection: Some(connection),
                };
                let offered = slot.compare_exchange(word, filled.to_word(), AcqRel, Relaxed);
                if offered.is_ok() {
                    self.advance(self.tail, tail);
                    return Ok(());
                }
            } else if found.lap == lap || found == Slot::empty(lap + 1) {
                // Another process has filled it, and it may be taken already.
                self.advance(self.tail, tail);
            } else if self.tail.load(Acquire) == tail {
                // The connection of the lap before waits there still.
                return Err(OfferError::Full);
            }
        }
        Err(OfferError::Disorder)
    }

    /// Takes the first connection that `claim` accepts. Every process that finds a connection asks
    /// `claim` for it before its slot is emptied. `claim` has to say `true` once at most for each
    /// connection. `None` if the queue is empty.
    pub(super) fn take(&self, mut claim: impl FnMut(ConnectionId) -> bool) -> Option<ConnectionId> {
        for _ in 0..TRIES.max(2 * self.slots.len()) {
            let head = self.head.load(Acquire);
            let (slot, lap) = self.place(head);
            let word = slot.load(Acquire);
            let found = Slot::from_word(word);
            match found.connection {
                Some(connection) if found.lap == lap => {
                    let is_claimed = claim(connection);
                    let empty = Slot::empty(lap + 1).to_word();
                    let _ = slot.compare_exchange(word, empty, AcqRel, Relaxed);
                    self.advance(self.head, head);
                    if is_claimed {
                        return Some(connection);
                    }
                }
                None if found == Slot::empty(lap + 1) => self.advance(self.head, head),
                _ if self.head.load(Acquire) == head => return None,
                _ => {}
            }
        }
        None
    }

    /// Takes the first connection if `wants` says so, and leaves it there if not. `claim` is as for
    /// [`take`](Self::take).
    pub(super) fn take_first(
        &self,
        wants: impl Fn(ConnectionId) -> bool,
        claim: impl Fn(ConnectionId) -> bool,
    ) -> Option<ConnectionId> {
        for _ in 0..self.slots.len() {
            let head = self.head.load(Acquire);
            let (slot, lap) = self.place(head);
            let word = slot.load(Acquire);
            let found = Slot::from_word(word);
            let first = found.connection.filter(|_| found.lap == lap);
            let connection = first.filter(|&connection| wants(connection))?;
            let is_claimed = claim(connection);
            let empty = Slot::empty(lap + 1).to_word();
            let _ = slot.compare_exchange(word, empty, AcqRel, Relaxed);
            self.advance(self.head, head);
            if is_claimed {
                return Some(connection);
            }
        }
        None
    }

    /// Whether a connection waits; a guess while others use the queue.
    pub(super) fn is_empty(&self) -> bool {
        let (slot, lap) = self.place(self.head.load(Acquire));
        let found = Slot::from_word(slot.load(Acquire));
        found.connection.is_none() && found.lap == lap
    }

    fn advance(&self, end: &AtomicU64, from: u64) {
        let _ = end.compare_exchange(from, from.wrapping_add(1), AcqRel, Relaxed);
    }
}

/// Whether a generation, or a later one, was claimed by the word that says what was taken last.
pub(super) fn is_claimed(taker: u64, generation: u32) -> bool {
    generation.wrapping_sub(taker as u32) as i32 <= 0
}

/// Claims a connection for a process by the word that says what was taken last. Each generation
/// is claimed once, and none after a later one. Returns `false` if it was claimed before.
pub(super) fn claim(taker: &AtomicU64, generation: u32, process: u16) -> bool {
    let mut found = taker.load(Acquire);
    loop {
        if is_claimed(found, generation) {
            return false;
        }
        let mine = u64::from(generation) | u64::from(process) << 32;
        match taker.compare_exchange(found, mine, AcqRel, Acquire) {
            Ok(_) => return true,
            Err(other) => found = other,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Memory {
        slots: Vec<AtomicU64>,
        head: AtomicU64,
        tail: AtomicU64,
    }

    impl Memory {
        fn new(len: usize) -> Memory {
            Memory {
                slots: (0..len).map(|_| AtomicU64::new(0)).collect(),
                head: AtomicU64::new(0),
                tail: AtomicU64::new(0),
            }
        }

        fn queue(&self) -> AcceptQueue<'_> {
            AcceptQueue {
                slots: &self.slots,
                head: &self.head,
                tail: &self.tail,
            }
        }
    }

    fn connection(number: u16, generation: u32) -> ConnectionId {
        ConnectionId { number, generation }
    }

    #[test]
    fn slot_survives_the_way_through_a_word() {
        for connection in [None, Some(connection(4095, u32::MAX)), Some(connection(0, 1))] {
            let slot = Slot {
                lap: LAPS,
                connection,
            };
            assert_eq!(Slot::from_word(slot.to_word()), slot);
        }
        assert_eq!(Slot::empty(0).to_word(), 0, "fresh memory is an empty queue");
    }

    #[test]
    fn queue_gives_connections_in_the_order_of_offers_over_many_laps() {
        let memory = Memory::new(4);
        let queue = memory.queue();
        let mut next = 0;
        for round in 0..1000_u32 {
            for _ in 0..1 + round % 4 {
                next += 1;
                queue.offer(connection(5, next), 4).unwrap();
            }
            assert_eq!(queue.pending(), u64::from(1 + round % 4));
            let first = next - round % 4;
            for expected in first..=next {
                assert!(!queue.is_empty());
                assert_eq!(queue.take(|_| true), Some(connection(5, expected)));
            }
            assert!(queue.is_empty() && queue.take(|_| true).is_none());
        }
    }

    #[test]
    fn queue_refuses_more_than_the_backlog_or_its_slots() {
        let memory = Memory::new(4);
        let queue = memory.queue();
        queue.offer(connection(1, 1), 1).unwrap();
        assert_eq!(queue.offer(connection(2, 1), 1), Err(OfferError::Full));
        for number in 2..=4 {
            queue.offer(connection(number, 1), 100).unwrap();
        }
        assert_eq!(queue.offer(connection(5, 1), 100), Err(OfferError::Full));
        assert_eq!(queue.take(|found| found.number == 3), Some(connection(3, 1)));
        assert_eq!(queue.pending(), 1);
    }

    #[test]
    fn first_connection_stays_unless_it_is_wanted() {
        let memory = Memory::new(4);
        let queue = memory.queue();
        for number in 1..=3 {
            queue.offer(connection(number, 1), 4).unwrap();
        }
        assert_eq!(queue.take_first(|found| found.number == 2, |_| true), None);
        assert_eq!(queue.pending(), 3);
        let below = |limit| move |found: ConnectionId| found.number < limit;
        // The first one was claimed before.
        assert_eq!(
            queue.take_first(below(3), |found| found.number == 2),
            Some(connection(2, 1))
        );
        assert_eq!(queue.take_first(below(3), |_| true), None);
        assert_eq!(queue.take(|_| true), Some(connection(3, 1)));
        assert_eq!(queue.take_first(|_| true, |_| true), None);
    }

    #[test]
    fn queue_ends_left_behind_by_a_dead_process_are_moved_on() {
        let memory = Memory::new(2);
        let queue = memory.queue();
        queue.offer(connection(1, 1), 2).unwrap();
        // Killed between the slot and the tail.
        memory.tail.store(0, Relaxed);
        queue.offer(connection(2, 1), 2).unwrap();
        assert_eq!(queue.take(|_| true), Some(connection(1, 1)));
        // Killed between the slot and the head.
        memory.head.store(0, Relaxed);
        assert_eq!(queue.take(|_| true), Some(connection(2, 1)));
        queue.offer(connection(3, 1), 2).unwrap();
        assert_eq!(queue.take(|_| true), Some(connection(3, 1)));
    }

    #[test]
    fn generation_is_claimed_once_and_never_after_a_later_one() {
        let taker = AtomicU64::new(0);
        assert!(claim(&taker, 1, 7));
        assert!(!claim(&taker, 1, 8));
        assert!(claim(&taker, 3, 8));
        assert!(!claim(&taker, 2, 7));
        assert_eq!(taker.load(Relaxed), 3 | 8 << 32);
        taker.store(u64::from(u32::MAX), Relaxed);
        assert!(claim(&taker, 1, 7), "generations wrap around");
    }

    #[test]
    fn queue_of_random_words_neither_hangs_nor_panics() {
        let memory = Memory::new(64);
        let queue = memory.queue();
        let mut random = 3_u64;
        let mut next = || {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            random >> (random >> 58)
        };
        for _ in 0..3000 {
            for slot in memory.slots.iter().step_by(1 + next() as usize % 7) {
                slot.store(next(), Relaxed);
            }
            memory.head.store(next(), Relaxed);
            memory.tail.store(next(), Relaxed);
            let _ = queue.offer(connection(1, 1), next());
            let taken = queue.take(|found| found.generation % 2 == 0);
            assert!(taken.is_none_or(|found| usize::from(found.number) < CONNECTIONS));
            let _ = (queue.is_empty(), queue.pending());
        }
    }

    /// Two threads offer and two take, numbers are used again.
    #[test]
    fn each_connection_offered_is_taken_once() {
        const EACH: u32 = if cfg!(miri) { 50 } else { 100_000 };
        let memory = Memory::new(8);
        let queue = memory.queue();
        let takers: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        let taken: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        let done = core::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for side in 0..2_u16 {
                let (taken, done) = (&taken, &done);
                scope.spawn(move || {
                    for generation in 1..=EACH {
                        let number = side * 2 + (generation % 2) as u16;
                        let slot = &taken[usize::from(number)];
                        let before = slot.load(Acquire);
                        while queue.offer(connection(number, generation), 8).is_err() {
                            std::thread::yield_now();
                        }
                        // A second offer of a generation is ignored.
                        if generation % 64 == 0 {
                            let _ = queue.offer(connection(number, generation), 8);
                        }
                        while slot.load(Acquire) == before {
                            std::thread::yield_now();
                        }
                    }
                    done.fetch_add(1, AcqRel);
                });
            }
            for process in 1..=2 {
                let (takers, taken, done) = (&takers, &taken, &done);
                scope.spawn(move || {
                    while done.load(Acquire) < 2 || !queue.is_empty() {
                        let claim = |found: ConnectionId| {
                            claim(&takers[usize::from(found.number)], found.generation, process)
                        };
                        match queue.take(claim) {
                            Some(found) => drop(taken[usize::from(found.number)].fetch_add(1, AcqRel)),
                            None => std::thread::yield_now(),
                        }
                    }
                });
            }
        });
        let total: u64 = taken.iter().map(|count| count.load(Relaxed)).sum();
        assert_eq!(total, 2 * u64::from(EACH));
    }
}
