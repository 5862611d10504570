//! An instance's part on the node: a poll, with its connections, its listeners, and the instances
//! in it.

use core::ffi::c_int;
use std::io;
use std::sync::{Arc, OnceLock, PoisonError};

use toehold_posix::errno::{Errno, Outcome};
use toehold_socket::{Node, Poll, Registry, Source, Token, Waker};

use super::lost::is_lost;
use super::{Asked, Epoll, each};
use crate::file::{File, Kind};
use crate::readiness::interest;
use crate::{node, process, wait};

/// The poll of the node's, of one process and one life of the node's.
pub(crate) struct Sockets {
    process: u32,
    node: Arc<Node>,
    /// The waker, which ends before the poll does.
    rousing: OnceLock<Waker>,
    pub(crate) poll: Poll,
}

/// A token that is almost certainly not a number of the program's.
pub(super) const ROUSE: Token = Token(0x9d6c_6f0f_5a0c_e3b1);

impl Sockets {
    /// Whether these are of another process, or of a life that is over.
    fn is_stale(&self) -> bool {
        self.process != process::number() || !node::is_latest(&self.node)
    }

    /// Makes a thread that waits look again at its sources.
    pub(super) fn rouse(&self) {
        let waker = Waker::new(self.poll.registry(), ROUSE);
        if let Ok(waker) = waker
            && waker.wake().is_ok()
        {
            // It is to be there when it is looked for.
            let _ = self.rousing.set(waker);
        }
    }
}

impl Epoll {
    /// The poll of the node's, if this process has made one: a forked child does not share its
    /// parent's.
    pub(crate) fn present(&self) -> Option<Arc<Sockets>> {
        let sockets = self.sockets.load_full();
        sockets.filter(|sockets| !sockets.is_stale())
    }

    /// The poll of the node's, which is made if this process has none. A thread that holds a lock
    /// of an instance's makes none.
    pub(super) fn sockets(&self) -> Outcome<Arc<Sockets>> {
        self.present().map_or_else(|| self.make_sockets(), Ok)
    }

    #[cold]
    fn make_sockets(&self) -> Outcome<Arc<Sockets>> {
        let alone = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(present) = self.present() {
            return Ok(present);
        }
        let node = node::get().ok_or(Errno::NETDOWN)?;
        let made = Arc::new(Sockets {
            process: process::number(),
            rousing: OnceLock::new(),
            poll: Poll::new(&node).map_err(Errno::from)?,
            node,
        });
        let former = self.sockets.swap(Some(Arc::clone(&made)));
        drop(alone);
        if former.is_some() {
            self.watch_again();
        }
        if let Some(former) = former.filter(|former| former.process != made.process) {
            // What the parent has is neither used nor dropped here.
            std::mem::forget(former);
        }
        self.tell_watchers();
        self.rouse_from_kernel();
        Ok(made)
    }

    /// Tells the instances that watch this one of its events on the node from now on.
    fn tell_watchers(&self) {
        each(|_, outer| {
            let is_own = |file: &Arc<File>| file.epoll().is_some_and(|epoll| core::ptr::eq(epoll, self));
            let own = outer.list().into_iter().filter(|(_, file, _)| is_own(file));
            for (number, file, asked) in own.collect::<Vec<_>>() {
                // Another thread may have registered it in between.
                let _ = outer.register(&file, number, asked);
            }
        });
    }

    /// Makes a poll again if there was one, in a forked child, or in another life of the node's.
    pub(super) fn take_over(&self) {
        let former = self.sockets.load();
        let is_stale = former.as_ref().is_some_and(|sockets| sockets.is_stale());
        drop(former);
        if is_stale {
            let _ = self.sockets();
        }
    }

    /// Watches on the node the sources that the parent's poll watched, or the former life's.
    fn watch_again(&self) {
        for (number, file, asked) in self.list() {
            if let Some(inner) = file.epoll() {
                inner.take_over();
            }
            // What listens again is watched in the place of the former one.
            if wait::listens_again(&file, number).is_none() {
                let _ = self.register(&file, number, asked);
            }
        }
    }

    /// Watches a file on the node, if it has anything there.
    pub(super) fn register(&self, file: &File, number: c_int, asked: Asked) -> Outcome<()> {
        self.register_with(self.sockets_for(file)?.as_deref(), (file, number), asked)
    }

    /// The poll of an instance with which a file is watched that has something on the node.
    pub(super) fn sockets_for(&self, file: &File) -> Outcome<Option<Arc<Sockets>>> {
        let is_concerned = file.is_nodes() || file.epoll().is_some_and(|inner| inner.present().is_some());
        match is_concerned.then(|| self.sockets()).transpose() {
            Err(Errno::NETDOWN) => {
                self.note_lost();
                Ok(None)
            }
            sockets => sockets,
        }
    }

    pub(super) fn register_with(
        &self,
        sockets: Option<&Sockets>,
        watched: (&File, c_int),
        Asked { events, token, .. }: Asked,
    ) -> Outcome<()> {
        let interest = interest(events);
        self.with(sockets, watched, |registry, source| {
            registry.register(source, token, interest)
        })
    }

    pub(super) fn reregister_with(
        &self,
        sockets: Option<&Sockets>,
        watched: (&File, c_int),
        Asked { events, token, .. }: Asked,
    ) -> Outcome<()> {
        let interest = interest(events);
        self.with(sockets, watched, |registry, source| {
            registry.reregister(source, token, interest)
        })
    }

    pub(super) fn deregister(&self, file: &File, number: c_int) {
        // What is not registered is not watched, and a forked child has registered nothing yet.
        let present = self.present();
        let _ = self.with(present.as_deref(), (file, number), |registry, source| {
            registry.deregister(source)
        });
    }

    /// Calls `act` for each number of a file's, which is watched by itself, as the kernel does.
    fn with(
        &self,
        sockets: Option<&Sockets>,
        (file, number): (&File, c_int),
        act: impl FnOnce(&Registry, &dyn Source) -> io::Result<()>,
    ) -> Outcome<()> {
        let Some(sockets) = sockets else { return Ok(()) };
        let registry = &sockets.poll.registry().named(number as u32);
        let done = match &file.kind {
            Kind::Stream(stream) => act(registry, &stream.inner),
            Kind::Listener(listener) => act(registry, &listener.inner),
            Kind::Epoll(inner) => match inner.present() {
                Some(inner) => act(registry, &inner.poll),
                None => Ok(()),
            },
            Kind::Fresh(_) | Kind::Found(_) | Kind::Forwarded(_) | Kind::Relayed(_) => Ok(()),
        };
        match done.map_err(Errno::from) {
            Err(_) if is_lost(file) => {
                // There is nothing to watch, and something to tell.
                self.note_lost();
                Ok(())
            }
            done => done,
        }
    }
}
