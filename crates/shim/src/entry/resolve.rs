//! Names of nodes are names of hosts.

use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;

use libc::{addrinfo, hostent, size_t};

use crate::inside::{Inside, is_inside};
use crate::{dispatch, next, node, start};

/// The address of a node as text; `None` if there is no node of that name, or it is none.
///
/// # Safety
///
/// `name` is null or a C string.
unsafe fn address(name: *const c_char, family: c_int) -> Option<CString> {
    if name.is_null() || is_inside() || !start::is_wanted() {
        return None;
    }
    let _inside = Inside::enter();
    // Who connects to what is found may do so past libc.
    dispatch::look();
    // SAFETY: the caller says so.
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
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getaddrinfo(
    name: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    found: *mut *mut addrinfo,
) -> c_int {
    // SAFETY: the program passes hints, or none.
    let asked = unsafe { hints.as_ref() };
    let (family, flags) = asked.map_or((libc::AF_UNSPEC, 0), |hints| (hints.ai_family, hints.ai_flags));
    let address = match flags & libc::AI_NUMERICHOST {
        // SAFETY: the program passes a name, or none.
        0 => unsafe { address(name, family) },
        // It is no number.
        _ => None,
    };
    let Some(address) = address else {
        // SAFETY: as the program passed it.
        return unsafe { next::getaddrinfo(name, service, hints, found) };
    };
    // SAFETY: as the program passed it, but for the name.
    let done = unsafe { next::getaddrinfo(address.as_ptr(), service, hints, found) };
    if done == 0 {
        // SAFETY: libc has found something.
        unsafe { name_as_asked(*found, name) };
    }
    done
}

/// The name of what was found is the node's, and not its number, for who wants to know (AI_CANONNAME).
///
/// # Safety
///
/// `found` is libc's, and `name` a C string.
unsafe fn name_as_asked(found: *mut addrinfo, name: *const c_char) {
    // SAFETY: the caller says so; libc frees such a name by itself.
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

/// `gethostbyname(3)`.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn gethostbyname(name: *const c_char) -> *mut hostent {
    // SAFETY: the program passes a name.
    let address = unsafe { address(name, libc::AF_INET) };
    let name = address.as_ref().map_or(name, |address| address.as_ptr());
    // SAFETY: as the program passed it, but for the name.
    unsafe { next::gethostbyname(name) }
}

/// `gethostbyname2(3)`.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent {
    // SAFETY: the program passes a name.
    let address = unsafe { address(name, family) };
    let name = address.as_ref().map_or(name, |address| address.as_ptr());
    // SAFETY: as the program passed it, but for the name.
    unsafe { next::gethostbyname2(name, family) }
}

/// `gethostbyname_r(3)`.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn gethostbyname_r(
    name: *const c_char,
    entry: *mut hostent,
    buffer: *mut c_char,
    len: size_t,
    found: *mut *mut hostent,
    error: *mut c_int,
) -> c_int {
    // SAFETY: the program passes a name.
    let address = unsafe { address(name, libc::AF_INET) };
    let name = address.as_ref().map_or(name, |address| address.as_ptr());
    // SAFETY: as the program passed it, but for the name.
    unsafe { next::gethostbyname_r(name, entry, buffer, len, found, error) }
}
