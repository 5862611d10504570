//! `pthread_create` and `pthread_cancel`.

use core::ffi::{c_int, c_void};

use libc::{pthread_attr_t, pthread_t};

use crate::inside::is_inside;
use crate::next::{self, Begin};
use crate::{cancel, dispatch};

/// The start routine and argument of a thread of the program's.
struct Beginning {
    begin: Begin,
    argument: *mut c_void,
}

/// `pthread_create(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    begin: Begin,
    argument: *mut c_void,
) -> c_int {
    if !is_inside() {
        dispatch::look_before_thread();
    }
    if !dispatch::is_on() || is_inside() {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        return unsafe { next::pthread_create(thread, attributes, begin, argument) };
    }
    let beginning = Box::into_raw(Box::new(Beginning { begin, argument }));
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call. `beginning` is
    // for the new thread alone, which frees it.
    let failed = unsafe { next::pthread_create(thread, attributes, join_and_begin, beginning.cast()) };
    if failed != 0 {
        // SAFETY: `beginning` comes from `Box::into_raw`, and no thread was made that would free
        // it.
        drop(unsafe { Box::from_raw(beginning) });
    }
    failed
}

/// Begins a thread whose own calls are dispatched, too.
///
/// # Safety
///
/// `beginning` is a beginning that belongs to the thread.
unsafe extern "C-unwind" fn join_and_begin(beginning: *mut c_void) -> *mut c_void {
    dispatch::join();
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let Beginning { begin, argument } = *unsafe { Box::from_raw(beginning.cast::<Beginning>()) };
    // SAFETY: INTERCEPT contract: the program's arguments, valid for this call.
    unsafe { begin(argument) }
}

/// `pthread_cancel(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    cancel::cancel(thread)
}
