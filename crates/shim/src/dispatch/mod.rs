//! System calls that the program makes by instructions of its own, past libc.
//!
//! A program may make its sockets through libc and wait for them past it. It would then wait for descriptors
//! of which the kernel knows nothing. So the library looks for system call instructions in the program's own
//! code. If there seem to be any, it asks the kernel for a signal at each call made there (*Syscall User
//! Dispatch*, Linux 5.11). It then does what `syscall(2)` does in its place, or lets the call be made where
//! it stands.
//!
//! Calls are dispatched from all addresses up to the program's end. libc and all other libraries lie above
//! it. Their calls cost only a thirtieth of a microsecond more.
//!
//! Go programs are left alone. A signal comes on the stack that the call is made on, and the stacks of Go's
//! routines have no room for it. Go makes all of its calls itself, so all its sockets are the kernel's.
//!
//! Each thread asks for itself when it begins. A signal tells the threads that began before the library
//! looked at the program.

mod action;
mod stubs;
mod text;
mod threads;
mod trap;

use core::cell::Cell;
use core::ffi::{c_int, c_ulong};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::OnceLock;

pub(crate) use self::action::install_by_number;

use self::text::Image;
use crate::inside::Inside;
use crate::{epoll, next, signals, start};

/// `PR_SET_SYSCALL_USER_DISPATCH` and its argument: calls from everywhere but one range.
const SET: c_int = 59;
const OFF: c_ulong = 0;
const ON: c_ulong = 1;

/// An address above all that is the program's.
const TOP: usize = 0x7fff_ffff_f000;

/// The state of the looking through the program.
static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const LOOKING: u8 = 1;
const LOOKED: u8 = 2;

/// Whether it has begun a thread.
static THREADED: AtomicBool = AtomicBool::new(false);

/// Bytes of code that are looked through before a program's first thread, at most. The program need
/// have nothing to do with networks, and looking takes some milliseconds.
const MOST_BEFORE_THREAD: usize = 32 << 20;

thread_local! {
    /// Whether this is the thread that looks.
    static LOOKS: Cell<bool> = const { Cell::new(false) };
}

/// The end of the program's own code, if calls from there are dispatched.
static END: OnceLock<usize> = OnceLock::new();

/// Whether calls are dispatched.
#[inline]
pub(crate) fn is_on() -> bool {
    has_signal() && !start::has_renounced()
}

/// Whether the library has the signal by which calls are dispatched. Threads that began with dispatch keep
/// it, whatever the process has renounced since.
#[inline]
pub(crate) fn has_signal() -> bool {
    END.get().is_some()
}

/// Looks through the program before it has its first socket, or what it waits for sockets with.
#[inline]
pub(crate) fn look() {
    if KNOWN.load(Acquire) != LOOKED && start::is_wanted() {
        look_at_program(usize::MAX);
    }
}

/// Called before the program gets another thread. A thread that never tells libc of its sockets waits for
/// them in that thread. A process without sockets need not be told.
#[inline]
pub(crate) fn look_before_thread() {
    if !THREADED.load(Relaxed) && start::is_wanted() && !THREADED.swap(true, Relaxed) {
        look_at_program(MOST_BEFORE_THREAD);
    }
}

/// Looks through so much code, at most; alone, and others wait: what they do next may be for dispatching.
#[cold]
fn look_at_program(most: usize) {
    if LOOKS.get() {
        return;
    }
    while let Err(known) = KNOWN.compare_exchange(UNKNOWN, LOOKING, Acquire, Acquire) {
        if known == LOOKED {
            return;
        }
        std::thread::yield_now();
    }
    LOOKS.set(true);
    let is_known = {
        let _inside = Inside::enter();
        begin(most)
    };
    LOOKS.set(false);
    KNOWN.store(if is_known { LOOKED } else { UNKNOWN }, Release);
}

/// Has calls dispatched if the program makes any. Returns `false` if it is too large to be looked
/// at now.
fn begin(most: usize) -> bool {
    let Some(image) = Image::of_program().filter(is_concerned) else {
        return true;
    };
    if image.code_len() > most {
        return false;
    }
    if !image.makes_calls() {
        return true;
    }
    // Another thread's call may come as soon as this one has asked.
    signals::handle_calls(trap::trap);
    if !ask(image.end) {
        signals::leave_calls();
        return true;
    }
    let _ = END.set(image.end);
    threads::tell();
    epoll::adopt_all();
    true
}

/// Prepares a child, in which the parent's thread that was looking does not look.
pub(crate) fn forked() {
    if !LOOKS.get() {
        let _ = KNOWN.compare_exchange(LOOKING, UNKNOWN, Relaxed, Relaxed);
    }
    join();
}

/// Whether a program's own calls can be dispatched, and no calls of libraries with them.
fn is_concerned(image: &Image) -> bool {
    let others = [
        trap::trap as *const () as usize,
        // SAFETY: the name is a C string literal, which lives as long as the library.
        unsafe { libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr()) } as usize,
        loaded_at(libc::AT_BASE),
        loaded_at(libc::AT_SYSINFO_EHDR),
    ];
    let is_below = others.iter().all(|&other| other == 0 || image.end <= other);
    is_below && !image.is_go
}

/// The address at which the kernel has loaded something.
fn loaded_at(what: c_ulong) -> usize {
    // SAFETY: the call takes numbers alone, and no pointer.
    unsafe { libc::getauxval(what) as usize }
}

/// Has this thread's calls dispatched, if the program's are.
pub(crate) fn join() {
    if is_on()
        && let Some(&end) = END.get()
    {
        ask(end);
    }
}

fn ask(end: usize) -> bool {
    // The kernel ends a process that has the signal blocked.
    signals::unblock_calls();
    // SAFETY: the call takes numbers alone. The fifth, 0, stands for no place in memory that
    // switches the dispatching.
    unsafe { next::prctl(SET, ON, end as c_ulong, (TOP - end) as c_ulong, 0) == 0 }
}

/// Leaves the thread's calls to the kernel, before a filter of system calls, which may not allow
/// the dispatching.
pub(crate) fn stop() {
    if has_signal() {
        // SAFETY: the call takes numbers alone, and no pointer.
        unsafe { next::prctl(SET, OFF, 0, 0, 0) };
    }
}

/// The set to block instead of one that has the signal in it by which calls are dispatched; `None`
/// for any other set.
pub(crate) fn still_open(how: c_int, set: *const libc::sigset_t) -> Option<libc::sigset_t> {
    let has_own = has_signal() && how != libc::SIG_UNBLOCK && !set.is_null() && {
        // SAFETY: INTERCEPT contract: the program passes a set, valid for this call.
        unsafe { libc::sigismember(set, libc::SIGSYS) == 1 }
    };
    has_own.then(|| {
        let mut copied = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `set` is valid for this call, as checked above, and `copied` is a local of the
        // same type.
        unsafe {
            copied.as_mut_ptr().copy_from_nonoverlapping(set, 1);
            libc::sigdelset(copied.as_mut_ptr(), libc::SIGSYS);
            copied.assume_init()
        }
    })
}

/// Clears the signal of dispatched calls in an old mask, which has a bit for each signal.
pub(crate) fn still_open_of(signals: c_int) -> c_int {
    match has_signal() {
        true => signals & !(1 << (libc::SIGSYS - 1)),
        false => signals,
    }
}
