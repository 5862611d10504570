//! Who is sent the signals of a descriptor, when another one takes its place.

use core::ffi::{c_int, c_ulong};

use libc::pid_t;

use crate::next;

/// Commands of `fcntl(2)`.
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;
const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;

/// As `fcntl` passes it.
#[derive(Debug, Default)]
#[repr(C)]
struct Target {
    /// A thread, a process, or a group of them.
    kind: c_int,
    id: pid_t,
}

/// Who is sent which signal.
pub(super) struct Owner {
    target: Target,
    signal: c_int,
}

impl Owner {
    /// That of a descriptor.
    pub(super) fn of(number: c_int) -> Owner {
        let mut target = Target::default();
        // SAFETY: there is room for what is asked for.
        let signal = unsafe {
            next::fcntl(number, F_GETOWN_EX, &raw mut target as c_ulong);
            next::fcntl(number, F_GETSIG, 0)
        };
        Owner { target, signal }
    }

    /// It is sent those of this descriptor from now on.
    pub(super) fn has(&self, number: c_int) {
        // SAFETY: what is passed is there.
        unsafe {
            next::fcntl(number, F_SETOWN_EX, &raw const self.target as c_ulong);
            next::fcntl(number, F_SETSIG, self.signal as c_ulong);
            let flags = next::fcntl(number, libc::F_GETFL, 0) | libc::O_ASYNC;
            next::fcntl(number, libc::F_SETFL, flags as c_ulong);
        }
    }
}
