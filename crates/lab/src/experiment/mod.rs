//! What is measured: experiments as plans, and plans as data.

mod between;
pub mod builtin;
mod check;
pub mod ethernet;
mod file;
pub mod impaired;
mod length;
mod options;
mod paper;
pub mod placement;
pub mod sockets;
mod stop;
mod wanted;
pub mod workers;

pub use check::PlanError;
pub use file::{PlanFile, PlanFileError};
pub use options::Options;
pub use paper::{Paper, PaperUnit, Said, Trend};
pub use wanted::{Limit, Verdict, Wanted};

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::far::Far;
use crate::programs::web;
use crate::workload::{Cell, Trace, Workload};

/// Most rounds of a plan.
pub const MAX_ROUNDS: u32 = 1000;

/// Most clients of a server, streams, or pairs.
pub const MOST_OF_A_KIND: u64 = 64;

/// Everything that decides what a run does. It is kept with the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the experiment: letters, digits and dashes, and a slash behind the name of a
    /// paper. Results are filed under it.
    pub experiment: String,
    /// What it shows, in a line.
    pub title: String,
    /// What the two sides do, and over what.
    pub cells: Vec<Cell>,
    /// Names of the candidates, in the order of the report's columns.
    pub candidates: Vec<String>,
    /// Which ratios are reported, those that matter first.
    pub comparisons: Vec<Comparison>,
    /// Which parts of figures it is about besides the main ones: `share_server`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub show: Vec<String>,
    /// What some of the figures should be.
    #[serde(default)]
    pub wanted: Vec<Wanted>,
    /// The paper's figure that is reproduced, if one is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub paper: Option<Paper>,
    /// How often everything is measured.
    pub rounds: u32,
    /// When that is not enough.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stop: Option<StopRule>,
    /// Decides the order within each round.
    pub seed: u64,
    /// How each measurement is taken.
    pub settings: Settings,
}

/// A ratio to report: the candidate's figure divided by the baseline's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// Whose figure is the numerator.
    pub candidate: String,
    /// Whose figure is the denominator.
    pub baseline: String,
}

impl Comparison {
    /// Those of all pairs, candidate and baseline, of which both are measured.
    fn among(candidates: &[String], pairs: &[(&str, &str)]) -> Vec<Comparison> {
        let present = |name: &str| candidates.iter().any(|candidate| candidate == name);
        pairs
            .iter()
            .filter(|(candidate, baseline)| present(candidate) && present(baseline))
            .map(|&(candidate, baseline)| Comparison {
                candidate: candidate.into(),
                baseline: baseline.into(),
            })
            .collect()
    }
}

/// Cells that are still unsure after all rounds are measured in more of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StopRule {
    /// A cell is sure if half the width of each of its main ratios' intervals is at most this
    /// share of the ratio; without comparisons, of its main figures.
    pub half_width: f64,
    /// Rounds after which nothing more is measured, sure or not.
    pub most_rounds: u32,
}

/// How each measurement is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Traffic before anything counts, in milliseconds.
    pub warm_up_ms: u64,
    /// Traffic that counts, in milliseconds.
    pub span_ms: u64,
    /// How long a measurement may take beyond that before it is given up, in
    /// milliseconds.
    pub patience_ms: u64,
    /// The cores of the server's and the client's process.
    pub cores: [usize; 2],
    /// Congestion control of the kernel's sockets, set on each (`TCP_CONGESTION`).
    pub congestion: String,
    /// The log that clients of web servers follow where they follow the World Cup's
    /// ([`crate::workload::Trace`]).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace: Option<PathBuf>,
    /// The machine of the servers' processes of candidates between two machines.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub far: Option<Far>,
}

impl Plan {
    /// Whether all that is measured has one process, without another side.
    pub fn is_alone(&self) -> bool {
        self.cells.iter().all(|cell| cell.workload.is_alone())
    }

    /// Whether its sides run on every core that this process may: neither has one of its own.
    pub fn is_spread(&self) -> bool {
        self.cells.iter().all(|cell| cell.workload.is_of_workers())
    }

    /// The same with a log of the World Cup's site in place of synthetic traces.
    ///
    /// # Errors
    ///
    /// If it is none ([`crate::programs::web::check_trace`]).
    pub fn following(mut self, log: &Path) -> io::Result<Plan> {
        web::check_trace(log)?;
        for cell in &mut self.cells {
            if let Workload::WebTrace { trace, .. } | Workload::WebZipf { trace, .. } = &mut cell.workload {
                *trace = Trace::WorldCup;
                self.settings.trace = Some(log.canonicalize()?);
            }
        }
        let [synthetic, real] = [Trace::Synthetic, Trace::WorldCup].map(|trace| format!("_{}", trace.name()));
        let says = self.paper.iter_mut().flat_map(|paper| &mut paper.says);
        for figure in says.flat_map(|said| said.figure.iter_mut().chain(&mut said.than)) {
            *figure = figure.replace(&synthetic, &real);
        }
        Ok(self)
    }

    /// The order of one round: indices of cell and candidate. Candidates follow
    /// one another directly on each cell, because the machine's speed drifts.
    pub fn order(&self, round: u32) -> Vec<(usize, usize)> {
        let mut random = fastrand::Rng::with_seed(self.seed.wrapping_add(u64::from(round) << 32));
        let mut cells = (0..self.cells.len()).collect::<Vec<_>>();
        let mut candidates = (0..self.candidates.len()).collect::<Vec<_>>();
        random.shuffle(&mut cells);
        let mut order = Vec::with_capacity(cells.len() * candidates.len());
        for cell in cells {
            random.shuffle(&mut candidates);
            order.extend(candidates.iter().map(|&candidate| (cell, candidate)));
        }
        order
    }
}

#[cfg(test)]
mod tests;
