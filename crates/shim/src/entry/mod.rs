//! The functions that stand in for libc's, by their subjects.
//!
//! Each looks whether the descriptor is one of the table's, and if it is not, calls the function
//! that it stands in for. What a call does on a socket is written elsewhere; here C becomes Rust.
//!
//! # The INTERCEPT contract
//!
//! A function here has the `# Safety` section of the libc function whose name it has. The program passes
//! arguments as that function's manual page demands. Each pointer is null where the page allows it, or valid for
//! the access that the page names. That holds until the call returns. The library passes such arguments on to libc
//! or the kernel unchanged, or reads and writes through them as the page says. It keeps none of them after the
//! call, unless the page says that libc does.

mod accept;
mod aio;
mod aliases;
mod control;
mod descriptors;
mod epoll;
mod exec;
mod exit;
mod files;
mod identity;
mod interfaces;
mod limits;
mod load;
mod modes;
mod names;
mod open;
mod options;
mod poll;
mod print;
mod privilege;
mod raw;
mod receive;
mod resolve;
mod rings;
mod send;
mod setup;
mod signal;
mod spawn;
mod stdio;
mod thread;
mod variadic;
mod vfork;
mod wait;

pub(crate) use self::exec::remember;
pub(crate) use self::load::bind_to_stand_ins;
pub(crate) use self::raw::prepare as prepare_syscall;
#[cfg(target_arch = "x86_64")]
pub(crate) use self::raw::serve;
pub(crate) use self::rings::hear as hear_of_rings;
pub(crate) use self::stdio::take_standard;

use core::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use libc::{iovec, sigset_t, size_t, timespec};
use toehold_posix::errno::{Errno, Outcome};
use toehold_posix::memory::is_outside;
use toehold_posix::message;

use crate::answer::{Number, answer};
use crate::inside::{Inside, contained, is_in_call};
use crate::memory::{is_readable, is_writable};
use crate::socket::Stream;
use crate::usage::{self, Counter};
use crate::{cancel, faults, relay, signals, table};

/// Makes a call on a connection; `None` if the descriptor is no connection of the node's.
#[inline]
fn on_stream<T: Number>(number: c_int, mut call: impl FnMut(&Stream) -> Outcome<T>) -> Option<T> {
    if !table::has(number) || is_in_call() {
        return None;
    }
    cancel::point();
    signals::begin();
    loop {
        let inside = Inside::enter();
        let file = table::get(number)?;
        let stream = file.stream()?;
        let outcome = contained(|| call(stream));
        let has_waited = matches!(outcome, Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT));
        let was_ended = has_waited && signals::is_pending() && !stream.is_nonblocking();
        let goes_on = was_ended && (!signals::has_come() || !stream.has_timeout());
        if matches!(outcome, Err(Errno::BADF)) && relay::settle(&file, number) {
            return None;
        }
        if matches!(outcome, Err(Errno::AGAIN)) && stream.takes_question() {
            if relay::was_told_past(&file, number) {
                return None;
            }
            drop(file);
            drop(inside);
            // It may have been cancelled meanwhile, before it was known to sleep.
            if !leave_for_cancellation() {
                cancel::point();
            }
            continue;
        }
        usage::count(Counter::Calls, 1);
        // A handler that runs now may never return, by a jump to somewhere else.
        drop(file);
        drop(inside);
        if !was_ended {
            return Some(answer(outcome));
        }
        leave_for_cancellation();
        if !goes_on || !signals::restarts() {
            return Some(answer(Err(Errno::INTR)));
        }
    }
}

/// Does something inside of the library that may wait, and again if it ended for nothing but
/// that the thread may have been cancelled.
fn waiting<T>(mut act: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    waiting_masked(None, |_| act())
}

/// Does something inside of the library that may wait, with a mask of signals that is the call's own. Tells
/// the mask whether the call has found what it waits for. Does it again if it ended only because the thread
/// may have been cancelled.
fn waiting_masked<T>(
    mask: Option<&sigset_t>,
    mut act: impl FnMut(&signals::Masked) -> Outcome<T>,
) -> Outcome<T> {
    cancel::point();
    loop {
        // A signal that the mask lets through ends the call, and its handler runs after that.
        let inside = Inside::enter();
        let masked = signals::Masked::with(mask);
        let done = contained(|| act(&masked));
        let has_come = signals::has_come();
        drop(inside);
        drop(masked);
        if !leave_for_cancellation() || has_come || !matches!(done, Err(Errno::INTR)) {
            return done;
        }
    }
}

/// Ends this thread if it has been cancelled. Whether it was to look.
fn leave_for_cancellation() -> bool {
    let was_asked = cancel::take_asked();
    if was_asked {
        cancel::point();
    }
    was_asked
}

/// Most bytes that one call moves, whatever the program says (MAX_RW_COUNT; write(2), NOTES).
pub(crate) const MOST_BYTES: usize = (c_int::MAX as usize) & !0xfff;

/// Bytes of what is sent that are touched before, at most. Beyond them, memory that is not there
/// ends the program. What else may be there comes from a disk.
const TOUCHED_TO_SEND: usize = 1 << 20;

/// Bytes of each buffer that are touched before anything is received: a page or two. The others may
/// never be used, and then take no memory.
const TOUCHED_TO_RECEIVE: usize = 4096;

/// How many bytes of a buffer are sent if only the first `there` can be read. They are several times as many
/// as the kernel copies at once, or none.
#[cold]
fn whole_pieces(there: usize) -> Outcome<size_t> {
    const PIECE: usize = 32 << 10;
    match there - there % PIECE {
        0 => Err(Errno::FAULT),
        whole => Ok(whole),
    }
}

/// The program's buffer, as far as one call fills it.
///
/// # Safety
///
/// The buffer is null, or writable for so many bytes as long as the result is used.
unsafe fn room<'a>(buffer: *mut c_void, len: size_t) -> Outcome<IoSliceMut<'a>> {
    if len == 0 {
        return Ok(IoSliceMut::new(&mut []));
    }
    if is_outside(buffer.cast::<u8>(), len) {
        return Err(Errno::FAULT);
    }
    let first = len.min(TOUCHED_TO_RECEIVE);
    let len = match faults::writable(buffer.cast(), first) {
        0 => return Err(Errno::FAULT),
        there if there < first => there,
        _ => len,
    };
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let bytes = unsafe { core::slice::from_raw_parts_mut(buffer.cast(), len.min(MOST_BYTES)) };
    Ok(IoSliceMut::new(bytes))
}

/// The program's buffer, as far as one call sends it.
///
/// # Safety
///
/// The buffer is null, or readable for so many bytes as long as the result is used.
unsafe fn bytes<'a>(buffer: *const c_void, len: size_t) -> Outcome<IoSlice<'a>> {
    if len == 0 {
        return Ok(IoSlice::new(&[]));
    }
    if is_outside(buffer.cast::<u8>(), len) {
        return Err(Errno::FAULT);
    }
    let first = len.min(TOUCHED_TO_SEND);
    let len = match faults::readable(buffer.cast(), first) {
        there if there == first => len,
        there => whole_pieces(there)?,
    };
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let bytes = unsafe { core::slice::from_raw_parts(buffer.cast(), len.min(MOST_BYTES)) };
    Ok(IoSlice::new(bytes))
}

/// The program's buffers, as far as one call fills them.
///
/// # Safety
///
/// `parts` is null or points to so many parts, each of which is writable, as long as the
/// result is used.
unsafe fn rooms<'a>(parts: *const iovec, count: size_t) -> Outcome<Vec<IoSliceMut<'a>>> {
    let mut left = MOST_BYTES;
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let parts = unsafe { self::parts(parts, count) }?;
    parts
        .iter()
        // SAFETY: the part is writable as long as the result is used, as this function's `# Safety`
        // section demands.
        .map(|part| unsafe { room(part.iov_base, take_of(&mut left, part.iov_len)) })
        .collect()
}

/// How many of a part's bytes one call moves, of the bytes that are left to it.
fn take_of(left: &mut usize, len: usize) -> usize {
    let taken = len.min(*left);
    *left -= taken;
    taken
}

/// The program's buffers, as far as one call sends them.
///
/// # Safety
///
/// `parts` is null or points to so many parts, each of which is readable, as long as the
/// result is used.
unsafe fn gathered<'a>(parts: *const iovec, count: size_t) -> Outcome<Vec<IoSlice<'a>>> {
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let parts = unsafe { self::parts(parts, count) }?;
    let mut left = MOST_BYTES;
    parts
        .iter()
        // SAFETY: the part is readable as long as the result is used, as this function's `# Safety`
        // section demands.
        .map(|part| unsafe { bytes(part.iov_base, take_of(&mut left, part.iov_len)) })
        .collect()
}

/// A value that a program passes.
///
/// # Safety
///
/// `value` is null, or points to a value as long as the result is used.
unsafe fn passed<'a, T>(value: *const T) -> Outcome<&'a T> {
    if !is_readable(value, 1) {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    Ok(unsafe { &*value })
}

/// A place that a program wants something written to.
///
/// # Safety
///
/// `place` is null, or points to room for one value that no other code uses as long as the result is used.
unsafe fn wanted<'a, T>(place: *mut T) -> Outcome<&'a mut T> {
    if !is_writable(place, 1) {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    Ok(unsafe { &mut *place })
}

/// The parts of the program's buffers.
///
/// # Safety
///
/// `parts` is null or points to so many parts, as long as the result is used.
unsafe fn parts<'a>(parts: *const iovec, count: size_t) -> Outcome<&'a [iovec]> {
    if count <= libc::UIO_MAXIOV as size_t && !is_readable(parts, count) {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let parts = unsafe { message::parts(parts, count) }?;
    match parts.iter().any(|part| part.iov_len.cast_signed() < 0) {
        true => Err(Errno::INVAL),
        false => Ok(parts),
    }
}

/// The number of parts of a message. As with the kernel, too many of them give another error than
/// in `writev`.
fn parts_of(message: &libc::msghdr) -> Outcome<size_t> {
    match message.msg_iovlen <= libc::UIO_MAXIOV as size_t {
        true => Ok(message.msg_iovlen),
        false => Err(Errno::MSGSIZE),
    }
}

/// A time that a program passes; null has no end.
///
/// # Safety
///
/// `time` is null or points to a time.
unsafe fn span(time: *const timespec) -> Outcome<Option<Duration>> {
    if time.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let time = unsafe { passed(time) }?;
    let (Ok(seconds), Ok(nanos)) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) else {
        return Err(Errno::INVAL);
    };
    if nanos >= 1_000_000_000 {
        return Err(Errno::INVAL);
    }
    Ok(Some(Duration::new(seconds, nanos)))
}

/// Checks `iovcnt`.
fn count(count: c_int) -> Outcome<size_t> {
    size_t::try_from(count).map_err(|_| Errno::INVAL)
}
