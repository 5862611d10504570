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
//! A new experiment is a [`Plan`], commonly a file that [`experiment::PlanFile`] reads; a new kind of traffic is a file in [`workload`]; a
//! new candidate is a file in [`testbed`] and a line in its list.
//!
//! The [`Runner`] carries a plan out: for each candidate it starts two processes of
//! this very program ([`side::main`]), pinned to a core each, or as many pairs of them
//! as a workload takes, which share the two cores, and goes through the plan's workloads in an order drawn anew for every round, so that what is compared
//! is measured side by side. Nothing of it outlives the runner: not the processes,
//! and not the network namespaces, which are held by the processes alone.
//!
//! A workload that needs no other side has one such process, and candidates that are a
//! [`testbed::Source`]: what they compute, simulate or measure is run, saved and reported alike.
//!
//! Where a plan's sides are programs of others, [`programs`] runs them instead.
//!
//! This crate never writes outside of the directory of results it is given, but for what
//! programs of others serve and write: that is in a directory for temporary files, until they end.

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
pub mod programs;
mod progress;
pub mod report;
mod runner;
pub mod samples;
pub mod side;
mod size;
pub mod statistics;
pub mod testbed;
pub mod workload;

pub use experiment::{Comparison, Plan, PlanError, Settings, StopRule, Wanted};
pub use lock::Lock;
pub use process::Launcher;
pub use progress::{Progress, say};
pub use runner::{Observer, RunError, Runner};
pub use size::{Size, SizeError};
pub use workload::{Cell, Workload};
