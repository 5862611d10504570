//! Whether a thread waits with a poll.
//!
//! A program that registers a listener may wait for it past this crate: it calls libc's `epoll_ctl`
//! and makes the system call `epoll_wait` itself. Then the engine has to forward the listener's
//! connections.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use crate::listener::{Listener, TcpListener};

/// Whether a thread waits, and the listeners that were registered before one did.
#[derive(Default)]
pub(super) struct Audience {
    is_there: AtomicBool,
    /// Listeners that were registered before a thread waited.
    before: Mutex<Vec<Weak<Listener>>>,
}

impl Audience {
    fn before(&self) -> MutexGuard<'_, Vec<Weak<Listener>>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a listener was registered.
    pub(super) fn is_for(&self, listener: &TcpListener) -> io::Result<()> {
        let mut before = self.before();
        if self.is_there.load(Relaxed) {
            drop(before);
            return listener.attend();
        }
        before.retain(|listener| listener.strong_count() > 0);
        before.push(listener.downgrade());
        Ok(())
    }

    /// Notes that a thread waits.
    #[inline]
    pub(super) fn is_there(&self) -> io::Result<()> {
        if self.is_there.load(Relaxed) {
            Ok(())
        } else {
            self.begins()
        }
    }

    #[cold]
    fn begins(&self) -> io::Result<()> {
        let before = {
            let mut before = self.before();
            self.is_there.store(true, Relaxed);
            std::mem::take(&mut *before)
        };
        let there = before.iter().filter_map(Weak::upgrade);
        there
            .map(TcpListener::from)
            .try_for_each(|listener| listener.attend())
    }
}
