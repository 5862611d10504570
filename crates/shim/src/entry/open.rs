//! Opening files. They are the kernel's, but for one that has the names of hosts.

use core::ffi::{CStr, c_char, c_int};
use std::os::fd::IntoRawFd;

use libc::{FILE, mode_t};
use rustix::io::DupFlags;

use super::identity::seen_at;
use crate::answer::errno;
use crate::{hosts, listing, next, table};

/// Whether there is a path that was opened, or that the kernel has looked for in vain.
fn was_sought(is_open: bool) -> bool {
    is_open || errno() == libc::ENOENT
}

/// Looks at a file that was opened, or not. Returns the number that the program gets.
///
/// # Safety
///
/// `path` is the C string that the program has passed to the kernel.
// A thread may be cancelled while it opens a file: what has to be dropped is not in that function.
#[inline(never)]
unsafe fn opened(number: c_int, path: *const c_char, flags: c_int) -> c_int {
    // A program that only wants a place (O_PATH) does not read the file.
    if !was_sought(number >= 0) || flags & (libc::O_ACCMODE | libc::O_PATH) != libc::O_RDONLY {
        return number;
    }
    // SAFETY: the kernel has read this memory in the program's call, which has not returned yet.
    let name = unsafe { CStr::from_ptr(path) };
    let list = || (number >= 0).then(|| listing::instead_of(number, name)).flatten();
    let instead = hosts::instead_of(name).or_else(list);
    // SAFETY: the kernel has read `path` in the program's call, which has not returned yet.
    unsafe { seen_at(path) };
    let Some(file) = instead.filter(|_| number >= 0) else {
        return number;
    };
    let flags = match flags & libc::O_CLOEXEC {
        0 => DupFlags::empty(),
        _ => DupFlags::CLOEXEC,
    };
    let mut place = std::mem::ManuallyDrop::new(table::adopt(number));
    // If that fails, the number has the file that the program has asked for.
    let _ = rustix::io::dup3(&file, &mut place, flags);
    number
}

/// Looks at a stream that was opened, or not. Returns the stream that the program gets.
///
/// # Safety
///
/// `path` and `mode` are the C strings that the program has passed to the kernel and to libc.
#[inline(never)]
unsafe fn opened_stream(stream: *mut FILE, path: *const c_char, mode: *const c_char) -> *mut FILE {
    if !was_sought(!stream.is_null()) {
        return stream;
    }
    // SAFETY: the kernel has read `path`, and libc `mode`, in the program's call, which has not
    // returned yet.
    let (path, how) = unsafe { (CStr::from_ptr(path), CStr::from_ptr(mode)) };
    if how.to_bytes().first() != Some(&b'r') || how.to_bytes().contains(&b'+') {
        return stream;
    }
    if stream.is_null() {
        // Whether it is there or not, the program has looked how names are resolved.
        drop(hosts::instead_of(path));
        return stream;
    }
    // SAFETY: `stream` is an open stream of libc's, and the program does not have it yet.
    let number = unsafe { libc::fileno(stream) };
    let instead = hosts::instead_of(path).or_else(|| listing::instead_of(number, path));
    // SAFETY: `path` is a borrowed C string of the program's call, which has not returned yet.
    unsafe { seen_at(path.as_ptr()) };
    let Some(file) = instead else {
        return stream;
    };
    let number = file.into_raw_fd();
    // SAFETY: `number` was just taken out of its owner, so no other code closes it; `mode` is the program's C
    // string, valid for this call.
    let instead = unsafe { next::fdopen(number, mode) };
    if instead.is_null() {
        drop(table::adopt(number));
        return stream;
    }
    // SAFETY: `stream` is an open stream of libc's; the program does not have it yet, and gets another one.
    unsafe { next::fclose(stream) };
    instead
}

/// `open(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { opened(next::open(path, flags, mode), path, flags) }
}

/// `open(2)` of programs with large files.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { opened(next::open64(path, flags, mode), path, flags) }
}

/// `openat(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { opened(next::openat(at, path, flags, mode), path, flags) }
}

/// `openat(2)` of programs with large files.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn openat64(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { opened(next::openat64(at, path, flags, mode), path, flags) }
}

/// `fopen(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { opened_stream(next::fopen(path, mode), path, mode) }
}

/// `fopen(3)` of programs with large files.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { opened_stream(next::fopen64(path, mode), path, mode) }
}
