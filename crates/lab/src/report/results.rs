//! The results of a run, as they are saved and shown.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::header::Header;
use super::layout::MessageLayout;
use crate::host::MachineUse;
use crate::statistics::Estimate;
use crate::workload::{Better, Factors, Quantity};

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
    /// Where the time of followed messages goes, in the order of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub layouts: Vec<MessageLayout>,
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

/// A candidate on nodes in a cell, compared with the kernel's loopback.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellStanding {
    /// Stable name of the cell.
    pub cell: String,
    /// The measured quantity, for people.
    pub title: String,
    /// The candidate in the numerator.
    pub candidate: String,
    /// The median of the rounds' ratios, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio: Option<Estimate>,
    /// Transactions a second of the candidate.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<f64>,
    /// Transactions a second over the kernel's loopback.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub baseline: Option<f64>,
    /// The reason for a missing ratio.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub missing: Option<String>,
}

impl Report {
    /// The layouts by cell: those of one message are shown side by side.
    pub(super) fn layouts_by_cell(&self) -> Vec<Vec<&MessageLayout>> {
        let mut cells: Vec<Vec<&MessageLayout>> = Vec::new();
        for layout in &self.layouts {
            let known = cells.iter_mut().find(|cell| cell[0].workload == layout.workload);
            match known {
                Some(cell) => cell.push(layout),
                None => cells.push(vec![layout]),
            }
        }
        cells
    }
}

impl Fate {
    /// Adds a reason why the candidate is unavailable, once.
    pub(super) fn is_unavailable(&mut self, reason: &str) {
        let reasons = self.unavailable.get_or_insert_default();
        if !reasons.split("; ").any(|said| said == reason) {
            let separator = if reasons.is_empty() { "" } else { "; " };
            reasons.extend([separator, reason]);
        }
    }
}
