//! A histogram of times, in memory of a fixed size.

use hdrhistogram::Histogram;
use std::fmt;

/// The longest time that a histogram tells from longer ones, in nanoseconds: ten seconds.
pub const LONGEST_TIME_NS: u64 = 10_000_000_000;

/// Digits that a histogram keeps. So a quantile is at most 1 % off.
const DIGITS: u8 = 2;

/// The quantiles of a histogram, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeQuantiles {
    /// The median.
    pub p50_ns: u64,
    /// Nine of ten times are at most this.
    pub p90_ns: u64,
    /// 99 of 100 times are at most this.
    pub p99_ns: u64,
    /// 999 of 1000 times are at most this.
    pub p999_ns: u64,
    /// The longest time.
    pub max_ns: u64,
    /// How many times there are.
    pub samples: u64,
}

/// A histogram of times up to [`LONGEST_TIME_NS`].
///
/// It takes some 14 KB, however many times it holds. Longer times count as the longest.
///
/// # Examples
///
/// ```
/// use toehold_trace::account::TimeHistogram;
///
/// let mut times = TimeHistogram::new();
/// (1..=1000).for_each(|ns| times.add(ns));
/// let quantiles = times.quantiles().unwrap();
/// assert!((495..=505).contains(&quantiles.p50_ns));
/// assert_eq!(times.count_up_to(100), 100);
/// ```
#[derive(Clone, PartialEq)]
pub struct TimeHistogram {
    /// `None` if the bounds are wrong, which no test has seen.
    times: Option<Histogram<u32>>,
    longest_ns: u64,
    over: u64,
}

impl TimeHistogram {
    /// An empty histogram.
    pub fn new() -> Self {
        Self {
            times: Histogram::new_with_bounds(1, LONGEST_TIME_NS, DIGITS).ok(),
            longest_ns: 0,
            over: 0,
        }
    }

    /// Adds a time in nanoseconds.
    pub fn add(&mut self, ns: u64) {
        self.longest_ns = self.longest_ns.max(ns);
        self.over = self.over.saturating_add(u64::from(ns > LONGEST_TIME_NS));
        if let Some(times) = &mut self.times {
            times.saturating_record(ns);
        }
    }

    /// Adds all times of another histogram.
    pub fn join(&mut self, other: &Self) {
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.over = self.over.saturating_add(other.over);
        if let (Some(times), Some(other)) = (&mut self.times, &other.times) {
            // Equal bounds always fit.
            let _ = times.add(other);
        }
    }

    /// How many times it holds.
    pub fn samples(&self) -> u64 {
        self.times.as_ref().map_or(0, Histogram::len)
    }

    /// Times that were longer than [`LONGEST_TIME_NS`].
    pub fn over(&self) -> u64 {
        self.over
    }

    /// Times of at most `ns` nanoseconds, to the histogram's precision of 1 %.
    pub fn count_up_to(&self, ns: u64) -> u64 {
        let up_to = |times: &Histogram<u32>| times.count_between(0, ns.min(LONGEST_TIME_NS));
        self.times.as_ref().map_or(0, up_to)
    }

    /// The quantiles; `None` without a time. The maximum is exact.
    pub fn quantiles(&self) -> Option<TimeQuantiles> {
        let times = self.times.as_ref().filter(|times| !times.is_empty())?;
        let at = |quantile: f64| times.value_at_quantile(quantile).min(self.longest_ns);
        Some(TimeQuantiles {
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: self.longest_ns,
            samples: times.len(),
        })
    }
}

impl Default for TimeHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TimeHistogram {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("TimeHistogram").field(&self.quantiles()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn histogram_without_times_has_no_quantiles() {
        assert_eq!(TimeHistogram::new().quantiles(), None);
        assert_eq!(TimeHistogram::new().count_up_to(u64::MAX), 0);
    }

    #[test]
    fn time_beyond_the_bound_is_counted_and_stays_the_maximum() {
        let mut times = TimeHistogram::new();
        times.add(u64::MAX);
        times.add(0);
        let quantiles = times.quantiles().unwrap();
        assert_eq!((quantiles.max_ns, quantiles.samples), (u64::MAX, 2));
        assert_eq!(times.over(), 1);
    }

    proptest! {
        #[test]
        fn quantiles_agree_with_sorted_times(
            mut ns in proptest::collection::vec(1_u64..LONGEST_TIME_NS, 1..200),
            split in 0_usize..200,
        ) {
            let (mut times, mut more) = (TimeHistogram::new(), TimeHistogram::new());
            for (index, ns) in ns.iter().enumerate() {
                if index < split { times.add(*ns) } else { more.add(*ns) }
            }
            times.join(&more);
            ns.sort_unstable();
            let exact = |quantile: f64| ns[((ns.len() as f64 * quantile).ceil() as usize).max(1) - 1] as f64;
            let found = times.quantiles().unwrap();
            for (found, quantile) in [(found.p50_ns, 0.5), (found.p90_ns, 0.9), (found.p99_ns, 0.99)] {
                let error = found as f64 / exact(quantile) - 1.0;
                prop_assert!(error.abs() <= 0.011, "{} at {}", error, quantile);
            }
            prop_assert_eq!(found.max_ns, *ns.last().unwrap());
            prop_assert_eq!(found.samples, ns.len() as u64);
        }
    }
}
