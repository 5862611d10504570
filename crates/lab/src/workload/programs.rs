//! The measured unmodified programs, and their requirements.

use serde::{Deserialize, Serialize};

use crate::program::Program;

/// An unmodified web server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WebServer {
    /// Apache with threads (`event`).
    Apache,
    /// nginx with one worker.
    Nginx,
}

impl WebServer {
    /// The web server's form in names.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Apache => "apache",
            Self::Nginx => "nginx",
        }
    }

    /// The web server's programs, with the Debian packages that have them.
    pub(super) fn programs(self) -> &'static [Program] {
        match self {
            Self::Apache => &[("apache2", "apache2-bin")],
            Self::Nginx => &[("nginx", "nginx-light")],
        }
    }
}

/// An MPI library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MpiLibrary {
    /// Open MPI, over its own TCP.
    #[serde(rename = "openmpi")]
    OpenMpi,
    /// MPICH, over UCX's TCP.
    #[serde(rename = "mpich")]
    Mpich,
}

impl MpiLibrary {
    /// The library's form in names.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
        }
    }

    /// The library's programs, with the Debian packages that have them.
    pub(super) fn programs(self) -> &'static [Program] {
        match self {
            Self::OpenMpi => &[
                ("mpicc.openmpi", "libopenmpi-dev"),
                ("mpirun.openmpi", "openmpi-bin"),
            ],
            Self::Mpich => &[("mpicc.mpich", "libmpich-dev"), ("mpiexec.mpich", "mpich")],
        }
    }
}
