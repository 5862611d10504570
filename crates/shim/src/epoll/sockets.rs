//! What an instance has on the node: a poll, with its connections, its listeners, and the
//! instances in it.

use std::io;
use std::sync::{Arc, OnceLock};

use libc::epoll_event;
use toehold_posix::errno::{Errno, Outcome};
use toehold_socket::{Poll, Registry, Source, Token, Waker};

use super::{Epoll, each};
use crate::file::{File, Kind};
use crate::readiness::interest;
use crate::{node, process};

/// The poll of the node's, of one process.
pub(crate) struct Sockets {
    process: u32,
    /// Before the poll, whose end is its own.
    rousing: OnceLock<Waker>,
    pub(crate) poll: Poll,
}

/// Not a number of the program's, as good as certainly.
pub(super) const ROUSE: Token = Token(0x9d6c_6f0f_5a0c_e3b1);

impl Sockets {
    /// Makes a thread that waits look what it waits for.
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
        sockets.filter(|sockets| sockets.process == process::number())
    }

    /// The same, made if need be. Nobody who holds a lock of an instance's makes one.
    pub(super) fn sockets(&self) -> Outcome<Arc<Sockets>> {
        self.present().map_or_else(|| self.make_sockets(), Ok)
    }

    #[cold]
    fn make_sockets(&self) -> Outcome<Arc<Sockets>> {
        let node = node::get().ok_or(Errno::NETDOWN)?;
        let made = Arc::new(Sockets {
            process: process::number(),
            rousing: OnceLock::new(),
            poll: Poll::new(node).map_err(Errno::from)?,
        });
        if let Some(parents) = self.sockets.swap(Some(Arc::clone(&made))) {
            // What the parent has is neither used nor dropped here.
            std::mem::forget(parents);
        }
        self.tell_watchers();
        self.rouse_from_kernel();
        Ok(made)
    }

    /// Instances that watch this one hear of what it has on the node from now on.
    fn tell_watchers(&self) {
        each(|_, outer| {
            let is_own = |file: &Arc<File>| file.epoll().is_some_and(|epoll| core::ptr::eq(epoll, self));
            let own = outer.list().into_iter().filter(|(_, file, _)| is_own(file));
            for (_, file, event) in own.collect::<Vec<_>>() {
                // Somebody may have done so in between.
                let _ = outer.register(&file, event);
            }
        });
    }

    /// In a forked child: watches on the node what its parent did.
    pub(super) fn take_over(&self) {
        let inherited = self.sockets.load();
        let is_stale = inherited
            .as_ref()
            .is_some_and(|sockets| sockets.process != process::number());
        drop(inherited);
        if !is_stale {
            return;
        }
        for (_, file, event) in self.list() {
            if let Some(inner) = file.epoll() {
                inner.take_over();
            }
            let _ = self.register(&file, event);
        }
    }

    /// Watches a file on the node, if it has anything there.
    pub(super) fn register(
        &self,
        file: &File,
        epoll_event { events, u64: data }: epoll_event,
    ) -> Outcome<()> {
        let (token, interest) = (Token(data as usize), interest(events));
        self.with(file, |registry, source| {
            registry.register(source, token, interest)
        })
    }

    pub(super) fn reregister(
        &self,
        file: &File,
        epoll_event { events, u64: data }: epoll_event,
    ) -> Outcome<()> {
        let (token, interest) = (Token(data as usize), interest(events));
        self.with(file, |registry, source| {
            registry.reregister(source, token, interest)
        })
    }

    pub(super) fn deregister(&self, file: &File) {
        // What is not registered is not watched, and a forked child has registered nothing yet.
        if self.present().is_some() {
            let _ = self.with(file, |registry, source| registry.deregister(source));
        }
    }

    fn with(&self, file: &File, act: impl FnOnce(&Registry, &dyn Source) -> io::Result<()>) -> Outcome<()> {
        let done = match &file.kind {
            Kind::Stream(stream) => act(self.sockets()?.poll.registry(), &stream.inner),
            Kind::Listener(listener) => act(self.sockets()?.poll.registry(), &listener.inner),
            Kind::Epoll(inner) => match inner.present() {
                Some(inner) => act(self.sockets()?.poll.registry(), &inner.poll),
                None => Ok(()),
            },
            Kind::Fresh(_) | Kind::Relayed(_) => Ok(()),
        };
        done.map_err(Errno::from)
    }
}
