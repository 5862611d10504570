//! The difference between two candidates in words: its factor and its certainty.

use super::format::digits;
use crate::statistics::Estimate;
use crate::workload::Better;

/// Factors below this one are given in percent.
const FACTOR: f64 = 1.5;

/// The difference of two candidates at a place, or the figure of one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Difference {
    /// The place, if there are several.
    pub(super) place: Option<String>,
    /// Text such as `12.2× lower`.
    pub(super) text: String,
    /// Text such as `11.8–12.5`.
    pub(super) interval: String,
    /// The judgement.
    pub(super) tone: Tone,
}

/// Whether a difference is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// Better than the baseline, or as expected.
    Better,
    /// Worse than the baseline, or not as expected.
    Worse,
    /// Neither with certainty.
    Same,
}

impl Tone {
    /// A word for style sheets.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "same",
        }
    }
}

/// A ratio in words.
pub(super) fn difference(ratio: &Estimate, better: Better, place: Option<String>) -> Difference {
    let is_lower = ratio.median < 1.0;
    let is_noise = ratio.low <= 1.0 && ratio.high >= 1.0;
    let (tone, word) = match (is_noise, is_lower, better) {
        (true, ..) => (Tone::Same, "no sure difference"),
        (_, true, Better::Lower) => (Tone::Better, "lower"),
        (_, true, Better::Higher) => (Tone::Worse, "lower"),
        (_, false, Better::Higher) => (Tone::Better, "higher"),
        (_, false, Better::Lower) => (Tone::Worse, "higher"),
    };
    if is_noise {
        let (text, interval) = (
            format!("{word}, {}×", digits(ratio.median)),
            range(ratio.low, ratio.high),
        );
        return Difference {
            place,
            text,
            interval,
            tone,
        };
    }
    // The factor between the two.
    let [low, factor, high] = match is_lower {
        true => [1.0 / ratio.high, 1.0 / ratio.median, 1.0 / ratio.low],
        false => [ratio.low, ratio.median, ratio.high],
    };
    let (text, interval) = if factor >= FACTOR {
        (format!("{}× {word}", digits(factor)), range(low, high))
    } else {
        let percent = |ratio: f64| (ratio - 1.0).abs() * 100.0;
        let ends = [percent(ratio.low), percent(ratio.high)];
        let [least, most] = [ends[0].min(ends[1]), ends[0].max(ends[1])];
        (
            format!("{} % {word}", whole(percent(ratio.median))),
            format!("{}–{} %", whole(least), whole(most)),
        )
    };
    Difference {
        place,
        text,
        interval,
        tone,
    }
}

/// A percentage with two digits.
fn whole(percent: f64) -> String {
    if percent < 9.95 {
        format!("{percent:.1}")
    } else {
        format!("{percent:.0}")
    }
}

/// An interval as text.
pub(super) fn range(low: f64, high: f64) -> String {
    format!("{}–{}", digits(low), digits(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(low: f64, median: f64, high: f64, better: Better) -> (String, Tone) {
        let ratio = Estimate {
            median,
            low,
            high,
            runs: 9,
        };
        let difference = difference(&ratio, better, None);
        (
            format!("{} [{}]", difference.text, difference.interval),
            difference.tone,
        )
    }

    #[test]
    fn ratio_is_shown_as_factor_or_percent() {
        let said = |low, median, high| said(low, median, high, Better::Lower);
        assert_eq!(
            said(0.08, 0.1, 0.125),
            ("10.0× lower [8.00–12.5]".into(), Tone::Better)
        );
        assert_eq!(
            said(0.84, 0.858, 0.88),
            ("14 % lower [12–16 %]".into(), Tone::Better)
        );
        assert_eq!(
            said(1.02, 1.05, 1.07),
            ("5.0 % higher [2.0–7.0 %]".into(), Tone::Worse)
        );
        assert_eq!(
            said(1.9, 2.0, 2.1),
            ("2.00× higher [1.90–2.10]".into(), Tone::Worse)
        );
    }

    #[test]
    fn direction_of_better_is_respected() {
        assert_eq!(said(1.9, 2.0, 2.1, Better::Higher).1, Tone::Better);
        assert_eq!(
            said(0.4, 0.5, 0.6, Better::Higher),
            ("2.00× lower [1.67–2.50]".into(), Tone::Worse)
        );
    }

    #[test]
    fn interval_around_one_is_no_difference() {
        let (text, tone) = said(0.9, 1.02, 1.1, Better::Lower);
        assert_eq!(
            (text.as_str(), tone),
            ("no sure difference, 1.02× [0.900–1.10]", Tone::Same)
        );
    }
}
