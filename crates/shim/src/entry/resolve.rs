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
    let family = unsafe { hints.as_ref() }.map_or(libc::AF_UNSPEC, |hints| hints.ai_family);
    // SAFETY: the program passes a name, or none.
    let address = unsafe { address(name, family) };
    let name = address.as_ref().map_or(name, |address| address.as_ptr());
    // SAFETY: as the program passed it, but for the name.
    unsafe { next::getaddrinfo(name, service, hints, found) }
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
