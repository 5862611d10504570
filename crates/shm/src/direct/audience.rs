//! Audiences: which waiters an end tells when something happens there.

use super::bank::{AUDIENCES, WAITERS};

/// Number of a waiter of a node, below [`WAITERS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaiterNumber(u16);

impl WaiterNumber {
    /// The waiter of that number; `None` if there can be none.
    #[inline]
    pub fn new(number: u16) -> Option<WaiterNumber> {
        (usize::from(number) < WAITERS).then_some(WaiterNumber(number))
    }

    /// The number.
    #[inline]
    pub fn get(self) -> u16 {
        self.0
    }
}

/// Up to four waiters in one word, or the number of a bitmap with more.
///
/// A waiter takes 15 bits: its number plus 1, or 0 for none. The highest bit says that the low
/// ones are the number of a bitmap. A peer may have written any word: what names no waiter or
/// bitmap is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Audience(u64);

const FIELDS: u32 = 4;
const FIELD_BITS: u32 = 15;
const FIELD: u64 = (1 << FIELD_BITS) - 1;
const IN_BITMAP: u64 = 1 << 63;

impl Audience {
    pub(super) const NONE: Audience = Audience(0);

    #[inline]
    pub(super) fn from_word(word: u64) -> Audience {
        Audience(word)
    }

    #[inline]
    pub(super) fn to_word(self) -> u64 {
        self.0
    }

    /// The audience whose waiters are in that bitmap.
    pub(super) fn in_bitmap(number: u16) -> Audience {
        Audience(IN_BITMAP | u64::from(number))
    }

    /// Number of the bitmap that has the waiters.
    #[inline]
    pub(super) fn bitmap(self) -> Option<u16> {
        let number = self.0 & !IN_BITMAP;
        let is_number = self.0 & IN_BITMAP != 0 && number < AUDIENCES as u64;
        is_number.then_some(number as u16)
    }

    /// The waiters that are in the word itself.
    #[inline]
    pub(super) fn waiters(self) -> impl Iterator<Item = WaiterNumber> {
        let word = if self.0 & IN_BITMAP == 0 { self.0 } else { 0 };
        (0..FIELDS)
            .map(move |field| (word >> (field * FIELD_BITS) & FIELD) as u16)
            .filter_map(|number| WaiterNumber::new(number.checked_sub(1)?))
    }

    /// The audience with one waiter more. Returns `None` if a bitmap is needed.
    pub(super) fn with(self, waiter: WaiterNumber) -> Option<Audience> {
        if self.waiters().any(|other| other == waiter) {
            return Some(self);
        }
        let free = (0..FIELDS)
            .map(|field| field * FIELD_BITS)
            .find(|at| self.0 >> at & FIELD == 0);
        let at = free.filter(|_| self.0 & IN_BITMAP == 0)?;
        Some(Audience(self.0 | (u64::from(waiter.0) + 1) << at))
    }

    /// The audience with those waiters that are to be kept.
    pub(super) fn retain(self, mut keep: impl FnMut(WaiterNumber) -> bool) -> Audience {
        if self.0 & IN_BITMAP != 0 {
            return self;
        }
        let kept = self.waiters().filter(|&waiter| keep(waiter));
        kept.fold(Audience::NONE, |audience, waiter| {
            audience.with(waiter).unwrap_or(audience)
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn waiter(number: u16) -> WaiterNumber {
        WaiterNumber::new(number).unwrap()
    }

    #[test]
    fn audience_holds_four_waiters_and_no_more() {
        let last = WAITERS as u16 - 1;
        let all = [0, 1, last, 77].map(waiter);
        let audience = all
            .iter()
            .fold(Audience::NONE, |audience, &waiter| audience.with(waiter).unwrap());
        assert_eq!(audience.waiters().collect::<Vec<_>>(), all);
        assert_eq!(audience.with(waiter(last)), Some(audience));
        assert_eq!(audience.with(waiter(5)), None);
        let fewer = audience.retain(|waiter| waiter.get() != 1);
        assert_eq!(fewer.waiters().collect::<Vec<_>>(), [0, last, 77].map(waiter));
        assert!(fewer.with(waiter(5)).is_some());
        assert_eq!(WaiterNumber::new(WAITERS as u16), None);
    }

    #[test]
    fn audience_in_a_bitmap_has_its_number_alone() {
        let audience = Audience::in_bitmap(9);
        assert_eq!((audience.bitmap(), audience.waiters().count()), (Some(9), 0));
        assert_eq!(audience.with(waiter(1)), None);
        assert_eq!(Audience::NONE.bitmap(), None);
    }

    #[test]
    fn audience_of_any_word_names_no_waiter_out_of_range() {
        let mut word = 1_u64;
        for _ in 0..10_000 {
            word = word
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let audience = Audience::from_word(word >> (word >> 58));
            assert!(
                audience
                    .waiters()
                    .all(|waiter| usize::from(waiter.get()) < WAITERS)
            );
            assert!(
                audience
                    .bitmap()
                    .is_none_or(|number| usize::from(number) < AUDIENCES)
            );
        }
    }
}
