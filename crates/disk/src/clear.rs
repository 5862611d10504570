//! What must be gone when a disk is: mounts, loop device, FUSE mount, directory.
//!
//! A killed process can clear nothing. So another process, in a group of its own, waits for the end
//! of a pipe that the disk's process holds. Then it clears.

use std::fs;
use std::io::{self, PipeWriter, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::attach::{detach, devices_of};
use crate::error::DiskError;
use crate::serve::{DISK_FILE, MOUNT_SOURCE};

/// How often a busy mount is tried before it is detached from the tree.
const ATTEMPTS: u32 = 20;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// What [`clear`] removed, and what others still use.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Cleared {
    /// Places that were unmounted.
    pub unmounted: Vec<PathBuf>,
    /// Loop devices that were detached.
    pub detached: Vec<String>,
    /// Places that a process still uses. They are gone from the tree, and go when that process does.
    pub busy: Vec<PathBuf>,
}

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq)]
struct MountLine {
    place: PathBuf,
    source: String,
}

impl MountLine {
    fn parse(line: &str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        Some(Self {
            place: unescaped(mount.split(' ').nth(4)?),
            source: system.split(' ').nth(1)?.to_owned(),
        })
    }
}

/// A path in which blanks and the like are written as a backslash and three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        let digits = others.get(..3).filter(|_| *first == b'\\');
        let value = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(value.unwrap_or(*first));
        rest = if value.is_some() { &others[3..] } else { others };
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// The places where `source` is mounted, the latest first.
fn places_of(source: &str) -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let lines = text.lines().rev().filter_map(MountLine::parse);
    lines
        .filter(|line| line.source == source)
        .map(|line| line.place)
        .collect()
}

impl Cleared {
    fn unmount(&mut self, place: PathBuf) {
        for _ in 0..ATTEMPTS {
            match unmount(&place, UnmountFlags::empty()) {
                Ok(()) => return self.unmounted.push(place),
                Err(Errno::BUSY) => std::thread::sleep(PAUSE),
                Err(_) => break,
            }
        }
        if unmount(&place, UnmountFlags::DETACH).is_ok() {
            self.busy.push(place);
        }
    }
}

/// Removes what a disk at `directory` has left: file systems on its loop device, the device, and
/// the FUSE mount. The disk may still be served; then what was written reaches it first.
///
/// # Errors
///
/// [`DiskError`] says what `losetup` answers.
pub fn clear(directory: &Path) -> Result<Cleared, DiskError> {
    let mut cleared = Cleared::default();
    for device in devices_of(&directory.join(DISK_FILE)) {
        for place in places_of(&device) {
            cleared.unmount(place);
        }
        detach(&device)?;
        cleared.detached.push(device);
    }
    for place in places_of(MOUNT_SOURCE) {
        if place == directory {
            cleared.unmount(place);
        }
    }
    Ok(cleared)
}

/// The process that clears after a disk, held by the disk's process.
#[derive(Debug)]
pub struct DiskKeeper {
    child: Child,
    line: Option<PipeWriter>,
}

impl DiskKeeper {
    /// Starts `command`, which has to call [`DiskKeeper::stand_by`].
    ///
    /// # Errors
    ///
    /// [`DiskError::Start`] if the process cannot be started.
    pub fn start(mut command: Command) -> Result<Self, DiskError> {
        let failed = |error| DiskError::Start {
            what: "the process that clears away",
            error,
        };
        let (reader, line) = io::pipe().map_err(failed)?;
        // A group of its own: Ctrl-C is for the disk's process.
        let command = command.process_group(0).stdin(reader).stdout(Stdio::null());
        let child = command.spawn().map_err(failed)?;
        Ok(Self {
            child,
            line: Some(line),
        })
    }

    /// Waits, in the process that was started, until the disk's process has ended or asks. Then
    /// clears, and removes the directory if `is_made` says that the disk's process made it.
    ///
    /// # Errors
    ///
    /// [`DiskError`] as [`clear`] has it.
    pub fn stand_by(directory: &Path, is_made: bool) -> Result<Cleared, DiskError> {
        // The pipe carries nothing: its end is the message, and an error is an end.
        let _ = io::stdin().read(&mut [0]);
        let cleared = clear(directory)?;
        if is_made {
            // A directory that others use stays.
            let _ = fs::remove_dir(directory);
        }
        Ok(cleared)
    }

    /// Has everything cleared, and waits for that. Returns `false` if the process failed or is gone.
    pub fn end(mut self) -> bool {
        drop(self.line.take());
        self.child.wait().is_ok_and(|status| status.success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_line_with_blanks_is_read() {
        let line = r"36 35 7:0 / /mnt/a\040b\134 rw,relatime shared:1 - ext4 /dev/loop0 rw";
        let read = MountLine::parse(line).unwrap();
        assert_eq!(read.place, Path::new(r"/mnt/a b\"));
        assert_eq!(read.source, "/dev/loop0");
        for wrong in ["", "36 35 - ext4", "36 35 7:0 / /mnt rw ext4 /dev/loop0 rw"] {
            assert_eq!(MountLine::parse(wrong), None);
        }
    }

    #[test]
    fn place_without_disk_has_nothing_to_clear() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(clear(place.path()).unwrap(), Cleared::default());
    }
}
