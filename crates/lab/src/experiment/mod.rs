//! Experiments as plans, and plans as data.

mod between;
pub mod builtin;
mod check;
pub mod ethernet;
mod file;
pub mod impaired;
pub mod latency;
mod length;
mod options;
mod paper;
pub mod placement;
pub mod sockets;
mod stop;
mod wanted;
pub mod workers;

pub use crate::settings::Settings;
pub use check::PlanError;
pub use file::{PlanFile, PlanFileError};
pub(crate) use file::{Reader, plain};
pub use options::Options;
pub use paper::{Paper, PaperUnit, Said, Trend};
pub use wanted::{Limit, Verdict, Wanted};

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::programs::web;
use crate::site::SiteCandidate;
use crate::workload::{Cell, Trace, Workload};

/// Most rounds of a plan.
pub const MAX_ROUNDS: u32 = 1000;

/// Most clients of a server, streams, or pairs.
pub const MOST_OF_A_KIND: u64 = 64;

/// All parameters of a run. The plan is saved with the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the experiment: letters, digits and dashes, and a slash behind the name of a paper.
    /// Results are filed under it.
    pub experiment: String,
    /// The subject of the experiment, in a line.
    pub title: String,
    /// The workloads of the two sides, and their paths.
    pub cells: Vec<Cell>,
    /// Names of the candidates, in the order of the report's columns.
    pub candidates: Vec<String>,
    /// The deployments that candidates are, by name. Without any, candidates are testbeds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub deployments: BTreeMap<String, SiteCandidate>,
    /// The reported ratios, the most important ones first.
    pub comparisons: Vec<Comparison>,
    /// The parts of figures to show besides the main ones, such as `share_server`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub show: Vec<String>,
    /// Targets of figures.
    #[serde(default)]
    pub wanted: Vec<Wanted>,
    /// The reproduced figure of a paper, if any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub paper: Option<Paper>,
    /// Number of rounds.
    pub rounds: u32,
    /// The rule for further rounds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stop: Option<StopRule>,
    /// Determines the order within each round.
    pub seed: u64,
    /// How each measurement is taken.
    pub settings: Settings,
}

/// A ratio to report: the candidate's figure divided by the baseline's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// The candidate in the numerator.
    pub candidate: String,
    /// The candidate in the denominator.
    pub baseline: String,
}

impl Comparison {
    /// The comparisons of `pairs`, candidate and baseline, in which both are measured.
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

/// Adds rounds for cells that are uncertain after all rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StopRule {
    /// A cell is certain if the interval of each of its main ratios has at most this half-width, as
    /// a share of the ratio. Without comparisons, its main figures count.
    pub half_width: f64,
    /// Most rounds, even for uncertain cells.
    pub most_rounds: u32,
}

impl Plan {
    /// Whether every workload has one process, without another side.
    pub fn is_alone(&self) -> bool {
        self.cells.iter().all(|cell| cell.workload.is_alone())
    }

    /// Whether its sides run on every core of this process, without a core of their own.
    pub fn is_spread(&self) -> bool {
        self.cells.iter().all(|cell| cell.workload.is_of_workers())
    }

    /// The plan with a log of the World Cup's site in place of synthetic traces.
    ///
    /// # Errors
    ///
    /// If the file is no such log ([`crate::programs::web::check_trace`]).
    pub fn following(mut self, log: &Path) -> io::Result<Plan> {
        web::check_trace(log)?;
        for cell in &mut self.cells {
            if let Workload::WebTrace { trace, .. } | Workload::WebZipf { trace, .. } = &mut cell.workload {
                *trace = Trace::WorldCup;
                self.settings.trace = Some(log.canonicalize()?);
            }
            if cell.workload.is_of_sites() {
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

    /// The order of one round: indices of cell and candidate. The candidates of a cell follow one
    /// another directly, because the machine's speed drifts.
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
