//! Which peers something is pending for.

/// A set of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Slots(u128);

impl Slots {
    #[inline]
    pub(super) fn insert(&mut self, slot: u8) {
        self.0 |= 1 << (slot & 127);
    }

    #[inline]
    pub(super) fn remove(&mut self, slot: u8) {
        self.0 &= !(1 << (slot & 127));
    }

    #[inline]
    pub(super) fn take(&mut self) -> impl Iterator<Item = u8> + use<> {
        let mut bits = std::mem::take(&mut self.0);
        std::iter::from_fn(move || {
            let slot = bits.trailing_zeros();
            bits &= bits.wrapping_sub(1);
            (slot < 128).then_some(slot as u8)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_slots() {
        let mut slots = Slots::default();
        [3, 127, 0].into_iter().for_each(|slot| slots.insert(slot));
        slots.remove(3);
        assert_eq!(slots.take().collect::<Vec<_>>(), [0, 127]);
        assert_eq!(slots.take().count(), 0);
    }
}
