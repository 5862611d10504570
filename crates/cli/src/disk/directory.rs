//! The directory of an emulated disk: before it begins, and the process that clears it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use toehold_disk::{DiskError, clear};

/// The hidden command that clears after a disk's process.
pub(crate) const KEEPER_NAME: &str = "disk-keeper";

/// The directory by its absolute path. Only its parent is asked: a mount there may be dead.
pub(super) fn place(directory: &Path) -> Result<PathBuf> {
    let whole = std::path::absolute(directory).context("cannot find the working directory")?;
    let (Some(parent), Some(name)) = (whole.parent(), whole.file_name()) else {
        bail!(
            "{} cannot be a disk's directory; name an empty one",
            directory.display()
        );
    };
    let parent = parent
        .canonicalize()
        .with_context(|| format!("cannot use {}", parent.display()))?;
    Ok(parent.join(name))
}

/// Makes the directory if it is missing, and clears what a dead disk left there. Returns `true` if
/// it was made.
pub(super) fn prepare(directory: &Path) -> Result<bool> {
    if directory.join("control").exists() && directory.join("disk").exists() {
        let why = "has a disk already, or files of these names";
        let path = directory.to_owned();
        return Err(DiskError::Directory { path, why }.into());
    }
    clear(directory)?;
    match std::fs::create_dir(directory) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot make {}", directory.display())),
    }
}

/// The command that clears the directory after the death of this process.
pub(super) fn keeper(directory: &Path, is_made: bool) -> Result<Command> {
    let own = std::env::current_exe().context("cannot find this program (is /proc mounted?)")?;
    let mut command = Command::new(own);
    command.arg(KEEPER_NAME).arg(directory);
    if is_made {
        command.arg("--made");
    }
    Ok(command)
}
