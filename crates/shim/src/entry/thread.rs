//! `pthread_cancel`.

use core::ffi::c_int;

use libc::pthread_t;

use crate::cancel;

/// `pthread_cancel(3)`.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    cancel::cancel(thread)
}
