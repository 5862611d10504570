//! Sources of figures without another side: a process that computes or measures them by itself.

use std::io;

use super::Candidate;
use crate::samples::Side;
use crate::side;
use crate::workload::Workload;

/// Runs workloads alone, in one process.
pub trait Source {
    /// Stable name; part of the names of ratios.
    const NAME: &'static str;
    /// Its description, in a line.
    const ABOUT: &'static str;

    /// Whether it supports a workload.
    fn supports(workload: &Workload) -> bool;

    /// Its results. All random numbers come from the seed, which differs each round.
    fn find(workload: &Workload, seed: u64) -> io::Result<Side>;
}

impl Candidate {
    /// The candidate of the source `S`.
    pub const fn alone<S: Source>() -> Self {
        Self {
            name: S::NAME,
            about: S::ABOUT,
            programs: &[],
            is_between_hosts: false,
            generator: None,
            supports: S::supports,
            attend: side::attend_alone::<S>,
        }
    }
}
