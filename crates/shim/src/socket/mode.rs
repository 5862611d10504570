//! Whether calls on a listener wait: the program's wish, and the kernel's flags.
//!
//! Another process may have the kernel's listener. It could take a connection that this process has seen.
//! This process's call would then wait in the kernel and see none of the node's. So a shared listener of the
//! kernel's never waits while a thread takes a connection from it. It has a mark if the program wants it to
//! wait.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::OFlags;

use super::owner::ASYNC;
use crate::{next, table};

/// The mark of a shared listener that the program wants to wait, and that does not any more.
const WAITS: OFlags = ASYNC;

/// The mark of a listener that waits.
const MARK: OFlags = OFlags::NONBLOCK.union(WAITS);

/// The mode of one listener: whether calls on it wait.
pub(crate) struct Mode {
    /// Whether another process may have the listener. From then on the listener has the mark, which
    /// no other program uses. No signal comes of it as long as it has no owner. Before, its flags
    /// are as the program wants them, and the program may change them past the library.
    is_shared: AtomicBool,
    /// Whether another process that knows of no mark has the listener, and is to find it as it was.
    /// So the listener has the mark only for the moment in which a connection is taken.
    is_lent: bool,
}

impl Mode {
    /// The mode of a listener that no other process has.
    pub(super) fn new() -> Mode {
        Mode {
            is_shared: AtomicBool::new(false),
            is_lent: false,
        }
    }

    /// The mode of a listener that another program of the node has, as it has said.
    pub(super) fn inherited(number: c_int) -> Mode {
        Mode::of_another(number, OFlags::NONBLOCK)
    }

    /// The mode of a listener that another process has, which has said nothing.
    pub(super) fn found(number: c_int) -> Mode {
        Mode::of_another(number, MARK)
    }

    /// The mode of a listener that another process has. Without these flags, that process has not marked it.
    fn of_another(number: c_int, flags: OFlags) -> Mode {
        let present = rustix::fs::fcntl_getfl(table::borrow(&number));
        Mode {
            is_shared: AtomicBool::new(true),
            is_lent: present.is_ok_and(|present| !present.contains(flags)),
        }
    }

    /// A copy, for another listener in the place of this one.
    pub(super) fn copy(&self) -> Mode {
        Mode {
            is_shared: AtomicBool::new(self.is_shared.load(Relaxed)),
            is_lent: self.is_lent,
        }
    }

    /// Returns whether the mark holds the program's setting for good.
    fn is_kept(&self) -> bool {
        self.is_shared.load(Relaxed) && !self.is_lent
    }

    fn has_mark(&self, flags: OFlags) -> bool {
        self.is_shared.load(Relaxed) && flags.contains(MARK)
    }

    /// Whether `accept` waits.
    pub(crate) fn waits(&self, number: c_int) -> bool {
        rustix::fs::fcntl_getfl(table::borrow(&number))
            .is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK) || self.has_mark(flags))
    }

    /// The flags that the kernel's listener gets if the program sets these.
    pub(crate) fn told(&self, flags: c_int) -> c_int {
        let waits = flags & libc::O_NONBLOCK == 0;
        match waits && self.is_kept() {
            true => flags | libc::O_NONBLOCK | libc::O_ASYNC,
            false => flags,
        }
    }

    /// The flags that the program is told for the kernel's.
    pub(crate) fn shown(&self, flags: c_int) -> c_int {
        match self.has_mark(OFlags::from_bits_retain(flags as u32)) {
            true => flags & !(libc::O_NONBLOCK | libc::O_ASYNC),
            false => flags,
        }
    }

    /// Notes whether the program's calls wait, as it has said. Returns `false` if the kernel is to
    /// be told.
    pub(crate) fn set_nonblocking(&self, number: c_int, nonblocking: bool) -> bool {
        let is_kept = self.is_kept();
        if is_kept {
            change(number, |flags| {
                flags.insert(OFlags::NONBLOCK);
                flags.set(WAITS, !nonblocking);
            });
        }
        is_kept
    }

    /// Notes that another process is about to have the kernel's listener, too.
    pub(crate) fn share(&self, number: c_int) {
        if !self.is_shared.swap(true, Relaxed) {
            change(number, |flags| {
                if !flags.contains(OFlags::NONBLOCK) {
                    flags.insert(MARK);
                }
            });
        }
    }

    /// Removes the mark. The next user of the kernel's listener knows nothing of the node's.
    pub(crate) fn restore(&self, number: c_int) {
        change(number, |flags| {
            if self.has_mark(*flags) {
                flags.remove(MARK);
            }
        });
    }

    /// Takes a connection that was seen. Another process may have taken it meanwhile.
    pub(super) fn without_waiting<T>(&self, number: c_int, take: impl FnOnce() -> T) -> T {
        let former = match self.is_lent {
            true => change(number, |flags| {
                if !flags.contains(OFlags::NONBLOCK) {
                    flags.insert(MARK);
                }
            }),
            false => None,
        };
        let taken = take();
        if let Some(former) = former {
            let _ = rustix::fs::fcntl_setfl(table::borrow(&number), former);
        }
        taken
    }

    /// Whether the program wants a signal for each connection.
    pub(crate) fn wants_signals(number: c_int) -> bool {
        let flags = rustix::fs::fcntl_getfl(table::borrow(&number));
        // Another process that listens at the same socket has marked it.
        flags.is_ok_and(|flags| flags.contains(ASYNC)) && !is_marked(number)
    }

    /// Whether another process has a node's listener beside the kernel's, and this process the kernel's
    /// alone. The program wants it to wait, and the mark keeps it from waiting.
    #[cold]
    pub(crate) fn is_of_another(number: c_int) -> bool {
        is_marked(number) && rustix::net::sockopt::socket_acceptconn(table::borrow(&number)) == Ok(true)
    }
}

/// Whether a socket has the mark. O_ASYNC with an owner, which gets signals, is no mark.
fn is_marked(number: c_int) -> bool {
    rustix::fs::fcntl_getfl(table::borrow(&number)).is_ok_and(|flags| flags.contains(MARK))
        // SAFETY: the call takes numbers alone, and no pointer.
        && unsafe { next::fcntl(number, libc::F_GETOWN, 0) } == 0
}

/// Changes a listener's flags. Returns the former ones, if they have changed.
fn change(number: c_int, change: impl FnOnce(&mut OFlags)) -> Option<OFlags> {
    let former = rustix::fs::fcntl_getfl(table::borrow(&number)).ok()?;
    let mut flags = former;
    change(&mut flags);
    let is_other = flags != former && rustix::fs::fcntl_setfl(table::borrow(&number), flags).is_ok();
    is_other.then_some(former)
}
