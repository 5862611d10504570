//! Sources of figures without another side: a process that computes or measures them by itself.

use std::io;

use crate::samples::Side;
use crate::workload::Workload;

/// Runs workloads alone, in one process.
pub trait Source {
    /// Stable name; part of the names of ratios.
    const NAME: &'static str;
    /// The source's description, in a line.
    const ABOUT: &'static str;

    /// Whether it supports a workload.
    fn supports(workload: &Workload) -> bool;

    /// Computes the workload's results. All random numbers come from the seed, which differs each
    /// round.
    fn find(workload: &Workload, seed: u64) -> io::Result<Side>;
}
