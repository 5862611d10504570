//! Which process this is, of those that a program becomes by `fork`.

use core::ffi::c_long;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::inside::Inside;
use crate::{cancel, dispatch, rights, start};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Tells this process from those it was forked from.
#[inline]
pub(crate) fn number() -> u32 {
    NUMBER.load(Relaxed)
}

extern "C" fn forks() {
    if start::is_wanted() {
        let _inside = Inside::enter();
        rights::before_fork();
    }
}

extern "C" fn forked() {
    NUMBER.fetch_add(1, Relaxed);
    cancel::forked();
    dispatch::join();
}

/// Forks by a system call of the program's own, of which nobody is told otherwise.
pub(crate) fn fork_by_number(fork: impl FnOnce() -> c_long) -> c_long {
    forks();
    toehold_node::note_fork();
    let child = fork();
    match child {
        0 => forked(),
        _ => toehold_node::note_fork(),
    }
    child
}

/// Asks to be told of forks.
pub(crate) fn watch() {
    // SAFETY: the first one runs before anything of a fork, the second one only touches atomics
    // and what is this thread's own.
    unsafe { libc::pthread_atfork(Some(forks), None, Some(forked)) };
}
