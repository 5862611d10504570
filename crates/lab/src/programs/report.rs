//! The findings, for people and for programs.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, LineStyle, Table, presets};
use serde::Serialize;

use super::{Gathered, Options, Row};
use crate::experiment::{Limit, Verdict};
use crate::host::{Build, Host};
use crate::statistics::Estimate;

/// All findings of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of this structure.
    pub format: u32,
    /// The measured build.
    pub build: Build,
    /// The machine.
    pub host: Host,
    /// Determines the order.
    pub seed: u64,
    /// Rounds asked for.
    pub rounds: u32,
    /// The server's and the client's core.
    pub cores: [usize; 2],
    /// Whether the run was completed.
    pub complete: bool,
    /// By the rows' names: the factor by which Toehold is better than the kernel. For
    /// `unused_shim`, the factor by which the library prolongs the run.
    pub ratios: BTreeMap<String, Estimate>,
    /// All rows, in order.
    pub rows: Vec<RowReport>,
}

/// The result of a row.
#[derive(Debug, Serialize)]
pub struct RowReport {
    /// The row's name.
    pub name: String,
    /// The row's subject.
    pub about: String,
    /// Unit of its figures.
    pub unit: String,
    /// The figure over the kernel.
    pub kernel: Option<Estimate>,
    /// The figure over nodes.
    pub toehold: Option<Estimate>,
    /// The target of the ratio.
    pub wanted: Limit,
    /// The reason for missing figures.
    pub failure: Option<String>,
}

impl Report {
    pub(super) fn new(
        options: &Options,
        rows: &[&Row],
        gathered: &BTreeMap<&str, Gathered>,
        complete: bool,
    ) -> Self {
        let mut ratios = BTreeMap::new();
        let mut reports = Vec::new();
        for row in rows {
            let Some(of_row) = gathered.get(row.name) else {
                continue;
            };
            let rounds = || of_row.figures.values();
            let of_rounds = rounds().map(|[kernel, toehold]| row.ratio(*toehold, *kernel));
            if let Some(ratio) = Estimate::of(of_rounds) {
                ratios.insert(row.name.to_owned(), ratio);
            }
            reports.push(RowReport {
                name: row.name.into(),
                about: row.about.into(),
                unit: row.unit.into(),
                kernel: Estimate::of(rounds().map(|[kernel, _]| *kernel)),
                toehold: Estimate::of(rounds().map(|[_, toehold]| *toehold)),
                wanted: row.limit,
                failure: of_row.failure.clone(),
            });
        }
        Self {
            format: 1,
            build: Build::this(),
            host: Host::read(),
            seed: options.seed,
            rounds: options.rounds,
            cores: options.cores,
            complete,
            ratios,
            rows: reports,
        }
    }

    /// Whether every row was measured in every round.
    pub fn is_whole(&self) -> bool {
        self.complete && self.rows.iter().all(|row| row.failure.is_none())
    }

    /// The report as a table, with notes.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        let style = presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none());
        table
            .load_style(style)
            .set_header(["", "", "kernel, veth", "Toehold", "ratio", "wanted", ""]);
        for column in 2..6 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let median = |estimate: &Option<Estimate>| estimate.map_or("-".into(), |it| short(it.median));
        for row in &self.rows {
            let ratio = self.ratios.get(&row.name);
            table.add_row([
                format!("{} ({})", row.about, row.name),
                row.unit.clone(),
                median(&row.kernel),
                median(&row.toehold),
                ratio.map_or("-".into(), |it| {
                    format!("{} [{}–{}]", short(it.median), short(it.low), short(it.high))
                }),
                match row.wanted {
                    Limit::AtLeast(limit) => format!("≥ {limit}"),
                    Limit::AtMost(limit) => format!("≤ {limit}"),
                },
                ratio.map_or(String::new(), |ratio| verdict(row.wanted.judge(ratio)).into()),
            ]);
        }
        let mut text = format!(
            "Programs as they are, on nodes and over the kernel: {} rounds, cores {} and {}, seed {}\n{table}\n",
            self.rounds, self.cores[0], self.cores[1], self.seed
        );
        for row in &self.rows {
            if let Some(failure) = &row.failure {
                text.push_str(&format!("{}: {failure}\n", row.name));
            }
        }
        if self.build.profile != "release" {
            text.push_str("this is a debug build: its figures mean nothing (cargo build --release)\n");
        }
        if !self.complete {
            text.push_str("the run was interrupted: these are the figures it had so far\n");
        }
        text
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "yes",
        Verdict::Probably => "probably",
        Verdict::ProbablyNot => "probably not",
        Verdict::Missed => "no",
    }
}

/// Three significant digits, or all before the point.
fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::ROWS;

    fn report(gathered: &BTreeMap<&str, Gathered>) -> Report {
        let options = Options {
            rows: Vec::new(),
            rounds: 3,
            seed: 1,
            seconds: 1,
            cores: [0, 1],
        };
        let rows: Vec<_> = ROWS.iter().collect();
        Report::new(&options, &rows, gathered, true)
    }

    #[test]
    fn ratios_are_those_of_rounds() {
        let figures = [[10.0, 2.0], [30.0, 5.0], [20.0, 5.0]];
        let figures = (0..).zip(figures).collect();
        let of_row = Gathered {
            figures,
            failure: None,
        };
        let report = report(&BTreeMap::from([("sockperf_p50", of_row)]));
        let ratio = report.ratios["sockperf_p50"];
        assert_eq!((ratio.low, ratio.median, ratio.high), (4.0, 5.0, 6.0));
        assert!(report.is_whole());
        let text = report.text();
        assert!(
            text.contains("5.00 [4.00–6.00]") && text.contains("probably not"),
            "{text}"
        );
    }

    #[test]
    fn unmeasured_row_has_reason() {
        let failure = Some("wrk is missing: install the package wrk".to_owned());
        let of_row = Gathered {
            failure,
            ..Gathered::default()
        };
        let report = report(&BTreeMap::from([("nginx_1m", of_row)]));
        assert!(report.ratios.is_empty() && !report.is_whole());
        assert!(report.text().contains("nginx_1m: wrk is missing"));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["rows"][0]["wanted"]["at-least"], 1.5);
    }
}
