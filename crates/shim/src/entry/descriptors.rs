//! `close`, `dup`, `fcntl` and their variants.

use core::ffi::{c_int, c_uint, c_ulong};
use std::sync::Arc;

use libc::rlimit64;
use toehold_posix::errno::Errno;

use crate::answer::answer;
use crate::file::{File, Kind};
use crate::inside::{Inside, is_in_call, is_inside};
use crate::{inherited, next, node, relay, start, table};

/// Commands of `fcntl(2)`.
const F_SETSIG: c_int = 10;
const F_SETOWN_EX: c_int = 15;
const F_SET_RW_HINT: c_int = 1036;
const F_SET_FILE_RW_HINT: c_int = 1038;

/// `close(2)`. The program has not opened the library's own descriptors, and does not close them.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn close(fd: c_int) -> c_int {
    if table::is_kernels(fd) {
        // SAFETY: the call takes numbers alone, and no pointer.
        return unsafe { next::close(fd) };
    }
    if is_in_call() {
        table::disown(fd);
        // SAFETY: the call takes numbers alone, and no pointer.
        return unsafe { next::close(fd) };
    }
    if table::is_own(fd) {
        // A program that closes all fds in /proc/self/fd complains of an fd that cannot be closed.
        return 0;
    }
    let _inside = Inside::enter();
    let _file = forget(fd);
    // SAFETY: the call takes numbers alone, and no pointer.
    unsafe { next::close(fd) }
}

/// Forgets an fd that is about to be closed, or to refer to another file. The caller drops the former file
/// after that. The process that closes the last fd of all then finds that no other process has it.
#[must_use]
pub(super) fn forget(number: c_int) -> Option<Arc<File>> {
    let (file, last) = table::take(number)?;
    crate::epoll::keep(&file, number);
    if !last {
        return Some(file);
    }
    crate::epoll::closed(&file);
    if let Kind::Stream(stream) = &file.kind
        && let Some(copy) = node::copy(number)
    {
        table::own(std::os::fd::AsRawFd::as_raw_fd(&copy));
        stream.keep_last(copy);
    }
    Some(file)
}

/// `pidfd_getfd(2)`: a descriptor that is a connection in another process is one here.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pidfd_getfd(process: c_int, target: c_int, flags: c_uint) -> c_int {
    // SAFETY: the call takes numbers alone, and no pointer.
    let got = unsafe {
        let (process, target, flags) = (process.into(), target.into(), flags.into());
        next::syscall(libc::SYS_pidfd_getfd, process, target, flags, 0, 0, 0)
    };
    if got >= 0 && start::is_wanted() && !is_inside() {
        let _inside = Inside::enter();
        inherited::look_at(got as c_int);
    }
    got as c_int
}

/// `close_range(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const UNSHARE: c_int = 1 << 1;
    const CLOEXEC: c_int = 1 << 2;
    if first > last {
        return answer(Err(Errno::INVAL));
    }
    if flags & UNSHARE != 0 {
        before_parting();
    }
    if flags & CLOEXEC != 0 {
        // Nothing is closed, and what is the library's own is for no other program.
        // SAFETY: the call takes numbers alone, and no pointer.
        return unsafe { next::close_range(first, last, flags) };
    }
    let inside = Inside::enter();
    let within = |number: &c_int| (first..=last).contains(&(*number as c_uint));
    let files: Vec<_> = table::used()
        .into_iter()
        .filter(within)
        .filter_map(forget)
        .collect();
    let own = table::known().into_iter().filter(|&number| table::is_own(number));
    let own: Vec<c_int> = own.filter(within).collect();
    let mut from = first;
    let mut outcome = 0;
    // Between the library's own.
    for number in own.into_iter().map(|number| number as c_uint) {
        if from < number {
            // SAFETY: the call takes numbers alone, and no pointer.
            outcome |= unsafe { next::close_range(from, number - 1, flags) };
        }
        from = number + 1;
    }
    if from <= last {
        // SAFETY: the call takes numbers alone, and no pointer.
        outcome |= unsafe { next::close_range(from, last, flags) };
    }
    drop(files);
    drop(inside);
    outcome
}

/// `closefrom(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: the call takes numbers alone, and no pointer.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// Prepares this thread for numbers of its own, of which the table knows nothing. What the others
/// have is the kernel's then, and lasts when this one has closed it.
pub(super) fn before_parting() {
    if is_in_call() || table::used().is_empty() {
        return;
    }
    let _inside = Inside::enter();
    let is_alone = std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    if !is_alone {
        table::used().into_iter().for_each(relay::to_kernel);
    }
}

/// Notes that a number is a copy of another one.
fn copied(from: c_int, to: c_int) {
    if let Some(file) = table::get(from).map(|file| file.share()) {
        table::put(to, file);
    }
}

/// `dup(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dup(fd: c_int) -> c_int {
    if table::is_own(fd) && !is_in_call() {
        return answer(Err(Errno::BADF));
    }
    // SAFETY: the call takes numbers alone, and no pointer.
    let to = unsafe { next::dup(fd) };
    if to >= 0 && table::has(fd) {
        let inside = Inside::enter();
        copied(fd, to);
        drop(inside);
        super::stdio::take_standard(to);
    }
    to
}

/// `dup2(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: the call takes numbers alone, and no pointer.
    over(from, to, 0, || unsafe { next::dup2(from, to) })
}

/// `dup3(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the call takes numbers alone, and no pointer.
    over(from, to, flags, || unsafe { next::dup3(from, to, flags) })
}

fn over(from: c_int, to: c_int, flags: c_int, dup: impl FnOnce() -> c_int) -> c_int {
    if is_in_call() || from == to || table::is_kernels(from) && table::is_kernels(to) {
        return dup();
    }
    if table::is_own(from) {
        return answer(Err(Errno::BADF));
    }
    let inside = Inside::enter();
    let mut former = None;
    if !is_to_be_over(from, to, flags) {
        // The kernel refuses, and everything stays as it is.
    } else if table::is_own(to) {
        // The number is the program's to choose; the library goes on without.
        table::disown(to);
    } else {
        former = forget(to);
    }
    let number = dup();
    drop(former);
    if number >= 0 {
        copied(from, number);
        drop(inside);
        super::stdio::take_standard(number);
    }
    number
}

/// Whether the kernel will make a number a copy of another one.
fn is_to_be_over(from: c_int, to: c_int, flags: c_int) -> bool {
    let mut limit = rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a local, to which the kernel writes during this call alone. It sets no
    // limit with null.
    let known = unsafe { next::prlimit64(0, libc::RLIMIT_NOFILE, core::ptr::null(), &raw mut limit) } == 0;
    let is_within = u64::try_from(to).is_ok_and(|to| !known || to < limit.rlim_cur);
    flags & !libc::O_CLOEXEC == 0 && is_within && rustix::io::fcntl_getfd(table::borrow(&from)).is_ok()
}

/// `fcntl(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    if is_in_call() || table::is_kernels(fd) {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        return unsafe { next::fcntl(fd, command, argument) };
    }
    if table::is_own(fd) {
        return answer(Err(Errno::BADF));
    }
    let inside = Inside::enter();
    if command == libc::F_SETFL && argument & libc::O_ASYNC as c_ulong != 0 {
        relay::to_kernel(fd);
    }
    let mut file = table::get(fd);
    // Another process may have left the connection to the kernel, which has its flags since.
    if matches!(command, libc::F_SETFL | libc::F_GETFL)
        && let Some(present) = &file
        && relay::settle(present, fd)
    {
        file = table::get(fd);
    }
    let mode = file.as_ref().and_then(|file| file.is_nonblocking());
    let flag = libc::O_NONBLOCK as c_ulong;
    let listener = file.as_ref().and_then(|file| file.listener_mode());
    let told = match (command, mode, listener) {
        // The kernel's socket there is one that no program reads.
        (libc::F_SETFL, Some(_), _) => argument & !flag,
        (libc::F_SETFL, None, Some(listener)) => listener.told(argument as c_int) as c_ulong,
        _ => argument,
    };
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let done = unsafe { next::fcntl(fd, command, told) };
    if done < 0 {
        return done;
    }
    if let (libc::F_SETFL, Some(file), Some(_)) = (command, &file, mode) {
        file.set_nonblocking(fd, argument & flag != 0);
    }
    if let Some(stream) = file.as_ref().and_then(|file| file.stream())
        && stays(command, argument)
    {
        stream.note_marked();
    }
    match (command, mode) {
        (libc::F_SETOWN | F_SETOWN_EX, _) => has_owner(fd),
        (libc::F_DUPFD | libc::F_DUPFD_CLOEXEC, _) => {
            copied(fd, done);
            drop(inside);
            super::stdio::take_standard(done);
        }
        (libc::F_GETFL, Some(true)) => return done | libc::O_NONBLOCK,
        (libc::F_GETFL, Some(false)) => return done & !libc::O_NONBLOCK,
        (libc::F_GETFL, None) => return listener.map_or(done, |listener| listener.shown(done)),
        _ => {}
    }
    done
}

/// Whether what stands for a connection has something from a command of `fcntl(2)` that it would still have
/// when it stands for another one.
fn stays(command: c_int, argument: c_ulong) -> bool {
    const FLAGS: c_int = libc::O_APPEND | libc::O_DIRECT | libc::O_NOATIME;
    match command {
        libc::F_SETFL => argument & FLAGS as c_ulong != 0,
        F_SETSIG | F_SET_RW_HINT | F_SET_FILE_RW_HINT => true,
        _ => false,
    }
}

/// Has the owner of a descriptor signalled, which has got one, or another one.
pub(super) fn has_owner(number: c_int) {
    let file = table::get(number);
    if let Some(stream) = file.as_ref().and_then(|file| file.stream()) {
        stream.signal_owner(number);
    }
}

/// `fcntl(2)` of programs with large files.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { fcntl(fd, command, argument) }
}
