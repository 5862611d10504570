//! A time for each stage.

use crate::layout::StagePath;
use crate::stage::Stage;

/// The time of each stage and hop of a message one way, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StageTimes {
    ns: [f64; Stage::COUNT],
}

impl StageTimes {
    /// The times of some stages. All others take 0.
    pub fn of(times: impl IntoIterator<Item = (Stage, f64)>) -> Self {
        let mut found = Self::default();
        for (stage, ns) in times {
            found.set(stage, ns);
        }
        found
    }

    /// The time of a stage, in nanoseconds.
    pub fn get(&self, stage: Stage) -> f64 {
        self.ns[stage.index()]
    }

    /// Gives a stage a time, in nanoseconds.
    pub fn set(&mut self, stage: Stage, ns: f64) {
        self.ns[stage.index()] = ns;
    }

    /// Adds to the time of a stage, in nanoseconds.
    pub fn add(&mut self, stage: Stage, ns: f64) {
        self.ns[stage.index()] += ns;
    }

    /// The time of a message over a path, in nanoseconds. Stages beside the path do not count.
    pub fn over(&self, path: &StagePath) -> f64 {
        path.steps().iter().map(|step| self.get(step.stage)).sum()
    }
}
