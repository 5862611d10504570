//! No check whether the bytes that a program sends or wants to receive can be accessed. On this
//! machine a program that passes other bytes ends by a signal.

use core::ffi::c_int;

use libc::sigaction;

/// How many of `len` bytes can be read.
pub(crate) const fn readable(_: *const u8, len: usize) -> usize {
    len
}

/// How many of `len` bytes can be written.
pub(crate) const fn writable(_: *mut u8, len: usize) -> usize {
    len
}

/// Does nothing: the library does not handle the signals of a fault here.
pub(crate) const fn guard() {}

/// Whether it does.
pub(crate) const fn handles(_: c_int) -> bool {
    false
}

/// `sigaction(2)` of a signal that the library handles.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
pub(crate) unsafe fn install(signal: c_int, new: *const sigaction, old: *mut sigaction) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { crate::next::sigaction(signal, new, old) }
}
