//! The order for the clients' process, and its answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::asked::Asked;
use crate::cgroup::ControlGroup;
use crate::samples::{CpuUse, Side};

/// Where a part of the clients' work ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Extent {
    /// After so long.
    Span(Duration),
    /// After so many answers. Others that arrive at the same time count, too.
    Answers(u64),
}

/// The order for the clients' process, in a file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Number of clients, each with a connection of its own.
    pub(crate) clients: u8,
    /// Their requests.
    pub(crate) asked: Asked,
    /// The extent of what comes before the measurement.
    pub(crate) warm_up: Extent,
    /// The extent of the measurement.
    pub(crate) span: Extent,
    /// Time without a byte before the server is given up.
    pub(crate) patience: Duration,
    /// The engines of the server's and the clients' nodes, if they are on nodes.
    pub(crate) engines: Vec<u32>,
    /// The index of the first request.
    pub(crate) first: usize,
    /// Control groups whose use of processors counts.
    pub(crate) groups: Vec<ControlGroup>,
}

/// The counts of the measurement.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Counted {
    pub(crate) client: Side,
    pub(crate) server: Side,
    /// Answers that a cache says it had, and answers that it says it fetched.
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// The index of the next request.
    pub(crate) next: usize,
    /// The use of processors by the order's groups.
    pub(crate) groups: Vec<CpuUse>,
    /// Share of the machine's processor time that was not idle.
    pub(crate) busy: f64,
}
