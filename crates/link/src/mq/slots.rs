//! Which peers something is pending for.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A set of slots: plain data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub(super) struct Slots([u64; 2]);

impl Slots {
    #[inline]
    pub(super) fn insert(&mut self, slot: u8) {
        self.0[usize::from(slot >> 6 & 1)] |= 1 << (slot & 63);
    }

    #[inline]
    pub(super) fn contains(&self, slot: u8) -> bool {
        self.0[usize::from(slot >> 6 & 1)] & 1 << (slot & 63) != 0
    }

    #[inline]
    pub(super) fn remove(&mut self, slot: u8) {
        self.0[usize::from(slot >> 6 & 1)] &= !(1 << (slot & 63));
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; 2]
    }

    /// Takes the least one out.
    pub(super) fn pop(&mut self) -> Option<u8> {
        let mut rest = *self;
        let slot = rest.take().next()?;
        self.remove(slot);
        Some(slot)
    }

    #[inline]
    pub(super) fn take(&mut self) -> impl Iterator<Item = u8> + use<> {
        let mut bits = std::mem::take(&mut self.0);
        std::iter::from_fn(move || {
            let word = usize::from(bits[0] == 0);
            let bit = bits[word].trailing_zeros();
            bits[word] &= bits[word].wrapping_sub(1);
            (bit < 64).then_some((word * 64) as u8 | bit as u8)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_slots() {
        let mut slots = Slots::default();
        assert!(slots.is_empty());
        [3, 127, 0, 64, 63]
            .into_iter()
            .for_each(|slot| slots.insert(slot));
        slots.remove(3);
        assert_eq!(slots.take().collect::<Vec<_>>(), [0, 63, 64, 127]);
        assert!(slots.is_empty());
        assert_eq!(slots.take().count(), 0);
        slots.insert(70);
        assert_eq!((slots.pop(), slots.pop()), (Some(70), None));
    }
}
