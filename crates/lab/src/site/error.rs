//! Reasons for which a site is not there.

use std::io;
use std::path::PathBuf;

use crate::experiment::PlanFileError;
use crate::programs::ProgramsError;

/// Failures of the operations on sites.
#[derive(Debug, thiserror::Error)]
pub enum SiteFailure {
    /// The plan has a mistake.
    #[error(transparent)]
    Plan(#[from] PlanFileError),
    /// A step of the setup failed.
    #[error(transparent)]
    Step(#[from] ProgramsError),
    /// A file or directory cannot be used.
    #[error("cannot use {0}: {1}")]
    File(PathBuf, #[source] io::Error),
    /// The content cannot be had.
    #[error("no content: {0}")]
    Content(#[source] io::Error),
    /// The machine lacks something.
    #[error("{0}; `toehold site check` lists everything")]
    Missing(String),
    /// A site of this name is up.
    #[error("{0} is up already: `toehold site down {0}` ends it")]
    IsUp(String),
    /// There is no such site.
    #[error("there is no site {0}: `toehold site ls` lists those that are up")]
    Unknown(String),
    /// A server ended, or did not answer.
    #[error("{0}")]
    Server(String),
    /// The setup was interrupted.
    #[error("interrupted")]
    Interrupted,
}
