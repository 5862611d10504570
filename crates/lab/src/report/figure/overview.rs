//! All strategies of finding connections in one picture, as in their paper. Over the number of
//! users, it shows the results of equations, of a simulation, and of measurements.

use std::collections::BTreeMap;

use toehold_demux_lab::DemuxStrategy;

use super::family::{Family, slug};
use super::panel::{Figure, Panel, Place, Point, Series};
use crate::statistics::Estimate;
use crate::workload::Workload;

/// The shown measures, by their names in the figures, with their names in headings.
const MEASURES: [(&str, &str); 2] = [("PCBs examined", "PCBs"), ("a look-up", "time")];

/// A panel for each measure, if several strategies were measured with several numbers of users.
pub(super) fn panels(families: &[(Family, Panel)]) -> Vec<Panel> {
    let curves = families.iter();
    let curves: Vec<_> = curves
        .filter_map(|(family, panel)| Some((curve(family)?, panel)))
        .collect();
    if curves.len() < 2 {
        return Vec::new();
    }
    let name = |(strategy, response_ms): &(DemuxStrategy, u32)| {
        let of_strategy = curves.iter().filter(|((other, _), _)| other == strategy);
        match of_strategy.count() {
            1 => strategy.to_string(),
            _ => format!("{strategy}, R = {response_ms} ms"),
        }
    };
    let curves: Vec<_> = curves
        .iter()
        .map(|(curve, panel)| (name(curve), *panel))
        .collect();
    let panel = |(measure, short): (&str, &str)| {
        let figure = joined(&curves, measure, short)?;
        Some(Panel {
            name: figure.name.clone(),
            title: format!("Finding connections of TPC/A's users, all strategies: {short}"),
            ratios: ratios(&figure, &curves),
            figures: vec![figure],
        })
    };
    MEASURES.into_iter().filter_map(panel).collect()
}

/// The strategy of a family, and the users' response time.
fn curve(family: &Family) -> Option<(DemuxStrategy, u32)> {
    match family.cells.first()?.workload {
        Workload::LookUp {
            strategy,
            response_ms,
            ..
        } if family.axis.as_deref() == Some("users") => Some((strategy, response_ms)),
        _ => None,
    }
}

/// One measure of all curves: a colour for each curve, a mark for each candidate.
fn joined(curves: &[(String, &Panel)], measure: &str, short: &str) -> Option<Figure> {
    let figures = curves.iter().enumerate().filter_map(|(number, (name, panel))| {
        let mut figures = panel.figures.iter();
        Some((number, name, figures.find(|figure| figure.measure == measure)?))
    });
    let figures: Vec<_> = figures.collect();
    let (_, _, first) = *figures.first()?;
    let at = |place: &Place| place.at.map(|at| at as u64);
    let places: BTreeMap<u64, &Place> = figures
        .iter()
        .flat_map(|(_, _, figure)| &figure.places)
        .filter_map(|place| Some((at(place)?, place)))
        .collect();
    let moved = |figure: &Figure, point: &Point| {
        let users = at(&figure.places[point.place])?;
        Some(Point {
            place: places.keys().position(|&known| known == users)?,
            ..point.clone()
        })
    };
    let same_unit = figures.iter().filter(|(_, _, figure)| figure.unit == first.unit);
    let series = same_unit.flat_map(|(number, name, figure)| {
        figure.series.iter().map(move |series| Series {
            name: format!("{name}: {}", series.name),
            index: *number,
            mark: series.mark,
            is_paper: series.is_paper,
            points: series
                .points
                .iter()
                .filter_map(|point| moved(figure, point))
                .collect(),
        })
    });
    Some(Figure {
        name: slug(&format!("look-up all {short}")),
        series: series.collect(),
        places: places
            .values()
            .map(|place| Place {
                workload: format!("{} users", place.label),
                ..(*place).clone()
            })
            .collect(),
        ..first.clone()
    })
}

/// The ratio of each curve to the first, for the last candidate that has both: the measured one.
fn ratios(figure: &Figure, curves: &[(String, &Panel)]) -> Option<Figure> {
    let of_curve = |number: usize| {
        let mut series = figure.series.iter().rev();
        series.find(|series| series.index == number && !series.is_paper)
    };
    let baseline = of_curve(0)?;
    let (first, _) = &curves[0];
    let series = (1..curves.len()).filter_map(|number| {
        let ours = of_curve(number).filter(|ours| ours.mark == baseline.mark)?;
        let point = |ours: &Point| {
            let theirs = baseline.points.iter().find(|point| point.place == ours.place)?;
            let rounds = ours.rounds.iter().zip(&theirs.rounds);
            let rounds: Vec<_> = rounds.map(|(ours, theirs)| ours / theirs).collect();
            Some(Point {
                place: ours.place,
                estimate: Estimate::of(rounds.iter().copied())?,
                rounds,
            })
        };
        Some(Series {
            name: format!("{} / {first}", curves[number].0),
            index: number,
            mark: number,
            is_paper: false,
            points: ours.points.iter().filter_map(point).collect(),
        })
    });
    Some(Figure {
        name: format!("{}-ratio", figure.name),
        measure: format!("ratio of {}", figure.measure),
        unit: "×".into(),
        series: series.filter(|series| !series.points.is_empty()).collect(),
        ..figure.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::super::panels;
    use crate::report::findings::findings;
    use crate::report::tests::saved_of;
    use crate::samples::{Outcome, Sample, Side};
    use crate::workload::{Cell, Workload};

    /// A run in which every strategy examines a share of the users' PCBs, growing with each round.
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for (strategy, examines) in [("bsd", 0.5), ("sequent:19", 0.025), ("flow-table", 0.001)] {
            for users in [1000, 4000] {
                let cell = Cell::from(Workload::LookUp {
                    strategy: strategy.parse().unwrap(),
                    response_ms: 200,
                    users,
                    lookups: 10,
                });
                for round in 0..3 {
                    for candidate in ["model", "measured"] {
                        let examined = f64::from(users) * examines * f64::from(round + 1);
                        let ns = (candidate == "measured").then_some(examined * 2.0);
                        let side = Side::of_values([("", Some(examined)), ("ns", ns)]);
                        samples.push(Sample::of_test(round, candidate, cell, Outcome::of_both(side)));
                    }
                }
            }
        }
        samples
    }

    #[test]
    fn overview_has_all_strategies_and_ratios_to_first() {
        let run = saved_of(&["model", "measured"], samples());
        let panels = panels(&run.report, &run.samples);
        let names: Vec<_> = panels.iter().map(|panel| panel.name.as_str()).collect();
        assert_eq!(names[..2], ["look-up-all-pcbs", "look-up-all-time"]);
        assert_eq!(names.len(), 5, "and one a strategy: {names:?}");

        let [examined, time] = [&panels[0].figures[0], &panels[1].figures[0]];
        assert_eq!((examined.unit.as_str(), time.unit.as_str()), ("PCBs", "µs"));
        assert_eq!(examined.axis.as_deref(), Some("users"));
        let series = examined.series.iter();
        let named: Vec<_> = series.map(|it| (it.name.as_str(), it.index, it.mark)).collect();
        assert_eq!(
            named[..3],
            [
                ("bsd: model", 0, 0),
                ("bsd: measured", 0, 1),
                ("sequent:19: model", 1, 0)
            ]
        );
        assert_eq!(
            (named.len(), time.series.len()),
            (6, 3),
            "no equation says a time"
        );

        let ratios = panels[0].ratios.as_ref().unwrap();
        assert_eq!(ratios.series[0].name, "sequent:19 / bsd");
        let ratio = ratios.series[0].points[1].estimate;
        assert!(
            (ratio.low - 0.05).abs() < 1e-12 && (ratio.high - 0.05).abs() < 1e-12,
            "{ratio:?}"
        );
        let found = findings(&run.report, &panels);
        let about = found.iter().filter(|finding| finding.panel == "look-up-all-pcbs");
        let about: Vec<_> = about.map(|finding| finding.ours[0].text.as_str()).collect();
        assert_eq!(about, ["20.0× lower", "500× lower"]);
    }

    #[test]
    fn single_strategy_has_no_overview() {
        let samples = samples().into_iter().filter(|sample| sample.name.contains("bsd"));
        let run = saved_of(&["model", "measured"], samples.collect());
        assert_eq!(panels(&run.report, &run.samples).len(), 1);
    }
}
