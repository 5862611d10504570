//! `fchmod`, `fchown` and `flock`: their effect on a connection's descriptor stays with it.

use core::ffi::c_int;

use libc::{gid_t, mode_t, uid_t};

use crate::inside::is_inside;
use crate::{next, table};

/// Notes that the attributes of a connection's descriptor were changed, if `fd` is one.
fn marked(fd: c_int, done: c_int) -> c_int {
    if done == 0
        && let Some(file) = table::get(fd).filter(|_| !is_inside())
        && let Some(stream) = file.stream()
    {
        stream.note_marked();
    }
    done
}

/// `fchmod(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fchmod(fd: c_int, mode: mode_t) -> c_int {
    // SAFETY: the call takes numbers alone, and no pointer.
    marked(fd, unsafe { next::fchmod(fd, mode) })
}

/// `fchown(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fchown(fd: c_int, user: uid_t, group: gid_t) -> c_int {
    // SAFETY: the call takes numbers alone, and no pointer.
    marked(fd, unsafe { next::fchown(fd, user, group) })
}

/// `flock(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn flock(fd: c_int, operation: c_int) -> c_int {
    // SAFETY: the call takes numbers alone, and no pointer.
    marked(fd, unsafe { next::flock(fd, operation) })
}
