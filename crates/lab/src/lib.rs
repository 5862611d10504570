//! The laboratory: experiments, workloads, testbeds, samples, statistics, reports.
//!
//! A measurement runs through this crate from left to right:
//!
//! ```text
//! experiment ──► workload ──► testbed ──► samples ──► statistics ──► report
//! (a plan as     (what the    (what       (raw, kept  (medians,      (table,
//!  data)          two sides    carries     one by      intervals,     JSON)
//!                 do)          it)         one)        ratios)
//! ```
//!
//! A new experiment is a [`Plan`], commonly a file that [`experiment::PlanFile`] reads. A new kind
//! of traffic is a file in [`workload`]. A new candidate is a file in [`testbed`] and a line in its
//! list.
//!
//! The [`Runner`] carries a plan out. For each candidate it starts two processes of this program
//! ([`side::main`]), each pinned to a core. A workload may take several pairs, which share the two
//! cores. The order of the workloads is drawn anew for every round, so that compared candidates are
//! measured side by side. No process outlives the runner, and neither do the network namespaces,
//! which only the processes hold.
//!
//! A workload without another side has one such process, and its candidates are a
//! [`testbed::Source`]. Their results, whether computed, simulated or measured, are saved and
//! reported alike.
//!
//! If a plan's sides are unmodified programs, [`programs`] runs them instead. A [`site`] is several
//! servers, one behind the other, each on a node of its own.
//!
//! This crate writes only to the given directory of results. An exception are the files of
//! unmodified programs, which are in a temporary directory until they end.

mod attend;
mod cgroup;
pub mod changes;
mod control;
pub mod experiment;
pub mod far;
mod group;
pub mod host;
mod keeper;
mod lock;
mod pair;
mod process;
mod program;
pub mod programs;
mod progress;
pub mod report;
mod runner;
pub mod samples;
mod settings;
pub mod side;
pub mod site;
mod size;
pub mod statistics;
pub mod testbed;
pub mod workload;

pub use experiment::{Comparison, Plan, PlanError, StopRule, Wanted};
pub use lock::Lock;
pub use process::Launcher;
pub use progress::{Progress, say};
pub use runner::{Observer, RunError, Runner};
pub use settings::Settings;
pub use size::{Size, SizeError};
pub use workload::{Cell, Workload};
