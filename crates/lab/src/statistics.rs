//! Medians with intervals that make no assumption about the distribution of figures.
//!
//! The interval consists of order statistics. Of n sorted figures, the k-th smallest and the k-th
//! largest enclose the true median with a probability that depends only on n and k. It is 1 −
//! 2·P(Binomial(n, ½) < k). The narrowest pair that reaches [`CONFIDENCE`] is used. Five figures or
//! fewer cannot reach it. Their interval is the smallest and the largest figure, which enclose the
//! median with 93.75 % (five), 87.5 % (four) and so on.

use serde::{Deserialize, Serialize};

/// The probability with which an interval should enclose the true median.
pub const CONFIDENCE: f64 = 0.95;

/// Most runs for which the binomial sum is evaluated.
const EXACT: usize = 1000;

/// A median of independent runs, with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Number of runs.
    pub runs: usize,
}

impl Estimate {
    /// The estimate of one figure a run; `None` without any. Figures that are not numbers are
    /// ignored.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted = figures
            .into_iter()
            .filter(|figure| figure.is_finite())
            .collect::<Vec<_>>();
        sorted.sort_unstable_by(f64::total_cmp);
        let runs = sorted.len();
        if runs == 0 {
            return None;
        }
        let rank = interval_rank(runs);
        Some(Self {
            median: f64::midpoint(sorted[(runs - 1) / 2], sorted[runs / 2]),
            low: sorted[rank - 1],
            high: sorted[runs - rank],
            runs,
        })
    }

    /// The ratio to another estimate. Its interval encloses all combinations of both.
    pub fn over(&self, other: &Self) -> Self {
        Self {
            median: self.median / other.median,
            low: self.low / other.high,
            high: self.high / other.low,
            runs: self.runs.min(other.runs),
        }
    }

    /// The estimate in a unit that is `divisor` times as large.
    pub fn divided_by(&self, divisor: f64) -> Self {
        Self {
            median: self.median / divisor,
            low: self.low / divisor,
            high: self.high / divisor,
            runs: self.runs,
        }
    }
}

/// The largest k, at least 1, for which the k-th smallest and the k-th largest of `runs` figures
/// enclose the median with [`CONFIDENCE`].
fn interval_rank(runs: usize) -> usize {
    if runs > EXACT {
        // The normal approximation is exact to a rank for far fewer runs.
        let half_width = 0.98 * (runs as f64).sqrt();
        return (runs as f64 / 2.0 - half_width) as usize;
    }
    let mut rank = 1;
    while rank < runs.div_ceil(2) && coverage(runs, rank + 1) >= CONFIDENCE {
        rank += 1;
    }
    rank
}

/// The probability with which the `rank`-th smallest and largest of `runs` figures enclose the true
/// median. For at most 1000 runs, since (½)^runs must not underflow.
fn coverage(runs: usize, rank: usize) -> f64 {
    // P(Binomial(runs, ½) = k), from k = 0 on.
    let mut probability = 0.5_f64.powi(runs as i32);
    let mut below = 0.0;
    for k in 0..rank {
        below += probability;
        probability *= (runs.saturating_sub(k)) as f64 / (k + 1) as f64;
    }
    (1.0 - 2.0 * below).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_is_the_binomial_sum() {
        // Exact: 1 − 2·(1 + n + n(n−1)/2 + …)/2ⁿ.
        for (runs, rank, expected) in [
            (5, 1, 0.9375),
            (6, 1, 0.96875),
            (7, 1, 0.984375),
            (8, 1, 0.9921875),
            (9, 2, 0.9609375),
            (10, 2, 0.978515625),
            (20, 6, 0.958610534667969),
        ] {
            assert!((coverage(runs, rank) - expected).abs() < 1e-12, "{runs} {rank}");
        }
    }

    #[test]
    fn narrowest_sufficient_interval_is_chosen() {
        // (8, 1) is 99.2 %, (8, 2) only 93.0 %; (9, 2) is 96.1 %; (20, 6) 95.9 %.
        let ranks = [
            (1, 1),
            (2, 1),
            (5, 1),
            (6, 1),
            (8, 1),
            (9, 2),
            (11, 2),
            (12, 3),
            (20, 6),
        ];
        for (runs, rank) in ranks {
            assert_eq!(interval_rank(runs), rank, "{runs} runs");
        }
        assert!(interval_rank(EXACT).abs_diff(interval_rank(EXACT + 1)) <= 1);
        for runs in 6..=EXACT {
            assert!(coverage(runs, interval_rank(runs)) >= CONFIDENCE, "{runs} runs");
        }
    }

    #[test]
    fn estimates_of_known_figures_are_exact() {
        let estimate = Estimate::of([5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!(
            estimate,
            Estimate {
                median: 3.0,
                low: 1.0,
                high: 5.0,
                runs: 5
            }
        );
        let even = Estimate::of([4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((even.median, even.low, even.high), (2.5, 1.0, 4.0));
        // One outlier in each direction does not move the interval of nine runs.
        let nine = Estimate::of([1000.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, -1000.0]).unwrap();
        assert_eq!((nine.median, nine.low, nine.high), (5.0, 2.0, 8.0));
        assert_eq!(
            Estimate::of([7.0]).unwrap(),
            Estimate {
                median: 7.0,
                low: 7.0,
                high: 7.0,
                runs: 1
            }
        );
        assert_eq!(Estimate::of([]), None);
        assert_eq!(Estimate::of([f64::NAN, f64::INFINITY]), None);
    }

    #[test]
    fn about_one_interval_in_twenty_misses_the_median() {
        // 2000 series of 9 figures of a skewed distribution whose median is ln 2.
        let mut random = fastrand::Rng::with_seed(7);
        let mut figure = || -(1.0 - random.f64()).ln();
        let missed = (0..2000).filter(|_| {
            let estimate = Estimate::of((0..9).map(|_| figure())).unwrap();
            !(estimate.low..=estimate.high).contains(&std::f64::consts::LN_2)
        });
        let share = missed.count() as f64 / 2000.0;
        assert!((0.025..0.055).contains(&share), "{share}, should be 0.039");
    }
}
