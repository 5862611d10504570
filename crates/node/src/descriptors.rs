//! The numbers of the node's descriptors in a process.
//!
//! A program that knows nothing of its node expects that the kernel gives it the lowest free
//! number. It may count on low ones being its own. The library that stands in for it has the node's
//! descriptors kept above a number, which is the process's.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use rustix::io::Errno;

/// The lowest number for the node's descriptors, and the function that is told of each.
static KEEP: OnceLock<(RawFd, fn(RawFd))> = OnceLock::new();

/// Keeps descriptors that this process has of a node at or above a number from now on, as long as
/// the system has such numbers. `note` is told of each. Only the first call counts.
pub fn keep_above(lowest: RawFd, note: fn(RawFd)) {
    let _ = KEEP.set((lowest, note));
}

/// Moves a descriptor to where it should be.
pub(crate) fn keep(descriptor: OwnedFd) -> OwnedFd {
    let Some(&(lowest, note)) = KEEP.get() else {
        return descriptor;
    };
    let kept = match descriptor.as_raw_fd() < lowest {
        true => rustix::io::fcntl_dupfd_cloexec(&descriptor, lowest).unwrap_or(descriptor),
        false => descriptor,
    };
    note(kept.as_raw_fd());
    kept
}

/// Copies a descriptor to where it should be.
pub(crate) fn copy(descriptor: impl AsFd) -> std::io::Result<OwnedFd> {
    Ok(keep(copy_for_a_moment(descriptor)?))
}

/// A copy that is reported to no function, at a number that the program does not count on either.
pub(crate) fn copy_for_a_moment(descriptor: impl AsFd) -> Result<OwnedFd, Errno> {
    let lowest = KEEP.get().map_or(0, |(lowest, _)| *lowest);
    let copied = rustix::io::fcntl_dupfd_cloexec(&descriptor, lowest);
    copied.or_else(|_| rustix::io::fcntl_dupfd_cloexec(&descriptor, 0))
}
