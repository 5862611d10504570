//! Which process this is: what tells a forked child from its parent.
//!
//! A child has a copy of everything in its parent's memory, as it was at that
//! moment, locks and values that another thread was about to change included. A
//! [`PerProcess`] value is not used by a child, which makes one of its own instead.
//!
//! The kernel clears one page in every child (`MADV_WIPEONFORK`), however it was
//! forked; to look whether it did costs one load. A parent is told by the C
//! library that it forked ([`Process::forks`]), which a fork that goes past the
//! library does not.
//!
//! What a program that is started is to inherit is here too.

use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use crate::inheritance::{self, Change};

/// The word that a child finds 0. Null until the first [`Process::this`].
static NUMBER: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// The greatest number given so far. A child goes on with a copy, so that no two
/// processes of which one descends from the other have the same number.
static LAST: AtomicU32 = AtomicU32::new(0);

static FORKS: AtomicU32 = AtomicU32::new(0);

/// This process.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    number: &'static AtomicU32,
}

impl Process {
    /// Begins to tell this process from its children.
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
        // SAFETY: the word lies in a page that is never unmapped once published.
        let number = unsafe { number.as_ref() };
        Ok(Process { number })
    }

    /// Tells this process from those that it descends from.
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

    /// Changes whenever this process forks, and at its own beginning: what was made
    /// while it had its present value is in no other process's memory. Forks by a bare
    /// system call have to be [noted](note_fork).
    #[inline]
    pub fn forks(self) -> u32 {
        FORKS.load(Acquire)
    }
}

/// Makes a program that is to be started inherit no descriptors but the standard ones, of
/// whatever this process has itself inherited. Before Linux 5.11 it inherits them.
pub fn inherit_nothing(command: &mut Command) {
    let close_on_exec = || {
        let flags = libc::CLOSE_RANGE_CLOEXEC;
        // SAFETY: no descriptor is closed before the new program begins, which has no
        // others than it is told of.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, flags) };
        Ok(())
    };
    // SAFETY: between fork and exec it only makes a system call.
    unsafe { command.pre_exec(close_on_exec) };
}

/// Makes a program that is to be started no child of this process: its parent, which is one, ends
/// at once with status 0. An error of the program's start is heard as without.
pub fn begin_apart(command: &mut Command) {
    let fork = || {
        // A system call, since handlers of forks may do what is not safe here. Without flags it
        // is a fork, and the zeroes stand in any order of the other arguments.
        // SAFETY: the child has a copy of this memory, in which it only begins the program.
        match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
            -1 => Err(std::io::Error::last_os_error()),
            0 => Ok(()),
            // SAFETY: the function ends this process, and runs nothing of it before.
            _ => unsafe { libc::_exit(0) },
        }
    };
    // SAFETY: between fork and exec it only makes a system call.
    unsafe { command.pre_exec(fork) };
}

/// Makes a program that is to be started begin with the signal mask that this thread has
/// now, whatever it has then.
pub fn inherit_signal_mask(command: &mut Command) {
    // SAFETY: a set of signals is plain data, for which zeroes are a value.
    let mut mask = unsafe { core::mem::zeroed::<libc::sigset_t>() };
    // SAFETY: the present mask is written to a variable of its type, and not changed.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), &mut mask) };
    let restore = move || {
        // SAFETY: the mask is one that a thread had.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, ptr::null_mut()) } {
            0 => Ok(()),
            errno => Err(std::io::Error::from_raw_os_error(errno)),
        }
    };
    // SAFETY: between fork and exec it only makes a system call.
    unsafe { command.pre_exec(restore) };
}

/// Makes the word and asks to be told of forks.
#[cold]
fn begin() -> Result<*mut AtomicU32, Errno> {
    let page = rustix::param::page_size();
    // SAFETY: the kernel chooses an unused address for a new mapping.
    let made = unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        mm::mmap_anonymous(ptr::null_mut(), page, protection, MapFlags::PRIVATE)?
    };
    let release = |errno| {
        // SAFETY: the page was mapped here and nobody else knows of it.
        let _ = unsafe { mm::munmap(made, page) };
        errno
    };
    // SAFETY: the page is this function's; what a child finds there is zeroes, which
    // are values of the word.
    unsafe { mm::madvise(made, page, Advice::LinuxWipeOnFork) }.map_err(release)?;
    // SAFETY: the handler only adds to an atomic, which may be done at any time.
    let refused = unsafe { libc::pthread_atfork(Some(count_fork), Some(count_fork), None) };
    if refused != 0 {
        return Err(release(Errno::from_raw_os_error(refused)));
    }
    let made = made.cast::<AtomicU32>();
    match NUMBER.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
        Ok(_) => Ok(made),
        // Another thread was faster; forks count twice now, which does no harm.
        Err(theirs) => {
            release(Errno::EXIST);
            Ok(theirs)
        }
    }
}

/// Before a fork, so that the child finds it counted, and after it in the parent, for
/// what another thread has made in between.
extern "C" fn count_fork() {
    note_fork();
}

/// Counts a fork that goes past the C library, for [`Process::forks`]: to be called before it,
/// and after it in the parent.
pub fn note_fork() {
    FORKS.fetch_add(1, Release);
    if let Ok(process) = Process::this() {
        inheritance::before_fork(process.number());
    }
}

/// A value of which every process has its own: a forked child does not find its
/// parent's, and makes another one.
///
/// What the child has copies of is neither used nor dropped: another thread of the
/// parent could have been in the middle of changing it.
pub struct PerProcess<T> {
    process: Process,
    /// Of the youngest process that has one; the others' are behind it. Never null.
    head: AtomicPtr<Entry<T>>,
}

struct Entry<T> {
    process: u32,
    value: T,
    older: *mut Entry<T>,
}

// SAFETY: the entries are shared like references to their values, and dropped by
// whoever drops the whole, on whatever thread.
unsafe impl<T: Send + Sync> Send for PerProcess<T> {}
// SAFETY: as above.
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
        // SAFETY: entries live until `self` is dropped, and are not changed once
        // they can be found.
        unsafe { &*self.head.load(Acquire) }
    }

    /// This process's value; `None` if it was forked since, and has none yet.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        let head = self.head();
        (head.process == self.process.number()).then_some(&head.value)
    }

    /// The value of the process that this one was forked from, as long as this one has
    /// none, and unless a thread of that process was announcing a [`Change`] of something.
    /// What is changed without that may be in any state that any thread has ever left it in.
    pub fn inherited(&self) -> Option<&T> {
        if !inheritance::is_whole() {
            return None;
        }
        let head = self.head();
        (head.process != self.process.number()).then_some(&head.value)
    }

    /// Gives this process a value. If another thread was faster, that one's is returned.
    pub fn publish(&self, value: T) -> &T {
        let _change = Change::begin(self.process);
        let process = self.process.number();
        let older = self.head.load(Acquire);
        let new = Box::into_raw(Box::new(Entry {
            process,
            value,
            older,
        }));
        // Only this process's threads change it, and each only from what it inherited.
        let inherited = self.get().is_none();
        if inherited && self.head.compare_exchange(older, new, AcqRel, Acquire).is_ok() {
            return &self.head().value;
        }
        // SAFETY: it was made above and nobody else has seen it.
        drop(unsafe { Box::from_raw(new) });
        &self.head().value
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let process = self.process.number();
        let mut next = *self.head.get_mut();
        while let Some(entry) = NonNull::new(next) {
            // SAFETY: entries come from boxes, and nobody has references to them any
            // more. Those of other processes are left alone.
            next = unsafe { entry.as_ref() }.older;
            // SAFETY: as above.
            if unsafe { entry.as_ref() }.process == process {
                // SAFETY: as above.
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

    /// While nobody else here announces a change.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `child` returns in a forked child, as far as it fits an exit status.
    pub(crate) fn forked(child: impl FnOnce() -> u8) -> u8 {
        // SAFETY: the child uses atomics only and leaves at once.
        match unsafe { libc::fork() } {
            0 => {
                let status = child();
                // SAFETY: nothing of the parent's is run.
                unsafe { libc::_exit(status.into()) }
            }
            pid => {
                let mut status = 0;
                // SAFETY: the status is written to a variable of its type.
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
    fn a_child_is_another_process_and_so_is_its_child() {
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
    fn forks_are_counted_on_both_sides() {
        let process = Process::this().unwrap();
        let before = process.forks();
        let status = forked(|| u8::from(process.forks() != before));
        assert_eq!(status, 1);
        assert_ne!(process.forks(), before);
    }

    #[test]
    fn every_process_has_its_own_and_drops_no_other() {
        let _alone = alone();
        let drops = AtomicUsize::new(0);
        let value = PerProcess::new(Process::this().unwrap(), Counted(&drops));
        assert!(value.get().is_some() && value.inherited().is_none());
        let status = forked(|| {
            assert!(value.get().is_none() && value.inherited().is_some());
            let own: *const _ = value.publish(Counted(&drops));
            assert!(ptr::eq(own, value.get().unwrap()) && value.inherited().is_none());
            // One that comes late.
            assert!(ptr::eq(own, value.publish(Counted(&drops))));
            let late = drops.load(Relaxed);
            drop(value);
            (late * 16 + drops.load(Relaxed)) as u8
        });
        assert_eq!(status, 0x12);
        // The parent's was moved into the child's closure, which only the child ran.
        assert_eq!(drops.load(Relaxed), 1);
    }
}
