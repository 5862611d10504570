//! Converts samples to results for people and programs: figures, ratios, tables, JSON.

mod csv;
mod facts;
mod figure;
mod finding;
mod html;
mod markdown;
mod paper;
mod picture;
mod said;
mod saved;
mod summary;
mod table;
mod worst;

pub use html::page;
pub use markdown::markdown;
pub use picture::{Picture, PictureError, pictures};
pub use saved::{RawFile, ReadError, Saved};
pub(crate) use summary::Summary;
pub use table::{Look, spoken, text};
pub use worst::CellStanding;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::experiment::Plan;
use crate::far::Met;
use crate::host::{self, Build, Host, MachineUse, Neighbours};
use crate::samples::{Outcome, Sample, StoreError};
use crate::statistics::Estimate;
use crate::workload::{Better, Factors, Quantity, Workload};

/// Version of the JSON format. It grows when a field changes its meaning.
pub const FORMAT: u32 = 2;

/// The facts known before the measurements; saved beside the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Format of the file: [`FORMAT`].
    pub format: u32,
    /// When the run began (RFC 3339).
    pub began: String,
    /// The measured build.
    pub build: Build,
    /// The machine.
    pub host: Host,
    /// What the server's and the clients' core share, if the machine reports it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub neighbours: Option<Neighbours>,
    /// The other machine, if there was one and it was reached.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub far: Option<Met>,
    /// The plan.
    pub plan: Plan,
}

/// All findings of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The facts known before.
    #[serde(flatten)]
    pub header: Header,
    /// Duration of the run, in nanoseconds.
    pub took_ns: u64,
    /// Whether the run was completed.
    pub complete: bool,
    /// Processor time of the whole machine during the run.
    pub machine: MachineUse,
    /// The directory with the raw samples.
    pub results: PathBuf,
    /// The outcome of each candidate.
    pub candidates: BTreeMap<String, Fate>,
    /// Figures by stable name.
    pub metrics: BTreeMap<String, Figures>,
    /// The candidate's figure divided by the baseline's, in each run: by
    /// `METRIC/CANDIDATE/BASELINE`, such as `latency_64B/toehold/kernel-veth`. Figures that need no
    /// comparison are listed by `METRIC/CANDIDATE`. These are shares of a core, such as
    /// `idle/adaptive`, and times in milliseconds, such as `ack_ms/adaptive`.
    pub ratios: BTreeMap<String, Estimate>,
    /// Programs with several workers compared with the kernel's loopback, the lowest ratio first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub worst: Vec<CellStanding>,
    /// Every measurement that failed.
    pub failures: Vec<Failure>,
}

/// The outcome of a candidate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fate {
    /// Measurements taken.
    pub measured: u32,
    /// Measurements that failed.
    pub failed: u32,
    /// The reasons why it is unavailable on this machine, or with some values of the factors, each
    /// once.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unavailable: Option<String>,
}

/// One figure of all candidates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Stable name of the cell.
    pub workload: String,
    /// The workload's kind, as in a plan: `ping-pong`.
    pub kind: String,
    /// The part of the workload's figures, such as `p99`; empty for the main one. Figures of one
    /// kind and one part form a series over the factors.
    pub part: String,
    /// The cell's value of each factor.
    pub factors: Factors,
    /// Label for people, within the workload.
    pub label: String,
    /// Unit of the values.
    pub unit: Quantity,
    /// Which direction is better.
    pub better: Better,
    /// Whether it is the workload's main figure.
    pub main: bool,
    /// Whether tables for people leave it out.
    #[serde(default)]
    pub detail: bool,
    /// Values by candidate.
    pub values: BTreeMap<String, Estimate>,
}

/// A measurement that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Number of the round, from 0.
    pub round: u32,
    /// Stable name of the workload.
    pub workload: String,
    /// Name of the candidate.
    pub candidate: String,
    /// The reason for the failure.
    pub reason: String,
    /// The last part of its processes' output.
    pub output: String,
}

impl Fate {
    fn is_unavailable(&mut self, reason: &str) {
        let reasons = self.unavailable.get_or_insert_default();
        if !reasons.split("; ").any(|said| said == reason) {
            let separator = if reasons.is_empty() { "" } else { "; " };
            reasons.extend([separator, reason]);
        }
    }
}

impl Header {
    /// The header of a run of `plan` that begins now.
    pub fn now(plan: Plan) -> Self {
        Self {
            format: FORMAT,
            began: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            build: Build::this(),
            host: Host::read(),
            neighbours: host::neighbours(plan.settings.cores),
            far: None,
            plan,
        }
    }
}

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

/// Its figures should stay within this factor.
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
