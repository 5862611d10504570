//! Signals that a thread has to handle before it waits on.
//!
//! A program's handlers run wherever its threads are, and most know nothing of a node. But a
//! library that stands in for the kernel owes its programs that a signal ends a call that waits, as
//! `signal(7)` says. It tells by a hook whether there is such a signal; a call that waits then ends
//! as if its time had passed.
//!
//! Between the look at the hook and the sleep no signal may be lost. So the library that gives the
//! hook sleeps for the node, too. It blocks all signals before it looks, and lets them through by
//! the system call that sleeps.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::time::Duration;

/// A descriptor, and the events for which it is waited, as for `poll(2)`.
pub type Awaited<'a> = (BorrowedFd<'a>, u16);

/// The functions that every thread of this process calls in the library that stands in for the
/// kernel. Both may be called at any time.
#[derive(Debug, Clone, Copy)]
pub struct Hook {
    /// Whether something waits for this thread to leave the call that it is in. It calls
    /// nothing that waits.
    pub is_pending: fn() -> bool,
    /// Sleeps until a descriptor has what it is waited for (as for `poll(2)`), or a time has
    /// passed, or something waits for the thread. Returns what each has; nothing in the last case.
    pub sleep: fn(&[Awaited<'_>], Option<Duration>) -> Option<Vec<u16>>,
}

static HOOK: OnceLock<Hook> = OnceLock::new();

/// Sets the hook that every thread of this process asks when it is about to sleep in a call, and
/// after it has. Only the first hook counts.
pub fn set_hook(hook: Hook) {
    let _ = HOOK.set(hook);
}

/// Whether something waits for this thread to leave its call.
#[inline]
pub fn is_pending() -> bool {
    HOOK.get().is_some_and(|hook| (hook.is_pending)())
}

/// Whether a library asks for signals.
#[inline]
pub(crate) fn are_watched() -> bool {
    HOOK.get().is_some()
}

/// Sleeps as the hook does.
pub(crate) fn sleep(descriptors: &[Awaited<'_>], left: Option<Duration>) -> Option<Vec<u16>> {
    (HOOK.get()?.sleep)(descriptors, left)
}
