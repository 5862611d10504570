//! What a change of stages would save, before it is made.
//!
//! A forecast adds the times of the stages that lie on a path. A change takes a stage away, gives it
//! another time, or moves it to the other actor of its end. A move adds or removes hops, and may put
//! a stage beside the path, where nothing waits for it. The paper's forecast of 2005 is of this kind
//! (SPLINTER.md §9: 86 − 15.5 − 7 − 9 − 5 = 49.5 µs).

mod change;
mod stage_times;

pub use change::{Forecast, ForecastError, ForecastStep, PathChange, forecast};
pub use stage_times::StageTimes;
