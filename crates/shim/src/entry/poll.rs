//! `poll`, `select` and their variants.

use core::ffi::{c_int, c_ulong};
use std::time::{Duration, Instant};

use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use toehold_posix::errno::{Errno, Outcome};

use super::epoll::millis;
use super::waiting_masked;
use crate::answer::answer;
use crate::inside::is_inside;
use crate::memory::{is_readable, is_writable};
use crate::wait::Told;
use crate::{next, select, signals, start, wait};

/// `poll(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn poll(fds: *mut pollfd, number: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: INTERCEPT contract: `fds` points to `number` descriptors until this call returns.
    match unsafe { poll_ours(fds, number, millis(timeout), core::ptr::null()) } {
        Some(done) => done,
        // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
        None => unsafe { next::poll(fds, number, timeout) },
    }
}

/// `poll(2)` as programs are compiled that check the array's size.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __poll_chk(
    fds: *mut pollfd,
    number: nfds_t,
    timeout: c_int,
    _size: usize,
) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { poll(fds, number, timeout) }
}

/// `ppoll(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    number: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: INTERCEPT contract: `timeout` is null, or valid until this call returns.
    let span = unsafe { super::span(timeout) };
    // SAFETY: INTERCEPT contract: `fds` points to `number` descriptors until this call returns.
    match span
        .ok()
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        .and_then(|span| unsafe { poll_ours(fds, number, span, mask) })
    {
        Some(done) => done,
        // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
        None => unsafe { next::ppoll(fds, number, timeout, mask) },
    }
}

/// `ppoll(2)` as programs are compiled that check the array's size.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    number: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    _size: usize,
) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { ppoll(fds, number, timeout, mask) }
}

/// `ppoll`, the system call. Returns `None` if none of the descriptors is the node's.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
pub(super) unsafe fn ppoll_by_number(
    fds: *mut pollfd,
    number: nfds_t,
    timeout: *mut timespec,
    mask: *const sigset_t,
) -> Option<c_int> {
    // SAFETY: INTERCEPT contract: `timeout` is null, or valid until this call returns.
    let span = unsafe { super::span(timeout) }.ok()?;
    let began = std::time::Instant::now();
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let done = unsafe { poll_ours(fds, number, span, mask) }?;
    if let Some(span) = span
        && is_writable(timeout, 1)
    {
        let left = span.saturating_sub(began.elapsed());
        // SAFETY: `timeout` was just checked to be writable. INTERCEPT contract: it is valid until
        // this call returns.
        unsafe {
            (*timeout).tv_sec = left.as_secs() as libc::time_t;
            (*timeout).tv_nsec = left.subsec_nanos().into();
        }
    }
    Some(done)
}

/// Polls descriptors. Returns `None` if none of them is a connection or listener of the node's.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the pointers of `ppoll(2)`.
unsafe fn poll_ours(
    fds: *mut pollfd,
    number: nfds_t,
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Option<c_int> {
    // Of none there may be no array.
    if is_inside() || !start::is_wanted() || !(1..=1 << 20).contains(&number) {
        return None;
    }
    // The kernel says what is wrong with those.
    if !is_writable(fds, number as usize) || !is_mask(mask) {
        return None;
    }
    // SAFETY: INTERCEPT contract: `fds` points to `number` descriptors until this call returns.
    let fds = unsafe { core::slice::from_raw_parts_mut(fds, number as usize) };
    if !fds.iter().any(|fd| wait::concerns(fd.fd)) {
        return None;
    }
    // SAFETY: INTERCEPT contract: `mask` is null, or a set of signals until this call returns.
    let done = poll_masked(fds, timeout, unsafe { mask.as_ref() });
    Some(answer(done.map(|found| found.number)))
}

/// Polls with a mask. What is ready comes before a signal, and a signal before the time.
fn poll_masked(fds: &mut [pollfd], timeout: Option<Duration>, mask: Option<&sigset_t>) -> Outcome<Told> {
    let began = Instant::now();
    let left = || timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
    waiting_masked(mask, |masked| {
        let found = wait::poll(fds, left())?;
        if found.number == 0 && signals::has_come() {
            return Err(Errno::INTR);
        }
        masked.succeed();
        Ok(found)
    })
}

/// `select(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn select(
    number: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: INTERCEPT contract: `timeout` is null, or valid until this call returns.
    let span = unsafe { time_of(timeout) };
    let began = Instant::now();
    // SAFETY: INTERCEPT contract: each set is null, or has room for `number` descriptors until this
    // call returns.
    let done = match span {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        Ok(span) => unsafe { select_ours(number, [read, write, except], span, core::ptr::null()) },
        Err(_) => None,
    };
    let Some(done) = done else {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
        return unsafe { next::select(number, read, write, except, timeout) };
    };
    if let Ok(Some(span)) = span
        && is_writable(timeout, 1)
    {
        let left = span.saturating_sub(began.elapsed());
        // SAFETY: the time is the program's. Linux says how much of it is left.
        unsafe {
            (*timeout).tv_sec = left.as_secs() as libc::time_t;
            (*timeout).tv_usec = left.subsec_micros().into();
        }
    }
    done
}

/// `pselect(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pselect(
    number: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: INTERCEPT contract: `timeout` is null, or valid until this call returns.
    let span = unsafe { super::span(timeout) };
    // SAFETY: INTERCEPT contract: each set is null, or has room for `number` descriptors until this
    // call returns.
    match span
        .ok()
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        .and_then(|span| unsafe { select_ours(number, [read, write, except], span, mask) })
    {
        Some(done) => done,
        // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
        None => unsafe { next::pselect(number, read, write, except, timeout, mask) },
    }
}

/// The system call's last argument in the place of that of `pselect`.
#[repr(C)]
pub(super) struct MaskAndSize(*const sigset_t, usize);

/// `pselect6`, the system call. Returns `None` if none of the descriptors is the node's.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
pub(super) unsafe fn pselect6(
    number: c_int,
    sets: [*mut fd_set; 3],
    timeout: *const timespec,
    mask: *const MaskAndSize,
) -> Option<c_int> {
    // SAFETY: INTERCEPT contract: `timeout` is null, or valid until this call returns.
    let span = unsafe { super::span(timeout) }.ok()?;
    let mask = match mask.is_null() {
        true => core::ptr::null(),
        // SAFETY: INTERCEPT contract: the mask and its size are valid until this call returns.
        false => match unsafe { super::passed(mask) }.ok()? {
            // The kernel says what is wrong with another size.
            MaskAndSize(mask, size) if !mask.is_null() && *size != size_of::<u64>() => return None,
            MaskAndSize(mask, _) => *mask,
        },
    };
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { select_ours(number, sets, span, mask) }
}

/// Selects descriptors. Returns `None` if none of them is a connection or listener of the node's.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the pointers of `pselect(2)`.
unsafe fn select_ours(
    number: c_int,
    sets: [*mut fd_set; 3],
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Option<c_int> {
    let words = (number.max(0) as usize).div_ceil(c_ulong::BITS as usize);
    if is_inside() || !start::is_wanted() || !(1..=1 << 20).contains(&number) {
        return None;
    }
    let is_wrong = |set: &*mut fd_set| !set.is_null() && !is_writable(set.cast::<c_ulong>(), words);
    if sets.iter().any(is_wrong) || !is_mask(mask) {
        return None;
    }
    // SAFETY: INTERCEPT contract: each set is null, or has room for `number` descriptors until this
    // call returns.
    let mut fds = unsafe { select::to_poll(number, sets) };
    if !fds.iter().any(|fd| wait::concerns(fd.fd)) {
        return None;
    }
    // SAFETY: INTERCEPT contract: `mask` is null, or a set of signals until this call returns.
    let done = poll_masked(&mut fds, timeout, unsafe { mask.as_ref() });
    // SAFETY: INTERCEPT contract: each set is null, or has room for `number` descriptors until this
    // call returns.
    Some(answer(done.and_then(|found| unsafe {
        select::from_poll(number, &fds, sets, found.later)
    })))
}

/// Whether there is a set of signals, or none is passed.
pub(super) fn is_mask(mask: *const sigset_t) -> bool {
    // The kernel's have a bit a signal, and nothing more.
    mask.is_null() || is_readable(mask.cast::<u64>(), 1)
}

/// # Safety
///
/// `time` is null or points to a time.
unsafe fn time_of(time: *const timeval) -> Outcome<Option<Duration>> {
    if time.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let time = unsafe { super::passed(time) }?;
    let (Ok(seconds), Ok(micros)) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec)) else {
        return Err(Errno::INVAL);
    };
    Ok(Some(Duration::from_secs(seconds) + Duration::from_micros(micros)))
}
