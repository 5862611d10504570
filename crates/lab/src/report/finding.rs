//! The findings of a run, a line each: the difference between two candidates, its factor, its
//! certainty, and the expectation. Every comparison of the plan is among them, losses first.

use super::figure::{Figure, Panel, Point, Series};
use super::said::beside_paper;
use super::{Report, table::digits};
use crate::experiment::{Limit, Verdict, Wanted};
use crate::statistics::Estimate;
use crate::workload::Better;

/// Factors below this one are given in percent.
const FACTOR: f64 = 1.5;

/// One finding.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding {
    /// The panel that shows it.
    pub(super) panel: String,
    /// The measured quantity.
    pub(super) about: String,
    /// The compared candidates, if any: candidate and baseline.
    pub(super) compared: Option<(String, String)>,
    /// The result: one, or those at the places that differ most. A loss comes first.
    pub(super) ours: Vec<Difference>,
    /// The expectation, and whether it was met.
    pub(super) expected: Option<Expected>,
}

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

/// An expectation from before the run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Expected {
    /// The expectation, and its source.
    pub(super) text: String,
    /// Whether it was met.
    pub(super) verdict: String,
    /// The judgement.
    pub(super) tone: Tone,
}

impl Finding {
    /// Whether a candidate is worse than its baseline, or an expectation was surely not met.
    fn is_loss(&self) -> bool {
        let ours = self.ours.iter().map(|ours| ours.tone);
        let expected = self.expected.iter().map(|expected| expected.tone);
        ours.chain(expected).any(|tone| tone == Tone::Worse)
    }
}

/// The findings of a run, losses first. Losses and others have this order: the paper's statements,
/// every comparison of main figures, the plan's targets.
pub(super) fn findings(report: &Report, panels: &[Panel]) -> Vec<Finding> {
    let plan = &report.header.plan;
    let says = plan.paper.iter().flat_map(|paper| &paper.says);
    let says = says.filter_map(|said| beside_paper(report, panels, said));
    let compared = panels.iter().flat_map(compared);
    let wanted = plan
        .wanted
        .iter()
        .filter_map(|wanted| judged(report, panels, wanted));
    let mut findings: Vec<_> = says.chain(compared).chain(wanted).collect();
    findings.sort_by_key(|finding| !finding.is_loss());
    findings
}

/// The comparisons of main figures in which a candidate surely loses at one place or more.
pub(super) fn losses(panels: &[Panel]) -> Vec<Finding> {
    let compared = panels.iter().flat_map(compared);
    compared.filter(Finding::is_loss).collect()
}

/// The panel of a figure, its better direction, and the figure's index in it.
pub(super) fn place<'a>(panels: &'a [Panel], figure: &str) -> Option<(&'a Panel, Better, String)> {
    let metric = figure.split('/').next()?;
    panels.iter().find_map(|panel| {
        let figures = panel.figures.iter();
        let mut places = figures.flat_map(|figure| figure.places.iter().map(move |place| (figure, place)));
        let found = places.find(|(_, place)| place.workload == metric)?;
        Some((panel, found.0.better, found.1.label.clone()))
    })
}

/// Every comparison of a panel's main figure.
fn compared(panel: &Panel) -> Vec<Finding> {
    let Some(ratios) = &panel.ratios else {
        return Vec::new();
    };
    let measured = ratios.series.iter().filter(|series| !series.is_paper);
    measured
        .filter_map(|series| at_ends(panel, ratios, series))
        .collect()
}

/// A comparison at the places where it is best and worst. A sure loss counts as the worst, even if an
/// uncertain median elsewhere is worse, and comes first.
fn at_ends(panel: &Panel, ratios: &Figure, series: &Series) -> Option<Finding> {
    let (candidate, baseline) = series.name.split_once(" / ")?;
    let is_one_of_many = ratios.places.len() > 1;
    let shown = |point: &Point| {
        let place = is_one_of_many.then(|| ratios.places[point.place].label.clone());
        difference(&point.estimate, ratios.better, place)
    };
    let gain = |point: &&Point| match ratios.better {
        Better::Lower => 1.0 / point.estimate.median,
        Better::Higher => point.estimate.median,
    };
    let points = || series.points.iter();
    let by_gain = |one: &&Point, other: &&Point| gain(one).total_cmp(&gain(other));
    let (best, worst) = (points().max_by(by_gain)?, points().min_by(by_gain)?);
    let is_loss = |point: &&Point| shown(point).tone == Tone::Worse;
    let mut ends = match points().filter(is_loss).min_by(by_gain) {
        Some(loss) if loss.place == best.place => vec![loss, worst],
        Some(loss) => vec![loss, best],
        None => vec![best, worst],
    };
    ends.dedup_by_key(|point| point.place);
    Some(Finding {
        panel: panel.name.clone(),
        about: about(&panel.title, &panel.figures[0]),
        compared: Some((candidate.to_owned(), baseline.to_owned())),
        ours: ends.into_iter().map(shown).collect(),
        expected: None,
    })
}

/// A panel's title and the measured quantity.
pub(super) fn about(title: &str, main: &Figure) -> String {
    let title = title.split(':').next().unwrap_or(title);
    format!("{title} ({})", main.measure)
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

pub(super) fn range(low: f64, high: f64) -> String {
    format!("{}–{}", digits(low), digits(high))
}

/// The verdict on a target of the plan, if its figure was measured.
fn judged(report: &Report, panels: &[Panel], wanted: &Wanted) -> Option<Finding> {
    let figure = report.ratios.get(&wanted.figure)?;
    let (bound, limit) = match wanted.limit {
        Limit::AtMost(limit) => ("at most", limit),
        Limit::AtLeast(limit) => ("at least", limit),
    };
    let (verdict, tone) = match wanted.limit.judge(figure) {
        Verdict::Met => ("met", Tone::Better),
        Verdict::Probably => ("met, but not for sure", Tone::Same),
        Verdict::ProbablyNot => ("missed, but not for sure", Tone::Same),
        Verdict::Missed => ("missed", Tone::Worse),
    };
    let mut parts = wanted.figure.split('/');
    let metric = parts.next().unwrap_or_default();
    let compared = parts.next().zip(parts.next());
    let is_shown = |panel: &&Panel| {
        let mut places = panel.figures.iter().flat_map(|figure| &figure.places);
        places.any(|place| place.workload == metric || metric.strip_suffix("_ms") == Some(&place.workload))
    };
    let panel = panels.iter().find(is_shown).or(panels.first())?;
    Some(Finding {
        panel: panel.name.clone(),
        about: format!("{} ({})", wanted.about, wanted.figure),
        compared: compared.map(|(candidate, baseline)| (candidate.to_owned(), baseline.to_owned())),
        ours: vec![Difference {
            place: None,
            text: digits(figure.median),
            interval: range(figure.low, figure.high),
            tone,
        }],
        expected: Some(Expected {
            text: format!("wanted: {bound} {limit}"),
            verdict: verdict.into(),
            tone,
        }),
    })
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
