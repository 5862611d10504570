//! Where figures come from that need no other side: a process that computes or measures them
//! by itself.

use std::io;

use super::Candidate;
use crate::samples::Side;
use crate::side;
use crate::workload::Workload;

/// Attends to workloads alone. One process is all there is of it.
pub trait Source {
    /// Stable name; part of the names of ratios.
    const NAME: &'static str;
    /// What it is, in a line.
    const ABOUT: &'static str;

    /// Whether it has anything to say to a workload.
    fn supports(workload: &Workload) -> bool;

    /// What it finds. Everything random comes from the seed, which is another one each round.
    fn find(workload: &Workload, seed: u64) -> io::Result<Side>;
}

impl Candidate {
    /// The candidate that `S` is.
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
