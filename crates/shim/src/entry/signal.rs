//! `sigaction`, `signal` and their variants.

use core::ffi::c_int;
use core::mem::MaybeUninit;

use libc::{SA_NODEFER, SA_RESETHAND, SA_RESTART, sigaction as Action, sighandler_t, sigset_t};

use crate::{dispatch, next, signals};

/// `sigaction(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { signals::install(signal, new, old) }
}

/// `signal(2)`, in libc's variant: calls go on.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    signals::install_simply(signal, handler, SA_RESTART)
}

/// `signal(2)` as BSD has it.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    signals::install_simply(signal, handler, SA_RESTART)
}

/// `signal(2)` as System V has it: the handler is for one signal.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    signals::install_simply(signal, handler, SA_RESETHAND | SA_NODEFER)
}

/// `__sysv_signal(2)`: `signal(2)` in programs that are compiled for System V.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    signals::install_simply(signal, handler, SA_RESETHAND | SA_NODEFER)
}

/// `sigprocmask(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sigprocmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int {
    let kept = dispatch::still_open(how, new);
    let new = kept.as_ref().map_or(new, |kept| &raw const *kept);
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call. `new` may be a
    // local copy without one signal.
    unsafe { next::sigprocmask(how, new, old) }
}

/// `pthread_sigmask(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    new: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    let kept = dispatch::still_open(how, new);
    let new = kept.as_ref().map_or(new, |kept| &raw const *kept);
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call. `new` may be a
    // local copy without one signal.
    unsafe { next::pthread_sigmask(how, new, old) }
}

/// `sigset(3)`: like `signal`, but that the signal is blocked while its handler runs, or always.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
    /// `SIG_HOLD`.
    const HOLD: sighandler_t = 2;
    let (mut own, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: room for two sets, of which one is filled in before it is used, and an action.
    unsafe {
        if libc::sigemptyset(own.as_mut_ptr()) < 0 || libc::sigaddset(own.as_mut_ptr(), signal) < 0 {
            return libc::SIG_ERR;
        }
        let (how, former) = match handler {
            HOLD => {
                let mut present = MaybeUninit::zeroed();
                if signals::install(signal, core::ptr::null(), present.as_mut_ptr()) < 0 {
                    return libc::SIG_ERR;
                }
                (libc::SIG_BLOCK, present.assume_init().sa_sigaction)
            }
            _ => (libc::SIG_UNBLOCK, signals::install_simply(signal, handler, 0)),
        };
        if former == libc::SIG_ERR || sigprocmask(how, own.as_ptr(), before.as_mut_ptr()) < 0 {
            return libc::SIG_ERR;
        }
        match libc::sigismember(before.as_ptr(), signal) {
            1 => HOLD,
            _ => former,
        }
    }
}

/// `sighold(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sighold(signal: c_int) -> c_int {
    let mut own = MaybeUninit::uninit();
    // SAFETY: `own` is a local set, which libc fills in before it is used.
    unsafe {
        if libc::sigemptyset(own.as_mut_ptr()) < 0 || libc::sigaddset(own.as_mut_ptr(), signal) < 0 {
            return -1;
        }
        sigprocmask(libc::SIG_BLOCK, own.as_ptr(), core::ptr::null_mut())
    }
}

/// `sigblock(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sigblock(signals: c_int) -> c_int {
    // SAFETY: the call takes numbers alone, and no pointer.
    unsafe { next::sigblock(dispatch::still_open_of(signals)) }
}

/// `sigsetmask(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sigsetmask(signals: c_int) -> c_int {
    // SAFETY: the call takes numbers alone, and no pointer.
    unsafe { next::sigsetmask(dispatch::still_open_of(signals)) }
}

/// `siginterrupt(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn siginterrupt(signal: c_int, ends: c_int) -> c_int {
    signals::set_flag(signal, SA_RESTART, ends == 0)
}
