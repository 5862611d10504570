//! Raw samples: the counts of each side in each single measurement, kept unchanged.

mod histogram;
mod side;
mod store;
mod unfinished;
mod whole;

pub use histogram::{Counts, Recorder};
pub(crate) use side::size_class;
pub use side::{Computed, CpuUse, DiskUse, Followed, Machine, SIZE_CLASSES, Side, TierUse};
pub use store::{Store, StoreError, write_json};
pub use unfinished::{Unfinished, UnfinishedError};
pub use whole::{check_whole, write_whole};

use serde::{Deserialize, Serialize};

use crate::workload::{Cell, Factors};

/// One measurement of one candidate on one workload in one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Number of the round, from 0.
    pub round: u32,
    /// Position in the whole run, from 0.
    pub sequence: u32,
    /// Name of the candidate.
    pub candidate: String,
    /// Stable name of the cell.
    pub name: String,
    /// The workload of the two sides, and its path.
    pub cell: Cell,
    /// The cell's value of each factor: sizes in bytes, α in hundredths, all others as counts.
    #[serde(default)]
    pub factors: Factors,
    /// When it began, in milliseconds since 1970.
    pub began_unix_ms: u64,
    /// The measurement's duration, including set-up and warm-up, in nanoseconds.
    pub took_ns: u64,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

#[cfg(test)]
impl Sample {
    /// A sample with the fields that matter to a test.
    pub(crate) fn of_test(round: u32, candidate: &str, cell: Cell, outcome: Outcome) -> Sample {
        Sample {
            round,
            sequence: 0,
            candidate: candidate.into(),
            name: cell.name(),
            factors: cell.factors(),
            cell,
            began_unix_ms: 0,
            took_ns: 0,
            outcome,
        }
    }
}

#[cfg(test)]
impl Outcome {
    /// An outcome in which both sides counted the same.
    pub(crate) fn of_both(side: Side) -> Outcome {
        Outcome::Measured {
            client: Box::new(side.clone()),
            server: Box::new(side),
        }
    }
}

/// The outcome of a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// Both sides completed the measurement.
    Measured {
        /// The counts of the connecting side.
        client: Box<Side>,
        /// The counts of the accepting side, or the results of a process without another side.
        server: Box<Side>,
    },
    /// The measurement failed.
    Failed {
        /// The reason for the failure.
        reason: String,
        /// The last part of the two processes' output.
        output: String,
    },
    /// The candidate is not available on this machine.
    Unavailable {
        /// The missing requirement, and what to do about it.
        reason: String,
    },
}
