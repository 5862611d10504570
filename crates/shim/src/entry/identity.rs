//! The names of a connection's descriptor: inodes, names in `/proc`, extended attributes.
//!
//! A descriptor of a connection is used again for another one later, unless a program has looked at
//! its names. Then no other connection has them
//! ([`Stream::note_marked`](crate::socket::Stream::note_marked)).

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libc::{size_t, ssize_t};
use toehold_posix::errno::Errno;

use crate::answer::answer;
use crate::file::Kind;
use crate::inside::is_inside;
use crate::memory::{is_readable, is_writable};
use crate::{next, table};

/// The extended attribute that says of which protocol a socket is.
const PROTOCOL: &CStr = c"system.sockprotoname";

/// Notes that a program has looked at the names of a descriptor.
#[inline]
fn seen(number: c_int) {
    if table::has(number) && !is_inside() {
        mark(number);
    }
}

#[cold]
fn mark(number: c_int) {
    if let Some(file) = table::get(number)
        && let Some(stream) = file.stream()
    {
        stream.note_marked();
    }
}

/// Whether a path begins so. Reads no further than it has to.
///
/// # Safety
///
/// `path` is a C string.
unsafe fn begins(path: *const c_char, with: &[u8]) -> bool {
    // SAFETY: the string goes on as long as it is alike, and `with` has no zero in it.
    (0..with.len()).all(|at| unsafe { path.add(at).read() } as u8 == with[at])
}

/// The number of a descriptor of this process that a path names: `/proc/self/fd/7`, `/dev/fd/7`.
///
/// # Safety
///
/// `path` is null or a C string.
pub(super) unsafe fn number_in(path: *const c_char) -> Option<c_int> {
    // A path that is wrong, the kernel complains of. Most are elsewhere.
    // SAFETY: `path` was just checked to be readable, and is a C string for this whole call, as the
    // caller guarantees.
    if !is_readable(path, 1) || !unsafe { begins(path, b"/proc/") || begins(path, b"/dev/fd/") } {
        return None;
    }
    // SAFETY: `path` was just checked to be readable, and is a C string for this whole call, as the
    // caller guarantees.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let (folder, number) = path.split_at_checked(path.iter().rposition(|byte| *byte == b'/')?)?;
    let number = core::str::from_utf8(number.get(1..)?).ok()?.parse().ok()?;
    let process = match folder {
        b"/dev/fd" => return Some(number),
        _ => folder.strip_prefix(b"/proc/")?,
    };
    let process = process
        .strip_suffix(b"/fd")
        .or_else(|| process.strip_suffix(b"/fdinfo"))?;
    let process = process.split(|byte| *byte == b'/').next()?;
    let is_own = [&b"self"[..], b"thread-self"].contains(&process)
        || core::str::from_utf8(process).is_ok_and(|process| process.parse() == Ok(std::process::id()));
    is_own.then_some(number)
}

/// Notes that a program has looked at the names of the descriptor that a path names.
///
/// # Safety
///
/// `path` is null or a C string.
#[inline]
pub(super) unsafe fn seen_at(path: *const c_char) {
    if table::has_any() && !is_inside() {
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        if let Some(number) = unsafe { number_in(path) } {
            seen(number);
        }
    }
}

macro_rules! stats {
    ($($(#[doc = $doc:literal])+ fn $name:ident($($argument:ident: $kind:ty),*) by $by:ident($of:ident);)+) => {
        $(
            $(#[doc = $doc])+
            ///
            /// # Safety
            ///
            /// The INTERCEPT contract of [`entry`](crate::entry).
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
                let done = unsafe { next::$name($($argument),*) };
                if done == 0 {
                    stats!(@seen $by, $of);
                }
                done
            }
        )+
    };
    (@seen number, $of:ident) => { seen($of) };
    (@seen path, $of:ident) => {
        // SAFETY: the kernel has read this memory in the program's call, which has not returned yet.
        unsafe { seen_at($of) }
    };
}

stats! {
    /// `fstat(2)`.
    fn fstat(fd: c_int, to: *mut libc::stat) by number(fd);
    /// `fstat(2)` of programs with large files.
    fn fstat64(fd: c_int, to: *mut libc::stat64) by number(fd);
    /// `stat(2)`.
    fn stat(path: *const c_char, to: *mut libc::stat) by path(path);
    /// `stat(2)` of programs with large files.
    fn stat64(path: *const c_char, to: *mut libc::stat64) by path(path);
}

/// Notes that a program has looked at the names of what a folder's descriptor and a path name.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn seen_from(at: c_int, path: *const c_char, flags: c_int) {
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let is_empty = path.is_null() || is_readable(path, 1) && unsafe { path.read() } == 0;
    match flags & libc::AT_EMPTY_PATH != 0 && is_empty {
        true => seen(at),
        // SAFETY: `path` is null or a C string for this whole call, as this function's `# Safety`
        // section demands.
        false => unsafe { seen_at(path) },
    }
}

/// `fstatat(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fstatat(
    at: c_int,
    path: *const c_char,
    to: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let done = unsafe { next::fstatat(at, path, to, flags) };
    if done == 0 {
        // SAFETY: the kernel has read this memory in the program's call, which has not returned yet.
        unsafe { seen_from(at, path, flags) };
    }
    done
}

/// `fstatat(2)` of programs with large files.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fstatat64(
    at: c_int,
    path: *const c_char,
    to: *mut libc::stat64,
    flags: c_int,
) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let done = unsafe { next::fstatat64(at, path, to, flags) };
    if done == 0 {
        // SAFETY: the kernel has read this memory in the program's call, which has not returned yet.
        unsafe { seen_from(at, path, flags) };
    }
    done
}

/// `statx(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn statx(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut libc::statx,
) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let done = unsafe { next::statx(at, path, flags, mask, to) };
    if done == 0 {
        // SAFETY: the kernel has read this memory in the program's call, which has not returned yet.
        unsafe { seen_from(at, path, flags) };
    }
    done
}

/// `readlink(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn readlink(path: *const c_char, to: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let read = unsafe { next::readlink(path, to, len) };
    if read > 0 {
        // SAFETY: the kernel has read this memory in the program's call, which has not returned yet.
        unsafe { seen_at(path) };
    }
    read
}

/// `readlinkat(2)`. A program that has opened `/proc/self/fd` passes the number alone.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn readlinkat(
    at: c_int,
    path: *const c_char,
    to: *mut c_char,
    len: size_t,
) -> ssize_t {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let read = unsafe { next::readlinkat(at, path, to, len) };
    if read > 0 && table::has_any() && !is_inside() {
        // SAFETY: the kernel has read this memory in the program's call, which has not returned yet.
        let name = unsafe { CStr::from_ptr(path) };
        match name.to_str().map(str::parse) {
            Ok(Ok(number)) => seen(number),
            // SAFETY: the kernel has read `path` in the program's call, which has not returned yet.
            _ => unsafe { seen_at(path) },
        }
    }
    read
}

/// The protocol's name of a connection's descriptor, with the zero behind it, as the kernel writes
/// that of TCP.
fn protocol_of(number: c_int) -> Option<&'static CStr> {
    if !table::has(number) || is_inside() {
        return None;
    }
    let file = table::get(number)?;
    let domain = match &file.kind {
        Kind::Stream(stream) => stream.domain,
        Kind::Relayed(relayed) => relayed.domain,
        _ => return None,
    };
    Some(match domain {
        libc::AF_INET6 => c"TCPv6",
        _ => c"TCP",
    })
}

/// Reads an attribute of a connection. Returns `None` if the descriptor is no connection, or it is
/// another attribute.
///
/// # Safety
///
/// `name` is null or a C string; `value` is null or writable for so many bytes.
unsafe fn attribute(number: c_int, name: *const c_char, value: *mut c_void, size: size_t) -> Option<ssize_t> {
    let protocol = protocol_of(number)?.to_bytes_with_nul();
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    if !is_readable(name, 1) || unsafe { CStr::from_ptr(name) } != PROTOCOL {
        return None;
    }
    Some(answer(match size {
        0 => Ok(protocol.len() as ssize_t),
        size if size < protocol.len() => Err(Errno(libc::ERANGE)),
        _ if !is_writable(value.cast::<u8>(), protocol.len()) => Err(Errno::FAULT),
        _ => {
            // SAFETY: `value` has room for `size` bytes, as checked above. INTERCEPT contract: it
            // is valid until this call returns.
            unsafe {
                value
                    .cast::<u8>()
                    .copy_from_nonoverlapping(protocol.as_ptr(), protocol.len())
            };
            Ok(protocol.len() as ssize_t)
        }
    }))
}

/// `fgetxattr(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fgetxattr(
    fd: c_int,
    name: *const c_char,
    value: *mut c_void,
    size: size_t,
) -> ssize_t {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let own = unsafe { attribute(fd, name, value, size) };
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    own.unwrap_or_else(|| unsafe { next::fgetxattr(fd, name, value, size) })
}

/// `getxattr(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getxattr(
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: size_t,
) -> ssize_t {
    if table::has_any() && !is_inside() {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        let number = unsafe { number_in(path) };
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        if let Some(own) = number.and_then(|number| unsafe { attribute(number, name, value, size) }) {
            return own;
        }
    }
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { next::getxattr(path, name, value, size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_own_descriptor_names_its_number() {
        let number = |path: &CStr| {
            // SAFETY: `path` is a borrowed C string, valid for this call.
            unsafe { number_in(path.as_ptr()) }
        };
        for path in [
            c"/proc/self/fd/7",
            c"/proc/thread-self/fd/7",
            c"/proc/self/fdinfo/7",
            c"/proc/self/task/12/fd/7",
            c"/dev/fd/7",
        ] {
            assert_eq!(number(path), Some(7), "{path:?}");
        }
        for path in [
            c"",
            c"/proc/1/fd/7",
            c"/proc/self/fd/",
            c"/proc/self/fd/x",
            c"/proc/self/maps",
            c"/tmp/fd/7",
        ] {
            assert_eq!(number(path), None, "{path:?}");
        }
        // SAFETY: the function reads no path behind a null pointer.
        assert_eq!(unsafe { number_in(core::ptr::null()) }, None);
    }
}
