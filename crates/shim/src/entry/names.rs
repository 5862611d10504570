//! Addresses that programs pass, and `getsockname` and `getpeername`, which tell them.

use core::ffi::c_int;
use std::net::SocketAddr;

use libc::{sockaddr, socklen_t};
use toehold_posix::address::{self, Passed, SHORTEST_IPV6};
use toehold_posix::errno::{Errno, Outcome};

use super::on_stream;
use crate::answer::answer;
use crate::file::Kind;
use crate::inside::is_inside;
use crate::memory::{is_readable, is_writable};
use crate::socket::{Relayed, Stream};
use crate::{next, table};

/// Bytes of an IPv6 address with its port and scope, the longest that there are here.
const LONGEST: usize = size_of::<libc::sockaddr_in6>();

/// An address that a program passes.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the address of `connect(2)`.
pub(super) unsafe fn read_address(address: *const sockaddr, len: socklen_t) -> Outcome<Passed> {
    if len == 0 || len as usize > size_of::<libc::sockaddr_storage>() {
        return Err(Errno::INVAL);
    }
    if !is_readable(address.cast::<u8>(), (len as usize).min(LONGEST)) {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    unsafe { address::read(address, len) }
}

/// Whether an address is one that a socket of a domain connects to.
///
/// # Errors
///
/// EINVAL if the length is too short for an IPv6 address, EAFNOSUPPORT for another family, as the
/// kernel.
pub(super) fn check_family(domain: c_int, to: SocketAddr, len: socklen_t) -> Outcome<()> {
    match (domain, to.is_ipv6()) {
        (libc::AF_INET, false) | (libc::AF_INET6, true) => Ok(()),
        (libc::AF_INET6, false) if (len as usize) < SHORTEST_IPV6 => Err(Errno::INVAL),
        _ => Err(Errno::AFNOSUPPORT),
    }
}

/// Whether there is room for an address.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the pointers of `getsockname(2)`.
pub(super) unsafe fn room_for_name(name: *mut sockaddr, len: *mut socklen_t) -> Outcome<()> {
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let room = unsafe { super::wanted(len) }?.cast_signed();
    let room = usize::try_from(room).map_err(|_| Errno::INVAL)?;
    match is_writable(name.cast::<u8>(), room.min(LONGEST)) {
        true => Ok(()),
        false => Err(Errno::FAULT),
    }
}

/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the pointers of `getsockname(2)`.
unsafe fn name_end(
    of: SocketAddr,
    domain: c_int,
    name: *mut sockaddr,
    len: *mut socklen_t,
) -> Outcome<c_int> {
    // SAFETY: INTERCEPT contract: `len` is null, or valid until this call returns.
    unsafe { room_for_name(name, len) }?;
    // A program without any room is told how long the name is.
    let mut nowhere = [0; LONGEST];
    let name = match name.is_null() {
        true => nowhere.as_mut_ptr().cast(),
        false => name,
    };
    // SAFETY: INTERCEPT contract: `name` has room of `*len` bytes until this call returns.
    unsafe { address::write(of, domain, name, len) };
    Ok(0)
}

/// `getsockname(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getsockname(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: INTERCEPT contract: `name` has room of `*len` bytes until this call returns.
    let named = unsafe { name_of(fd, (name, len), Stream::local, Relayed::local) };
    named.unwrap_or_else(|| {
        let file = table::get(fd).filter(|_| !is_inside());
        let Some(Kind::Fresh(fresh)) = file.as_ref().map(|file| &file.kind) else {
            // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this
            // call.
            return unsafe { next::getsockname(fd, name, len) };
        };
        fresh.note_named();
        // SAFETY: INTERCEPT contract: `len` is null, or valid until this call returns.
        let room = unsafe { super::wanted(len) }.map_or(0, |len| *len as usize);
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        let named = unsafe { next::getsockname(fd, name, len) };
        if named == 0 && room >= LONGEST.min(size_of::<libc::sockaddr_in>()) {
            // SAFETY: the kernel has written the address to `name`. INTERCEPT contract: it is valid
            // until this call returns.
            unsafe { add_former_port(name, fresh.former_port()) };
        }
        named
    })
}

/// Adds the port of a connection that is over to the name of its socket, as the kernel does.
///
/// # Safety
///
/// `name` is an address that can be written to.
unsafe fn add_former_port(name: *mut sockaddr, port: u16) {
    let name = name.cast::<libc::sockaddr_in>();
    // SAFETY: the caller says so; the port of an IPv6 address is in the same place.
    unsafe {
        if (*name).sin_port == 0 {
            (*name).sin_port = port.to_be();
        }
    }
}

/// `getpeername(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getpeername(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: INTERCEPT contract: `name` has room of `*len` bytes until this call returns.
    let named = unsafe { name_of(fd, (name, len), Stream::peer, Relayed::peer) };
    // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
    named.unwrap_or_else(|| unsafe { next::getpeername(fd, name, len) })
}

/// One of the addresses of a connection.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the pointers of `getsockname(2)`.
unsafe fn name_of(
    fd: c_int,
    (name, len): (*mut sockaddr, *mut socklen_t),
    of_stream: impl Fn(&Stream) -> Outcome<SocketAddr>,
    of_relayed: impl Fn(&Relayed) -> Outcome<SocketAddr>,
) -> Option<c_int> {
    let named = on_stream(fd, |stream| {
        let of = of_stream(stream)?;
        // SAFETY: INTERCEPT contract: `name` has room of `*len` bytes until this call returns.
        unsafe { name_end(of, stream.domain, name, len) }
    });
    if named.is_some() {
        return named;
    }
    let file = table::get(fd).filter(|_| !is_inside())?;
    let Kind::Relayed(relayed) = &file.kind else {
        return None;
    };
    Some(answer(of_relayed(relayed).and_then(|of| {
        // SAFETY: INTERCEPT contract: `name` has room of `*len` bytes until this call returns.
        unsafe { name_end(of, relayed.domain, name, len) }
    })))
}
