//! Failures of measurements of programs.

use std::path::PathBuf;

use crate::samples::StoreError;

/// Reasons for the failure of a whole run.
#[derive(Debug, thiserror::Error)]
pub enum ProgramsError {
    /// A step before the first measurement failed.
    #[error("cannot {0}")]
    Step(String),
    /// The files to serve could not be written.
    #[error("cannot write files to serve in {0}: {1}")]
    Files(PathBuf, std::io::Error),
    /// Measurements could not be saved.
    #[error(transparent)]
    Store(#[from] StoreError),
}
