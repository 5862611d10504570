//! Programs with several workers, ordered by their ratio to the kernel's loopback, the worst first.

use comfy_table::Table;

use super::format::{Look, digits, interval, new_table};
use super::results::{CellStanding, Figures, Report};
use crate::experiment::Plan;
use crate::programs;
use crate::samples::{Outcome, Sample};
use crate::testbed;
use crate::workload::Cell;

/// All cells of programs with several workers, the lowest ratio first, and cells without a ratio
/// last. Empty if the plan compares none with the kernel's loopback.
pub(super) fn first(report: &Report, samples: &[Sample]) -> Vec<CellStanding> {
    let plan = &report.header.plan;
    let cells = plan.cells.iter().filter(|cell| cell.workload.is_of_workers());
    let compared: Vec<_> = compared(plan).collect();
    let standings = cells.flat_map(|cell| {
        compared
            .iter()
            .map(|candidate| standing(report, samples, cell, candidate))
    });
    let mut standings: Vec<_> = standings.collect();
    let place = |standing: &CellStanding| standing.ratio.map_or(f64::INFINITY, |ratio| ratio.median);
    standings.sort_by(|one, other| place(one).total_cmp(&place(other)));
    standings
}

/// Candidates on nodes that the plan compares with the kernel's loopback.
fn compared(plan: &Plan) -> impl Iterator<Item = &str> {
    let comparisons = plan.comparisons.iter();
    comparisons
        .filter(|it| it.baseline == testbed::KERNEL_LOOPBACK && programs::is_of_nodes(&it.candidate))
        .map(|it| it.candidate.as_str())
}

fn standing(report: &Report, samples: &[Sample], cell: &Cell, candidate: &str) -> CellStanding {
    let (name, baseline) = (cell.name(), testbed::KERNEL_LOOPBACK);
    let ratio = report
        .ratios
        .get(&format!("{name}/{candidate}/{baseline}"))
        .copied();
    let figures = report.metrics.get(&name);
    let value = |figures: &Figures, of: &str| figures.values.get(of).map(|it| it.median);
    let missing = match ratio {
        Some(_) => None,
        None => [candidate, baseline]
            .iter()
            .find_map(|of| missing(samples, &name, of)),
    };
    CellStanding {
        title: cell.title(),
        candidate: candidate.into(),
        value: figures.and_then(|figures| value(figures, candidate)),
        baseline: figures.and_then(|figures| value(figures, baseline)),
        missing: missing.or(ratio.is_none().then(|| "not measured".into())),
        ratio,
        cell: name,
    }
}

/// The reason why a candidate has no figure of a cell.
fn missing(samples: &[Sample], cell: &str, candidate: &str) -> Option<String> {
    let mut of_cell = samples
        .iter()
        .filter(|sample| sample.name == cell && sample.candidate == candidate);
    of_cell.find_map(|sample| match &sample.outcome {
        Outcome::Measured { .. } => None,
        // The list of failures has the reason, which may be long.
        Outcome::Failed { .. } => Some("failed".into()),
        Outcome::Unavailable { reason } => Some(reason.clone()),
    })
}

/// A row of a table for people.
pub(super) struct Row {
    /// The cell's stable name.
    pub(super) name: String,
    /// The measured quantity.
    pub(super) title: String,
    /// The candidate, its ratio and both figures, or the reason for their absence.
    pub(super) cells: Vec<String>,
    /// Whether the candidate is certainly slower.
    pub(super) is_slower: bool,
}

/// The heads of the columns of [`Row::cells`].
pub(super) const HEADS: [&str; 4] = ["", "ratio", "transactions/s", "kernel-loopback"];

/// The title of the table.
pub(super) const TITLE: &str = "Programs with several workers ÷ the kernel's loopback, the worst first";

/// The table, row by row.
pub(super) fn rows(standings: &[CellStanding]) -> impl Iterator<Item = Row> {
    let figure = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.0}"));
    standings.iter().map(move |standing| {
        let ratio = match (&standing.ratio, &standing.missing) {
            (Some(ratio), _) => interval(ratio),
            (None, Some(reason)) => reason.clone(),
            (None, None) => "–".into(),
        };
        Row {
            name: standing.cell.clone(),
            title: standing.title.clone(),
            is_slower: standing.ratio.is_some_and(|ratio| ratio.high < 1.0),
            cells: vec![
                standing.candidate.clone(),
                ratio,
                figure(standing.value),
                figure(standing.baseline),
            ],
        }
    })
}

/// The text for a terminal: a summary, and the table.
pub(super) fn table(standings: &[CellStanding], look: Look) -> Option<Table> {
    let heads = [""].into_iter().chain(HEADS).map(str::to_owned);
    let mut table = new_table(heads, 2, look);
    for row in rows(standings) {
        table.add_row([row.name].into_iter().chain(row.cells));
    }
    (!standings.is_empty()).then_some(table)
}

/// How many cells there are, and how many of them are below the kernel's loopback.
pub(super) fn summary(standings: &[CellStanding]) -> String {
    let ratios: Vec<_> = standings.iter().filter_map(|standing| standing.ratio).collect();
    let below = ratios.iter().filter(|ratio| ratio.median < 1.0).count();
    let for_sure = ratios.iter().filter(|ratio| ratio.high < 1.0).count();
    let worst = ratios.first().map_or(String::new(), |ratio| {
        format!(", the worst {}", digits(ratio.median))
    });
    format!(
        "{below} of {} ratios are below 1, {for_sure} of them for sure{worst}",
        ratios.len()
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::experiment::PlanFile;
    use crate::host::MachineUse;
    use crate::report::{Header, Saved, markdown, page, text};
    use crate::samples::Side;

    fn plan() -> Plan {
        let text = "
            name = \"t\"\ntitle = \"t\"
            candidates = [\"toehold\", \"kernel-loopback\"]
            compare = [\"toehold/kernel-loopback\"]
            factors = { workers = 4, clients = 8, loops = [0, 2] }
            measure = { rounds = 1 }
            [[workload]]\nkind = \"workers\"\nprogram = \"nginx-1k\"
            [[workload]]\nkind = \"workers\"\nprogram = \"memcached\"";
        let file = PlanFile::parse("t", text).unwrap_or_else(|error| panic!("{error}"));
        file.plan(false, 1, [0, 1])
    }

    fn measured(cell: Cell, candidate: &str, messages: u64) -> Sample {
        let side = Side {
            messages,
            span_ns: 1_000_000_000,
            ..Side::default()
        };
        Sample::of_test(0, candidate, cell, Outcome::of_both(side))
    }

    /// Two cells were measured, one program is missing, and one candidate failed.
    fn saved() -> Saved {
        let plan = plan();
        let [fast, slow, missing, failed] = plan.cells[..] else {
            panic!("{:?}", plan.cells)
        };
        let reason = "memcached is missing: install the package memcached".to_owned();
        let unavailable = Outcome::Unavailable { reason };
        let gone = Outcome::Failed {
            reason: "the server ended".into(),
            output: String::new(),
        };
        let samples = vec![
            measured(fast, "toehold", 3000),
            measured(fast, "kernel-loopback", 1000),
            measured(slow, "toehold", 500),
            measured(slow, "kernel-loopback", 1000),
            Sample::of_test(0, "toehold", missing, unavailable),
            Sample::of_test(0, "toehold", failed, gone),
        ];
        let (took, used) = (Duration::from_secs(1), MachineUse::default());
        let header = Header::now(plan);
        let report = Report::new(header, &samples, took, true, used, Path::new("/r"));
        Saved {
            report,
            samples,
            damage: Vec::new(),
            files: Vec::new(),
        }
    }

    #[test]
    fn lowest_ratio_is_first_and_missing_ratio_last() {
        let standings = &saved().report.worst;
        let names: Vec<_> = standings.iter().map(|standing| standing.cell.as_str()).collect();
        assert_eq!(
            names,
            [
                "nginx-1k_4w_8c_2l",
                "nginx-1k_4w_8c_0l",
                "memcached_4w_8c_0l",
                "memcached_4w_8c_2l"
            ]
        );
        assert_eq!(standings[0].ratio.unwrap().median, 0.5);
        assert_eq!(
            (standings[1].value, standings[1].baseline),
            (Some(3000.0), Some(1000.0))
        );
        let reasons: Vec<_> = standings[2..]
            .iter()
            .map(|it| it.missing.as_deref().unwrap())
            .collect();
        assert_eq!(
            reasons,
            ["memcached is missing: install the package memcached", "failed"]
        );
        assert_eq!(
            summary(standings),
            "1 of 2 ratios are below 1, 1 of them for sure, the worst 0.500"
        );
    }

    #[test]
    fn worst_cell_is_first_in_every_form_of_a_report() {
        let saved = saved();
        let forms = [
            text(&saved.report, Look::default()),
            markdown(std::slice::from_ref(&saved)).replace('\\', ""),
            page(std::slice::from_ref(&saved)),
        ];
        for form in forms {
            let titles = [
                "Programs with several workers",
                "nginx-1k_4w_8c_2l",
                "nginx-1k_4w_8c_0l",
                "memcached is missing",
            ];
            let places: Vec<_> = titles
                .iter()
                .map(|title| form.find(title).unwrap_or_else(|| panic!("no {title} in {form}")))
                .collect();
            assert!(places.is_sorted(), "{places:?} in {form}");
        }
        let json = serde_json::to_value(&saved.report).unwrap();
        assert_eq!(json["worst"][0]["cell"], "nginx-1k_4w_8c_2l");
        assert_eq!(json["worst"][0]["ratio"]["median"], 0.5);
        assert_eq!(
            json["ratios"]["nginx-1k_4w_8c_2l/toehold/kernel-loopback"]["median"],
            0.5
        );
    }
}
