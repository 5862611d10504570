//! The settings of measurements, which every side of a run has.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::far::Far;

/// How each measurement is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Duration of traffic before the measurement, in milliseconds.
    pub warm_up_ms: u64,
    /// Duration of the measured traffic, in milliseconds.
    pub span_ms: u64,
    /// Additional time before a measurement is given up, in milliseconds.
    pub patience_ms: u64,
    /// The cores of the server's and the client's process.
    pub cores: [usize; 2],
    /// Congestion control of the kernel's sockets, set on each (`TCP_CONGESTION`).
    pub congestion: String,
    /// The log for clients of web servers that follow the World Cup's trace
    /// ([`crate::workload::Trace`]).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace: Option<PathBuf>,
    /// The machine of the servers, for candidates between two machines.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub far: Option<Far>,
}
