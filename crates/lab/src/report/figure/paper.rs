//! A paper's values of a figure, as a series beside the measured ones.

use super::family::Family;
use super::panel::{Place, Point, Series};
use crate::experiment::{PaperUnit, Said};
use crate::report::results::Report;
use crate::statistics::Estimate;
use crate::workload::Quantity;

/// The paper's ratios of a family's main figure.
pub(super) fn ratios(report: &Report, family: &Family) -> Vec<Series> {
    let comparisons = report.header.plan.comparisons.iter().enumerate();
    let series = comparisons.map(|(index, comparison)| {
        let (candidate, baseline) = (&comparison.candidate, &comparison.baseline);
        let point = |(place, workload): (usize, String)| {
            let name = format!("{workload}/{candidate}/{baseline}");
            said(report, &name, PaperUnit::Ratio).map(|value| point(place, value))
        };
        let names = family.places.iter().map(|place| place.workload.clone());
        series(
            &format!("{candidate} / {baseline}"),
            index,
            names.enumerate().filter_map(point).collect(),
        )
    });
    series.filter(|series| !series.points.is_empty()).collect()
}

/// The paper's values of the metric named `names` at a family's places.
pub(super) fn figures(
    report: &Report,
    family: &Family,
    names: &[&str],
    quantity: Quantity,
    divisor: f64,
) -> Vec<Series> {
    let (unit, factor) = match quantity {
        Quantity::Time => (PaperUnit::Microseconds, 1e3),
        Quantity::Throughput => (PaperUnit::Gigabits, 1e9),
        Quantity::Rate | Quantity::Interrupts => (PaperUnit::PerSecond, 1.0),
        Quantity::Share | Quantity::Availability => (PaperUnit::Cores, 1.0),
        Quantity::Pcbs => (PaperUnit::Pcbs, 1.0),
        Quantity::FileBandwidth => (PaperUnit::Megabytes, 1e6),
        Quantity::Hits | Quantity::Utilization => (PaperUnit::Percent, 1e-2),
        Quantity::CpuPerThousand | Quantity::CpuPerGigabyte | Quantity::PerMessage => return Vec::new(),
    };
    let candidates = report.header.plan.candidates.iter().enumerate();
    let series = candidates.map(|(index, candidate)| {
        let point = |(place, _): (usize, &Place)| {
            let value = said(report, &format!("{}/{candidate}", names[place]), unit)?;
            Some(point(place, value * factor / divisor))
        };
        let points = family.places.iter().enumerate().filter_map(point);
        series(candidate, index, points.collect())
    });
    series.filter(|series| !series.points.is_empty()).collect()
}

fn said(report: &Report, figure: &str, unit: PaperUnit) -> Option<f64> {
    let paper = report.header.plan.paper.as_ref()?;
    let is_it = |said: &&Said| said.figure.as_deref() == Some(figure) && said.unit == Some(unit);
    paper.says.iter().find(is_it)?.value
}

fn series(name: &str, index: usize, points: Vec<Point>) -> Series {
    Series {
        name: format!("paper: {name}"),
        index,
        mark: index,
        is_paper: true,
        points,
    }
}

fn point(place: usize, value: f64) -> Point {
    Point {
        place,
        estimate: Estimate {
            median: value,
            low: value,
            high: value,
            runs: 0,
        },
        rounds: Vec::new(),
    }
}
