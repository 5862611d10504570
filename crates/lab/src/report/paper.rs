//! The statements of a paper beside the measured figures.

use comfy_table::Table;

use super::format::{Look, digits, interval, new_table};
use super::results::Report;
use crate::experiment::{PaperUnit, Said, Trend};
use crate::statistics::Estimate;

/// A row for each statement of the paper. For a trend, it has the ratio of the two figures; some
/// statements have no figure.
pub(super) fn said(report: &Report, look: Look) -> Option<Table> {
    let paper = report.header.plan.paper.as_ref()?;
    let columns = ["", "", "paper", "measured"].map(String::from);
    let mut table = new_table(columns.into_iter(), 2, look);
    for said in &paper.says {
        let figure = said.figure.as_deref().unwrap_or_default();
        let row = match (trend(report, said), said.value, said.unit) {
            (Some((trend, than, ours)), ..) => {
                let ours = ours.map_or("-".into(), |ours| format!("{}×", interval(&ours)));
                [format!("{figure}, than {than}"), trend.word().into(), ours]
            }
            (None, Some(value), Some(unit)) => {
                let ours = beside(report, said).map_or("-".into(), |ours| interval(&ours));
                let value = format!("{}{}", digits(value), suffix(unit));
                [figure.to_owned(), value, ours]
            }
            _ => [figure, "-", "-"].map(String::from),
        };
        let [figure, value, ours] = &row;
        table.add_row([&said.text, figure, value, ours]);
    }
    (table.row_count() > 0).then_some(table)
}

/// A statement's trend, the other figure, and the measured ratio.
pub(super) fn trend<'a>(report: &Report, said: &'a Said) -> Option<(Trend, &'a str, Option<Estimate>)> {
    let (trend, than) = (said.is?, said.than.as_deref()?);
    let [ours, other] = [said.figure.as_deref()?, than].map(|figure| measured(report, figure));
    Some((
        trend,
        than,
        ours.zip(other).map(|(ours, other)| ours.over(&other)),
    ))
}

/// A ratio, or a candidate's figure.
pub(super) fn measured(report: &Report, figure: &str) -> Option<Estimate> {
    let of_candidate = |(metric, candidate): (&str, &str)| {
        let figures = report.metrics.get(metric)?;
        figures.values.get(candidate).copied()
    };
    let ratio = report.ratios.get(figure).copied();
    ratio.or_else(|| figure.split_once('/').and_then(of_candidate))
}

/// The measured figure for a paper's value, in the paper's unit.
fn beside(report: &Report, said: &Said) -> Option<Estimate> {
    let figure = said.figure.as_deref()?;
    let divisor = divisor(said.unit?);
    measured(report, figure).map(|ours| ours.divided_by(divisor))
}

/// The divisor that converts measured figures to a paper's unit.
pub(super) fn divisor(unit: PaperUnit) -> f64 {
    match unit {
        PaperUnit::Microseconds => 1e3,
        PaperUnit::Gigabits => 1e9,
        PaperUnit::Megabytes => 1e6,
        PaperUnit::Ratio | PaperUnit::Cores | PaperUnit::PerSecond | PaperUnit::Pcbs => 1.0,
        PaperUnit::Percent => 1e-2,
    }
}

fn suffix(unit: PaperUnit) -> &'static str {
    match unit {
        PaperUnit::Ratio => "",
        PaperUnit::Microseconds => " µs",
        PaperUnit::Gigabits => " Gb/s",
        PaperUnit::Megabytes => " MB/s",
        PaperUnit::Cores => " cores",
        PaperUnit::PerSecond => " /s",
        PaperUnit::Pcbs => " PCBs",
        PaperUnit::Percent => " %",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::builtin;
    use crate::host::MachineUse;
    use crate::report::{Header, text};
    use crate::samples::{Counts, Outcome, Sample, Side};
    use std::path::Path;
    use std::time::Duration;

    /// Half a round trip of 1 byte, in nanoseconds.
    fn sample(plan: &crate::Plan, candidate: &str, one_way_ns: u64) -> Sample {
        let side = Side {
            durations: Some(Counts(vec![(2 * one_way_ns, 1)])),
            ..Side::default()
        };
        Sample::of_test(0, candidate, plan.cells[0], Outcome::of_both(side))
    }

    #[test]
    fn trend_shows_ratio_of_figures() {
        let mut plan = builtin::all().unwrap()[0].plan(true, 1, [0, 1]);
        let paper = plan.paper.as_mut().unwrap();
        paper.says = vec![Said {
            text: "it falls".into(),
            figure: Some("latency_1B_mtu1500/adaptive".into()),
            than: Some("latency_1B_mtu1500/kernel-veth".into()),
            is: Some(Trend::Less),
            value: None,
            unit: None,
        }];
        let samples = [sample(&plan, "adaptive", 500), sample(&plan, "kernel-veth", 5000)];
        let (header, machine) = (Header::now(plan), MachineUse::default());
        let mut report = Report::new(header, &samples, Duration::ZERO, true, machine, Path::new("/"));
        let line = |report: &Report| {
            let text = text(report, Look::default());
            text.lines()
                .find(|line| line.contains("it falls"))
                .unwrap()
                .to_owned()
        };
        let shown = line(&report);
        assert!(
            shown.contains("less") && shown.contains("0.100 [0.100"),
            "{shown}"
        );
        report.metrics.clear();
        assert!(line(&report).trim_end().ends_with('-'), "{}", line(&report));
    }

    #[test]
    fn statements_of_paper_are_beside_measured_figures() {
        let mut plan = builtin::all().unwrap()[0].plan(true, 1, [0, 1]);
        let paper = plan.paper.as_mut().unwrap();
        paper.says.push(Said {
            text: "so many microseconds".into(),
            figure: Some("latency_1B_mtu1500/kernel-veth".into()),
            than: None,
            is: None,
            value: Some(10.37),
            unit: Some(PaperUnit::Microseconds),
        });
        let samples = [sample(&plan, "adaptive", 500), sample(&plan, "kernel-veth", 5000)];
        let (header, machine) = (Header::now(plan), MachineUse::default());
        let report = Report::new(header, &samples, Duration::ZERO, true, machine, Path::new("/"));
        let text = text(&report, Look::default());
        let line = |part: &str| text.lines().find(|line| line.contains(part)).unwrap().to_owned();
        assert!(line("14.2 % less").contains("0.858") && line("14.2 % less").contains("0.100 [0.100"));
        assert!(line("so many micro").contains("10.4 µs") && line("so many micro").contains("5.00 [5.00"));
        let trend = line("about 35 %");
        // Neither a value of the paper nor a measured one.
        let dashes = trend.split_whitespace().filter(|word| *word == "-").count();
        assert_eq!(dashes, 2, "{trend}");
    }
}
