//! What is measured: experiments as plans, and plans as data.

pub mod ethernet;
pub mod impaired;
mod options;
pub mod placement;
pub mod sockets;
mod wanted;

pub use options::Options;
pub use wanted::{Limit, Verdict, Wanted};

use serde::{Deserialize, Serialize};

use crate::testbed::Candidate;
use crate::workload::Workload;

/// Most rounds of a plan.
pub const MAX_ROUNDS: u32 = 1000;

/// Everything that decides what a run does. It is kept with the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the experiment: letters, digits and dashes. Results are filed under it.
    pub experiment: String,
    /// What it shows, in a line.
    pub title: String,
    /// What the two sides do.
    pub workloads: Vec<Workload>,
    /// Names of the candidates, in the order of the report's columns.
    pub candidates: Vec<String>,
    /// Which ratios are reported, those that matter first.
    pub comparisons: Vec<Comparison>,
    /// What some of the figures should be.
    #[serde(default)]
    pub wanted: Vec<Wanted>,
    /// How often everything is measured.
    pub rounds: u32,
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
}

/// Why a plan cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The experiment's name would not do as the name of a directory.
    #[error("`{0}` is no name of an experiment: use letters, digits and dashes")]
    Name(String),
    /// Nothing to do.
    #[error("the plan has no {0}")]
    Empty(&'static str),
    /// A candidate nobody knows.
    #[error("there is no candidate `{name}`; there are {known}")]
    UnknownCandidate {
        /// As the plan says.
        name: String,
        /// All that exist.
        known: String,
    },
    /// The same thing twice: its samples could not be told apart.
    #[error("`{0}` is in the plan twice")]
    Twice(String),
    /// Too many rounds.
    #[error("{0} rounds: at most {MAX_ROUNDS} can be run")]
    Rounds(u32),
    /// Nothing would be measured.
    #[error("a measurement cannot take 0 ms")]
    Span,
}

impl Plan {
    /// Checks everything that can be checked before anything is run.
    pub fn check(&self, known: &[Candidate]) -> Result<(), PlanError> {
        let name_fits = |name: &str| {
            name.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if self.experiment.is_empty() || !name_fits(&self.experiment) {
            return Err(PlanError::Name(self.experiment.clone()));
        }
        let names = self.workloads.iter().map(Workload::name).collect::<Vec<_>>();
        distinct(&names, "workloads")?;
        distinct(&self.candidates, "candidates")?;
        let unknown = |name: &&String| !known.iter().any(|candidate| candidate.name == name.as_str());
        if let Some(name) = self.candidates.iter().find(unknown) {
            let known = known
                .iter()
                .map(|candidate| candidate.name)
                .collect::<Vec<_>>()
                .join(", ");
            return Err(PlanError::UnknownCandidate {
                name: name.clone(),
                known,
            });
        }
        match self.rounds {
            0 => Err(PlanError::Empty("rounds")),
            rounds if rounds > MAX_ROUNDS => Err(PlanError::Rounds(rounds)),
            _ if self.settings.span_ms == 0 => Err(PlanError::Span),
            _ => Ok(()),
        }
    }

    /// The order of one round: indices of workload and candidate. Candidates follow
    /// one another directly on each workload, because the machine's speed drifts.
    pub fn order(&self, round: u32) -> Vec<(usize, usize)> {
        let mut random = fastrand::Rng::with_seed(self.seed.wrapping_add(u64::from(round) << 32));
        let mut workloads = (0..self.workloads.len()).collect::<Vec<_>>();
        let mut candidates = (0..self.candidates.len()).collect::<Vec<_>>();
        random.shuffle(&mut workloads);
        let mut order = Vec::with_capacity(workloads.len() * candidates.len());
        for workload in workloads {
            random.shuffle(&mut candidates);
            order.extend(candidates.iter().map(|&candidate| (workload, candidate)));
        }
        order
    }
}

/// At least one name, and none twice.
fn distinct(names: &[String], what: &'static str) -> Result<(), PlanError> {
    if names.is_empty() {
        return Err(PlanError::Empty(what));
    }
    let twice = names
        .iter()
        .enumerate()
        .find(|(index, name)| names[..*index].contains(name));
    twice.map_or(Ok(()), |(_, name)| Err(PlanError::Twice(name.clone())))
}

#[cfg(test)]
mod tests;
