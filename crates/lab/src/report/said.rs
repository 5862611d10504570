//! The statements of a paper as findings: whether the measurements agree.

use super::difference::{Difference, Tone, difference, range};
use super::figure::Panel;
use super::finding::{Expected, Finding, about, place};
use super::format::digits;
use super::paper;
use super::results::Report;
use crate::experiment::{Said, Trend};
use crate::statistics::Estimate;

/// A wider interval than this factor cannot confirm agreement.
const WIDE: f64 = 2.0;

/// A paper's statement, and the corresponding measured figure. A trend needs no value.
pub(super) fn beside_paper(report: &Report, panels: &[Panel], said: &Said) -> Option<Finding> {
    let expected = |verdict: String, tone| Expected {
        text: format!("paper: {}", said.text),
        verdict,
        tone,
    };
    let found = said.figure.as_deref().and_then(|figure| place(panels, figure));
    let Some((panel, better, label)) = found else {
        return Some(Finding {
            panel: panels.first()?.name.clone(),
            about: "All of it".into(),
            compared: None,
            ours: Vec::new(),
            expected: Some(expected(String::new(), Tone::Same)),
        });
    };
    let figure = said.figure.as_deref()?;
    let trend = paper::trend(report, said);
    let mut parts = figure.split('/').skip(1);
    let (candidate, baseline) = (parts.next()?, parts.next());
    let in_unit = |figure| {
        let estimate = paper::measured(report, figure)?;
        Some(estimate.divided_by(said.unit.map_or(1.0, paper::divisor)))
    };
    let shown = |estimate: Estimate, label| match baseline {
        Some(_) => difference(&estimate, better, Some(label)),
        None => Difference {
            place: Some(label),
            text: digits(estimate.median),
            interval: range(estimate.low, estimate.high),
            tone: Tone::Same,
        },
    };
    let here = in_unit(figure);
    let mut ours: Vec<_> = here.map(|estimate| shown(estimate, label)).into_iter().collect();
    if let Some((_, than, _)) = trend {
        let there = in_unit(than).zip(place(panels, than));
        ours.extend(there.map(|(estimate, (.., label))| shown(estimate, label)));
    }
    let verdict = match (&here, said.value, trend) {
        (None, ..) | (_, _, Some((.., None))) => ("not measured".into(), Tone::Same),
        (_, _, Some((trend, _, Some(times)))) => followed(trend, &times),
        (Some(estimate), Some(value), None) => against_paper(estimate, value, baseline.is_some()),
        (Some(_), None, None) => (String::new(), Tone::Same),
    };
    Some(Finding {
        panel: panel.name.clone(),
        about: about(&panel.title, &panel.figures[0]),
        compared: Some((candidate.to_owned(), baseline.unwrap_or("the paper").to_owned())),
        ours,
        expected: Some(expected(verdict.0, verdict.1)),
    })
}

/// Whether a ratio of figures follows a paper's trend.
fn followed(trend: Trend, times: &Estimate) -> (String, Tone) {
    let said = format!(
        "{}× [{}] from there to here",
        digits(times.median),
        range(times.low, times.high)
    );
    let word = trend.word();
    match (times.high < 1.0, times.low > 1.0, trend) {
        (true, _, Trend::Less) | (_, true, Trend::More) => (format!("{word} here too; {said}"), Tone::Better),
        (false, false, _) => (format!("not surely {word} here; {said}"), Tone::Same),
        _ => (format!("not {word} here; {said}"), Tone::Worse),
    }
}

/// The factor between the measured figure and the paper's, and whether they agree.
fn against_paper(ours: &Estimate, paper: f64, is_ratio: bool) -> (String, Tone) {
    let factor = ours.divided_by(paper);
    let is_within = factor.low <= 1.0 && factor.high >= 1.0;
    if is_within && factor.high <= WIDE * factor.low {
        return ("the same, within the interval".into(), Tone::Better);
    }
    let range = range(factor.low, factor.high);
    let factor = format!("{}× the paper’s value [{range}]", digits(factor.median));
    if is_within {
        return (format!("too uncertain to tell; {factor}"), Tone::Same);
    }
    match is_ratio {
        true if ours.low <= 1.0 && ours.high >= 1.0 => {
            (format!("no sure difference here; {factor}"), Tone::Same)
        }
        true if (ours.median < 1.0) == (paper < 1.0) => {
            (format!("the same direction; {factor}"), Tone::Better)
        }
        true => (format!("the other direction; {factor}"), Tone::Worse),
        false => (factor, Tone::Same),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of_paper_is_met_passed_or_contradicted() {
        let said = |low, median, high, paper| {
            let ratio = Estimate {
                median,
                low,
                high,
                runs: 9,
            };
            against_paper(&ratio, paper, true)
        };
        assert_eq!(
            said(0.8, 0.85, 0.9, 0.858),
            ("the same, within the interval".into(), Tone::Better)
        );
        assert_eq!(
            said(0.0128, 0.0133, 1.04, 0.858),
            (
                "too uncertain to tell; 0.0155× the paper’s value [0.0149–1.21]".into(),
                Tone::Same
            )
        );
        let (text, tone) = said(0.06, 0.0858, 0.09, 0.858);
        assert!(
            text.starts_with("the same direction; 0.100× the paper’s value [0.0699–0.105]"),
            "{text}"
        );
        assert_eq!(tone, Tone::Better);
        assert_eq!(said(1.1, 1.2, 1.3, 0.858).1, Tone::Worse);
        assert_eq!(said(0.95, 1.0, 1.05, 0.858).1, Tone::Same);
    }

    #[test]
    fn trend_is_followed_or_not_or_uncertain() {
        let said = |low, high, trend| {
            let times = Estimate {
                median: f64::midpoint(low, high),
                low,
                high,
                runs: 9,
            };
            followed(trend, &times)
        };
        assert_eq!(
            said(0.8, 0.9, Trend::Less),
            (
                "less here too; 0.850× [0.800–0.900] from there to here".into(),
                Tone::Better
            )
        );
        assert_eq!(said(0.8, 0.9, Trend::More).1, Tone::Worse);
        assert_eq!(said(1.1, 1.2, Trend::More).1, Tone::Better);
        assert_eq!(said(1.1, 1.2, Trend::Less).1, Tone::Worse);
        for trend in [Trend::Less, Trend::More] {
            assert_eq!(said(0.9, 1.1, trend).1, Tone::Same);
        }
    }
}
