//! The files that the program has descriptors of.

use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicU32};

use crate::epoll::Epoll;
use crate::socket::{Forwarded, InheritedListener, Listener, Mode, Relayed, Stream, UnconnectedSocket};

/// An open file description that is not the kernel's alone.
pub(crate) struct File {
    numbers: Numbers,
    /// Whether an epoll instance watches it, or has done so.
    watched: AtomicBool,
    pub(crate) kind: Kind,
}

/// The kinds of files.
pub(crate) enum Kind {
    /// A TCP socket before `connect` or `listen`. All calls are the kernel's, as on a listener and an epoll,
    /// but for those that say otherwise.
    Fresh(UnconnectedSocket),
    /// A connection of the node's.
    Stream(Stream),
    /// A listener of the kernel's and of the node's.
    Listener(Listener),
    /// A listener of the kernel's, which is to be one of the node's, too, when it is waited for.
    Found(InheritedListener),
    /// A listener of the kernel's, which has the connections of the node's, too.
    Forwarded(Forwarded),
    /// A connection of the node's that the kernel's socket stands for.
    Relayed(Relayed),
    /// An epoll instance.
    Epoll(Epoll),
}

/// The number of numbers that a file has.
pub(crate) struct Numbers(AtomicU32);

impl Numbers {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, AcqRel);
    }

    /// Returns `true` if that was the last one.
    pub(crate) fn remove(&self) -> bool {
        self.0.fetch_sub(1, AcqRel) == 1
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.load(Acquire)
    }
}

impl File {
    pub(crate) fn new(kind: Kind) -> File {
        File {
            numbers: Numbers(AtomicU32::new(0)),
            watched: AtomicBool::new(false),
            kind,
        }
    }

    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    pub(crate) fn note_watched(&self) {
        self.watched.store(true, Relaxed);
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Relaxed)
    }

    /// Whether calls on it do not wait; `None` if the kernel knows.
    pub(crate) fn is_nonblocking(&self) -> Option<bool> {
        match &self.kind {
            Kind::Stream(stream) => Some(stream.is_nonblocking()),
            Kind::Fresh(_)
            | Kind::Found(_)
            | Kind::Forwarded(_)
            | Kind::Listener(_)
            | Kind::Relayed(_)
            | Kind::Epoll(_) => None,
        }
    }

    /// Changes whether calls wait. Returns `false` if the kernel has to do so.
    pub(crate) fn set_nonblocking(&self, number: c_int, nonblocking: bool) -> bool {
        match &self.kind {
            Kind::Stream(stream) => stream.set_nonblocking(nonblocking),
            Kind::Listener(Listener { mode, .. }) | Kind::Found(InheritedListener { mode, .. }) => {
                return mode.set_nonblocking(number, nonblocking);
            }
            Kind::Fresh(_) | Kind::Forwarded(_) | Kind::Relayed(_) | Kind::Epoll(_) => {
                return false;
            }
        }
        true
    }

    /// Whether calls on a listener wait.
    pub(crate) fn listener_mode(&self) -> Option<&Mode> {
        match &self.kind {
            Kind::Listener(Listener { mode, .. }) | Kind::Found(InheritedListener { mode, .. }) => Some(mode),
            _ => None,
        }
    }

    pub(crate) fn epoll(&self) -> Option<&Epoll> {
        match &self.kind {
            Kind::Epoll(epoll) => Some(epoll),
            _ => None,
        }
    }

    /// Whether something on the node stands for it, by itself.
    pub(crate) fn is_nodes(&self) -> bool {
        matches!(self.kind, Kind::Stream(_) | Kind::Listener(_))
    }

    #[inline]
    pub(crate) fn stream(&self) -> Option<&Stream> {
        match &self.kind {
            Kind::Stream(stream) => Some(stream),
            _ => None,
        }
    }
}
