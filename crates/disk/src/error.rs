//! Why a disk cannot be had, and what to do about it.

use std::io;
use std::path::PathBuf;

/// Why an emulated disk cannot begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The process is not root.
    #[error("an emulated disk mounts a file system and attaches a loop device: run the command as root")]
    NotRoot,
    /// A device file is missing.
    #[error("{} is missing: {hint}", path.display())]
    NoDevice {
        /// The device file.
        path: PathBuf,
        /// What makes it appear.
        hint: &'static str,
    },
    /// A program is missing.
    #[error("the program `{program}` is missing: install {package}")]
    NoProgram {
        /// The program's name.
        program: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// The size cannot be that of a disk.
    #[error("a disk cannot have {0} bytes: choose a multiple of 4K, up to 1T")]
    Size(u64),
    /// The directory cannot be the place of the disk.
    #[error("{} {why}: name an empty directory, or one that does not exist yet", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A file or directory cannot be used.
    #[error("cannot use {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// The file system cannot be mounted.
    #[error("cannot mount FUSE at {}: {error}", path.display())]
    Mount {
        /// The directory.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// The loop device cannot be attached.
    #[error("cannot attach a loop device: {0}")]
    Attach(String),
    /// A process or thread cannot be started.
    #[error("cannot start {what}: {error}")]
    Start {
        /// The process or thread.
        what: &'static str,
        /// The system's answer.
        error: io::Error,
    },
}
