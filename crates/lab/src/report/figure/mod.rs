//! The data of charts: figures of all candidates over the varied factor, in units for people.
//! Pages, slides and tables use them alike.

mod family;
mod overview;
mod panel;
mod paper;
mod ratios;

pub(super) use panel::{Figure, Panel, Point, Series};

use super::results::{Figures, Report};
use super::summary::Summary;
use crate::samples::Sample;
use crate::workload::{Cell, Quantity};
use family::Family;

/// All figures of a run, in the order of its plan.
pub(super) fn panels(report: &Report, samples: &[Sample]) -> Vec<Panel> {
    let plan = &report.header.plan;
    let summary = Summary::of(plan, samples);
    let mut panels = Vec::new();
    for family in family::families(&plan.cells) {
        let figures = figures(report, &summary, &family);
        let Some(main) = figures.first() else { continue };
        let ratios = ratios::of(report, &summary, &family, main);
        let panel = Panel {
            name: family.name.clone(),
            title: family.title.clone(),
            figures,
            ratios,
        };
        panels.push((family, panel));
    }
    let overview = overview::panels(&panels);
    let panels = panels.into_iter().map(|(_, panel)| panel);
    overview.into_iter().chain(panels).collect()
}

/// A figure for each metric of a family's workloads.
fn figures(report: &Report, summary: &Summary, family: &Family) -> Vec<Figure> {
    let names = family.cells.iter().map(Cell::metric_names).collect::<Vec<_>>();
    let metrics = names.iter().map(Vec::len).min().unwrap_or(0);
    let figure = |metric: usize| {
        let names = names
            .iter()
            .map(|names| names[metric].as_str())
            .collect::<Vec<_>>();
        figure(report, summary, family, &names)
    };
    (0..metrics)
        .filter_map(figure)
        .filter(|figure| !figure.is_empty())
        .collect()
}

/// The metric named `names` at the family's places.
fn figure(report: &Report, summary: &Summary, family: &Family, names: &[&str]) -> Option<Figure> {
    let known = names
        .iter()
        .filter_map(|name| report.metrics.get(*name))
        .collect::<Vec<_>>();
    let first = *known.first()?;
    let (divisor, unit) = unit(first.unit, &known);
    let points = |candidate: &String| {
        let point = |(place, name): (usize, &&str)| {
            let estimate = report.metrics.get(*name)?.values.get(candidate)?;
            let rounds = summary.rounds(name, candidate);
            Some(Point {
                place,
                estimate: estimate.divided_by(divisor),
                rounds: rounds.map(|value| value / divisor).collect(),
            })
        };
        names.iter().enumerate().filter_map(point).collect()
    };
    let series = report.header.plan.candidates.iter().enumerate();
    let series = series.map(|(index, candidate)| Series {
        name: candidate.clone(),
        index,
        mark: index,
        is_paper: false,
        points: points(candidate),
    });
    let paper = paper::figures(report, family, names, first.unit, divisor);
    let series = series.chain(paper);
    Some(Figure {
        name: if first.main {
            family.name.clone()
        } else {
            family::slug(&format!("{} {} {unit}", family.name, first.label))
        },
        measure: first.label.clone(),
        unit: unit.into(),
        better: first.better,
        axis: family.axis.clone(),
        places: family.places.clone(),
        series: series.filter(|series| !series.points.is_empty()).collect(),
    })
}

/// The divisor of figures, and their unit after the division.
fn unit(quantity: Quantity, figures: &[&Figures]) -> (f64, &'static str) {
    let medians = figures.iter().flat_map(|figures| figures.values.values());
    let least = medians
        .map(|estimate| estimate.median)
        .fold(f64::INFINITY, f64::min);
    match quantity {
        Quantity::Time if least >= 1e6 => (1e6, "ms"),
        Quantity::Time => (1e3, "µs"),
        Quantity::Throughput => (1e9, "Gb/s"),
        Quantity::Rate => (1.0, "1/s"),
        Quantity::Interrupts => (1.0, "1/s"),
        Quantity::PerMessage => (1.0, "per message"),
        Quantity::CpuPerThousand => (1e-3, "CPU ms per 1000"),
        Quantity::CpuPerGigabyte => (1.0, "CPU s per GB"),
        Quantity::Share | Quantity::Availability => (1e-2, "% of a core"),
        Quantity::Pcbs => (1.0, "PCBs"),
        Quantity::FileBandwidth => (1e6, "MB/s"),
        Quantity::Hits | Quantity::Utilization => (1e-2, "%"),
    }
}

#[cfg(test)]
mod tests;
