//! Sleeping in a call, which ends when there is something for the program's handlers.

use core::ffi::c_int;
use std::os::fd::AsRawFd;
use std::time::Duration;

use libc::{pollfd, timespec};
use toehold_node::interrupts::Awaited;

use crate::{cancel, next, signals};

/// Bytes of the sets of signals that the kernel is given.
const SET: i64 = 8;

/// Signals of a thread that are blocked, one bit each, as the kernel has them.
pub(crate) struct Blocked(u64);

impl Blocked {
    /// Blocks all, those that libc has for itself included: its own functions leave them out.
    pub(crate) fn all() -> Blocked {
        let mut former = 0;
        set_mask(&u64::MAX, &raw mut former);
        Blocked(former)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        set_mask(&self.0, core::ptr::null_mut());
    }
}

fn set_mask(mask: &u64, former: *mut u64) {
    let how = libc::SIG_SETMASK.into();
    // SAFETY: `mask` is borrowed, and `former` is null or has room for a set. The kernel uses both
    // during this call alone.
    unsafe {
        let mask = core::ptr::from_ref(mask) as i64;
        next::syscall(libc::SYS_rt_sigprocmask, how, mask, former as i64, SET, 0, 0)
    };
}

/// Whether the call that this thread sleeps in, on whatever, is to end. One that has not slept
/// before may have been cancelled already.
pub(crate) fn is_to_end() -> bool {
    cancel::be_known();
    signals::is_pending()
}

/// Sleeps until one of some descriptors has what it is waited for, or a time has passed, or
/// the thread is to leave its call. What each has; nothing, in the last case.
pub(crate) fn sleep(descriptors: &[Awaited<'_>], left: Option<Duration>) -> Option<Vec<u16>> {
    cancel::be_known();
    let polled = descriptors.iter().map(|&(descriptor, events)| pollfd {
        fd: descriptor.as_raw_fd(),
        events: events.cast_signed(),
        revents: 0,
    });
    let mut polled: Vec<pollfd> = polled.collect();
    let blocked = Blocked::all();
    let ready = match signals::is_pending() {
        true => -1,
        false => poll(&mut polled, left, &blocked),
    };
    drop(blocked);
    cancel::awake();
    let found = |polled: &pollfd| polled.revents.cast_unsigned();
    (ready >= 0).then(|| polled.iter().map(found).collect())
}

/// `ppoll(2)`, which libc would make a point at which threads are cancelled.
fn poll(polled: &mut [pollfd], left: Option<Duration>, blocked: &Blocked) -> c_int {
    let mut time = left.map(|left| timespec {
        tv_sec: left.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: left.subsec_nanos().into(),
    });
    let time = time.as_mut().map_or(core::ptr::null_mut(), |time| &raw mut *time);
    let (first, number) = (polled.as_mut_ptr() as i64, polled.len() as i64);
    let mask = &raw const blocked.0 as i64;
    // SAFETY: the array is as long as said, the time is one or none, the set is as long as said.
    unsafe { next::syscall(libc::SYS_ppoll, first, number, time as i64, mask, SET, 0) as c_int }
}
