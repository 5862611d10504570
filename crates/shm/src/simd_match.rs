//! Compares many small numbers with one.

/// The positions of `wanted` among twelve numbers, as bits: the first one's is the lowest.
#[inline(always)]
pub fn equal(numbers: &[u16; 12], wanted: u16) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{
            _mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16, _mm_set_epi16, _mm_set1_epi16,
        };
        let [a, b, c, d, e, f, g, h, i, j, k, l] = numbers.map(|number| number as i16);
        // SAFETY: every processor of this architecture has SSE2. These instructions touch no memory
        // but `numbers`.
        let found = unsafe {
            let wanted = _mm_set1_epi16(wanted as i16);
            let some = _mm_cmpeq_epi16(_mm_set_epi16(h, g, f, e, d, c, b, a), wanted);
            let others = _mm_cmpeq_epi16(_mm_set_epi16(0, 0, 0, 0, l, k, j, i), wanted);
            _mm_movemask_epi8(_mm_packs_epi16(some, others))
        };
        found as u32 & 0xfff
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let same = numbers.iter().rev().map(|number| u32::from(*number == wanted));
        same.fold(0, |bits, same| bits << 1 | same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_sets_its_bit() {
        let mut numbers = [1, 0x8000, 0xffff, 0x7fff, 0, 1, 0x100, 0x0100, 0x80, 2, 3, 0xffff];
        for wanted in [0, 1, 2, 3, 0x80, 0x100, 0x7fff, 0x8000, 0x8001, 0xffff] {
            for _ in 0..numbers.len() {
                numbers.rotate_left(1);
                let expected = numbers.iter().zip(0..).filter(|(number, _)| **number == wanted);
                let expected: u32 = expected.map(|(_, at)| 1 << at).sum();
                assert_eq!(equal(&numbers, wanted), expected, "{wanted} among {numbers:?}");
            }
        }
    }
}
