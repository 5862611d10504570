//! Targets of figures: bounds that are part of a plan, and a run's verdict on them.

use serde::{Deserialize, Serialize};

use crate::statistics::Estimate;

/// A bound of one figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    /// The figure's name among the report's ratios, such as `ack_ms/adaptive`.
    pub figure: String,
    /// A description for people.
    pub about: String,
    /// The bound.
    #[serde(flatten)]
    pub limit: Limit,
}

/// The direction of a bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// An upper bound.
    AtMost(f64),
    /// A lower bound.
    AtLeast(f64),
}

/// A run's verdict on a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval is within the bound.
    Met,
    /// The median is within the bound, but not the whole interval.
    Probably,
    /// The median is beyond the bound, but not the whole interval.
    ProbablyNot,
    /// The whole interval is beyond the bound.
    Missed,
}

impl Limit {
    /// Whether a figure is within the bound, and with which certainty.
    pub fn judge(self, figure: &Estimate) -> Verdict {
        let within = |value: f64| match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        };
        match [figure.low, figure.median, figure.high].map(within) {
            [true, _, true] => Verdict::Met,
            [false, _, false] => Verdict::Missed,
            [_, true, _] => Verdict::Probably,
            [_, false, _] => Verdict::ProbablyNot,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_across_bound_is_undecided() {
        let figure = |low, median, high| Estimate {
            median,
            low,
            high,
            runs: 5,
        };
        let judge = |low, median, high| Limit::AtMost(2.0).judge(&figure(low, median, high));
        assert_eq!(judge(1.0, 1.5, 2.0), Verdict::Met);
        assert_eq!(judge(1.0, 1.5, 2.1), Verdict::Probably);
        assert_eq!(judge(1.0, 2.5, 3.0), Verdict::ProbablyNot);
        assert_eq!(judge(2.1, 2.5, 3.0), Verdict::Missed);
        assert_eq!(Limit::AtLeast(2.0).judge(&figure(2.0, 2.5, 3.0)), Verdict::Met);
        assert_eq!(Limit::AtLeast(2.0).judge(&figure(1.0, 1.5, 1.9)), Verdict::Missed);
    }

    #[test]
    fn bounds_have_stable_json() {
        let wanted = Wanted {
            figure: "ack_ms/adaptive".into(),
            about: "so".into(),
            limit: Limit::AtMost(2.0),
        };
        let text = serde_json::to_string(&wanted).unwrap();
        assert_eq!(text, r#"{"figure":"ack_ms/adaptive","about":"so","at-most":2.0}"#);
        assert_eq!(serde_json::from_str::<Wanted>(&text).unwrap(), wanted);
    }
}
