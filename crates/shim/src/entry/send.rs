//! `write`, `send` and their variants.

use core::ffi::{c_int, c_uint, c_void};
use std::io::IoSlice;

use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};
use toehold_posix::errno::{Errno, Outcome};
use toehold_posix::message::check_control;

use super::receive::{check_flags, check_place, flags_of};
use super::{bytes, count, gathered, on_stream, parts_of};
use crate::answer::{answer, errno};
use crate::memory::is_readable;
use crate::socket::Stream;
use crate::{diagnosis, next};

/// Sends a signal to a program that writes to an ended connection, unless it said otherwise.
#[inline]
fn pipe<T: PartialEq + crate::answer::Number>(sent: T, flags: c_int) -> T {
    if sent == T::FAILED && errno() == libc::EPIPE && flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: `raise` takes no pointer. It sends this thread a signal, as the kernel's call
        // would.
        unsafe { libc::raise(libc::SIGPIPE) };
        crate::answer::set_errno(libc::EPIPE);
    }
    sent
}

/// `write(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: INTERCEPT contract: `buffer` has `len` bytes until this call returns.
    match on_stream(fd, |stream| stream.send(&[unsafe { bytes(buffer, len) }?], 0)) {
        Some(sent) => pipe(sent, 0),
        // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
        None => unsafe { next::write(fd, buffer, len) },
    }
}

/// `writev(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, number: c_int) -> ssize_t {
    // SAFETY: INTERCEPT contract: `parts` points to `number` parts until this call returns.
    match on_stream(fd, |stream| {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        write_from(stream, &unsafe { gathered(parts, count(number)?) }?, Ok(0))
    }) {
        Some(sent) => pipe(sent, 0),
        // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
        None => unsafe { next::writev(fd, parts, number) },
    }
}

/// Sends parts. Writing no parts does nothing, other than sending them.
fn write_from(stream: &Stream, parts: &[IoSlice<'_>], flags: Outcome<c_int>) -> Outcome<ssize_t> {
    match parts.iter().all(|part| part.is_empty()) {
        true => Ok(0),
        false => stream.send(parts, flags?),
    }
}

/// `pwritev2(2)`: a socket has no place to write at but the present one.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pwritev2(
    fd: c_int,
    parts: *const iovec,
    number: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    let sent = on_stream(fd, |stream| {
        check_place(offset)?;
        // SAFETY: INTERCEPT contract: `parts` points to `number` parts until this call returns.
        write_from(
            stream,
            &unsafe { gathered(parts, count(number)?) }?,
            flags_of(flags),
        )
    });
    match sent {
        Some(sent) => pipe(sent, 0),
        // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
        None => unsafe { next::pwritev2(fd, parts, number, offset, flags) },
    }
}

/// `pwritev2(2)` of programs with large files.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pwritev64v2(
    fd: c_int,
    parts: *const iovec,
    number: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { pwritev2(fd, parts, number, offset, flags) }
}

/// `send(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: INTERCEPT contract: `buffer` has `len` bytes until this call returns.
    match on_stream(fd, |stream| stream.send(&[unsafe { bytes(buffer, len) }?], flags)) {
        Some(sent) => pipe(sent, flags),
        // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
        None => unsafe { next::send(fd, buffer, len, flags) },
    }
}

/// `sendto(2)`. A connected socket sends to its peer, whatever address is given, as long as it can be read.
/// With MSG_FASTOPEN it connects first.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    match unsafe { open(fd, flags, (to, to_len)) } {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        Some(Ok(_)) => return unsafe { send(fd, buffer, len, flags & !libc::MSG_FASTOPEN) },
        Some(Err(errno)) => return answer(Err(errno)),
        None => {}
    }
    // SAFETY: INTERCEPT contract: `buffer` has `len` bytes until this call returns.
    match on_stream(fd, |stream| {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        let buffer = unsafe { bytes(buffer, len) }?;
        check_address(to, to_len)?;
        stream.send(&[buffer], flags)
    }) {
        Some(sent) => pipe(sent, flags),
        None => {
            // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this
            // call.
            let sent = unsafe { next::sendto(fd, buffer, len, flags, to, to_len) };
            if sent > 0 {
                let part = iovec {
                    iov_base: buffer.cast_mut(),
                    iov_len: len,
                };
                // SAFETY: the kernel has read this memory in the program's call, which has not returned yet.
                unsafe { diagnosis::sent(fd, to, to_len, (&raw const part, 1)) };
            }
            sent
        }
    }
}

/// `sendmsg(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: INTERCEPT contract: the program passes a message, valid for this call.
    if let Ok(message) = unsafe { super::passed(message) } {
        // SAFETY: INTERCEPT contract: `msg_name` is null, or has `msg_namelen` bytes until this
        // call returns.
        match unsafe { open(fd, flags, (message.msg_name.cast(), message.msg_namelen)) } {
            // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
            Some(Ok(_)) => return unsafe { sendmsg(fd, message, flags & !libc::MSG_FASTOPEN) },
            Some(Err(errno)) => return answer(Err(errno)),
            None => {}
        }
        // SAFETY: INTERCEPT contract: the message is the program's, and valid until this call
        // returns.
        unsafe { crate::rights::note(message) };
    }
    // SAFETY: INTERCEPT contract: the program passes a message, valid for this call.
    match on_stream(fd, |stream| unsafe { send_message(stream, message, flags) }) {
        Some(sent) => pipe(sent, flags),
        None => {
            // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this
            // call.
            let sent = unsafe { next::sendmsg(fd, message, flags) };
            if sent > 0 {
                // SAFETY: the kernel has read this memory in the program's call, which has not returned yet.
                unsafe {
                    let msghdr {
                        msg_name,
                        msg_namelen,
                        msg_iov,
                        msg_iovlen,
                        ..
                    } = *message;
                    diagnosis::sent(fd, msg_name.cast(), msg_namelen, (msg_iov, msg_iovlen));
                }
            }
            sent
        }
    }
}

/// `sendmmsg(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    number: c_uint,
    flags: c_int,
) -> c_int {
    let number = number.min(libc::UIO_MAXIOV as c_uint);
    if flags & libc::MSG_FASTOPEN != 0
        && number > 0
        // SAFETY: INTERCEPT contract: `messages` is null, or points to a message that is valid
        // until this call returns.
        && let Ok(first) = unsafe { super::wanted(messages) }
    {
        let to = (
            first.msg_hdr.msg_name.cast_const().cast(),
            first.msg_hdr.msg_namelen,
        );
        // SAFETY: INTERCEPT contract: `msg_name` is null, or has `msg_namelen` bytes until this
        // call returns.
        match unsafe { open(fd, flags, to) } {
            // Each further message is to open a connection as well, which there is by then.
            Some(Ok(_)) => {
                // SAFETY: INTERCEPT contract: the message is the program's, and valid until this
                // call returns.
                let sent = unsafe { sendmsg(fd, &first.msg_hdr, flags & !libc::MSG_FASTOPEN) };
                first.msg_len = sent.max(0) as c_uint;
                return if sent < 0 { -1 } else { 1 };
            }
            Some(Err(errno)) => return answer(Err(errno)),
            None => {}
        }
    }
    for index in 0..number as usize {
        // SAFETY: INTERCEPT contract: `messages` points to `number` messages, or fewer that can be
        // used, until this call returns.
        let Ok(message) = (unsafe { super::wanted(messages.wrapping_add(index)) }) else {
            break;
        };
        // SAFETY: INTERCEPT contract: the message is the program's, and valid until this call
        // returns.
        unsafe { crate::rights::note(&message.msg_hdr) };
    }
    let sent = on_stream(fd, |stream| {
        let mut done = 0;
        for index in 0..number as usize {
            // SAFETY: INTERCEPT contract: the program passes so many messages, or fewer that can be
            // used, valid for this call.
            let message = match unsafe { super::wanted(messages.wrapping_add(index)) } {
                Ok(message) => message,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            };
            // SAFETY: INTERCEPT contract: the message is the program's, and valid until this call
            // returns.
            match unsafe { send_message(stream, &message.msg_hdr, flags) } {
                Ok(len) => message.msg_len = len as c_uint,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
            done += 1;
        }
        Ok(done)
    });
    match sent {
        Some(sent) => pipe(sent, flags),
        // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
        None => unsafe { next::sendmmsg(fd, messages, number, flags) },
    }
}

/// # Safety
///
/// `message` is null or a message of the program's.
unsafe fn send_message(stream: &Stream, message: *const msghdr, flags: c_int) -> Outcome<ssize_t> {
    check_flags(flags)?;
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let message = unsafe { super::passed(message) }?;
    if !message.msg_name.is_null() {
        if message.msg_namelen.cast_signed() < 0 {
            return Err(Errno::INVAL);
        }
        // What is too long is cut off.
        check_address(message.msg_name.cast(), message.msg_namelen.min(LONGEST_ADDRESS))?;
    }
    // SAFETY: INTERCEPT contract: the message is the program's, and valid until this call returns.
    let buffers = unsafe { gathered(message.msg_iov, parts_of(message)?) }?;
    if message.msg_controllen > LONGEST_CONTROL {
        return Err(Errno(libc::ENOBUFS));
    }
    if message.msg_controllen > 0 {
        if !is_readable(message.msg_control.cast::<u8>(), message.msg_controllen) {
            return Err(Errno::FAULT);
        }
        // SAFETY: `msg_control` was just checked to have so many readable bytes. The program keeps
        // them until its call returns.
        unsafe { check_control(message) }?;
    }
    stream.send(&buffers, flags)
}

/// Bytes of control messages that a call sends at most: the kernel's default
/// (`net.core.optmem_max`).
const LONGEST_CONTROL: size_t = 128 << 10;

const LONGEST_ADDRESS: socklen_t = size_of::<libc::sockaddr_storage>() as socklen_t;

/// Checks whether an address can be read. Its contents do not matter.
fn check_address(address: *const sockaddr, len: socklen_t) -> Outcome<()> {
    if address.is_null() {
        return Ok(());
    }
    if len > LONGEST_ADDRESS {
        return Err(Errno::INVAL);
    }
    match is_readable(address.cast::<u8>(), len as usize) {
        true => Ok(()),
        false => Err(Errno::FAULT),
    }
}

/// Opens a connection of the node's for a call that does so before it sends. Returns `None` if it
/// does not, or the socket is not the node's.
///
/// # Safety
///
/// The address is one of the program's.
#[inline]
unsafe fn open(fd: c_int, flags: c_int, to: (*const sockaddr, socklen_t)) -> Option<Outcome<c_int>> {
    if flags & libc::MSG_FASTOPEN == 0 || to.0.is_null() {
        return None;
    }
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    unsafe { super::setup::connect_to_send(fd, to, flags) }
}
