//! The kernel's tracing file system: finding it, and an instance of its own buffers.
//!
//! An instance is removed when its owner drops it. If the owner is killed, the end of a pipe tells
//! a guard process, which removes it. If the guard is killed as well, the next owner of an instance
//! removes it. A living owner holds a file of its instance open, so the kernel refuses its removal.

mod guard;
mod instance;

pub use instance::{ClockReading, TraceInstance, TraceText};

use rustix::fd::OwnedFd;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Why there is no layout of the kernel.
#[derive(Debug, Error)]
pub enum TracefsError {
    /// The file system is not mounted.
    #[error("tracefs is not mounted (`mount -t tracefs tracefs /sys/kernel/tracing` mounts it)")]
    NotMounted,
    /// The kernel has no such file system.
    #[error("this kernel has no tracefs")]
    NotInKernel,
    /// The user may not trace.
    #[error("{0} is not permitted; tracing needs root")]
    NotPermitted(String),
    /// The kernel lacks a tracepoint.
    #[error("this kernel has no tracepoint {0}")]
    NoTracepoint(&'static str),
    /// The kernel lacks the clock.
    #[error("the kernel's trace has no clock {0}")]
    NoClock(&'static str),
    /// The guard process did not start.
    #[error("the process that removes the trace's buffers did not start: {0}")]
    Guard(io::Error),
    /// The program that is measured failed.
    #[error("the measured connection broke: {0}")]
    Workload(io::Error),
    /// Another error of a file.
    #[error("{0}: {1}")]
    Io(String, io::Error),
}

impl TracefsError {
    /// The error of an action, such as `open trace_clock`.
    fn of(action: impl Into<String>, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted(action.into()),
            _ => Self::Io(action.into(), error),
        }
    }
}

/// The file system of the kernel's tracepoints.
#[derive(Debug, Clone)]
pub struct Tracefs {
    root: PathBuf,
    /// A mount without a place in the file system, which lives as long as this.
    _mount: Option<Arc<OwnedFd>>,
}

impl Tracefs {
    /// The file system where it is mounted.
    ///
    /// # Errors
    ///
    /// [`TracefsError::NotMounted`], or [`TracefsError::NotPermitted`] for a user that may not look.
    pub fn mounted() -> Result<Self, TracefsError> {
        let path = "/proc/self/mountinfo";
        let mounts = std::fs::read(path).map_err(|error| TracefsError::of(format!("read {path}"), error))?;
        let root = mount_point(&String::from_utf8_lossy(&mounts)).ok_or(TracefsError::NotMounted)?;
        Self::at(root, None)
    }

    /// The file system by a mount of its own, which no other process sees. It needs root.
    ///
    /// # Errors
    ///
    /// [`TracefsError::NotPermitted`] without the right to mount, [`TracefsError::NotInKernel`] if
    /// the kernel has none.
    pub fn private() -> Result<Self, TracefsError> {
        let failed = |error: rustix::io::Errno| match error {
            rustix::io::Errno::NODEV => TracefsError::NotInKernel,
            // The kernel says EPERM here, and EACCES for a file.
            error => TracefsError::of("mount tracefs", error.into()),
        };
        let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(failed)?;
        fsconfig_create(&context).map_err(failed)?;
        let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty());
        let mount = mount.map_err(failed)?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Self::at(root, Some(Arc::new(mount)))
    }

    /// The file system where it is mounted, or else by a mount of its own.
    ///
    /// # Errors
    ///
    /// The error of [`Tracefs::private`].
    pub fn found() -> Result<Self, TracefsError> {
        Self::mounted().or_else(|_| Self::private())
    }

    fn at(root: PathBuf, mount: Option<Arc<OwnedFd>>) -> Result<Self, TracefsError> {
        let found = Self { root, _mount: mount };
        let instances = found.instances();
        std::fs::read_dir(&instances)
            .map_err(|error| TracefsError::of(format!("read {}", instances.display()), error))?;
        Ok(found)
    }

    /// The folder of all instances.
    pub fn instances(&self) -> PathBuf {
        self.root.join("instances")
    }
}

/// The first mount point of a tracefs in the text of `mountinfo` (proc_pid_mountinfo(5)).
fn mount_point(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (own, behind) = line.split_once(" - ")?;
        let is_tracefs = behind.split(' ').next() == Some("tracefs");
        let mut fields = own.split(' ');
        let (root, point) = (fields.nth(3)?, fields.next()?);
        (is_tracefs && root == "/").then(|| unescaped(point))
    })
}

/// A path in which `\040` is a space, and so on.
fn unescaped(text: &str) -> PathBuf {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let path = escapes.iter().fold(text.to_owned(), |path, (escape, plain)| {
        path.replace(escape, plain)
    });
    Path::new(&path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_point_is_that_of_a_whole_tracefs() {
        let mounts = "22 1 0:20 / /sys rw - sysfs sysfs rw\n\
                      30 22 0:12 /instances/a /part rw - tracefs tracefs rw\n\
                      31 22 0:12 / /my\\040trace rw,nosuid shared:9 - tracefs nodev rw\n";
        assert_eq!(mount_point(mounts), Some(PathBuf::from("/my trace")));
        assert_eq!(mount_point("22 1 0:20 / /sys rw - sysfs sysfs rw\n"), None);
        assert_eq!(mount_point("tracefs\n - tracefs\n"), None);
    }

    #[test]
    fn refusal_by_the_kernel_is_told_as_such() {
        let error = TracefsError::of("open trace_clock", io::ErrorKind::PermissionDenied.into());
        assert_eq!(
            error.to_string(),
            "open trace_clock is not permitted; tracing needs root"
        );
    }
}
