//! System calls that the program makes by instructions of its own, past libc.
//!
//! A program that makes its sockets through libc and waits for them past it would wait for what
//! the kernel knows nothing of. So, if there seems to be such an instruction in the program's own code, the
//! kernel is asked to send a signal for each call that is made there (*Syscall User Dispatch*,
//! Linux 5.11), and the library does what `syscall(2)` does in its place, or lets the call be made
//! where it stands. That is for all that lies up to the program's end: libc and all other libraries are above
//! it, and what they call goes on as fast as it did, but for the thirtieth part of a microsecond.
//!
//! It is not for Go: a signal comes on the stack that the call is made on, and those of Go's
//! routines have no room for it. Go makes all of its calls itself, so that what it has is the kernel's alone.
//!
//! Each thread asks for itself, when it begins; those that have begun before the library has looked
//! at the program are told to by a signal.

mod stubs;
mod text;
mod trap;

use core::ffi::{c_int, c_ulong};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::OnceLock;

use self::text::Image;
use crate::inside::Inside;
use crate::{epoll, next, signals, start};

/// `PR_SET_SYSCALL_USER_DISPATCH` and what it takes: calls from everywhere but one range.
const SET: c_int = 59;
const OFF: c_ulong = 0;
const ON: c_ulong = 1;

/// Above all that is the program's.
const TOP: usize = 0x7fff_ffff_f000;

/// Whether the program was looked at, and when it began its first thread.
static LOOKED: AtomicBool = AtomicBool::new(false);
static THREADED: AtomicBool = AtomicBool::new(false);

/// Whether it was found to make calls itself.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Where the program's own code ends, if calls from there are dispatched.
static END: OnceLock<usize> = OnceLock::new();

/// Whether calls are dispatched.
#[inline]
pub(crate) fn is_on() -> bool {
    END.get().is_some() && !start::has_renounced()
}

/// Before the program has its first socket, or what it waits for sockets with.
#[inline]
pub(crate) fn look() {
    if !LOOKED.load(Relaxed) && start::is_wanted() && !LOOKED.swap(true, Relaxed) {
        look_at_program(Image::makes_calls);
    }
}

/// Before the program has another thread: one that never tells libc of its sockets waits for them in one.
#[inline]
pub(crate) fn look_before_thread() {
    if !THREADED.load(Relaxed) && start::is_wanted() && !THREADED.swap(true, Relaxed) {
        look_at_program(Image::makes_calls_of_networks);
    }
}

#[cold]
fn look_at_program(makes_calls: fn(&Image) -> bool) {
    let _inside = Inside::enter();
    let image = Image::of_program().filter(|image| is_concerned(image) && makes_calls(image));
    let Some(Image { end, .. }) = image else { return };
    if BEGUN.swap(true, Relaxed) {
        return;
    }
    // Another thread's call may come as soon as this one has asked.
    signals::handle_calls(trap::trap);
    if !ask(end) {
        return signals::leave_calls();
    }
    let _ = END.set(end);
    epoll::adopt_all();
    tell_others();
}

/// Whether a program's own calls can be dispatched, and nobody else's with them.
fn is_concerned(image: &Image) -> bool {
    let others = [
        trap::trap as *const () as usize,
        // SAFETY: the name is a C string.
        unsafe { libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr()) } as usize,
        loaded_at(libc::AT_BASE),
        loaded_at(libc::AT_SYSINFO_EHDR),
    ];
    let is_below = others.iter().all(|&other| other == 0 || image.end <= other);
    is_below && !image.is_go
}

/// Where the kernel has put something.
fn loaded_at(what: c_ulong) -> usize {
    // SAFETY: a plain number.
    unsafe { libc::getauxval(what) as usize }
}

/// This thread asks for its calls to be dispatched, if the program's are.
pub(crate) fn join() {
    if is_on()
        && let Some(&end) = END.get()
    {
        ask(end);
    }
}

fn ask(end: usize) -> bool {
    // The kernel ends whoever has it blocked.
    signals::unblock_calls();
    // SAFETY: plain numbers, and no place that says whether to.
    unsafe { next::prctl(SET, ON, end as c_ulong, (TOP - end) as c_ulong, 0) == 0 }
}

/// Before a filter of system calls, which may not allow what this does: the thread's calls are the
/// kernel's.
pub(crate) fn stop() {
    if END.get().is_some() {
        // SAFETY: plain numbers.
        unsafe { next::prctl(SET, OFF, 0, 0, 0) };
    }
}

/// Tells the threads that have begun before to ask, too.
fn tell_others() {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return;
    };
    let (process, own) = (std::process::id(), rustix::thread::gettid());
    let numbers = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    for thread in numbers.filter(|&thread| thread != own.as_raw_nonzero().get()) {
        let told = trap::asking();
        let signal = libc::SIGSYS.into();
        let told = (&raw const told) as i64;
        // SAFETY: plain numbers, and what comes with the signal.
        unsafe {
            next::syscall(
                libc::SYS_rt_tgsigqueueinfo,
                process.into(),
                thread.into(),
                signal,
                told,
                0,
                0,
            )
        };
    }
}

/// What to block instead of a set of signals, if that has the one in it by which calls are dispatched.
pub(crate) fn still_open(how: c_int, set: *const libc::sigset_t) -> Option<libc::sigset_t> {
    let has_own = is_on() && how != libc::SIG_UNBLOCK && !set.is_null() && {
        // SAFETY: the program passes a set.
        unsafe { libc::sigismember(set, libc::SIGSYS) == 1 }
    };
    has_own.then(|| {
        let mut copied = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: it is a set, and so is its copy.
        unsafe {
            copied.as_mut_ptr().copy_from_nonoverlapping(set, 1);
            libc::sigdelset(copied.as_mut_ptr(), libc::SIGSYS);
            copied.assume_init()
        }
    })
}
