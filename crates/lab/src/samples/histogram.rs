//! Durations as a histogram: recorded with a bounded relative error, and kept as counts.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest duration that is distinguished from longer ones, in nanoseconds: a minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// Significant digits of each duration.
const DIGITS: u8 = 3;

/// Records durations while traffic runs. Never allocates after its creation.
#[derive(Debug)]
pub struct Recorder(Histogram<u64>);

impl Recorder {
    /// An empty recorder.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
        Self(histogram.expect("the bounds are constants that fit"))
    }

    /// Counts one duration, in nanoseconds.
    #[inline]
    pub fn record(&mut self, duration_ns: u64) {
        self.0.saturating_record(duration_ns);
    }

    /// Everything counted so far.
    pub fn counts(&self) -> Counts {
        Counts(
            self.0
                .iter_recorded()
                .map(|step| (step.value_iterated_to(), step.count_at_value()))
                .collect(),
        )
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

/// Durations in nanoseconds, to three digits, in ascending order, each with its count. The contents
/// of a histogram, without its format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts(pub Vec<(u64, u64)>);

impl Counts {
    /// The smallest duration that at least the share `quantile` (0 to 1) of all durations does not
    /// exceed, in nanoseconds; `None` if there are none.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let total = self.total();
        let wanted = ((total as f64 * quantile).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0_u64;
        let reached = |&&(_, count): &&(u64, u64)| {
            seen = seen.saturating_add(count);
            seen >= wanted
        };
        self.0.iter().find(reached).map(|(duration, _)| *duration)
    }

    /// The mean, in nanoseconds; `None` if there are none.
    pub fn mean_ns(&self) -> Option<f64> {
        let sum: f64 = self
            .0
            .iter()
            .map(|&(duration, count)| duration as f64 * count as f64)
            .sum();
        let total = self.total();
        (total > 0).then(|| sum / total as f64)
    }

    /// All durations of both.
    pub fn and(&self, other: &Self) -> Self {
        let mut counts = BTreeMap::new();
        for &(duration, count) in self.0.iter().chain(&other.0) {
            let sum: &mut u64 = counts.entry(duration).or_default();
            *sum = sum.saturating_add(count);
        }
        Self(counts.into_iter().collect())
    }

    /// The number of durations.
    pub fn total(&self) -> u64 {
        self.0
            .iter()
            .fold(0, |sum: u64, (_, count)| sum.saturating_add(*count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_known_durations() {
        let mut recorder = Recorder::new();
        for duration in 1..=1000 {
            recorder.record(duration);
        }
        let counts = recorder.counts();
        assert_eq!(counts.total(), 1000);
        assert_eq!(counts.quantile_ns(0.5), Some(500));
        assert_eq!(counts.quantile_ns(0.99), Some(990));
        assert_eq!(counts.quantile_ns(0.999), Some(999));
        assert_eq!(counts.quantile_ns(0.0), Some(1));
        assert_eq!(counts.quantile_ns(1.0), Some(1000));
        assert_eq!(Counts::default().quantile_ns(0.5), None);
    }

    #[test]
    fn durations_keep_three_digits_and_longest_are_counted() {
        let mut recorder = Recorder::new();
        recorder.record(123_456_789);
        recorder.record(u64::MAX);
        recorder.record(0);
        let counts = recorder.counts();
        assert_eq!(counts.total(), 3);
        let middle = counts.quantile_ns(0.5).unwrap();
        assert!(middle.abs_diff(123_456_789) < 123_457, "{middle}");
        assert!(counts.quantile_ns(1.0).unwrap() >= LONGEST_NS);
    }

    #[test]
    fn quantiles_agree_with_the_histogram_library() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut recorder = Recorder::new();
        for _ in 0..10_000 {
            recorder.record(300 + (1000.0 / (1e-4 + random.f64())) as u64);
        }
        let counts = recorder.counts();
        for quantile in [0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
            assert_eq!(
                counts.quantile_ns(quantile),
                Some(recorder.0.value_at_quantile(quantile))
            );
        }
    }

    #[test]
    fn counts_are_added_by_duration() {
        let (some, others) = (Counts(vec![(1, 2), (5, 1)]), Counts(vec![(2, 1), (5, 4)]));
        assert_eq!(some.and(&others), Counts(vec![(1, 2), (2, 1), (5, 5)]));
        assert_eq!(Counts::default().and(&some), some);
    }

    #[test]
    fn counts_round_trip_through_json() {
        let counts = Counts(vec![(170, 5), (171, 1)]);
        let text = serde_json::to_string(&counts).unwrap();
        assert_eq!(text, "[[170,5],[171,1]]");
        assert_eq!(serde_json::from_str::<Counts>(&text).unwrap(), counts);
    }
}
