//! The results of calls: a number, or -1 and `errno`.

use core::ffi::c_int;

use toehold_posix::errno::{Errno, Outcome};

/// `errno` as the program sees it.
pub(crate) fn errno() -> c_int {
    // SAFETY: `__errno_location` returns this thread's own `errno`, which is valid until the thread
    // ends.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: `__errno_location` returns this thread's own `errno`, which is valid until the thread
    // ends.
    unsafe { *libc::__errno_location() = errno }
}

/// A number that a C function returns.
pub(crate) trait Number {
    /// The number that says that `errno` tells the error.
    const FAILED: Self;
}

impl Number for c_int {
    const FAILED: Self = -1;
}

impl Number for isize {
    const FAILED: Self = -1;
}

/// Ends a call.
#[inline]
pub(crate) fn answer<T: Number>(outcome: Outcome<T>) -> T {
    match outcome {
        Ok(number) => number,
        Err(Errno(errno)) => {
            set_errno(errno);
            T::FAILED
        }
    }
}

/// The outcome of a function of libc, from the number that it returned.
#[inline]
pub(crate) fn outcome<T: Number + PartialEq>(returned: T) -> Outcome<T> {
    if returned == T::FAILED {
        return Err(Errno(errno()));
    }
    Ok(returned)
}
