//! The figures of an account.

use super::closing::TimeInterval;
use crate::layout::TripStep;
use crate::stage::Stage;

/// The time of a stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTime {
    /// The stage, its message and its actor.
    pub step: TripStep,
    /// The mean in nanoseconds, without the cost of stamps.
    pub mean_ns: f64,
    /// The interval of the mean, in nanoseconds.
    pub interval: TimeInterval,
    /// Round trips in which this stage was stamped and counted.
    pub samples: u64,
    /// What the stage takes between fences, in nanoseconds; `None` without fenced blocks.
    pub alone_ns: Option<f64>,
}

impl StepTime {
    /// The part of the stage's work that is done while another stage runs, in nanoseconds.
    ///
    /// Stamps without fences show when a stage's instructions were issued. A chain of dependent
    /// instructions may end in a later stage. Between fences the stage shows all its work.
    pub fn overlap_ns(&self) -> Option<f64> {
        self.alone_ns.map(|alone| alone - self.mean_ns)
    }
}

/// The time of hops that can only be deduced together.
#[derive(Debug, Clone, PartialEq)]
pub struct HopTime {
    /// The hops, as indices of the round trip's steps.
    pub hops: Vec<usize>,
    /// What each of the hops is.
    pub stages: Vec<Stage>,
    /// The mean of all hops together, in nanoseconds.
    pub sum_ns: f64,
    /// The interval of the sum, in nanoseconds.
    pub interval: TimeInterval,
}

impl HopTime {
    /// The mean of one hop, in nanoseconds.
    pub fn each_ns(&self) -> f64 {
        self.sum_ns / self.hops.len().max(1) as f64
    }

    /// The bound of one hop, in nanoseconds: it takes between 0 and this.
    ///
    /// Clocks that are unrelated cannot show how the sum divides into ways out and back.
    pub fn most_ns(&self) -> f64 {
        self.sum_ns
    }

    /// Returns `true` if a hop is faster than a bare cache line of `floor_ns` nanoseconds.
    ///
    /// That cannot be, so stages count something twice.
    pub fn is_below_floor(&self, floor_ns: f64) -> bool {
        self.each_ns() < floor_ns
    }
}
