//! Checks that a plan can be carried out.

use super::{MAX_ROUNDS, MOST_OF_A_KIND, Plan, Settings, StopRule};
use crate::site::MOST_CLIENTS;
use crate::testbed::Candidate;
use crate::workload::{Cell, Workload};

/// Longest name of an experiment, in bytes: directories are called after it.
const LONGEST_NAME: usize = 100;

/// Longest span, warm-up or patience: an hour.
const LONGEST_MS: u64 = 3_600_000;

/// Least largest packet: IPv4's.
const LEAST_MTU: u16 = 68;

/// The reasons why a plan cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The experiment's name cannot be the name of a directory.
    #[error(
        "`{0}` is no name of an experiment: use letters, digits and dashes, with at most one slash, \
         {LONGEST_NAME} at most"
    )]
    Name(String),
    /// The title contains control characters, which could affect a terminal.
    #[error("the title has characters that cannot be printed")]
    Title,
    /// The plan lacks a part.
    #[error("the plan has no {0}")]
    Empty(&'static str),
    /// The candidate does not exist.
    #[error("there is no candidate `{name}`; there are {known}")]
    UnknownCandidate {
        /// The name in the plan.
        name: String,
        /// All existing candidates.
        known: String,
    },
    /// A part of the plan occurs twice: its samples could not be distinguished.
    #[error("`{0}` is in the plan twice")]
    Twice(String),
    /// Too many rounds.
    #[error("{0} rounds: at most {MAX_ROUNDS} can be run")]
    Rounds(u32),
    /// The count is beyond the bounds of measurements.
    #[error("{0}: there can be 1 to {MOST_OF_A_KIND} clients, streams or pairs, and a rate is at least 1")]
    Count(String),
    /// The clients of a site are beyond its bounds.
    #[error("{0}: there can be 1 to {MOST_CLIENTS} clients of a site")]
    SiteClients(String),
    /// More workers or busy loops than can be measured.
    #[error("{0}: there can be 1 to {MOST_OF_A_KIND} workers, and {MOST_OF_A_KIND} busy loops at most")]
    Workers(String),
    /// The program does not have a choice of workers.
    #[error("{0} has a process or a thread for each client: its workers are 1")]
    NoWorkers(&'static str),
    /// The cell cannot be measured between two machines.
    #[error("`{cell}` cannot be measured between two machines: {reason}")]
    Between {
        /// The cell.
        cell: String,
        /// The reason.
        reason: &'static str,
    },
    /// The duration is too short to measure anything, or too long.
    #[error("a {what} of {ms} ms: it takes {least} to {LONGEST_MS} ms")]
    Time {
        /// The name of the duration.
        what: &'static str,
        /// The duration, in milliseconds.
        ms: u64,
        /// The least duration, in milliseconds.
        least: u64,
    },
    /// The half-width is not a valid share.
    #[error("half-width is {0}: it is a share above 0, such as 0.05")]
    HalfWidth(String),
    /// The congestion control does not exist.
    #[error("`{0}` is not the name of a congestion control, such as reno or cubic")]
    Congestion(String),
    /// The MTU is below that of IP.
    #[error("an MTU of {0}: it is {LEAST_MTU} at least")]
    Mtu(u16),
}

impl PlanError {
    /// Whether the error is about how, and how often, measurements are taken.
    pub(super) fn is_of_measuring(&self) -> bool {
        matches!(
            self,
            Self::Empty("rounds")
                | Self::Rounds(_)
                | Self::Time { .. }
                | Self::HalfWidth(_)
                | Self::Congestion(_)
        )
    }
}

impl Plan {
    /// Makes all checks that are possible before the run.
    pub fn check(&self, known: &[Candidate]) -> Result<(), PlanError> {
        self.check_names(known)?;
        self.cells.iter().try_for_each(Cell::check)?;
        self.check_rounds()?;
        self.settings.check()
    }

    fn check_names(&self, known: &[Candidate]) -> Result<(), PlanError> {
        let name_fits = |name: &str| {
            let mut bytes = name.bytes();
            !name.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let mut parts = self.experiment.splitn(2, '/');
        if !parts.all(name_fits) || self.experiment.len() > LONGEST_NAME {
            return Err(PlanError::Name(self.experiment.clone()));
        }
        if self.title.chars().any(char::is_control) {
            return Err(PlanError::Title);
        }
        let names = self.cells.iter().map(Cell::name).collect::<Vec<_>>();
        distinct(&names, "workloads")?;
        distinct(&self.candidates, "candidates")?;
        let unknown = |name: &&String| match self.deployments.is_empty() {
            true => !known.iter().any(|candidate| candidate.name == name.as_str()),
            false => !self.deployments.contains_key(name.as_str()),
        };
        match self.candidates.iter().find(unknown) {
            Some(name) => {
                let known = known.iter().map(|candidate| candidate.name);
                Err(PlanError::UnknownCandidate {
                    name: name.clone(),
                    known: known.collect::<Vec<_>>().join(", "),
                })
            }
            None => Ok(()),
        }
    }

    fn check_rounds(&self) -> Result<(), PlanError> {
        let most = self.stop.map_or(0, |stop| stop.most_rounds);
        match self.rounds {
            0 => Err(PlanError::Empty("rounds")),
            rounds if rounds.max(most) > MAX_ROUNDS => Err(PlanError::Rounds(rounds.max(most))),
            _ => match self.stop {
                Some(StopRule { half_width, .. }) if half_width.is_nan() || half_width <= 0.0 => {
                    Err(PlanError::HalfWidth(half_width.to_string()))
                }
                _ => Ok(()),
            },
        }
    }
}

impl Settings {
    fn check(&self) -> Result<(), PlanError> {
        time("span", self.span_ms, 1)?;
        time("warm-up", self.warm_up_ms, 0)?;
        time("patience", self.patience_ms, 1)?;
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        // The kernel has room for 15 bytes.
        match self.congestion.len() {
            1..=15 if self.congestion.bytes().all(is_of_name) => Ok(()),
            _ => Err(PlanError::Congestion(self.congestion.clone())),
        }
    }
}

impl Cell {
    /// Whether any candidate can measure the workload.
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let is_beyond = |(name, value): (String, u64)| match name.as_str() {
            "clients" if self.workload.is_of_sites() => false,
            "clients" | "streams" | "pairs" => !(1..=MOST_OF_A_KIND).contains(&value),
            "rate" => value == 0,
            _ => false,
        };
        if self.factors().into_iter().any(is_beyond) {
            return Err(PlanError::Count(self.title()));
        }
        match self.workload {
            Workload::Site { clients, .. } if !(1..=MOST_CLIENTS).contains(&clients) => {
                return Err(PlanError::SiteClients(self.title()));
            }
            Workload::Idle { span_ms, .. } => time("span", span_ms, 1)?,
            Workload::Workers {
                program,
                workers,
                loops,
                ..
            } => {
                let fits = |least, count: u8| (least..=MOST_OF_A_KIND).contains(&u64::from(count));
                if !fits(1, workers) || !fits(0, loops) {
                    return Err(PlanError::Workers(self.title()));
                }
                if workers > 1 && !program.has_workers() {
                    return Err(PlanError::NoWorkers(program.name()));
                }
            }
            _ => {}
        }
        match self.mtu {
            Some(mtu) if mtu < LEAST_MTU => Err(PlanError::Mtu(mtu)),
            _ => Ok(()),
        }
    }
}

fn time(what: &'static str, ms: u64, least: u64) -> Result<(), PlanError> {
    match (least..=LONGEST_MS).contains(&ms) {
        true => Ok(()),
        false => Err(PlanError::Time { what, ms, least }),
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
