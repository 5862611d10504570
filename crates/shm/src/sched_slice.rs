//! How soon a thread that wakes up gets to run beside one that computes.

use core::ffi::c_long;
use core::mem::size_of;

/// The kernel gives no thread less, and lets one that wakes up run at once if the one that
/// runs has a longer slice.
const SHORTEST_NS: u64 = 100_000;

/// Asks the kernel for short turns that come soon: for a thread that works a few
/// microseconds whenever it wakes up, and should not wait for the end of the turn of a
/// program that computes, some milliseconds. It gets no larger share of the processor by
/// that. Linux 6.12 and later do so; others, and threads that have a real-time or an
/// idle policy, stay as they are.
pub fn ask_for_short_slices() {
    let mut attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let this: c_long = 0;
    let flags: c_long = 0;
    let size = size_of::<libc::sched_attr>() as c_long;
    // SAFETY: the kernel writes at most as many bytes as it is told that there are.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, this, &raw mut attributes, size, flags) };
    if read != 0 || attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes.sched_runtime = SHORTEST_NS;
    // SAFETY: the kernel only reads the attributes, which tell how long they are. What it
    // refuses changes nothing.
    unsafe { libc::syscall(libc::SYS_sched_setattr, this, &raw const attributes, flags) };
}
