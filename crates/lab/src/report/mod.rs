//! Converts samples to results for people and programs: figures, ratios, tables, JSON.

mod csv;
mod difference;
mod facts;
mod figure;
mod finding;
mod findings;
mod format;
mod header;
mod html;
mod layout;
mod markdown;
mod paper;
mod picture;
mod results;
mod said;
mod saved;
mod summary;
mod table;
mod worst;

pub use format::{Look, spoken};
pub use header::{FORMAT, Header};
pub use html::page;
pub use layout::{LayoutAccount, LayoutLosses, LayoutQuantiles, LayoutStage, MessageLayout};
pub use markdown::markdown;
pub use picture::{Picture, PictureError, pictures};
pub use results::{CellStanding, Failure, Fate, Figures, Report};
pub use saved::{RawFile, ReadError, Saved};
pub(crate) use summary::Summary;
pub use table::text;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::experiment::Plan;
use crate::host::MachineUse;
use crate::samples::{Outcome, Sample, StoreError};
use crate::workload::Workload;

impl Report {
    /// The report on the samples of a run that took `took`.
    pub fn new(
        header: Header,
        samples: &[Sample],
        took: Duration,
        complete: bool,
        machine: MachineUse,
        results: &Path,
    ) -> Self {
        let summary = summary::Summary::of(&header.plan, samples);
        let mut report = Self {
            took_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            complete,
            machine,
            results: results.to_owned(),
            candidates: fates(&header.plan, samples),
            metrics: summary.figures(),
            ratios: summary.ratios(&header.plan.comparisons),
            worst: Vec::new(),
            layouts: layout::layouts(&header.plan, samples),
            failures: samples.iter().filter_map(failure).collect(),
            header,
        };
        report.worst = worst::first(&report, samples);
        report
    }

    /// Writes the whole report as JSON to `path`, or nothing.
    pub fn save(&self, path: &Path) -> Result<(), StoreError> {
        crate::samples::write_json(path, self)
    }

    /// Whether the machine itself changed during the run. On a virtual one, the two cores may move
    /// closer together or farther apart, which pinning cannot prevent.
    fn unsteadiness(&self) -> Option<String> {
        let ping_pong = self
            .header
            .plan
            .cells
            .iter()
            .find(|cell| matches!(cell.workload, Workload::PingPong { .. }))?;
        let floor = self.metrics.get(&ping_pong.name())?.values.get(STANDARD)?;
        (floor.high > STEADY * floor.low).then(|| {
            format!(
                "the bare hop between the two cores took from {:.0} to {:.0} ns: look at ratios, \
                 and at their intervals, rather than at figures",
                floor.low, floor.high
            )
        })
    }

    /// Reasons to doubt the figures, for people.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        let core_seconds = self.took_ns as f64 / 1e9 * self.header.host.cores as f64;
        let others = self.machine.others_s() / core_seconds;
        let stolen = self.machine.steal_s / core_seconds;
        if self.header.build.profile != "release" {
            doubts.push("this is a debug build: its figures mean nothing (cargo build --release)".into());
        }
        if others > 0.05 {
            doubts.push(format!(
                "other programs used {:.0} % of the machine meanwhile",
                others * 100.0
            ));
        }
        if stolen > 0.01 {
            doubts.push(format!(
                "{:.0} % of the machine's time went to other virtual machines",
                stolen * 100.0
            ));
        }
        doubts.extend(self.unsteadiness());
        let [server, client] = self.header.plan.settings.cores;
        if server == client && !self.header.plan.is_spread() {
            doubts.push("both sides ran on one core".into());
        }
        if !self.complete {
            doubts.push("the run was interrupted: these are the figures it had so far".into());
        }
        doubts
    }
}

/// The candidate that shows the speed of the machine itself.
const STANDARD: &str = "floor";

/// The factor within which the figures of [`STANDARD`] should stay.
const STEADY: f64 = 1.3;

fn fates(plan: &Plan, samples: &[Sample]) -> BTreeMap<String, Fate> {
    let mut fates: BTreeMap<String, Fate> = plan
        .candidates
        .iter()
        .map(|name| (name.clone(), Fate::default()))
        .collect();
    for sample in samples {
        let fate = fates.entry(sample.candidate.clone()).or_default();
        match &sample.outcome {
            Outcome::Measured { .. } => fate.measured += 1,
            Outcome::Failed { .. } => fate.failed += 1,
            Outcome::Unavailable { reason } => fate.is_unavailable(reason),
        }
    }
    fates
}

fn failure(sample: &Sample) -> Option<Failure> {
    let Outcome::Failed { reason, output } = &sample.outcome else {
        return None;
    };
    Some(Failure {
        round: sample.round,
        workload: sample.name.clone(),
        candidate: sample.candidate.clone(),
        reason: reason.clone(),
        output: output.clone(),
    })
}

#[cfg(test)]
mod tests;
