//! The program's own names of its registrations, in memory of its own.
//!
//! The node's memory holds a token of each registration, and other programs of the node can write
//! nonsense there. A program takes what `epoll_wait` tells for its own, as a rule a pointer, and
//! would follow it. So the token only leads to what the program said, and one that leads nowhere
//! is told to no program.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

use toehold_socket::Token;

/// Slots of the first chunk. Each further chunk has twice as many as its predecessor.
const FIRST: u32 = 64;

/// Most chunks: registrations for all descriptors that a process can have.
const CHUNKS: usize = 22;

/// An odd number: multiples of it differ from one another in many bits.
const SPREAD: u32 = 0x9e37_79b1;

#[derive(Default)]
struct Slot {
    /// The registration that has the slot; 0 if none has.
    tag: AtomicU32,
    data: AtomicU64,
}

/// The registrations of one instance.
#[derive(Default)]
pub(super) struct Names {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    /// Slots in chunks that are there.
    capacity: AtomicU32,
    used: AtomicU32,
    /// Where a free slot is looked for next.
    cursor: AtomicU32,
    /// How many registrations there have been.
    count: AtomicU32,
}

impl Names {
    fn slot(&self, index: u32) -> Option<&Slot> {
        let place = index.checked_add(FIRST)?;
        let chunk = self.chunks.get((place.ilog2() - FIRST.ilog2()) as usize)?.get()?;
        chunk.get((place - (1 << place.ilog2())) as usize)
    }

    /// The program's own number for a registration that is still there.
    #[inline]
    pub(super) fn data(&self, Token(token): Token) -> Option<u64> {
        let tag = (token as u64 >> 32) as u32;
        let slot = self.slot(token as u32)?;
        if tag == 0 || slot.tag.load(Acquire) != tag {
            return None;
        }
        let data = slot.data.load(Acquire);
        // The slot may have become another registration's in between.
        (slot.tag.load(Relaxed) == tag).then_some(data)
    }

    /// Doubles the slots, if that is possible.
    fn grow(&self) {
        let capacity = self.capacity.load(Relaxed);
        let number = (capacity / FIRST + 1).ilog2();
        if let Some(chunk) = self.chunks.get(number as usize) {
            let len = FIRST << number;
            chunk.get_or_init(|| (0..len).map(|_| Slot::default()).collect());
            self.capacity.store(capacity + len, Relaxed);
        }
    }

    /// A name for what a program said. Calls come one at a time. Returns `None` if there are too
    /// many names.
    pub(super) fn name(self: &Arc<Self>, data: u64) -> Option<Name> {
        if self.used.load(Relaxed) * 2 >= self.capacity.load(Relaxed) {
            self.grow();
        }
        let capacity = self.capacity.load(Relaxed);
        for _ in 0..capacity {
            let index = self.cursor.fetch_add(1, Relaxed) % capacity;
            let slot = self.slot(index)?;
            if slot.tag.load(Acquire) != 0 {
                continue;
            }
            let tag = loop {
                let tag = (self.count.fetch_add(1, Relaxed) + 1).wrapping_mul(SPREAD);
                if tag != 0 {
                    break tag;
                }
            };
            slot.data.store(data, Release);
            slot.tag.store(tag, Release);
            self.used.fetch_add(1, AcqRel);
            return Some(Name {
                names: Arc::clone(self),
                token: Token((u64::from(tag) << 32 | u64::from(index)) as usize),
            });
        }
        None
    }
}

/// A registration's place among the names, until this is dropped: when no poll tells of it any more.
pub(super) struct Name {
    names: Arc<Names>,
    token: Token,
}

impl Name {
    /// The token that the node's memory gets.
    pub(super) fn token(&self) -> Token {
        self.token
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if let Some(slot) = self.names.slot(self.token.0 as u32) {
            slot.tag.store(0, Release);
            self.names.used.fetch_sub(1, AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_lead_to_what_the_program_said_until_they_are_dropped() {
        let names = Arc::new(Names::default());
        let given: Vec<Name> = (0..1000).map(|data| names.name(data).unwrap()).collect();
        for (data, name) in given.iter().enumerate() {
            assert_eq!(names.data(name.token()), Some(data as u64));
        }
        let tokens: HashSet<usize> = given.iter().map(|name| name.token().0).collect();
        assert_eq!(tokens.len(), 1000);
        drop(given);
        assert!(tokens.iter().all(|&token| names.data(Token(token)).is_none()));
        // The slots are used again, and the former tokens lead nowhere all the same.
        let again: Vec<Name> = (0..1000).map(|data| names.name(data).unwrap()).collect();
        assert!(tokens.iter().all(|&token| names.data(Token(token)).is_none()));
        assert!(names.capacity.load(Relaxed) <= 4096);
        drop(again);
    }

    #[test]
    fn tokens_that_were_never_given_lead_nowhere() {
        let names = Arc::new(Names::default());
        let given: Vec<Name> = (0..100).map(|data| names.name(data).unwrap()).collect();
        let token = given[50].token().0;
        let flipped = (0..64).map(|bit| token ^ 1 << bit);
        let nonsense = [0, 1, usize::MAX, 1 << 63, 0xffff_ffff, 1 << 32];
        for wrong in flipped.chain(nonsense) {
            assert_eq!(names.data(Token(wrong)), None, "{wrong:x}");
        }
    }
}
