//! The identity of this process, which distinguishes a forked child from its parent.
//!
//! A child has a copy of its parent's whole memory at the time of the fork. That includes locks,
//! and values that another thread was about to change. A child does not use a [`PerProcess`] value
//! of its parent, and makes its own instead.
//!
//! The kernel clears one page in every child (`MADV_WIPEONFORK`), however it was forked; the check
//! costs one load. The C library tells a parent that it forked ([`Process::forks`]), except for
//! forks by a bare system call.
//!
//! This file also prepares the state that started programs inherit.

use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use crate::inheritance::{self, Change};

/// The word that is 0 in a new child. Null until the first [`Process::this`].
static NUMBER: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// The greatest number given so far. A child continues with a copy, so that a process never has the
/// number of one of its ancestors.
static LAST: AtomicU32 = AtomicU32::new(0);

static FORKS: AtomicU32 = AtomicU32::new(0);

/// This process.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    number: &'static AtomicU32,
}

impl Process {
    /// Begins to distinguish this process from its children.
    ///
    /// # Errors
    ///
    /// If the system has no memory for that, or is older than Linux 4.14.
    pub fn this() -> Result<Process, Errno> {
        let mut number = NonNull::new(NUMBER.load(Acquire));
        if number.is_none() {
            number = NonNull::new(begin()?);
        }
        let number = number.ok_or(Errno::NOMEM)?;
        // SAFETY: the pointer is null, or leads to a page that is never unmapped once published.
        let number = unsafe { number.as_ref() };
        Ok(Process { number })
    }

    /// The number that distinguishes this process from its ancestors.
    #[inline]
    pub fn number(self) -> u32 {
        match self.number.load(Relaxed) {
            0 => self.renumber(),
            number => number,
        }
    }

    #[cold]
    fn renumber(self) -> u32 {
        let new = LAST.fetch_add(1, Relaxed).wrapping_add(1).max(1);
        match self.number.compare_exchange(0, new, Relaxed, Relaxed) {
            Ok(_) => new,
            Err(other) => other,
        }
    }

    /// Changes whenever this process forks, and at its start. A value made while it had its present
    /// value is in no other process's memory. Call [`note_fork`] for forks by a bare system call.
    #[inline]
    pub fn forks(self) -> u32 {
        FORKS.load(Acquire)
    }
}

/// Lets the program of `command` inherit only the standard descriptors of this process. Before
/// Linux 5.11 it inherits the others as well.
pub fn inherit_nothing(command: &mut Command) {
    let close_on_exec = || {
        let flags = libc::CLOSE_RANGE_CLOEXEC;
        // SAFETY: the call closes descriptors only at `exec`, and the new program uses only those
        // that it is told of.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, flags) };
        Ok(())
    };
    // SAFETY: between fork and exec the closure only makes a system call, which is safe there.
    unsafe { command.pre_exec(close_on_exec) };
}

/// Starts the program of `command` without being its parent: the child forks again and ends at once
/// with status 0. Errors of the program's start are reported as usual.
pub fn begin_apart(command: &mut Command) {
    let fork = || {
        // A system call, since fork handlers may do unsafe work here. Without flags it is a fork;
        // the zeroes fit any order of the other arguments. SAFETY: the child has a copy of this
        // memory, and only starts the program in it.
        match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
            -1 => Err(std::io::Error::last_os_error()),
            0 => Ok(()),
            // SAFETY: `_exit` ends this process without running any of its code before.
            _ => unsafe { libc::_exit(0) },
        }
    };
    // SAFETY: between fork and exec the closure only makes a system call, which is safe there.
    unsafe { command.pre_exec(fork) };
}

/// Starts the program of `command` with the present signal mask of this thread, whatever its mask
/// is then.
pub fn inherit_signal_mask(command: &mut Command) {
    // SAFETY: a set of signals is plain data, for which zeroes are valid.
    let mut mask = unsafe { core::mem::zeroed::<libc::sigset_t>() };
    // SAFETY: the kernel writes the present mask to a local variable of its type, and changes
    // nothing.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), &mut mask) };
    let restore = move || {
        // SAFETY: the mask is a valid one that a thread had, and outlives the call.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, ptr::null_mut()) } {
            0 => Ok(()),
            errno => Err(std::io::Error::from_raw_os_error(errno)),
        }
    };
    // SAFETY: between fork and exec the closure only makes a system call, which is safe there.
    unsafe { command.pre_exec(restore) };
}

/// Maps the word and registers the fork handlers.
#[cold]
fn begin() -> Result<*mut AtomicU32, Errno> {
    let page = rustix::param::page_size();
    // SAFETY: the kernel chooses an unused address for a new mapping, so no memory in use is
    // affected.
    let made = unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        mm::mmap_anonymous(ptr::null_mut(), page, protection, MapFlags::PRIVATE)?
    };
    let release = |errno| {
        // SAFETY: the page was mapped here, and no other thread knows of it.
        let _ = unsafe { mm::munmap(made, page) };
        errno
    };
    // SAFETY: this function owns the page. A child finds zeroes there, which are valid for the
    // word.
    unsafe { mm::madvise(made, page, Advice::LinuxWipeOnFork) }.map_err(release)?;
    // SAFETY: the handler only adds to an atomic, which is safe at any time and as long as the
    // process lives.
    let refused = unsafe { libc::pthread_atfork(Some(count_fork), Some(count_fork), None) };
    if refused != 0 {
        return Err(release(Errno::from_raw_os_error(refused)));
    }
    let made = made.cast::<AtomicU32>();
    match NUMBER.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
        Ok(_) => Ok(made),
        // Another thread was faster. Forks count twice now, which is harmless.
        Err(theirs) => {
            release(Errno::EXIST);
            Ok(theirs)
        }
    }
}

/// Runs before a fork, so that the child finds it counted. Runs again after it in the parent, for
/// values that another thread has made in between.
extern "C" fn count_fork() {
    note_fork();
}

/// Counts a fork by a bare system call, for [`Process::forks`]. Call it before the fork, and after
/// it in the parent.
pub fn note_fork() {
    FORKS.fetch_add(1, Release);
    if let Ok(process) = Process::this() {
        inheritance::before_fork(process.number());
    }
}

/// A value that every process has separately: a forked child does not use its parent's, and makes
/// another one.
///
/// The child's copies are neither used nor dropped: another thread of the parent could have been in
/// the middle of changing them.
pub struct PerProcess<T> {
    process: Process,
    /// The entry of the youngest process that has one; older ones follow. Never null.
    head: AtomicPtr<Entry<T>>,
}

struct Entry<T> {
    process: u32,
    value: T,
    older: *mut Entry<T>,
}

// SAFETY: the entries are shared like references to their values. The thread that drops the whole
// drops them.
unsafe impl<T: Send + Sync> Send for PerProcess<T> {}
// SAFETY: threads get shared references to the values only, and `T` is `Sync`.
unsafe impl<T: Send + Sync> Sync for PerProcess<T> {}

impl<T> PerProcess<T> {
    /// With the value of this process.
    pub fn new(process: Process, value: T) -> Self {
        let _change = Change::begin(process);
        let first = Entry {
            process: process.number(),
            value,
            older: ptr::null_mut(),
        };
        Self {
            process,
            head: AtomicPtr::new(Box::into_raw(Box::new(first))),
        }
    }

    #[inline]
    fn head(&self) -> &Entry<T> {
        // SAFETY: entries live until `self` is dropped, and do not change once they are published.
        unsafe { &*self.head.load(Acquire) }
    }

    /// This process's value; `None` if the process was forked since, and has none yet.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        let head = self.head();
        (head.process == self.process.number()).then_some(&head.value)
    }

    /// The value of the parent process, as long as this one has none, and unless a thread of the
    /// parent announced a [`Change`]. A value that changes without an announcement may be in any
    /// earlier state.
    pub fn inherited(&self) -> Option<&T> {
        if !inheritance::is_whole() {
            return None;
        }
        let head = self.head();
        (head.process != self.process.number()).then_some(&head.value)
    }

    /// Gives this process a value. If another thread was faster, returns that thread's value.
    pub fn publish(&self, value: T) -> &T {
        let _change = Change::begin(self.process);
        let process = self.process.number();
        let older = self.head.load(Acquire);
        let new = Box::into_raw(Box::new(Entry {
            process,
            value,
            older,
        }));
        // Only threads of this process change it, and each only from the inherited value.
        let inherited = self.get().is_none();
        if inherited && self.head.compare_exchange(older, new, AcqRel, Acquire).is_ok() {
            return &self.head().value;
        }
        // SAFETY: `new` comes from `Box::into_raw` above, and no other thread has seen it.
        drop(unsafe { Box::from_raw(new) });
        &self.head().value
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let process = self.process.number();
        let mut next = *self.head.get_mut();
        while let Some(entry) = NonNull::new(next) {
            // SAFETY: entries come from boxes, and no references to them are left. Entries of other
            // processes stay.
            next = unsafe { entry.as_ref() }.older;
            // SAFETY: `entry` comes from a box that is not freed yet, and no reference to it is
            // left.
            if unsafe { entry.as_ref() }.process == process {
                // SAFETY: the entry comes from a box of this process, and no reference to it is
                // left.
                drop(unsafe { Box::from_raw(entry.as_ptr()) });
            }
        }
    }
}

#[cfg(all(test, not(miri)))]
pub(crate) mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Excludes announced changes by other tests.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The return value of `child` in a forked child, as an exit status.
    pub(crate) fn forked(child: impl FnOnce() -> u8) -> u8 {
        // SAFETY: the child uses atomics only and leaves at once.
        match unsafe { libc::fork() } {
            0 => {
                let status = child();
                // SAFETY: `_exit` ends the child without running any of the parent's code.
                unsafe { libc::_exit(status.into()) }
            }
            pid => {
                let mut status = 0;
                // SAFETY: the kernel writes the status to a local variable of its type.
                assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
                assert!(libc::WIFEXITED(status));
                libc::WEXITSTATUS(status) as u8
            }
        }
    }

    struct Counted<'a>(&'a AtomicUsize);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn children_and_grandchildren_have_own_numbers() {
        let process = Process::this().unwrap();
        let number = process.number();
        assert_eq!(process.number(), number);
        let status = forked(|| {
            let child = process.number();
            let grandchild = forked(|| {
                let grandchild = process.number();
                u8::from(grandchild != child && grandchild != number)
            });
            u8::from(child != number) + 2 * grandchild
        });
        assert_eq!(status, 3);
        assert_eq!(process.number(), number);
    }

    #[test]
    fn both_sides_count_forks() {
        let process = Process::this().unwrap();
        let before = process.forks();
        let status = forked(|| u8::from(process.forks() != before));
        assert_eq!(status, 1);
        assert_ne!(process.forks(), before);
    }

    #[test]
    fn each_process_drops_its_own_value_only() {
        let _alone = alone();
        let drops = AtomicUsize::new(0);
        let value = PerProcess::new(Process::this().unwrap(), Counted(&drops));
        assert!(value.get().is_some() && value.inherited().is_none());
        let status = forked(|| {
            assert!(value.get().is_none() && value.inherited().is_some());
            let own: *const _ = value.publish(Counted(&drops));
            assert!(ptr::eq(own, value.get().unwrap()) && value.inherited().is_none());
            // This value comes too late.
            assert!(ptr::eq(own, value.publish(Counted(&drops))));
            let late = drops.load(Relaxed);
            drop(value);
            (late * 16 + drops.load(Relaxed)) as u8
        });
        assert_eq!(status, 0x12);
        // The parent's value was moved into the child's closure, which only the child ran.
        assert_eq!(drops.load(Relaxed), 1);
    }
}
