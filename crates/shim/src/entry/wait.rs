//! `wait`, `waitpid` and their variants: when they return, the connections of the process that has
//! ended are closed.
//!
//! The kernel closes a process's descriptors before other processes can learn of its end. The
//! engine then finds out which of the node's descriptors are closed, and closes what they stood for
//! before these calls return.

use core::ffi::c_int;
use core::mem::MaybeUninit;

use libc::{id_t, idtype_t, pid_t, rusage, siginfo_t};

use crate::answer::{errno, set_errno};
use crate::inside::{Inside, is_inside};
use crate::{next, node, start};

/// Waits for closing after a child has ended, and perhaps what it had. Signals' handlers wait for
/// children, too, so this takes neither memory nor locks.
#[cold]
fn ended() {
    if is_inside() || !start::is_wanted() {
        return;
    }
    let before = errno();
    let _inside = Inside::enter();
    node::await_closing();
    set_errno(before);
}

/// Waits for a child. The program may pass null if it does not need to know how the child has
/// ended.
///
/// # Safety
///
/// `status` is null, or has room for a status.
unsafe fn waited(status: *mut c_int, wait: impl FnOnce(*mut c_int) -> pid_t) -> pid_t {
    let mut own = 0;
    let status = match status.is_null() {
        true => &raw mut own,
        false => status,
    };
    let child = wait(status);
    // SAFETY: `status` is the local `own` or the caller's. The wait, which has found a child, has
    // written to it.
    if child > 0 && is_over(unsafe { status.read() }) {
        ended();
    }
    child
}

fn is_over(status: c_int) -> bool {
    libc::WIFEXITED(status) || libc::WIFSIGNALED(status)
}

/// `wait(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn wait(status: *mut c_int) -> pid_t {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { waited(status, |status| next::wait(status)) }
}

/// `waitpid(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn waitpid(process: pid_t, status: *mut c_int, options: c_int) -> pid_t {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { waited(status, |status| next::waitpid(process, status, options)) }
}

/// `wait3(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn wait3(status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { waited(status, |status| next::wait3(status, options, usage)) }
}

/// `wait4(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn wait4(
    process: pid_t,
    status: *mut c_int,
    options: c_int,
    usage: *mut rusage,
) -> pid_t {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { waited(status, |status| next::wait4(process, status, options, usage)) }
}

/// `waitid(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn waitid(
    which: idtype_t,
    id: id_t,
    info: *mut siginfo_t,
    options: c_int,
) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { waited_for(info, |info| next::waitid(which, id, info, options)) }
}

/// Waits for a child by `wait`, which writes into `info`, and notes a child's end.
///
/// # Safety
///
/// `info` is null, or has room for one.
pub(super) unsafe fn waited_for<T: PartialEq + From<i8>>(
    info: *mut siginfo_t,
    wait: impl FnOnce(*mut siginfo_t) -> T,
) -> T {
    let mut own = MaybeUninit::<siginfo_t>::zeroed();
    let info = match info.is_null() {
        true => own.as_mut_ptr(),
        false => info,
    };
    let done = wait(info);
    // SAFETY: `info` is the local `own` or the caller's, valid for this call. The wait, which has
    // returned 0, has written to it.
    if done == T::from(0) && unsafe { tells_of_end(&*info) } {
        ended();
    }
    done
}

/// # Safety
///
/// `waitid(2)` has written `info`.
unsafe fn tells_of_end(info: &siginfo_t) -> bool {
    let over = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED];
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    unsafe { info.si_pid() != 0 && over.contains(&info.si_code) }
}
