//! The ids by which peers know a stack's listeners, and their waiters, for calls without the lease.
//!
//! A listener of a node is one of the stack in each shard. The first shard's is the one that is
//! published: its word names the number and generation that it has in the directory. The words of
//! the other shards' name the first shard's. A second table leads from a number of the directory to
//! the listeners of all shards.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use toehold_link::steering::MAX_SHARDS;
use toehold_shm::direct::{LISTENERS, ListenerId, Signals, Waiters};
use toehold_shm::{Carver, OutOfMemory, Words};
use toehold_stack as stack;

/// Bits of a word that are the number; the generation has the others.
const NUMBER_BITS: u32 = 16;

/// Handles of the words, cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ListenerWords {
    words: Words<AtomicU64>,
    /// By number in the directory and by shard: index plus one, and the low half of the generation
    /// in the high half.
    places: Words<AtomicU64>,
    /// Listeners of a shard.
    listeners: usize,
}

/// The words of one number, or of one listener, in all shards.
const SHARDS: usize = MAX_SHARDS as usize;

impl ListenerWords {
    pub(crate) fn bytes_needed(listeners: u32) -> usize {
        Words::wide_bytes_needed(listeners as usize * SHARDS) + Words::wide_bytes_needed(LISTENERS * SHARDS)
    }

    pub(crate) fn create(carver: &mut Carver, listeners: u32) -> Result<ListenerWords, OutOfMemory> {
        let listeners = listeners as usize;
        Ok(ListenerWords {
            words: carver.wide_words(listeners * SHARDS)?,
            places: carver.wide_words(LISTENERS * SHARDS)?,
            listeners,
        })
    }

    fn word(&self, shard: u8, index: u32) -> Option<&AtomicU64> {
        let index = index as usize;
        (index < self.listeners).then(|| self.words.get(usize::from(shard) * self.listeners + index))?
    }

    /// Says what a listener of the first shard is in the directory. For the holder of its lease.
    pub(super) fn set(&self, own: stack::ListenerId, listener: Option<ListenerId>) {
        if let Some(word) = self.word(0, own.index()) {
            let listed =
                |listener: ListenerId| listener.generation << NUMBER_BITS | u64::from(listener.number);
            word.store(listener.map_or(0, listed), Release);
        }
        if let Some(listener) = listener {
            self.place(listener, 0, own);
        }
    }

    fn place(&self, listener: ListenerId, shard: u8, id: stack::ListenerId) {
        let word = self
            .places
            .get(usize::from(listener.number) * SHARDS + usize::from(shard));
        let place = (listener.generation << 32) | (u64::from(id.index()) + 1);
        if let Some(word) = word
            && word.load(Acquire) != place
        {
            word.store(place, Release);
        }
    }

    /// The index that a listener of the directory has in a shard's stack.
    #[inline]
    pub(super) fn index_in(&self, listener: ListenerId, shard: u8) -> Option<u32> {
        let at = usize::from(listener.number) * SHARDS + usize::from(shard);
        let place = self.places.get(at)?.load(Acquire);
        let is_it = (place >> 32) as u32 == listener.generation as u32;
        (place as u32).checked_sub(1).filter(|_| is_it)
    }

    /// The id that a listener of the first shard has in the directory, if it is open.
    #[inline]
    pub(crate) fn get(&self, own: stack::ListenerId) -> Option<ListenerId> {
        self.get_first(own.index())
    }

    fn get_first(&self, index: u32) -> Option<ListenerId> {
        let word = self.word(0, index)?.load(Acquire);
        (word != 0).then_some(ListenerId {
            number: word as u16,
            generation: word >> NUMBER_BITS,
        })
    }

    /// Says which listeners of all shards are one, the first shard's first.
    pub(crate) fn link(&self, ids: &[stack::ListenerId]) {
        let Some((first, others)) = ids.split_first() else {
            return;
        };
        let listener = self.get(*first);
        for (shard, id) in (1..).zip(others) {
            if let Some(listener) = listener {
                self.place(listener, shard, *id);
            }
            let linked = u64::from(first.index()) + 1;
            if let Some(word) = self.word(shard, id.index())
                && word.load(Acquire) != linked
            {
                word.store(linked, Release);
            }
        }
    }

    /// The id that a listener of any shard has in the directory.
    fn of(&self, shard: u8, id: stack::ListenerId) -> Option<ListenerId> {
        if shard == 0 {
            return self.get(id);
        }
        let linked = self.word(shard, id.index())?.load(Acquire);
        self.get_first(u32::try_from(linked.checked_sub(1)?).ok()?)
    }
}

/// Tells the waiters of published listeners of connections that come over TCP.
#[derive(Debug)]
pub(crate) struct ListenerBell {
    pub(crate) words: ListenerWords,
    pub(crate) waiters: Waiters,
    /// The signals to the accepting side of the bank that the node has with itself.
    pub(crate) signals: Signals,
}

impl ListenerBell {
    /// The number in the directory of a shard's listener, if its waiters are told.
    pub(crate) fn number(&self, shard: u8, id: stack::ListenerId) -> Option<u16> {
        self.words.of(shard, id).map(|listener| listener.number)
    }

    /// Tells the waiters of all published listeners. To be called without the lease.
    pub(crate) fn ring_all(&self) {
        let first = (0..self.words.listeners as u32).filter_map(|index| self.words.get_first(index));
        first.for_each(|listener| self.ring(listener.number));
    }

    /// Tells the waiters of a listener. To be called without the lease.
    pub(crate) fn ring(&self, number: u16) {
        self.signals.tell_listener(&self.waiters, number);
    }
}

#[cfg(test)]
mod tests {
    use toehold_shm::Region;
    use toehold_stack::Event;

    use super::*;

    fn opened(index: u64) -> stack::ListenerId {
        match Event::from_word(1 << 32 | 1 << 31 | index) {
            Event::Listener(id) => id,
            Event::Connection(_) => panic!("the word of a listener"),
        }
    }

    #[test]
    fn listeners_of_all_shards_are_what_the_first_one_is() {
        let region = Region::private(ListenerWords::bytes_needed(8)).unwrap();
        let words = ListenerWords::create(&mut Carver::new(region).unwrap(), 8).unwrap();
        let ids = [opened(3), opened(0), opened(7)];
        let listener = ListenerId {
            number: 1023,
            generation: (1 << 48) - 1,
        };
        words.link(&ids);
        let all = || {
            (0..)
                .zip(ids)
                .map(|(shard, id)| words.of(shard, id))
                .collect::<Vec<_>>()
        };
        assert_eq!(all(), [None; 3]);
        words.set(ids[0], Some(listener));
        assert_eq!(all(), [Some(listener); 3]);
        words.link(&ids);
        let places = |listener| [0, 1, 2, 3].map(|shard| words.index_in(listener, shard));
        assert_eq!(places(listener), [Some(3), Some(0), Some(7), None]);
        let other = ListenerId {
            generation: 5,
            ..listener
        };
        assert_eq!(places(other), [None; 4]);
        assert_eq!(words.of(1, opened(7)), None);
        assert_eq!((words.of(0, opened(8)), words.of(16, opened(0))), (None, None));
        words.set(ids[0], None);
        assert_eq!(all(), [None; 3]);
    }
}
