//! Chooses a file by its popularity.

/// Files by popularity: the one of rank i, from 1, is requested in proportion to i to the power of
/// −α (Zipf).
#[derive(Debug)]
pub(crate) struct Zipf {
    /// The cumulative weights of the ranks.
    up_to: Vec<f64>,
}

impl Zipf {
    /// The distribution of `files` files, at least one.
    pub(crate) fn new(files: usize, alpha: f64) -> Self {
        let weights = (1..=files.max(1)).map(|rank| (rank as f64).powf(-alpha));
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self {
            up_to: sums.collect(),
        }
    }

    /// Draws the index of a file, from 0, which is the most popular one.
    pub(crate) fn draw(&self, random: &mut fastrand::Rng) -> usize {
        let last = self.up_to.len() - 1;
        let at = random.f64() * self.up_to[last];
        // Rounding may have brought it up to the last sum.
        self.up_to.partition_point(|&sum| sum <= at).min(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The distance between the numbers of draws and the law: chi-square, whose mean is the number
    /// of files less one.
    fn chi_square(files: usize, alpha: f64, seed: u64, draws: u32) -> f64 {
        let zipf = Zipf::new(files, alpha);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut seen = vec![0_u32; files];
        for _ in 0..draws {
            seen[zipf.draw(&mut random)] += 1;
        }
        let weight = |rank: usize| (rank as f64).powf(-alpha);
        let all: f64 = (1..=files).map(weight).sum();
        let expected = (1..=files).map(|rank| f64::from(draws) * weight(rank) / all);
        let parts = seen.iter().zip(expected);
        parts
            .map(|(&seen, expected)| (f64::from(seen) - expected).powi(2) / expected)
            .sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn frequencies_of_ranks_follow_the_law(
            files in 2_usize..200, alpha in 0.0..2.0_f64, seed in any::<u64>()
        ) {
            let far = chi_square(files, alpha, seed, 100_000);
            let mean = files as f64 - 1.0;
            // Eight standard deviations, and the contribution of few draws of rare files.
            prop_assert!(far < mean + 8.0 * (2.0 * mean).sqrt() + 30.0, "{far} of {mean}");
        }
    }

    #[test]
    fn wrong_exponent_is_detected() {
        let zipf = Zipf::new(100, 0.5);
        let mut random = fastrand::Rng::with_seed(7);
        let first = (0..100_000).filter(|_| zipf.draw(&mut random) == 0).count();
        // 1 of 18.6 with α = 0.5; with 0.6 it would be 1 of 13.9.
        assert!((5_100..5_700).contains(&first), "{first}");
    }

    #[test]
    fn single_file_is_always_drawn() {
        let mut random = fastrand::Rng::with_seed(1);
        let zipf = Zipf::new(1, 0.9);
        assert!((0..100).all(|_| zipf.draw(&mut random) == 0));
    }
}
