//! `ioctl` and `sockatmark`.

use core::ffi::{c_int, c_ulong};
use std::os::fd::AsRawFd;

use toehold_posix::errno::{Errno, Outcome};

use super::on_stream;
use crate::answer::outcome;
use crate::inside::{Inside, is_inside};
use crate::socket::Stream;
use crate::{next, relay, table};

/// SIOCATMARK.
const AT_MARK: c_ulong = 0x8905;
/// SIOCOUTQ, TIOCOUTQ.
const OUT_QUEUE: c_ulong = 0x5411;
/// FIOASYNC.
const ASYNC: c_ulong = 0x5452;
/// FIOSETOWN, SIOCSPGRP.
const SET_OWNER: [c_ulong; 2] = [0x8901, 0x8902];
/// SIOCGSTAMP and SIOCGSTAMPNS, with times of either width.
const TIME_OF_LAST: [c_ulong; 4] = [0x8906, 0x8907, 0x8010_8906, 0x8010_8907];
/// SIOCOUTQNSD.
const UNSENT: c_ulong = 0x894b;
/// Requests about interfaces, routes and neighbours, which any socket takes.
const OF_INTERFACES: [core::ops::RangeInclusive<c_ulong>; 2] = [0x890b..=0x894a, 0x894d..=0x89ff];

/// `ioctl(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int {
    if request & 0xffff_ffff == libc::FIONBIO
        && let Some(file) = table::get(fd).filter(|_| !is_inside())
        // SAFETY: INTERCEPT contract: FIONBIO takes the address of an `int`, valid for this call.
        && let Ok(on) = unsafe { super::passed(argument as *const c_int) }
        && file.set_nonblocking(fd, *on != 0)
    {
        return 0;
    }
    if request & 0xffff_ffff == ASYNC
        && table::has(fd)
        && !is_inside()
        // SAFETY: INTERCEPT contract: FIOASYNC takes the address of an `int`, valid for this call.
        && unsafe { super::passed(argument as *const c_int) }.is_ok_and(|on| *on != 0)
    {
        let _inside = Inside::enter();
        relay::to_kernel(fd);
    }
    let mut is_descriptors = false;
    let done = on_stream(fd, |stream| {
        // SAFETY: INTERCEPT contract: `argument` points to what the request asks for, valid until
        // this call returns.
        let done = unsafe { control(stream, request & 0xffff_ffff, argument as *mut c_int) };
        is_descriptors = done.is_none();
        done.unwrap_or(Ok(0))
    });
    if let Some(done) = done.filter(|_| !is_descriptors) {
        return done;
    }
    // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
    let done = unsafe { next::ioctl(fd, request, argument) };
    if done == 0 && SET_OWNER.contains(&(request & 0xffff_ffff)) && table::has(fd) && !is_inside() {
        let _inside = Inside::enter();
        super::descriptors::has_owner(fd);
    }
    done
}

/// Answers a request to a connection. Returns `None` if it is a request to the descriptor.
///
/// # Safety
///
/// `argument` is null or points to a number.
unsafe fn control(stream: &Stream, request: c_ulong, argument: *mut c_int) -> Option<Outcome<c_int>> {
    if TIME_OF_LAST.contains(&request) {
        // Segments have none.
        return Some(Err(Errno::NOENT));
    }
    if OF_INTERFACES.iter().any(|range| range.contains(&request)) {
        // What stands for the connection knows of none.
        return Some(stream.kernels_like().and_then(|like| {
            // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
            outcome(unsafe { next::ioctl(like.as_raw_fd(), request, argument as c_ulong) })
        }));
    }
    let inner = &stream.inner;
    let number = match request {
        libc::FIONREAD => inner.readable_bytes(),
        OUT_QUEUE => inner.unacknowledged_bytes(),
        UNSENT => inner.info().map(|info| info.unsent as usize),
        AT_MARK => inner.at_mark().map(usize::from),
        _ => return None,
    };
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let wanted = unsafe { super::wanted(argument) };
    Some(wanted.and_then(|wanted| {
        *wanted = number.map_err(Errno::from)?.min(c_int::MAX as usize) as c_int;
        Ok(0)
    }))
}

/// `sockatmark(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sockatmark(fd: c_int) -> c_int {
    let mut mark = 0;
    // SAFETY: the request writes an `int` to `mark`, a local that lives until the call returns.
    match unsafe { ioctl(fd, AT_MARK, &raw mut mark as c_ulong) } {
        0 => mark,
        failed => failed,
    }
}
