//! Ratios between candidates, for each place.

use super::family::Family;
use super::panel::{Figure, Point, Series};
use super::paper;
use crate::report::results::Report;
use crate::report::summary::Summary;

/// The ratios of a family's main figure, which is `main`; `None` without comparisons.
pub(super) fn of(report: &Report, summary: &Summary, family: &Family, main: &Figure) -> Option<Figure> {
    let comparisons = report.header.plan.comparisons.iter().enumerate();
    let series = comparisons.map(|(index, comparison)| {
        let (candidate, baseline) = (&comparison.candidate, &comparison.baseline);
        let point = |(place, workload): (usize, String)| {
            let estimate = report.ratios.get(&format!("{workload}/{candidate}/{baseline}"))?;
            Some(Point {
                place,
                estimate: *estimate,
                rounds: summary.round_ratios(&workload, comparison).collect(),
            })
        };
        let names = family.places.iter().map(|place| place.workload.clone());
        Series {
            name: format!("{candidate} / {baseline}"),
            index,
            mark: index,
            is_paper: false,
            points: names.enumerate().filter_map(point).collect(),
        }
    });
    let series = series
        .filter(|series| !series.points.is_empty())
        .collect::<Vec<_>>();
    if series.is_empty() {
        return None;
    }
    Some(Figure {
        name: format!("{}-ratio", family.name),
        measure: format!("ratio of {}", main.measure),
        unit: "×".into(),
        series: series.into_iter().chain(paper::ratios(report, family)).collect(),
        ..main.clone()
    })
}
