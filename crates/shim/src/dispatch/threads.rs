//! Threads that have begun before the program was looked at. A signal tells each to ask for its
//! calls to be dispatched. A thread that has the signal blocked asks when it unblocks it.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::fs;
use std::time::{Duration, Instant};

use libc::siginfo_t;

use super::{END, join};
use crate::answer::{errno, set_errno};
use crate::next;

/// Longest time to wait for answers: a thread may be where signals do not reach it.
const LONGEST: Duration = Duration::from_millis(100);

/// The number of threads that have answered.
static ANSWERS: AtomicU32 = AtomicU32::new(0);

/// The library's signal, with a value that no other sender uses.
#[repr(C)]
struct Asking {
    signal: c_int,
    error: c_int,
    code: c_int,
    padding: c_int,
    process: c_int,
    user: u32,
    value: usize,
    /// The rest of a signal's information.
    unused: [u64; 12],
}

const _: () = assert!(size_of::<Asking>() == size_of::<siginfo_t>());

/// A value that only this process knows.
fn secret() -> usize {
    (&raw const END).addr()
}

/// Whether it is that signal.
pub(super) fn is_told(info: &siginfo_t) -> bool {
    // SAFETY: `info` is that of a signal that was queued, which has these fields.
    info.si_code == libc::SI_QUEUE
        && unsafe {
            info.si_pid() == std::process::id() as c_int && info.si_value().sival_ptr.addr() == secret()
        }
}

/// Has the calls of the thread dispatched that is told to. It may be in the middle of anything.
pub(super) fn answer() {
    let before = errno();
    join();
    ANSWERS.fetch_add(1, Relaxed);
    set_errno(before);
}

/// Tells them, and waits until they have asked.
pub(super) fn tell() {
    let Ok(threads) = fs::read_dir("/proc/self/task") else {
        return;
    };
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let numbers = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let told = numbers.filter(|&thread| thread != own && send(thread) && !has_blocked(thread));
    let told = told.count() as u32;
    let began = Instant::now();
    while ANSWERS.load(Relaxed) < told && began.elapsed() < LONGEST {
        std::thread::yield_now();
    }
}

fn send(thread: i32) -> bool {
    let told = Asking {
        signal: libc::SIGSYS,
        error: 0,
        code: libc::SI_QUEUE,
        padding: 0,
        process: std::process::id() as c_int,
        user: 0,
        value: secret(),
        unused: [0; 12],
    };
    let (process, signal) = (std::process::id().into(), libc::SIGSYS.into());
    let told = (&raw const told) as i64;
    // SAFETY: the call takes numbers, and `told`, a local that the kernel copies during the call.
    unsafe {
        next::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            process,
            thread.into(),
            signal,
            told,
            0,
            0,
        ) == 0
    }
}

/// Whether the signal does not reach a thread.
fn has_blocked(thread: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap_or_default();
    let mut lines = status.lines();
    let blocked = lines.find_map(|line| u64::from_str_radix(line.strip_prefix("SigBlk:")?.trim(), 16).ok());
    blocked.is_none_or(|blocked| blocked >> (libc::SIGSYS - 1) & 1 != 0)
}
