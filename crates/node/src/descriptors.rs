//! Where a process keeps the node's descriptors.
//!
//! A program that knows nothing of its node expects that the kernel gives it the lowest free
//! number, and may count on low ones being its own. Whoever stands in for it has the node's
//! descriptors kept above a number, which is the process's.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

static LOWEST: AtomicI32 = AtomicI32::new(0);

/// From now on descriptors that this process has of a node get no lower number, as long as
/// the system has higher ones.
pub fn keep_above(lowest: i32) {
    LOWEST.store(lowest, Relaxed);
}

/// The descriptor, where it should be.
pub(crate) fn keep(descriptor: OwnedFd) -> OwnedFd {
    let lowest = LOWEST.load(Relaxed);
    if descriptor.as_raw_fd() >= lowest {
        return descriptor;
    }
    rustix::io::fcntl_dupfd_cloexec(&descriptor, lowest).unwrap_or(descriptor)
}

/// A copy of a descriptor, where it should be.
pub(crate) fn copy(descriptor: impl AsFd) -> std::io::Result<OwnedFd> {
    let lowest = LOWEST.load(Relaxed);
    let copied = rustix::io::fcntl_dupfd_cloexec(&descriptor, lowest);
    copied.or_else(|_| Ok(rustix::io::fcntl_dupfd_cloexec(&descriptor, 0)?))
}
