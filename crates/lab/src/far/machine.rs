//! The machine of the servers' processes, and its address.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::host::Host;

/// The machine, and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Far {
    /// The name for `ssh`: `USER@HOST`, or a name in its configuration.
    pub host: String,
    /// The `ssh` command with its options: words separated by spaces.
    pub ssh: String,
    /// The `toehold` command there, as the shell there finds it.
    pub toehold: String,
    /// The address for the measured traffic, if it differs from that of `ssh`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<Ipv4Addr>,
}

/// A machine that was reached, and has the same build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Met {
    /// Facts about the machine.
    pub host: Host,
    /// The addresses of the traffic.
    pub path: Path,
}

/// The addresses of two machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// The server's address.
    pub server: Ipv4Addr,
    /// The clients' address.
    pub client: Ipv4Addr,
}
