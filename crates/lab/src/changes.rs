//! The differences between two runs, beyond chance.
//!
//! The runs may be of two commits or of two machines. Only figures in both are compared. The
//! interval of a ratio combines the ends of both figures' intervals, so it is wider than necessary.
//! A ratio outside of it is no chance.

use serde::Serialize;

use crate::report::{Figures, Report};
use crate::statistics::Estimate;
use crate::workload::{Better, Quantity};

/// The result of comparing a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The figure is certainly better.
    Better,
    /// The figure is certainly worse.
    Worse,
    /// The figure may be the same.
    Same,
}

/// A figure of a candidate in both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The metric's stable name.
    pub metric: String,
    /// The candidate's name.
    pub candidate: String,
    /// The measured quantity.
    pub unit: Quantity,
    /// Whether tables for people leave the metric out.
    pub detail: bool,
    /// The figure in the first run.
    pub before: Estimate,
    /// The figure in the second run.
    pub after: Estimate,
    /// The second figure divided by the first.
    pub ratio: Estimate,
    /// The result of the comparison.
    pub verdict: Verdict,
}

/// The number of common figures that may be the same: their intervals overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Agreement {
    /// Figures whose intervals overlap.
    pub agree: usize,
    /// Common figures.
    pub of: usize,
}

impl Agreement {
    fn among(pairs: impl Iterator<Item = [Estimate; 2]>) -> Self {
        let mut agreement = Self { agree: 0, of: 0 };
        for [one, other] in pairs {
            agreement.of += 1;
            agreement.agree += usize::from(one.low <= other.high && other.low <= one.high);
        }
        agreement
    }
}

/// The common figures of two runs, and those of one run only.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Changes {
    /// Changes by metric and candidate.
    pub cells: Vec<Change>,
    /// Agreement of the figures, including details.
    pub figures: Agreement,
    /// Agreement of the ratios of candidates to baselines.
    pub ratios: Agreement,
    /// `METRIC/CANDIDATE` of figures that only the first run has.
    pub only_before: Vec<String>,
    /// `METRIC/CANDIDATE` of figures that only the second run has.
    pub only_after: Vec<String>,
}

impl Changes {
    /// The changes from one run to another.
    pub fn between(before: &Report, after: &Report) -> Self {
        let mut cells = Vec::new();
        for (metric, figures) in &before.metrics {
            let Some(others) = after.metrics.get(metric) else {
                continue;
            };
            for (candidate, earlier) in &figures.values {
                if let Some(later) = others.values.get(candidate) {
                    cells.extend(change(metric, candidate, figures, *earlier, *later));
                }
            }
        }
        let figures = Agreement::among(cells.iter().map(|cell: &Change| [cell.before, cell.after]));
        let both = |(name, earlier): (_, &Estimate)| Some([*earlier, *after.ratios.get(name)?]);
        Self {
            cells,
            figures,
            ratios: Agreement::among(before.ratios.iter().filter_map(both)),
            only_before: lacking(before, after),
            only_after: lacking(after, before),
        }
    }
}

/// `None` without a ratio to the former figure.
fn change(
    metric: &str,
    candidate: &str,
    figures: &Figures,
    before: Estimate,
    after: Estimate,
) -> Option<Change> {
    let ratio = Estimate {
        median: after.median / before.median,
        low: after.low / before.high,
        high: after.high / before.low,
        runs: before.runs.min(after.runs),
    };
    let is_known = [ratio.low, ratio.median, ratio.high]
        .iter()
        .all(|end| end.is_finite());
    let verdict = match figures.better {
        Better::Lower if ratio.high < 1.0 => Verdict::Better,
        Better::Lower if ratio.low > 1.0 => Verdict::Worse,
        Better::Higher if ratio.low > 1.0 => Verdict::Better,
        Better::Higher if ratio.high < 1.0 => Verdict::Worse,
        _ => Verdict::Same,
    };
    is_known.then(|| Change {
        metric: metric.to_owned(),
        candidate: candidate.to_owned(),
        unit: figures.unit,
        detail: figures.detail,
        before,
        after,
        ratio,
        verdict,
    })
}

/// Main figures that one run has and the other lacks.
fn lacking(has: &Report, lacks: &Report) -> Vec<String> {
    let mut lacking = Vec::new();
    for (metric, figures) in has.metrics.iter().filter(|(_, figures)| figures.main) {
        let others = lacks.metrics.get(metric).map(|figures| &figures.values);
        let is_lacking = |candidate: &&String| others.is_none_or(|others| !others.contains_key(*candidate));
        let names = figures.values.keys().filter(is_lacking);
        lacking.extend(names.map(|candidate| format!("{metric}/{candidate}")));
    }
    lacking
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::builtin;
    use crate::host::MachineUse;
    use crate::report::Header;
    use crate::samples::{Outcome, Sample, Side};
    use std::path::Path;
    use std::time::Duration;

    /// Streams of one size at these rates, a round each.
    fn report(candidate: &str, rates: &[u64]) -> Report {
        let plan = builtin::all().unwrap()[0].plan(true, 1, [0, 1]);
        let is_stream = |cell: &&crate::Cell| cell.workload.kind() == "stream";
        let cell = *plan.cells.iter().find(is_stream).unwrap();
        let sample = |(round, rate): (u32, &u64)| {
            let side = Side {
                bytes: *rate,
                span_ns: 1_000_000_000,
                ..Side::default()
            };
            Sample::of_test(round, candidate, cell, Outcome::of_both(side))
        };
        let samples: Vec<_> = (0..).zip(rates).map(sample).collect();
        let machine = MachineUse::default();
        Report::new(
            Header::now(plan),
            &samples,
            Duration::ZERO,
            true,
            machine,
            Path::new("/"),
        )
    }

    fn verdict(before: &[u64], after: &[u64]) -> Verdict {
        let changes = Changes::between(&report("unix", before), &report("unix", after));
        let throughput = changes
            .cells
            .iter()
            .find(|change| change.metric.starts_with("stream_"));
        throughput.unwrap().verdict
    }

    #[test]
    fn overlapping_intervals_are_no_change() {
        let before = [100, 101, 102, 103, 104, 105];
        assert_eq!(verdict(&before, &before), Verdict::Same);
        assert_eq!(
            verdict(&before, &[104, 106, 108, 110, 112, 114]),
            Verdict::Same,
            "they overlap"
        );
        assert_eq!(verdict(&before, &[106, 107, 108, 109, 110, 111]), Verdict::Better);
        assert_eq!(verdict(&before, &[90, 91, 92, 93, 94, 95]), Verdict::Worse);
    }

    #[test]
    fn runs_agree_where_their_intervals_overlap() {
        let at = |low, high| Estimate {
            median: low,
            low,
            high,
            runs: 1,
        };
        let pairs = [
            [at(1.0, 2.0), at(2.0, 3.0)],
            [at(2.0, 3.0), at(1.0, 2.5)],
            [at(1.0, 1.5), at(1.6, 1.7)],
            [at(1.6, 1.7), at(1.0, 1.5)],
        ];
        let agreement = Agreement::among(pairs.into_iter());
        assert_eq!(agreement, Agreement { agree: 2, of: 4 });
    }

    #[test]
    fn figures_of_one_run_only_are_listed() {
        let changes = Changes::between(&report("unix", &[1, 2]), &report("inline", &[1, 2]));
        assert!(changes.cells.is_empty());
        assert_eq!(changes.figures, Agreement { agree: 0, of: 0 });
        assert_eq!(changes.only_before, ["stream_1B_mtu1500/unix"]);
        assert_eq!(changes.only_after, ["stream_1B_mtu1500/inline"]);
    }
}
