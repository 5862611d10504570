//! Instances in which nobody has waited through the library yet. Their program may wait past it, by
//! system calls of its own, and is told by the kernel alone. So what the node's poll watches the
//! kernel's instance watches as well, until somebody waits; and if nobody does, the engine carries
//! the bytes of these connections, and the kernel has something to tell (`TcpStream::stand_by`).
//!
//! What stands for a connection has room for bytes before it has a peer, and the kernel tells so.
//! So who registers one that is being set up waits for its peer, for a moment, and so does who
//! asks whether that has gone well.

use core::ffi::c_int;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use libc::epoll_event;

use super::Epoll;
use crate::file::File;
use crate::socket::Stream;
use crate::{next, node};

/// How long one who registers a connection waits at most until it is set up.
const A_MOMENT: Duration = Duration::from_millis(2);

/// The same of one who asks how that went.
const A_WHILE: Duration = Duration::from_secs(1);

/// The engine is asked to look so often at most; it looks later than that.
const PERIOD: Duration = Duration::from_millis(20);

/// How an instance is waited in.
#[derive(Default)]
pub(super) struct Waited {
    /// Somebody has waited through the library.
    is_usual: AtomicBool,
    /// Nobody has, and the engine has found that out.
    is_past: AtomicBool,
    /// When the engine was asked to look last.
    asked: Mutex<Option<Instant>>,
}

impl Epoll {
    /// Somebody waits through the library.
    #[inline]
    pub(crate) fn note_waited(&self) {
        if !self.waited.is_usual.load(Relaxed) {
            self.waits_first();
        }
    }

    #[cold]
    fn waits_first(&self) {
        let mut watched = self.watched();
        self.waited.is_usual.store(true, Relaxed);
        let mut early = Vec::new();
        for (number, watched) in watched.iter_mut() {
            if let Some(own) = watched.early.take() {
                delete(own, *number);
                early.extend(watched.file.upgrade());
            }
        }
        drop(watched);
        for file in early {
            if let Some(stream) = file.stream() {
                stream.unattended.store(false, Relaxed);
                let _ = stream.inner.attend();
            }
        }
    }

    /// A connection was registered, `own` being a number of this instance. Whether the engine is
    /// to carry its bytes at once.
    #[inline]
    pub(crate) fn watch_past(&self, own: c_int, number: c_int, file: &File, event: epoll_event) -> bool {
        if self.waited.is_usual.load(Relaxed) {
            return false;
        }
        let stream = file.stream();
        stream.is_some_and(|stream| self.watch_early(own, number, (file, stream), event))
    }

    #[cold]
    fn watch_early(
        &self,
        own: c_int,
        number: c_int,
        (file, stream): (&File, &Stream),
        mut event: epoll_event,
    ) -> bool {
        let is_past = self.waited.is_past.load(Relaxed);
        let mut asked = self.waited.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.is_none() || is_past {
            stream.await_peer(A_MOMENT);
        }
        let mut watched = self.watched();
        // Somebody may have begun to wait, or closed it.
        let entry = watched.get_mut(&number).filter(|entry| entry.is(file));
        let Some(entry) = entry.filter(|_| !self.waited.is_usual.load(Relaxed)) else {
            return false;
        };
        // SAFETY: an event.
        if unsafe { next::epoll_ctl(own, libc::EPOLL_CTL_ADD, number, &mut event) } != 0 {
            return false;
        }
        entry.early = Some(own);
        stream.unattended.store(true, Relaxed);
        drop(watched);
        let asks = asked.is_none_or(|asked| asked.elapsed() >= PERIOD);
        if stream.inner.stand_by(asks).is_ok() && asks {
            *asked = Some(Instant::now());
        }
        // Why there is none, the node knows.
        is_past && stream.is_there()
    }

    /// The kernel's instance does not watch a connection any more under a number.
    pub(super) fn leave_early(&self, number: c_int, file: &File) {
        let mut watched = self.watched();
        let entry = watched.get_mut(&number).filter(|entry| entry.is(file));
        if let Some(own) = entry.and_then(|entry| entry.early.take()) {
            delete(own, number);
        }
    }

    /// A connection that was registered so is the kernel's by now: nobody waits as usual.
    pub(super) fn note_past(&self) {
        self.waited.is_past.store(true, Relaxed);
    }
}

impl Stream {
    /// Waits until it is known what becomes of the connection.
    fn await_peer(&self, longest: Duration) {
        let began = Instant::now();
        while self.is_connecting() && began.elapsed() < longest && node::drive() {
            match began.elapsed() < A_MOMENT {
                true => std::thread::yield_now(),
                false => std::thread::sleep(A_MOMENT / 10),
            }
        }
    }

    /// The program may have been told, by the kernel, that there is a connection.
    #[inline]
    pub(crate) fn await_if_told_early(&self) {
        if self.unattended.load(Relaxed) {
            self.await_peer(A_WHILE);
        }
    }
}

/// The kernel's instance watches something no more.
pub(super) fn delete(own: c_int, number: c_int) {
    // SAFETY: no event is needed.
    unsafe { next::epoll_ctl(own, libc::EPOLL_CTL_DEL, number, core::ptr::null_mut()) };
}
