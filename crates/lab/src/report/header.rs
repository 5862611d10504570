//! The facts of a run that are known before its measurements.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::experiment::Plan;
use crate::far::Met;
use crate::host::{self, Build, Host, Neighbours};

/// Version of the JSON format. It grows when a field changes its meaning.
pub const FORMAT: u32 = 2;

/// The facts known before the measurements; saved beside the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Format of the file: [`FORMAT`].
    pub format: u32,
    /// When the run began (RFC 3339).
    pub began: String,
    /// The measured build.
    pub build: Build,
    /// The machine.
    pub host: Host,
    /// What the server's and the clients' core share, if the machine reports it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub neighbours: Option<Neighbours>,
    /// The far machine, if there was one and it was reached.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub far: Option<Met>,
    /// The plan.
    pub plan: Plan,
}

impl Header {
    /// The header of a run of `plan` that begins now.
    pub fn now(plan: Plan) -> Self {
        Self {
            format: FORMAT,
            began: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            build: Build::this(),
            host: Host::read(),
            neighbours: host::neighbours(plan.settings.cores),
            far: None,
            plan,
        }
    }
}
