//! Web servers: which there are, and what they take.

use serde::{Deserialize, Serialize};

use super::Workload;
use crate::testbed::Program;

/// A web server of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WebServer {
    /// Apache with threads (`event`).
    Apache,
    /// nginx with one worker.
    Nginx,
}

impl WebServer {
    /// As in names.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Apache => "apache",
            Self::Nginx => "nginx",
        }
    }

    fn programs(self) -> &'static [Program] {
        match self {
            Self::Apache => &[("apache2", "apache2-bin")],
            Self::Nginx => &[("nginx", "nginx-light")],
        }
    }
}

impl Workload {
    /// Programs that its sides are, with the Debian packages that have them.
    pub fn programs(&self) -> &'static [Program] {
        match self {
            Self::Web { server, .. } => server.programs(),
            _ => &[],
        }
    }
}
