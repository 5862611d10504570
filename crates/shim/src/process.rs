//! The identity of this process, among those that a program becomes by `fork`.

use core::ffi::{c_int, c_long};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

use crate::inside::Inside;
use crate::{cancel, dispatch, rights, start};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Tells this process from those it was forked from.
#[inline]
pub(crate) fn number() -> u32 {
    NUMBER.load(Relaxed)
}

/// The process that this memory is of.
static OWN: AtomicI32 = AtomicI32::new(0);

fn note() {
    OWN.store(rustix::process::getpid().as_raw_nonzero().get(), Relaxed);
}

/// Whether this process is the library's own, and not a child of `clone` that shares its parent's memory.
/// Such a child may have no thread-local storage of libc's, so nothing of this library works there. Asks the
/// kernel.
pub(crate) fn is_own() -> bool {
    let own = OWN.load(Relaxed);
    own == 0 || own == rustix::process::getpid().as_raw_nonzero().get()
}

/// Ends such a child, as libc's function does, which would be looked for by one that needs that storage.
#[cold]
pub(crate) fn end_other(status: c_int) -> ! {
    // SAFETY: the system call takes a number alone, and ends the process.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("syscall", "ud2", in("rax") libc::SYS_exit_group, in("rdi") status, options(noreturn));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("svc 0", "brk 1", in("x8") libc::SYS_exit_group, in("x0") status, options(noreturn));
    }
}

extern "C" fn forks() {
    if start::is_wanted() {
        let _inside = Inside::enter();
        rights::before_fork();
    }
}

pub(crate) extern "C" fn forked() {
    NUMBER.fetch_add(1, Relaxed);
    note();
    cancel::forked();
    dispatch::forked();
}

/// Forks by a system call of the program's own, which libc does not report to the library.
pub(crate) fn fork_by_number(fork: impl FnOnce() -> c_long) -> c_long {
    let child = fork_by_function(fork);
    if child == 0 {
        forked();
    }
    child
}

/// Forks by a function whose child begins elsewhere, and calls [`forked`] there.
pub(crate) fn fork_by_function<T: Copy + PartialEq + Default>(fork: impl FnOnce() -> T) -> T {
    forks();
    toehold_node::note_fork();
    let child = fork();
    if child != T::default() {
        toehold_node::note_fork();
    }
    child
}

/// Asks to be told of forks.
pub(crate) fn watch() {
    note();
    // SAFETY: the first one runs before anything of a fork, the second one only touches atomics
    // and what is this thread's own.
    unsafe { libc::pthread_atfork(Some(forks), None, Some(forked)) };
}
