//! Addresses that programs pass, and `getsockname` and `getpeername`, which tell them.

use core::ffi::c_int;
use std::net::SocketAddr;

use libc::{sockaddr, socklen_t};
use toehold_posix::address::{self, Passed};
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
/// As for `connect`.
pub(super) unsafe fn read_address(address: *const sockaddr, len: socklen_t) -> Outcome<Passed> {
    if !is_readable(address.cast::<u8>(), (len as usize).min(LONGEST)) {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller says so.
    unsafe { address::read(address, len) }
}

/// Whether there is room for an address.
///
/// # Safety
///
/// As for `getsockname`.
pub(super) unsafe fn room_for_name(name: *mut sockaddr, len: *mut socklen_t) -> Outcome<()> {
    // SAFETY: the caller says so.
    let room = unsafe { super::wanted(len) }?.cast_signed();
    let room = usize::try_from(room).map_err(|_| Errno::INVAL)?;
    match is_writable(name.cast::<u8>(), room.min(LONGEST)) {
        true => Ok(()),
        false => Err(Errno::FAULT),
    }
}

/// # Safety
///
/// As for `getsockname`.
unsafe fn name_end(
    of: SocketAddr,
    domain: c_int,
    name: *mut sockaddr,
    len: *mut socklen_t,
) -> Outcome<c_int> {
    // SAFETY: the program passes a length, or none.
    unsafe { room_for_name(name, len) }?;
    // SAFETY: the program passes room of that length.
    unsafe { address::write(of, domain, name, len) };
    Ok(0)
}

/// `getsockname(2)`.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getsockname(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the program passes room of that length.
    let named = unsafe { name_of(fd, (name, len), Stream::local, Relayed::local) };
    named.unwrap_or_else(|| {
        if let Some(file) = table::get(fd).filter(|_| !is_inside())
            && let Kind::Fresh(fresh) = &file.kind
        {
            fresh.note_named();
        }
        // SAFETY: what is not ours is as it was.
        unsafe { next::getsockname(fd, name, len) }
    })
}

/// `getpeername(2)`.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getpeername(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the program passes room of that length.
    let named = unsafe { name_of(fd, (name, len), Stream::peer, Relayed::peer) };
    // SAFETY: what is not ours is as it was.
    named.unwrap_or_else(|| unsafe { next::getpeername(fd, name, len) })
}

/// One of the addresses of a connection.
///
/// # Safety
///
/// As for `getsockname`.
unsafe fn name_of(
    fd: c_int,
    (name, len): (*mut sockaddr, *mut socklen_t),
    of_stream: impl Fn(&Stream) -> Outcome<SocketAddr>,
    of_relayed: impl Fn(&Relayed) -> Outcome<SocketAddr>,
) -> Option<c_int> {
    let named = on_stream(fd, |stream| {
        let of = of_stream(stream)?;
        // SAFETY: the program passes room of that length.
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
        // SAFETY: the program passes room of that length.
        unsafe { name_end(of, relayed.domain, name, len) }
    })))
}
