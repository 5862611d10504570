//! `dprintf` and its variants: libc's own would go past the library.

use core::ffi::{c_char, c_int, c_void};

use super::variadic::{Arguments, variadic};
use crate::inside::is_inside;
use crate::{next, table};

variadic! {
    /// `dprintf(3)`.
    fn dprintf("2", "rdx") => vdprintf;
}

variadic! {
    /// `dprintf(3)` as programs are compiled that check the format.
    fn __dprintf_chk("3", "rcx") => __vdprintf_chk;
}

/// `vdprintf(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn vdprintf(
    fd: c_int,
    format: *const c_char,
    arguments: *mut Arguments,
) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { print(fd, |text| next::vasprintf(text, format, arguments.cast())) }
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        .unwrap_or_else(|| unsafe { next::vdprintf(fd, format, arguments.cast()) })
}

/// `vdprintf(3)` as programs are compiled that check the format.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __vdprintf_chk(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    arguments: *mut Arguments,
) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe {
        print(fd, |text| {
            next::__vasprintf_chk(text, flag, format, arguments.cast())
        })
    }
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    .unwrap_or_else(|| unsafe { next::__vdprintf_chk(fd, flag, format, arguments.cast()) })
}

/// Writes a text to a connection. Returns `None` if it is none of the node's.
///
/// # Safety
///
/// `make` allocates a text and returns its length, or a negative number.
unsafe fn print(fd: c_int, make: impl FnOnce(*mut *mut c_char) -> c_int) -> Option<c_int> {
    table::get(fd).filter(|file| !is_inside() && file.stream().is_some())?;
    let mut text = core::ptr::null_mut();
    let length = make(&raw mut text);
    if length < 0 {
        return Some(length);
    }
    let text = Text(text);
    let mut sent = 0;
    while sent < length as usize {
        // SAFETY: `text` has `length` bytes, of which `sent` are sent. It is freed only when it is
        // dropped.
        let more =
            unsafe { super::send::write(fd, text.0.add(sent).cast::<c_void>(), length as usize - sent) };
        if more < 0 {
            return Some(-1);
        }
        sent += more as usize;
    }
    Some(length)
}

/// A text that libc has allocated.
struct Text(*mut c_char);

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: `asprintf` has allocated the pointer, and this value is its only owner.
        unsafe { libc::free(self.0.cast()) };
    }
}
