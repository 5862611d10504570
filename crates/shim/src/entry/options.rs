//! `getsockopt` and `setsockopt`.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use std::os::fd::AsRawFd;

use libc::socklen_t;
use toehold_posix::errno::{Errno, Outcome};
use toehold_posix::options::{Meaning, meaning};

use crate::answer::answer;
use crate::file::{File, Kind};
use crate::inside::{Inside, is_inside};
use crate::memory::{is_readable, is_writable};
use crate::socket::{InheritedListener, Value, is_kernels_alone, is_refused};
use crate::table::Used;
use crate::{next, relay, table};

/// Bytes of an option's value that are looked at, at most.
const LONGEST: usize = 256;

/// `setsockopt(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let Some(mut file) = table::get(fd).filter(|_| !is_inside()) else {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
        return unsafe { next::setsockopt(fd, level, name, value, len) };
    };
    let _inside = Inside::enter();
    if len.cast_signed() < 0 {
        return answer(Err(Errno::INVAL));
    }
    let looked_at = (len as usize).min(LONGEST);
    let bytes = if value.is_null() || !is_readable(value.cast::<u8>(), looked_at) {
        &[]
    } else {
        // SAFETY: INTERCEPT contract: `value` has `len` bytes until this call returns.
        unsafe { core::slice::from_raw_parts(value.cast::<u8>(), looked_at) }
    };
    if let Some(errno) = refuses(&file.kind, level, name, bytes) {
        return answer(Err(errno));
    }
    if let Kind::Stream(stream) = &file.kind {
        if bytes.is_empty() && len > 0 {
            return answer(Err(Errno::FAULT));
        }
        let outcome = stream.set_option(level, name, bytes);
        match carried(&file, fd, outcome.err()) {
            Some(carried) => file = carried,
            None => return answer(outcome),
        }
    }
    if let Kind::Relayed(relayed) = &file.kind
        && let Some(outcome) = relayed.set_option(level, name, bytes)
    {
        return answer(outcome);
    }
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let set = unsafe { next::setsockopt(fd, level, name, value, len) };
    if set == 0 {
        match &file.kind {
            Kind::Fresh(fresh) | Kind::Found(InheritedListener { fresh, .. }) => {
                fresh.note_option(level, name, bytes)
            }
            Kind::Listener(listener) => listener.note_option(level, name, bytes),
            Kind::Stream(_) | Kind::Forwarded(_) | Kind::Relayed(_) | Kind::Epoll(_) => {}
        }
    }
    set
}

/// The error of a socket that does not take an option that would have no effect on it, or on the
/// connections that it has.
fn refuses(kind: &Kind, level: c_int, name: c_int, value: &[u8]) -> Option<Errno> {
    if !may_be_nodes(kind) {
        return None;
    }
    match meaning(level, name, value) {
        // No engine would report when the bytes sent are free again, nor when they have left.
        Ok(Meaning::ZeroCopy(false)) => return None,
        Err(Errno::INVAL) if asks_for_stamps(level, name, value) => return Some(Errno::INVAL),
        _ => {}
    }
    let alone = || match kind {
        // A listener of the node's is there already.
        Kind::Listener(_) | Kind::Found(_) => is_kernels_alone(level, name, value),
        _ => None,
    };
    is_refused(level, name).or_else(alone)
}

/// Whether it is SO_TIMESTAMPING, of which a node has not all.
fn asks_for_stamps(level: c_int, name: c_int, value: &[u8]) -> bool {
    /// SO_TIMESTAMPING_NEW.
    const NEW: c_int = 65;
    level == libc::SOL_SOCKET
        && [libc::SO_TIMESTAMPING, NEW].contains(&name)
        && value.len() >= size_of::<c_int>()
}

/// Whether it is a connection of the node's, or has some, or may have.
fn may_be_nodes(kind: &Kind) -> bool {
    match kind {
        Kind::Fresh(_) | Kind::Stream(_) | Kind::Listener(_) | Kind::Found(_) => true,
        Kind::Forwarded(_) | Kind::Relayed(_) | Kind::Epoll(_) => false,
    }
}

/// `getsockopt(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let file = table::get(fd).filter(|_| !is_inside());
    let _inside = Inside::enter();
    let look = |file: &File| match &file.kind {
        Kind::Stream(stream) => Some(stream.option(level, name)),
        Kind::Relayed(relayed) => relayed.option(level, name),
        _ => None,
    };
    let mut found = file.as_deref().and_then(look);
    if let (Some(file), Some(Err(errno))) = (&file, &found)
        && let Some(carried) = carried(file, fd, Some(*errno))
    {
        found = look(&carried);
    }
    if let Some(Ok(Value::Shadow(shadow))) = found {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        return unsafe { next::getsockopt(shadow.as_raw_fd(), level, name, value, len) };
    }
    if let Some(found) = found.filter(|found| !matches!(found, Ok(Value::Descriptor))) {
        // SAFETY: INTERCEPT contract: `value` has room of `*len` bytes until this call returns.
        return answer(unsafe { give(found, value, len) });
    }
    // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
    let got = unsafe { next::getsockopt(fd, level, name, value, len) };
    if got == 0
        && (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO)
        && let Some(Kind::Listener(listener)) = file.as_deref().map(|file| &file.kind)
    {
        // SAFETY: the kernel has written `*len` bytes to `value`. INTERCEPT contract: both are
        // valid until this call returns.
        let told = unsafe { core::slice::from_raw_parts_mut(value.cast::<u8>(), *len as usize) };
        add_waiting(told, listener.inner.waiting().unwrap_or(0));
    }
    got
}

/// Adds the connections that wait on the node to those that the kernel has told of in TCP_INFO.
fn add_waiting(told: &mut [u8], waiting: u32) {
    let at = offset_of!(libc::tcp_info, tcpi_unacked);
    if let Some(Ok(bytes)) = told.get(at..at + size_of::<u32>()).map(<[u8; 4]>::try_from) {
        let all = u32::from_ne_bytes(bytes) + waiting;
        told[at..at + bytes.len()].copy_from_slice(&all.to_ne_bytes());
    }
}

/// The kind of a connection that a call has found without an owner. The engine carries its bytes by now.
#[cold]
fn carried(file: &File, number: c_int, errno: Option<Errno>) -> Option<Used> {
    let is_carried = errno == Some(Errno::BADF) && relay::settle(file, number);
    is_carried.then(|| table::get(number)).flatten()
}

/// # Safety
///
/// `value` and `len` are null, or `len` is readable and writable and `value` writable for as
/// many bytes as it says.
unsafe fn give(found: Outcome<Value>, value: *mut c_void, len: *mut socklen_t) -> Outcome<c_int> {
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let len = unsafe { super::wanted(len) }?;
    let room = usize::try_from(len.cast_signed()).map_err(|_| Errno::INVAL)?;
    let found = found?;
    if let Value::Whole(bytes) = &found
        && bytes.len() < room
    {
        return Err(Errno::INVAL);
    }
    if let Value::Unbroken(bytes) = &found
        && bytes.len() > room
    {
        return Err(Errno::INVAL);
    }
    let found = match found {
        Value::OfIpv4(number) => match u8::try_from(number) {
            Ok(small) if (1..size_of::<c_int>()).contains(&room) => Value::Bytes(vec![small]),
            _ => Value::Bytes(number.to_ne_bytes().to_vec()),
        },
        found => found,
    };
    if let Value::Bytes(bytes) | Value::Whole(bytes) | Value::Unbroken(bytes) = found {
        let used = bytes.len().min(room);
        if !is_writable(value.cast::<u8>(), used) {
            return Err(Errno::FAULT);
        }
        // SAFETY: `value` was checked to have room for `used` bytes. INTERCEPT contract: it is
        // valid until this call returns.
        unsafe { value.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), used) };
        *len = used as socklen_t;
    }
    Ok(0)
}
