//! `read`, `recv` and their variants.

use core::ffi::{c_int, c_uint, c_void};
use std::io::IoSliceMut;
use std::time::Instant;

use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};
use toehold_posix::errno::{Errno, Outcome};
use toehold_posix::memory::is_beyond;
use toehold_posix::message::put_controls;
use toehold_posix::{address, extended_error};

use super::{count, on_stream, parts_of, room, rooms};
use crate::inside::is_inside;
use crate::memory::is_writable;
use crate::socket::{Stream, scatter};
use crate::{diagnosis, next, rights, start};

/// `read(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: INTERCEPT contract: `buffer` has `len` bytes until this call returns.
    let read = on_stream(fd, |stream| {
        if len == 0 {
            return Ok(0);
        }
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        stream.receive(&mut [unsafe { room(buffer, len) }?], 0)
    });
    // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
    read.unwrap_or_else(|| unsafe { next::read(fd, buffer, len) })
}

/// `read(2)` as programs are compiled that check the buffer's size.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    size: size_t,
) -> ssize_t {
    check(len, size);
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { read(fd, buffer, len) }
}

/// `readv(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn readv(fd: c_int, parts: *const iovec, number: c_int) -> ssize_t {
    // SAFETY: INTERCEPT contract: `parts` points to `number` parts until this call returns.
    let read = on_stream(fd, |stream| {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        read_into(stream, &mut unsafe { rooms(parts, count(number)?) }?, Ok(0))
    });
    // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
    read.unwrap_or_else(|| unsafe { next::readv(fd, parts, number) })
}

/// Receives into buffers. Reading nothing waits for nothing, other than receiving nothing.
fn read_into(stream: &Stream, buffers: &mut [IoSliceMut<'_>], flags: Outcome<c_int>) -> Outcome<ssize_t> {
    match buffers.iter().all(|buffer| buffer.is_empty()) {
        true => Ok(0),
        false => stream.receive(buffers, flags?),
    }
}

/// Whether a place that `preadv2(2)` or `pwritev2(2)` is given is the present one.
pub(super) fn check_place(offset: off_t) -> Outcome<()> {
    match offset {
        -1 => Ok(()),
        ..-1 => Err(Errno::INVAL),
        _ => Err(Errno::SPIPE),
    }
}

/// The flags of `preadv2(2)` and `pwritev2(2)` as those of a socket's call.
pub(super) fn flags_of(flags: c_int) -> Outcome<c_int> {
    const NO_APPEND: c_int = 0x20;
    const BOTH: c_int = libc::RWF_APPEND | NO_APPEND;
    const KNOWN: c_int = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_NOWAIT | BOTH;
    // Those that there are for files alone.
    const OF_FILES: c_int = 0xc0;
    match flags {
        _ if flags & !(KNOWN | OF_FILES) != 0 => Err(Errno::OPNOTSUPP),
        _ if flags & BOTH == BOTH => Err(Errno::INVAL),
        _ if flags & OF_FILES != 0 => Err(Errno::OPNOTSUPP),
        _ if flags & libc::RWF_NOWAIT != 0 => Ok(libc::MSG_DONTWAIT),
        _ => Ok(0),
    }
}

/// `preadv2(2)`: a socket has no place to read at but the present one.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn preadv2(
    fd: c_int,
    parts: *const iovec,
    number: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    let read = on_stream(fd, |stream| {
        check_place(offset)?;
        // SAFETY: INTERCEPT contract: `parts` points to `number` parts until this call returns.
        read_into(
            stream,
            &mut unsafe { rooms(parts, count(number)?) }?,
            flags_of(flags),
        )
    });
    // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
    read.unwrap_or_else(|| unsafe { next::preadv2(fd, parts, number, offset, flags) })
}

/// `preadv2(2)` of programs with large files.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn preadv64v2(
    fd: c_int,
    parts: *const iovec,
    number: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { preadv2(fd, parts, number, offset, flags) }
}

/// `recv(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: INTERCEPT contract: `buffer` has `len` bytes until this call returns.
    let received = on_stream(fd, |stream| {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        unsafe { receive(stream, buffer, len, flags) }
    });
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let received = received.or_else(|| unsafe { diagnosis::receive_bytes(fd, (buffer, len), flags) });
    // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
    received.unwrap_or_else(|| unsafe { next::recv(fd, buffer, len, flags) })
}

/// Receives into a buffer, if it is to be written to.
///
/// # Safety
///
/// The program passes a buffer of that length.
unsafe fn receive(stream: &Stream, buffer: *mut c_void, len: size_t, flags: c_int) -> Outcome<ssize_t> {
    match discards(flags) {
        true if is_beyond(buffer, len) => Err(Errno::FAULT),
        true => stream.discard(len, flags),
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        false => stream.receive(&mut [unsafe { room(buffer, len) }?], flags),
    }
}

/// Whether a call throws away the bytes that it takes, so that no buffer is touched (tcp(7)).
fn discards(flags: c_int) -> bool {
    flags & (libc::MSG_TRUNC | libc::MSG_OOB | libc::MSG_ERRQUEUE) == libc::MSG_TRUNC
}

/// `recv(2)` as programs are compiled that check the buffer's size.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    size: size_t,
    flags: c_int,
) -> ssize_t {
    check(len, size);
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { recv(fd, buffer, len, flags) }
}

/// `recvfrom(2)`. TCP names no sender.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    let received = on_stream(fd, |stream| {
        // SAFETY: INTERCEPT contract: `buffer` has `len` bytes until this call returns.
        let received = unsafe { receive(stream, buffer, len, flags) }?;
        if !from.is_null() {
            // SAFETY: INTERCEPT contract: `from_len` is null, or valid until this call returns.
            let from_len = unsafe { super::wanted(from_len) }?;
            if from_len.cast_signed() < 0 {
                return Err(Errno::INVAL);
            }
            *from_len = 0;
        }
        Ok(received)
    });
    // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
    received.unwrap_or_else(|| unsafe { next::recvfrom(fd, buffer, len, flags, from, from_len) })
}

/// `recvfrom(2)` as programs are compiled that check the buffer's size.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    size: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    check(len, size);
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { recvfrom(fd, buffer, len, flags, from, from_len) }
}

/// `recvmsg(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: INTERCEPT contract: the program passes a message, valid for this call.
    let received = on_stream(fd, |stream| unsafe { receive_message(stream, message, flags) });
    if let Some(received) = received {
        return received;
    }
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    if let Some(received) = unsafe { diagnosis::receive_message(fd, message, flags) } {
        return received;
    }
    // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
    let received = unsafe { next::recvmsg(fd, message, flags) };
    if received >= 0 && start::is_wanted() && !is_inside() {
        // SAFETY: the kernel has just filled in `message`. INTERCEPT contract: it is valid until
        // this call returns.
        unsafe { rights::received(&*message) };
    }
    received
}

/// `recvmmsg(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    number: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let received = on_stream(fd, |stream| {
        // SAFETY: INTERCEPT contract: `timeout` is null, or valid until this call returns.
        let limit = unsafe { super::span(timeout) }?;
        let began = Instant::now();
        let mut done = 0;
        for index in 0..number as usize {
            // SAFETY: INTERCEPT contract: `messages` points to `number` messages, or fewer that can
            // be used, until this call returns.
            let message = match unsafe { super::wanted(messages.wrapping_add(index)) } {
                Ok(message) => message,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            };
            let how = match index {
                0 => flags & !libc::MSG_WAITFORONE,
                _ if flags & libc::MSG_WAITFORONE != 0 => flags | libc::MSG_DONTWAIT,
                _ => flags,
            };
            // SAFETY: INTERCEPT contract: the message is the program's, and valid until this call
            // returns.
            match unsafe { receive_message(stream, &mut message.msg_hdr, how & !libc::MSG_WAITFORONE) } {
                Ok(len) => message.msg_len = len as c_uint,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
            done += 1;
            // The time is looked at between messages only, as recvmmsg(2) says.
            if how & libc::MSG_OOB != 0 || limit.is_some_and(|limit| began.elapsed() >= limit) {
                break;
            }
        }
        Ok(done)
    });
    if let Some(received) = received {
        return received;
    }
    // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
    let received = unsafe { next::recvmmsg(fd, messages, number, flags, timeout) };
    if start::is_wanted() && !is_inside() {
        for index in 0..usize::try_from(received).unwrap_or(0) {
            // SAFETY: the kernel has filled in `received` messages. INTERCEPT contract: they are
            // valid until this call returns.
            unsafe { rights::received(&(*messages.add(index)).msg_hdr) };
        }
    }
    received
}

/// # Safety
///
/// `message` is null or a message of the program's.
unsafe fn receive_message(stream: &Stream, message: *mut msghdr, flags: c_int) -> Outcome<ssize_t> {
    check_flags(flags)?;
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let message = unsafe { super::wanted(message) }?;
    if !message.msg_name.is_null() && message.msg_namelen.cast_signed() < 0 {
        return Err(Errno::INVAL);
    }
    let count = parts_of(message)?;
    if flags & libc::MSG_ERRQUEUE != 0 {
        // SAFETY: INTERCEPT contract: the message is the program's, and valid until this call
        // returns.
        return unsafe { receive_report(stream, message, count) };
    }
    let received = match discards(flags) {
        true => {
            // SAFETY: INTERCEPT contract: the message is the program's, and valid until this call
            // returns.
            let parts = unsafe { super::parts(message.msg_iov, count) }?;
            if parts.iter().any(|part| is_beyond(part.iov_base, part.iov_len)) {
                return Err(Errno::FAULT);
            }
            let len = parts
                .iter()
                .fold(0_usize, |len, part| len.saturating_add(part.iov_len));
            stream.discard(len, flags)?
        }
        // SAFETY: INTERCEPT contract: the message is the program's, and valid until this call
        // returns.
        false => stream.receive(&mut unsafe { rooms(message.msg_iov, count) }?, flags)?,
    };
    if !message.msg_name.is_null() {
        message.msg_namelen = 0;
    }
    message.msg_flags = flags & (libc::MSG_OOB | libc::MSG_CMSG_CLOEXEC);
    let controls = stream.controls();
    if !controls.is_empty() && is_writable(message.msg_control.cast::<u8>(), message.msg_controllen) {
        // SAFETY: INTERCEPT contract: `msg_control` has room for `msg_controllen` bytes until this
        // call returns.
        unsafe { put_controls(message, &controls) };
    } else {
        message.msg_controllen = 0;
    }
    Ok(received)
}

/// Receives the network's report about an attempt to connect, which is taken once.
///
/// # Safety
///
/// The message is one of the program's, with so many parts.
unsafe fn receive_report(stream: &Stream, message: &mut msghdr, count: usize) -> Outcome<ssize_t> {
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let mut rooms = unsafe { rooms(message.msg_iov, count) }?;
    let report = stream.take_report()?;
    let received = scatter(&report.quoted, &mut rooms);
    message.msg_flags = libc::MSG_ERRQUEUE;
    if received < report.quoted.len() {
        message.msg_flags |= libc::MSG_TRUNC;
    }
    let name = extended_error::name(&report, stream.domain);
    if is_writable(message.msg_name.cast::<u8>(), message.msg_namelen as usize) {
        // SAFETY: INTERCEPT contract: `msg_name` has room for `msg_namelen` bytes until this call
        // returns.
        unsafe { address::write_bytes(&name, message.msg_name.cast(), &raw mut message.msg_namelen) };
    }
    let controls = [extended_error::control(&report, stream.domain)];
    if is_writable(message.msg_control.cast::<u8>(), message.msg_controllen) {
        // SAFETY: INTERCEPT contract: `msg_control` has room for `msg_controllen` bytes until this
        // call returns.
        unsafe { put_controls(message, &controls) };
    } else {
        message.msg_controllen = 0;
    }
    Ok(received as ssize_t)
}

/// Checks the flags, of which one is the kernel's own.
pub(super) fn check_flags(flags: c_int) -> Outcome<()> {
    if flags < 0 { Err(Errno::INVAL) } else { Ok(()) }
}

/// Ends the program if a buffer is too small for the call, as libc does.
fn check(len: size_t, size: size_t) {
    unsafe extern "C" {
        fn __chk_fail() -> !;
    }
    if len > size {
        // SAFETY: `__chk_fail` takes no argument and ends the program, so nothing is used
        // afterwards.
        unsafe { __chk_fail() }
    }
}
