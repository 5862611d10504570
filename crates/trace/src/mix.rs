//! Numbers that look random and that all processes derive alike.

/// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014). It is a permutation of 64-bit numbers.
pub(crate) fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::mix;

    #[test]
    fn first_output_of_seed_zero_is_that_of_the_paper() {
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    }
}
