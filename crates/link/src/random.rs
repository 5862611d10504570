//! Random numbers: a reproducible sequence without secrecy, and unpredictable
//! numbers.

/// xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number
/// generators", 2018), seeded through SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    /// Creates a generator whose sequence depends on `seed` alone.
    pub(crate) fn new(seed: u64) -> Random {
        let mut mixed = seed;
        let state = core::array::from_fn(|_| {
            mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = mixed;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        });
        Random { state }
    }

    /// Returns the next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// Returns a number in `0..bound` (0 if `bound` is 0). The bias of at most
    /// `bound / 2^64` does not matter here.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns `true` with the given probability. Takes a number from the sequence
    /// even for a certain answer, so that two settings stay comparable.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        unit < probability
    }
}

/// Returns a number that an attacker cannot guess.
pub(crate) fn unpredictable() -> u64 {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn equal_seeds_give_equal_sequences() {
        let mut a = Random::new(7);
        let mut b = Random::new(7);
        let mut c = Random::new(8);
        let first: Vec<u64> = (0..16).map(|_| a.next()).collect();
        assert_eq!(first, (0..16).map(|_| b.next()).collect::<Vec<_>>());
        assert_ne!(first, (0..16).map(|_| c.next()).collect::<Vec<_>>());
    }

    #[test]
    fn below_and_chance_keep_bounds() {
        let mut random = Random::new(1);
        let mut hits = 0;
        for _ in 0..10_000 {
            assert!(random.below(10) < 10);
            hits += u32::from(random.chance(0.25));
            assert!(!random.chance(0.0));
            assert!(random.chance(1.0));
        }
        assert_eq!(random.below(0), 0);
        assert!((2_300..2_700).contains(&hits), "{hits} of 10000 at 0.25");
    }
}
