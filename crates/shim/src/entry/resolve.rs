//! Names of nodes, which are names of hosts.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::ffi::CString;

use libc::{addrinfo, hostent, size_t};

use crate::inside::{Inside, is_inside};
use crate::{dispatch, next, node, start};

/// The address of a node as text; `None` if there is no node of that name, or the text is no name.
///
/// # Safety
///
/// `name` is null or a C string.
unsafe fn address(name: *const c_char, family: c_int) -> Option<CString> {
    if name.is_null() || is_inside() || !start::is_wanted() {
        return None;
    }
    let _inside = Inside::enter();
    // The program may connect to the address past libc.
    dispatch::look();
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    // Names with dots are the world's; numbers are addresses.
    if name.is_empty() || name.contains(['.', ':']) || name.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let address = node::lookup(name, family == libc::AF_INET6)?;
    CString::new(address.to_string()).ok()
}

/// `getaddrinfo(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getaddrinfo(
    name: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    found: *mut *mut addrinfo,
) -> c_int {
    // SAFETY: INTERCEPT contract: `hints` is null, or valid until this call returns.
    let asked = unsafe { hints.as_ref() };
    let (family, flags) = asked.map_or((libc::AF_UNSPEC, 0), |hints| (hints.ai_family, hints.ai_flags));
    let address = match flags & libc::AI_NUMERICHOST {
        // SAFETY: INTERCEPT contract: `name` is null, or a C string until this call returns.
        0 => unsafe { address(name, family) },
        // It is no number.
        _ => None,
    };
    let Some(address) = address else {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        return unsafe { next::getaddrinfo(name, service, hints, found) };
    };
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call. `address` is a
    // C string that lives until the call returns.
    let done = unsafe { next::getaddrinfo(address.as_ptr(), service, hints, found) };
    if done == 0 {
        // SAFETY: libc has returned 0, so `*found` is a list of its own, which the program frees
        // after this call.
        unsafe { name_as_asked(*found, name) };
    }
    done
}

/// Writes the node's name as the canonical name (AI_CANONNAME), if the program asked for it, instead of the
/// address.
///
/// # Safety
///
/// `found` is libc's, and `name` a C string.
unsafe fn name_as_asked(found: *mut addrinfo, name: *const c_char) {
    // SAFETY: `found` is a list of libc's, as the caller guarantees. libc frees such a name with
    // the list.
    unsafe {
        if (*found).ai_canonname.is_null() {
            return;
        }
        let named = libc::strdup(name);
        if !named.is_null() {
            libc::free((*found).ai_canonname.cast());
            (*found).ai_canonname = named;
        }
    }
}

/// Bytes of a name that [`gethostbyname`] gives, with the zero at its end, at most: a node's is shorter.
const NAME: usize = 256;

/// Writes the node's name instead of its number into an answer in memory of libc's own, which the
/// next answer takes.
///
/// # Safety
///
/// `found` is libc's, or null, and `name` a C string.
unsafe fn named(found: *mut hostent, name: *const c_char) -> *mut hostent {
    static LAST: [AtomicU8; NAME] = [const { AtomicU8::new(0) }; NAME];
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    if let Some(found) = unsafe { found.as_mut() } {
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
        if name.len() <= NAME {
            LAST.iter()
                .zip(name)
                .for_each(|(last, &byte)| last.store(byte, Relaxed));
            found.h_name = LAST.as_ptr().cast_mut().cast();
        }
    }
    found
}

/// `gethostbyname(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn gethostbyname(name: *const c_char) -> *mut hostent {
    // SAFETY: INTERCEPT contract: the program passes a name, valid for this call.
    match unsafe { address(name, libc::AF_INET) } {
        // SAFETY: a C string; libc's answer is as it is said there, and so is the name.
        Some(address) => unsafe { named(next::gethostbyname(address.as_ptr()), name) },
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        None => unsafe { next::gethostbyname(name) },
    }
}

/// `gethostbyname2(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent {
    // SAFETY: INTERCEPT contract: the program passes a name, valid for this call.
    match unsafe { address(name, family) } {
        // SAFETY: a C string; libc's answer is as it is said there, and so is the name.
        Some(address) => unsafe { named(next::gethostbyname2(address.as_ptr(), family), name) },
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        None => unsafe { next::gethostbyname2(name, family) },
    }
}

/// `gethostbyname_r(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn gethostbyname_r(
    name: *const c_char,
    entry: *mut hostent,
    buffer: *mut c_char,
    len: size_t,
    found: *mut *mut hostent,
    error: *mut c_int,
) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { gethostbyname2_r(name, libc::AF_INET, entry, buffer, len, found, error) }
}

/// `gethostbyname2_r(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn gethostbyname2_r(
    name: *const c_char,
    family: c_int,
    entry: *mut hostent,
    buffer: *mut c_char,
    len: size_t,
    found: *mut *mut hostent,
    error: *mut c_int,
) -> c_int {
    // SAFETY: INTERCEPT contract: the program passes a name, valid for this call.
    let Some(address) = (unsafe { address(name, family) }) else {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        return unsafe { next::gethostbyname2_r(name, family, entry, buffer, len, found, error) };
    };
    // The node's name is at the end of the room, which is too small if there is none for libc then.
    // SAFETY: INTERCEPT contract: the program passes a name, valid for this call.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    let rest = len.saturating_sub(name.len());
    // SAFETY: as the program passed it, but for the name and with less room.
    let done = unsafe { next::gethostbyname2_r(address.as_ptr(), family, entry, buffer, rest, found, error) };
    // SAFETY: libc has returned 0, so it has written to `found`. INTERCEPT contract: it is valid
    // until this call returns.
    if done == 0 && !unsafe { *found }.is_null() {
        // SAFETY: of the room, libc was told of the first `rest` bytes only, which are fewer than all
        // since they were enough; the entry is the program's.
        unsafe {
            let place = buffer.add(rest);
            place.copy_from(name.as_ptr().cast(), name.len());
            (*entry).h_name = place;
        }
    }
    done
}
