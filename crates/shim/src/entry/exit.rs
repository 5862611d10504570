//! `_exit`, and the library's own end: a process takes its threads along, wherever they are.

use core::ffi::c_int;

use crate::{next, node, process};

/// `_exit(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn _exit(status: c_int) -> ! {
    if !process::is_own() {
        process::end_other(status);
    }
    node::leave();
    loop {
        // SAFETY: the call takes numbers alone, and no pointer.
        unsafe { next::_exit(status) };
    }
}

/// `_Exit(3)`, the name of `_exit(2)` in the C standard.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[allow(non_snake_case)] // The standard's name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: INTERCEPT contract: the program's argument, passed on for this call, which does not
    // return.
    unsafe { _exit(status) }
}

/// Leaves the node after all that a program does at its end but the last of `exit`.
extern "C" fn end() {
    node::leave();
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

#[cfg(test)]
const _: extern "C" fn() = end;
