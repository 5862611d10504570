//! The order for the clients' process, and its answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::asked::Asked;
use crate::samples::Side;

/// The order for the clients' process, in a file.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::programs) struct Order {
    /// Number of clients, each with a connection of its own.
    pub(in crate::programs) clients: u8,
    /// Their requests.
    pub(in crate::programs) asked: Asked,
    /// Duration before the measurement.
    pub(in crate::programs) warm_up: Duration,
    /// Duration of the measurement.
    pub(in crate::programs) span: Duration,
    /// Time without a byte before the server is given up.
    pub(in crate::programs) patience: Duration,
    /// The engines of the server's and the clients' nodes, if they are on nodes.
    pub(in crate::programs) engines: Vec<u32>,
}

/// The counts of the measurement.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::programs) struct Counted {
    pub(in crate::programs) client: Side,
    pub(in crate::programs) server: Side,
}
