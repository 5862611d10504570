//! Whether the stages and hops add up to the time without stamps.

use std::fmt;

/// The most that stages and hops may differ from the untraced time, as a share of it.
pub const MOST_ERROR: f64 = 0.02;

/// The most that half of the error's interval may be.
pub const MOST_HALF_INTERVAL: f64 = 0.01;

/// Fewest rounds of blocks for a verdict.
pub const FEWEST_ROUNDS: u32 = 9;

/// The most that the shares of dropped round trips may differ between traced and untraced blocks.
pub const MOST_DROP_DIFFERENCE: f64 = 0.001;

/// A 95 % interval by resampling whole blocks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TimeInterval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl TimeInterval {
    /// Half of the distance between the ends.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// The interval that encloses 95 % of some figures; both ends 0 without figures.
    pub(crate) fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_unstable_by(f64::total_cmp);
        let Some(last) = figures.len().checked_sub(1) else {
            return Self::default();
        };
        let outside = figures.len() / 40;
        Self {
            low: figures[outside],
            high: figures[last - outside],
        }
    }
}

/// The sum of stages and hops against the untraced time.
///
/// The sum comes from counted blocks, the cost of a stamp from cost blocks, and the untraced time
/// from untraced blocks. No constant is fitted. Closing tests how much tracing disturbs. It does not
/// prove that time is given to the right stage. Both hops are a gap minus the other side's turn, so
/// much of the sum closes by construction. [`ClosingCheck::turn_error`] is independent of that.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosingCheck {
    /// Stages and hops of a message one way, in nanoseconds: half of the round trip's.
    pub sum_ns: f64,
    /// The untraced time of a message one way, in nanoseconds.
    pub untraced_ns: f64,
    /// The time of a message one way in traced blocks, stamps included, in nanoseconds.
    pub traced_ns: f64,
    /// `sum / untraced − 1` over all blocks.
    pub error: f64,
    /// The median of the rounds' errors.
    pub median_error: f64,
    /// The interval of `error`.
    pub interval: TimeInterval,
    /// Rounds of blocks in which each use had enough stamps.
    pub rounds: u32,
    /// The sum of stages minus the whole turns, each without sign, as a share of the turns.
    pub turn_error: f64,
    /// `sum / untraced − 1` if no round trip is dropped.
    pub error_without_drops: f64,
    /// The share of traced round trips that were dropped.
    pub traced_drops: f64,
    /// The share of untraced round trips that were dropped.
    pub untraced_drops: f64,
}

/// What a report may say of the sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosingVerdict {
    /// The sum is the untraced time, within 2 %.
    Closes,
    /// Fewer than nine rounds: measure more.
    TooFewRounds,
    /// Half of the interval is above 1 %: measure more rounds.
    IntervalTooWide,
    /// The sum is not the untraced time.
    DoesNotClose,
    /// The stages of turns are not the turns.
    StagesMissTurns,
    /// Traced and untraced blocks lost different shares of round trips.
    DropsDiffer,
    /// The sum is the untraced time only without long round trips.
    ClosesByDropsOnly,
}

impl ClosingCheck {
    /// The first reason against the sum, in the order of [`ClosingVerdict`], or that it closes.
    pub fn verdict(&self) -> ClosingVerdict {
        let is_over = |error: f64| error.is_nan() || error.abs() > MOST_ERROR;
        let half = self.interval.half_width();
        if self.rounds < FEWEST_ROUNDS {
            ClosingVerdict::TooFewRounds
        } else if half.is_nan() || half > MOST_HALF_INTERVAL {
            ClosingVerdict::IntervalTooWide
        } else if is_over(self.error) || is_over(self.median_error) {
            ClosingVerdict::DoesNotClose
        } else if is_over(self.turn_error) {
            ClosingVerdict::StagesMissTurns
        } else if (self.traced_drops - self.untraced_drops).abs() > MOST_DROP_DIFFERENCE {
            ClosingVerdict::DropsDiffer
        } else if is_over(self.error_without_drops) {
            ClosingVerdict::ClosesByDropsOnly
        } else {
            ClosingVerdict::Closes
        }
    }
}

impl fmt::Display for ClosingVerdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Closes => "the stages and hops add up to the untraced time",
            Self::TooFewRounds => "too few rounds; measure at least nine",
            Self::IntervalTooWide => "the interval is too wide; measure more rounds",
            Self::DoesNotClose => "the stages and hops do not add up to the untraced time",
            Self::StagesMissTurns => "the stages do not add up to whole turns",
            Self::DropsDiffer => "traced and untraced blocks lost different shares of round trips",
            Self::ClosesByDropsOnly => "the sum closes only if long round trips are dropped",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check() -> ClosingCheck {
        ClosingCheck {
            sum_ns: 1010.0,
            untraced_ns: 1000.0,
            traced_ns: 1050.0,
            error: 0.01,
            median_error: 0.01,
            interval: TimeInterval {
                low: 0.005,
                high: 0.015,
            },
            rounds: 9,
            turn_error: 0.01,
            error_without_drops: 0.015,
            traced_drops: 0.001,
            untraced_drops: 0.0015,
        }
    }

    #[test]
    fn verdict_names_the_first_reason_against_the_sum() {
        use ClosingVerdict::*;
        assert_eq!(check().verdict(), Closes);
        type Case = (fn(&mut ClosingCheck), ClosingVerdict);
        let cases: [Case; 8] = [
            (|check| check.rounds = 8, TooFewRounds),
            (|check| check.interval.high = 0.026, IntervalTooWide),
            (|check| check.error = -0.021, DoesNotClose),
            (|check| check.median_error = 0.021, DoesNotClose),
            (|check| check.error = f64::NAN, DoesNotClose),
            (|check| check.turn_error = 0.03, StagesMissTurns),
            (|check| check.traced_drops = 0.003, DropsDiffer),
            (|check| check.error_without_drops = 0.1, ClosesByDropsOnly),
        ];
        for (change, verdict) in cases {
            let mut check = check();
            change(&mut check);
            assert_eq!(check.verdict(), verdict);
        }
    }

    #[test]
    fn interval_leaves_out_the_outer_twentieth() {
        let interval = TimeInterval::of((0..=200).rev().map(f64::from).collect());
        assert_eq!((interval.low, interval.high), (5.0, 195.0));
        assert_eq!(TimeInterval::of(Vec::new()).half_width(), 0.0);
    }
}
