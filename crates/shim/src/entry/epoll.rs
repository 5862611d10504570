//! The epoll functions.

use core::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{epoll_event, sigset_t, timespec};
use toehold_posix::errno::Errno;
use toehold_posix::memory::is_beyond;

use super::poll::is_mask;
use super::waiting_masked;
use crate::answer::answer;
use crate::file::{File, Kind};
use crate::inside::{Inside, is_inside};
use crate::memory::{is_readable, is_writable};
use crate::socket::InheritedListener;
use crate::{dispatch, epoll, next, start, table};

fn made(number: c_int) -> c_int {
    if number >= 0 && !is_inside() && start::is_wanted() {
        let _inside = Inside::enter();
        table::put(number, epoll::open());
    }
    number
}

/// `epoll_create(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the call takes numbers alone, and no pointer.
    made(unsafe { next::epoll_create(size) })
}

/// `epoll_create1(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the call takes numbers alone, and no pointer.
    made(unsafe { next::epoll_create1(flags) })
}

/// `epoll_ctl(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_ctl(
    epfd: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    if dispatch::is_on() && !table::has(epfd) && table::has(fd) && !is_inside() {
        let _inside = Inside::enter();
        epoll::adopt(epfd);
    }
    let file = table::get(epfd).filter(|_| !is_inside());
    let Some(Kind::Epoll(epoll)) = file.as_ref().map(|file| &file.kind) else {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
        return unsafe { next::epoll_ctl(epfd, operation, fd, event) };
    };
    let _inside = Inside::enter();
    let look = || table::get(fd).map(|file| file.share());
    let mut target = look();
    if let Some(Kind::Found(_)) = target.as_ref().map(|file| &file.kind) {
        InheritedListener::listen(fd);
        target = look();
    }
    let is_stream = target.as_ref().is_some_and(|file| file.stream().is_some());
    if !is_stream {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        let done = unsafe { next::epoll_ctl(epfd, operation, fd, event) };
        if done != 0 {
            return done;
        }
        epoll.note_kernels();
    }
    let is_kernels = |file: &Arc<File>| matches!(file.kind, Kind::Forwarded(_) | Kind::Relayed(_));
    let Some(target) = target.filter(|file| !is_kernels(file)) else {
        return 0;
    };
    // SAFETY: `event` was just checked to be readable. INTERCEPT contract: it stays so until this
    // call returns.
    let event = is_readable(event, 1).then(|| unsafe { event.read_unaligned() });
    let done = match is_stream && epoll.is_adopted() {
        false => epoll.control(operation, fd, &target, event),
        true => {
            // What stands for the connection was registered past the library, perhaps.
            // SAFETY: the kernel reads no event for EPOLL_CTL_DEL, so null is valid for this call.
            unsafe { next::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut()) };
            epoll.control_adopted(operation, fd, &target, event)
        }
    };
    match is_stream {
        true => answer(done),
        // The kernel has said how it is.
        false => 0,
    }
}

/// `epoll_wait(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the program passes room for so many; what is not ours is as it was.
    unsafe {
        wait(epfd, events, most, (millis(timeout), core::ptr::null()), || {
            next::epoll_wait(epfd, events, most, timeout)
        })
    }
}

/// `epoll_pwait(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_pwait(
    epfd: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program passes room for so many; what is not ours is as it was.
    unsafe {
        wait(epfd, events, most, (millis(timeout), mask), || {
            next::epoll_pwait(epfd, events, most, timeout, mask)
        })
    }
}

/// `epoll_pwait2(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let kernels = || unsafe { next::epoll_pwait2(epfd, events, most, timeout, mask) };
    // SAFETY: INTERCEPT contract: the time is null, or valid until this call returns.
    match unsafe { super::span(timeout) } {
        // SAFETY: INTERCEPT contract: `events` has room for `most` events until this call returns.
        Ok(span) => unsafe { wait(epfd, events, most, (span, mask), kernels) },
        Err(_) => kernels(),
    }
}

/// Most events that a call may ask for (EP_MAX_EVENTS).
const MOST_EVENTS: usize = c_int::MAX as usize / size_of::<epoll_event>();

/// A time in milliseconds; a negative one has no end.
pub(super) fn millis(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// Waits on an instance; by `kernels`, if there is nothing of the node's in it. A thread may be
/// cancelled there: nothing that has to be dropped is here.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the pointers of `epoll_pwait2(2)`.
unsafe fn wait(
    epfd: c_int,
    events: *mut epoll_event,
    most: c_int,
    (timeout, mask): (Option<Duration>, *const sigset_t),
    kernels: impl Fn() -> c_int,
) -> c_int {
    let began = Instant::now();
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        if let Some(done) = unsafe { wait_on_node(epfd, events, most, left, mask) } {
            return done;
        }
        if is_inside() || left.is_some_and(|left| left.is_zero()) || !table::has(epfd) {
            return kernels();
        }
        if !falls_asleep(epfd) {
            continue;
        }
        let done = kernels();
        epoll::wakes();
        // SAFETY: the kernel's call, which has returned `done`, has written so many events to
        // `events`. INTERCEPT contract: they are valid until this call returns.
        if let Some(done) = unsafe { without_rousing(epfd, events, done) } {
            return done;
        }
    }
}

/// Notes that this thread is about to wait in the kernel. Returns `false` if there is something on
/// the node by now.
#[inline(never)]
fn falls_asleep(epfd: c_int) -> bool {
    let file = table::get(epfd).map(|file| file.share());
    file.filter(|file| file.epoll().is_some())
        .is_none_or(epoll::falls_asleep)
}

/// The kernel's events; `None` if there was none but the one that wakes a thread to look again.
///
/// # Safety
///
/// `done` events are readable and writable, if it is not negative.
#[inline(never)]
unsafe fn without_rousing(epfd: c_int, events: *mut epoll_event, done: c_int) -> Option<c_int> {
    let Some(count) = usize::try_from(done).ok().filter(|&count| count > 0) else {
        return Some(done);
    };
    let _inside = Inside::enter();
    let Some(file) = table::get(epfd).filter(|file| file.epoll().is_some()) else {
        return Some(done);
    };
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let events = unsafe { core::slice::from_raw_parts_mut(events, count) };
    let (left, rouses) = epoll::sift(file.epoll()?, epfd, events);
    (left > 0 || !rouses).then_some(left as c_int)
}

/// Waits for the node's sockets of an instance. Returns `None` if the instance has nothing but the
/// kernel's.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the pointers of `epoll_pwait2(2)`.
#[inline(never)]
unsafe fn wait_on_node(
    epfd: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Option<c_int> {
    if !table::get(epfd).filter(|_| !is_inside())?.epoll()?.has_sockets() {
        return None;
    }
    let Some(most) = usize::try_from(most)
        .ok()
        .filter(|most| (1..=MOST_EVENTS).contains(most))
    else {
        return Some(answer(Err(Errno::INVAL)));
    };
    // A buffer that is not there is an error once there is an event to be told.
    if is_beyond(events, most) || !is_mask(mask) {
        return Some(answer(Err(Errno::FAULT)));
    }
    // Programs say more than they have room for, as long as no so many events come.
    let is_room = is_writable(events, 1);
    let mut nowhere = [epoll_event { events: 0, u64: 0 }];
    let events = match is_room {
        // SAFETY: INTERCEPT contract: `events` has room for `most` events until this call returns.
        true => unsafe { core::slice::from_raw_parts_mut(events, most) },
        false => &mut nowhere[..],
    };
    // SAFETY: INTERCEPT contract: `mask` is null, or a set of signals until this call returns.
    let mask = unsafe { mask.as_ref() };
    let began = Instant::now();
    let left = || timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
    let done = waiting_masked(mask, |masked| {
        let file = table::get(epfd).ok_or(Errno::BADF)?;
        let ready = file.epoll().ok_or(Errno::BADF)?.wait(epfd, events, left())?;
        masked.succeed();
        Ok(ready)
    });
    Some(answer(match done {
        Ok(1..) if !is_room => Err(Errno::FAULT),
        done => done,
    }))
}
