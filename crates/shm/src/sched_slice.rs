//! How soon a thread that wakes up runs beside a thread that computes.

use core::ffi::c_long;
use core::mem::size_of;

/// The kernel's shortest slice. A thread that wakes up preempts the running one at once if that one
/// has a longer slice.
const SHORTEST_NS: u64 = 100_000;

/// Asks the kernel for short slices that come soon. They suit a thread that works for a few
/// microseconds whenever it wakes up. It should not wait some milliseconds for the end of a
/// computing program's slice. Its share of the processor stays the same. Linux 6.12 and later
/// support this. Other kernels, and threads with a real-time or idle policy, stay as they are.
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
    // SAFETY: the kernel writes at most the passed number of bytes to a local variable, which
    // outlives the call.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, this, &raw mut attributes, size, flags) };
    if read != 0 || attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes.sched_runtime = SHORTEST_NS;
    // SAFETY: the kernel only reads the attributes, which contain their length and outlive the
    // call. A refusal changes nothing.
    unsafe { libc::syscall(libc::SYS_sched_setattr, this, &raw const attributes, flags) };
}
