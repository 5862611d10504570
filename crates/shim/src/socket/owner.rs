//! The process that is sent the signals of a descriptor. It is kept when another descriptor takes its place.
//! It also gets the signals of urgent data, which the kernel sends for its own sockets alone.

use core::ffi::{c_int, c_ulong};
use std::os::fd::{AsRawFd, OwnedFd};

use libc::pid_t;
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::Stream;
use crate::{next, table};

/// O_ASYNC.
pub(super) const ASYNC: OFlags = OFlags::from_bits_retain(libc::O_ASYNC as u32);

/// Commands of `fcntl(2)`.
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;
const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;

/// The owner of a descriptor as `fcntl(2)` passes it.
#[derive(Debug, Default)]
#[repr(C)]
struct Target {
    /// The kind: a thread, a process, or a group of them.
    kind: c_int,
    id: pid_t,
}

impl Target {
    /// The owner of a descriptor.
    fn of(number: c_int) -> Target {
        let mut target = Target::default();
        // SAFETY: `target` is a local `f_owner_ex`, to which the kernel writes during this call
        // alone.
        unsafe { next::fcntl(number, F_GETOWN_EX, &raw mut target as c_ulong) };
        target
    }

    /// Makes this the owner of a descriptor, which is sent its signals from now on.
    fn has(&self, number: c_int) {
        // SAFETY: `self` is borrowed for this call, and has the layout of the kernel's
        // `f_owner_ex`.
        unsafe { next::fcntl(number, F_SETOWN_EX, core::ptr::from_ref(self) as c_ulong) };
    }
}

/// The process or group that is sent a signal, and which one.
pub(super) struct Owner {
    target: Target,
    signal: c_int,
    /// Whether the owner is sent a signal for every event (O_ASYNC).
    pub(super) is_told_all: bool,
}

impl Owner {
    /// The owner of a descriptor with these flags; `None` if there is none, and nothing to be sent.
    pub(super) fn of(number: c_int, flags: OFlags) -> Option<Owner> {
        let target = Target::of(number);
        let is_told_all = flags.contains(ASYNC);
        (target.id != 0 || is_told_all).then(|| Owner {
            target,
            // SAFETY: the call takes numbers alone, and no pointer.
            signal: unsafe { next::fcntl(number, F_GETSIG, 0) },
            is_told_all,
        })
    }

    /// Makes this the owner of a descriptor, which is sent its signals from now on.
    pub(super) fn has(&self, number: c_int) {
        self.target.has(number);
        // SAFETY: the call takes numbers alone, and no pointer.
        unsafe { next::fcntl(number, F_SETSIG, self.signal as c_ulong) };
        let descriptor = table::borrow(&number);
        if self.is_told_all
            && let Ok(flags) = rustix::fs::fcntl_getfl(descriptor)
        {
            let _ = rustix::fs::fcntl_setfl(descriptor, flags | ASYNC);
        }
    }
}

impl Stream {
    /// Has the present owner of the connection's descriptor signalled when urgent data come.
    #[cold]
    pub(crate) fn signal_owner(&self, number: c_int) {
        self.note_marked();
        if let Some(messenger) = messenger(&Target::of(number)) {
            // As on a system that has no such signals.
            let _ = self.inner.signal_owner(messenger);
        }
    }
}

/// The pair of sockets by which the engine has the owner signalled, see
/// [`TcpStream::signal_owner`](toehold_socket::TcpStream::signal_owner).
fn messenger(target: &Target) -> Option<[OwnedFd; 2]> {
    let kind = SocketType::STREAM;
    let (owned, other) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).ok()?;
    target.has(owned.as_raw_fd());
    Some([owned, other])
}
