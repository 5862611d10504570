//! Changes of a path, and what they save.

use super::stage_times::StageTimes;
use crate::actor::ActorKind;
use crate::layout::{PathError, StagePath};
use crate::stage::{Stage, StageSet};
use thiserror::Error;

/// A change of a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PathChange {
    /// The stage or hop takes no time any more.
    Remove(Stage),
    /// The stage or hop takes another time, in nanoseconds.
    Replace {
        /// The stage or hop.
        stage: Stage,
        /// The new time, in nanoseconds.
        ns: f64,
    },
    /// Stages move to the other actor of their end.
    Move {
        /// The stages that move, which must leave a legal layout.
        stages: StageSet,
        /// The actor that gets them.
        to: ActorKind,
        /// Their time at the new actor for each nanosecond that they take now.
        ratio: f64,
    },
}

/// A forecast that cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum ForecastError {
    /// A move leads to a layout that cannot be.
    #[error("the move leads to no layout: {0}")]
    Layout(#[from] PathError),
    /// A time or a ratio is negative or not a number.
    #[error("{0} is no time and no ratio")]
    NotATime(f64),
    /// A stage is not on the path, nor beside it.
    #[error("the path has no {0}")]
    NoSuchStage(Stage),
    /// A move brings in a hop whose time was not given.
    #[error("the move brings in {0}, whose time is unknown")]
    UnknownHop(Stage),
}

/// One change of a forecast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ForecastStep {
    /// The change.
    pub change: PathChange,
    /// What it saves after the changes before it, in nanoseconds; negative if it costs.
    pub saves_ns: f64,
}

/// What changes of a path would do to a message's time.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// The time before all changes, in nanoseconds.
    pub before_ns: f64,
    /// The time after all changes, in nanoseconds.
    pub after_ns: f64,
    /// Each change in its order.
    pub steps: Vec<ForecastStep>,
    /// The layout after all changes.
    pub path: StagePath,
    /// The times after all changes.
    pub times: StageTimes,
}

impl Forecast {
    /// How far the forecast is from a measured time: `forecast / measured − 1`.
    pub fn error(&self, measured_ns: f64) -> f64 {
        self.after_ns / measured_ns - 1.0
    }
}

/// Forecasts the time of a message one way after some changes, made one after another.
///
/// A forecast takes stages as independent. Overlap, caches and contention may change with a move,
/// and then the measured time shows the forecast's error.
///
/// # Errors
///
/// [`ForecastError`] if a change names what is not there, or leads to a layout that cannot be.
///
/// # Examples
///
/// ```
/// use toehold_trace::forecast::{PathChange, StageTimes, forecast};
/// use toehold_trace::layout::{HandOver, PathKind, StagePath};
/// use toehold_trace::stage::{Stage, StageSet};
///
/// let path = StagePath::new(PathKind::Direct, StageSet::EMPTY, HandOver::Turn)?;
/// let times = StageTimes::of([(Stage::Turn, 3000.0), (Stage::CopyIn, 50.0)]);
/// let no_wake = PathChange::Replace { stage: Stage::Turn, ns: 60.0 };
/// let found = forecast(&path, &times, &[no_wake])?;
/// assert_eq!((found.before_ns, found.after_ns), (3050.0, 110.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn forecast(
    path: &StagePath,
    times: &StageTimes,
    changes: &[PathChange],
) -> Result<Forecast, ForecastError> {
    let before_ns = times.over(path);
    let mut found = Forecast {
        before_ns,
        after_ns: before_ns,
        steps: Vec::with_capacity(changes.len()),
        path: path.clone(),
        times: *times,
    };
    for change in changes {
        match *change {
            PathChange::Remove(stage) => found.replace(stage, 0.0)?,
            PathChange::Replace { stage, ns } => found.replace(stage, ns)?,
            PathChange::Move { stages, to, ratio } => found.move_to(stages, to, ratio)?,
        }
        let after_ns = found.times.over(&found.path);
        found.steps.push(ForecastStep {
            change: *change,
            saves_ns: found.after_ns - after_ns,
        });
        found.after_ns = after_ns;
    }
    Ok(found)
}

impl Forecast {
    fn replace(&mut self, stage: Stage, ns: f64) -> Result<(), ForecastError> {
        checked(ns)?;
        self.require(stage)?;
        self.times.set(stage, ns);
        Ok(())
    }

    fn move_to(&mut self, stages: StageSet, to: ActorKind, ratio: f64) -> Result<(), ForecastError> {
        checked(ratio)?;
        let mut engine = self.path.engine();
        for stage in stages.iter() {
            self.require(stage)?;
            let is_there = engine.contains(stage) == (to == ActorKind::Engine);
            if !is_there {
                self.times.set(stage, self.times.get(stage) * ratio);
            }
            engine = match to {
                ActorKind::Engine => engine.with(stage),
                ActorKind::Program => engine.without(stage),
            };
        }
        let path = self.path.with_engine(engine)?;
        let had = |stage: Stage| self.path.steps().iter().any(|step| step.stage == stage);
        let hops = path.steps().iter().filter(|step| step.stage.is_hop());
        for hop in hops {
            if !had(hop.stage) && self.times.get(hop.stage) == 0.0 {
                return Err(ForecastError::UnknownHop(hop.stage));
            }
        }
        self.path = path;
        Ok(())
    }

    fn require(&self, stage: Stage) -> Result<(), ForecastError> {
        let mut steps = self.path.steps().iter().chain(self.path.beside());
        let is_there = steps.any(|step| step.stage == stage);
        is_there.then_some(()).ok_or(ForecastError::NoSuchStage(stage))
    }
}

fn checked(number: f64) -> Result<(), ForecastError> {
    let is_time = number.is_finite() && number >= 0.0;
    is_time.then_some(()).ok_or(ForecastError::NotATime(number))
}

#[cfg(test)]
mod tests;
