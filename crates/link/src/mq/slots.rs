//! Which peers something is pending for.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::settings::MAX_PEERS;

const WORDS: usize = MAX_PEERS / 64;

/// A set of slots: plain data. What it costs goes by the slots that are in it, not by those
/// that could be. Any contents are a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Slots {
    /// Which of the words are not zero: those of others are not looked at.
    filled: u64,
    words: [u64; WORDS],
}

const _: () = assert!(MAX_PEERS.is_multiple_of(64) && WORDS.is_power_of_two() && WORDS <= 64);

/// Where a slot is: the word, and its bit in there.
#[inline]
fn place(slot: u16) -> (usize, u64) {
    (usize::from(slot >> 6) % WORDS, 1 << (slot & 63))
}

/// Takes the lowest bit out.
#[inline]
pub(super) fn next_bit(bits: &mut u64) -> Option<u32> {
    let bit = bits.trailing_zeros();
    *bits &= bits.wrapping_sub(1);
    (bit < 64).then_some(bit)
}

impl Slots {
    #[inline]
    pub(super) fn insert(&mut self, slot: u16) {
        let (word, bit) = place(slot);
        self.words[word] |= bit;
        self.filled |= 1 << word;
    }

    #[inline]
    pub(super) fn contains(&self, slot: u16) -> bool {
        let (word, bit) = place(slot);
        self.words[word] & bit != 0
    }

    pub(super) fn remove(&mut self, slot: u16) {
        let (word, bit) = place(slot);
        self.words[word] &= !bit;
        if self.words[word] == 0 {
            self.filled &= !(1 << word);
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Takes the least one out.
    pub(super) fn pop(&mut self) -> Option<u16> {
        let slot = self.iter().next();
        match slot {
            Some(slot) => self.remove(slot),
            // Words that say otherwise were scribbled on.
            None => self.filled = 0,
        }
        slot
    }

    /// Begins to take all out: gives the words that have something, for [`Slots::take_word`].
    #[inline]
    pub(super) fn take_filled(&mut self) -> u64 {
        std::mem::take(&mut self.filled)
    }

    /// Takes all of a word: the slots from 64 times its number on.
    #[inline]
    pub(super) fn take_word(&mut self, word: u32) -> u64 {
        std::mem::take(&mut self.words[word as usize % WORDS])
    }

    /// Puts back what [`Slots::take_word`] took.
    pub(super) fn put_word(&mut self, word: u32, bits: u64) {
        next_slots(word, bits).for_each(|slot| self.insert(slot));
    }

    /// Does something with each, in ascending order.
    #[inline]
    pub(super) fn for_each(&self, mut action: impl FnMut(u16)) {
        let mut filled = self.filled;
        while let Some(word) = next_bit(&mut filled) {
            let mut bits = self.words[word as usize % WORDS];
            while let Some(bit) = next_bit(&mut bits) {
                action((word * 64 + bit) as u16);
            }
        }
    }

    /// In ascending order.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        let mut filled = self.filled;
        let words = std::iter::from_fn(move || next_bit(&mut filled));
        words.flat_map(|word| next_slots(word, self.words[word as usize % WORDS]))
    }

    /// Does something with each from this one on and then from the least one, as long as
    /// that says to go on.
    #[inline]
    pub(super) fn each_from(&self, first: u16, mut action: impl FnMut(u16) -> bool) {
        let (start, bit) = place(first);
        // The first word comes twice: its end, and last its beginning.
        for step in 0..=WORDS {
            let word = (start + step) % WORDS;
            let mut bits = match step {
                0 => self.words[word] & bit.wrapping_neg(),
                WORDS => self.words[word] & (bit - 1),
                _ => self.words[word],
            };
            while let Some(bit) = next_bit(&mut bits) {
                if !action((word as u32 * 64 + bit) as u16) {
                    return;
                }
            }
        }
    }

    /// The slots of either set.
    pub(super) fn or(&self, other: &Slots) -> Slots {
        self.with(other, |one, other| one | other)
    }

    /// The slots of this set that are not in the other.
    pub(super) fn without(&self, other: &Slots) -> Slots {
        self.with(other, |one, other| one & !other)
    }

    fn with(&self, other: &Slots, combine: impl Fn(u64, u64) -> u64) -> Slots {
        let mut both = Slots::default();
        for (index, word) in both.words.iter_mut().enumerate() {
            *word = combine(self.words[index], other.words[index]);
            both.filled |= u64::from(*word != 0) << index;
        }
        both
    }
}

#[inline]
fn next_slots(word: u32, mut bits: u64) -> impl Iterator<Item = u16> {
    std::iter::from_fn(move || next_bit(&mut bits).map(|bit| (word * 64 + bit) as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(slots: &[u16]) -> Slots {
        let mut set = Slots::default();
        slots.iter().for_each(|slot| set.insert(*slot));
        set
    }

    #[test]
    fn slots_behave_like_a_set() {
        let mut slots = set(&[3, 511, 0, 64, 63]);
        slots.remove(3);
        slots.remove(3);
        assert!(slots.contains(511) && !slots.contains(3) && !slots.is_empty());
        assert_eq!(slots.iter().collect::<Vec<_>>(), [0, 63, 64, 511]);
        for first in [1, 63, 64, 65, 511] {
            let (mut rest, mut order) = (slots, Vec::new());
            rest.insert(first);
            rest.each_from(first, |slot| {
                order.push(slot);
                order.len() < 4
            });
            rest.remove(first);
            let (earlier, later): (Vec<u16>, Vec<u16>) = rest.iter().partition(|slot| *slot < first);
            let expected = [vec![first], later, earlier].concat();
            assert_eq!(order, expected[..4.min(expected.len())]);
        }
        assert_eq!(
            [(); 5].map(|()| slots.pop()),
            [Some(0), Some(63), Some(64), Some(511), None]
        );
        assert_eq!(slots, Slots::default());
        let (one, other) = (set(&[1, 70, 300]), set(&[70, 301]));
        assert_eq!(one.or(&other), set(&[1, 70, 300, 301]));
        assert_eq!(one.without(&other), set(&[1, 300]));
        assert!(one.without(&one).is_empty());
    }

    #[test]
    fn words_are_taken_and_put_back() {
        let mut slots = set(&[2, 130, 190]);
        let mut filled = slots.take_filled();
        assert_eq!((next_bit(&mut filled), next_bit(&mut filled)), (Some(0), Some(2)));
        assert_eq!(next_bit(&mut filled), None);
        assert_eq!(
            (slots.take_word(0), slots.take_word(2)),
            (1 << 2, 1 << 2 | 1 << 62)
        );
        assert_eq!(slots, Slots::default());
        slots.put_word(2, 1 << 62);
        assert_eq!(slots, set(&[190]));
    }

    #[test]
    fn any_contents_are_a_set() {
        let mut slots = Slots {
            filled: u64::MAX,
            words: [0; WORDS],
        };
        assert_eq!((slots.iter().count(), slots.pop()), (0, None));
        assert!(slots.is_empty());
        slots.words = [u64::MAX; WORDS];
        assert!(slots.iter().all(|slot| usize::from(slot) < MAX_PEERS));
        slots.filled = u64::MAX;
        assert!(slots.iter().count() <= 64 * 64);
    }
}
