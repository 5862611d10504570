//! Signals that a thread has to see to before it waits on.
//!
//! A program's handlers run wherever its threads are, and most know nothing of a node. But
//! whoever stands in for the kernel owes its programs that a signal ends a call that waits, as
//! `signal(7)` says. It tells by a hook whether there is such a signal; a call that waits then
//! ends as if its time had passed.
//!
//! Between the look at the hook and the sleep no signal may be lost. So all are blocked before
//! the look, and let through by the system call that sleeps.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::time::TimeSpec;

static HOOK: OnceLock<fn() -> bool> = OnceLock::new();

/// From now on `hook` is asked, by every thread of this process that is about to sleep in a
/// call and after it has, whether a signal waits for that thread to leave the call. Only the
/// first hook counts. It may be called at any time and calls nothing that waits.
pub fn set_hook(hook: fn() -> bool) {
    let _ = HOOK.set(hook);
}

/// Whether a signal waits for this thread to leave its call.
#[inline]
pub(crate) fn is_pending() -> bool {
    HOOK.get().is_some_and(|hook| hook())
}

/// Whether anybody asks.
#[inline]
pub(crate) fn are_watched() -> bool {
    HOOK.get().is_some()
}

/// Sleeps until one of some descriptors has what it is waited for, or a time has passed, or
/// a signal waits for the thread. What each has; nothing, after a signal.
pub(crate) fn sleep(descriptors: &[(BorrowedFd<'_>, u16)], left: Option<Duration>) -> Option<Vec<u16>> {
    let polled = descriptors.iter().map(|&(descriptor, events)| {
        PollFd::new(descriptor, PollFlags::from_bits_retain(events.cast_signed()))
    });
    let mut polled: Vec<PollFd<'_>> = polled.collect();
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).ok()?;
    let slept = match is_pending() {
        true => None,
        false => ppoll(&mut polled, left.map(TimeSpec::from), Some(mask)).ok(),
    };
    // A mask that was in force can be so again.
    let _ = mask.thread_set_mask();
    let found = |polled: &PollFd<'_>| polled.revents().map_or(0, |found| found.bits().cast_unsigned());
    slept.map(|_| polled.iter().map(found).collect())
}
