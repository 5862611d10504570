//! The findings of a run. Every comparison of the plan is among them, losses first.

use super::difference::{Difference, Tone, difference, range};
use super::figure::{Figure, Panel, Point, Series};
use super::finding::{Expected, Finding, about};
use super::format::digits;
use super::results::Report;
use super::said::beside_paper;
use crate::experiment::{Limit, Verdict, Wanted};
use crate::workload::Better;

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
