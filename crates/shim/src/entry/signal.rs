//! `sigaction`, `signal` and their variants.

use core::ffi::c_int;

use libc::{SA_NODEFER, SA_RESETHAND, SA_RESTART, sigaction as Action, sighandler_t, sigset_t};

use crate::{dispatch, next, signals};

/// `sigaction(2)`.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: as there.
    unsafe { signals::install(signal, new, old) }
}

/// `signal(2)`, with what libc makes of it: calls go on.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    signals::install_simply(signal, handler, SA_RESTART)
}

/// `signal(2)` as BSD has it.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    signals::install_simply(signal, handler, SA_RESTART)
}

/// `signal(2)` as System V has it: the handler is for one signal.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    signals::install_simply(signal, handler, SA_RESETHAND | SA_NODEFER)
}

/// The same, as programs that ask for it are compiled.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    signals::install_simply(signal, handler, SA_RESETHAND | SA_NODEFER)
}

/// `sigprocmask(2)`.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sigprocmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int {
    let kept = dispatch::still_open(how, new);
    let new = kept.as_ref().map_or(new, |kept| &raw const *kept);
    // SAFETY: as the program passed it, but for one signal.
    unsafe { next::sigprocmask(how, new, old) }
}

/// `pthread_sigmask(3)`.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    new: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    let kept = dispatch::still_open(how, new);
    let new = kept.as_ref().map_or(new, |kept| &raw const *kept);
    // SAFETY: as the program passed it, but for one signal.
    unsafe { next::pthread_sigmask(how, new, old) }
}

/// `siginterrupt(3)`.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn siginterrupt(signal: c_int, ends: c_int) -> c_int {
    signals::set_flag(signal, SA_RESTART, ends == 0)
}
