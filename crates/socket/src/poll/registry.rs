//! The sources that a poll watches: which sockets, for which events, and under which token.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use toehold_node::Interest;

pub(super) use self::sealed::Kind;
use super::direct::{DirectWatched, Identity};
use super::set::{DIRECT, Set};
use super::{Poll, Token};
use crate::error::invalid;
use crate::listener::TcpListener;
use crate::stream::{Connected, TcpStream};

/// Where sockets are registered with a [`Poll`], from any thread.
#[derive(Clone)]
pub struct Registry {
    pub(super) set: Arc<Set>,
    pub(super) name: u32,
}

/// Something that can be registered: a [`TcpListener`], a [`TcpStream`], or another [`Poll`],
/// which is readable as long as it has something to tell. Of polls in polls, six are looked into.
pub trait Source: sealed::Sealed {}

impl Source for TcpListener {}
impl Source for TcpStream {}
impl Source for Poll {}

mod sealed {
    use std::io;
    use std::sync::{Arc, Weak};

    use super::{Identity, Poll, Set, TcpListener, TcpStream};
    use crate::listener::Listener;
    use crate::node::Shared;
    use crate::stream::Connected;
    use toehold_node::Watched;
    use toehold_stack::Event;

    /// The kinds of sources.
    #[allow(private_interfaces)]
    pub enum Kind {
        Stream(Arc<Connected>),
        Listener(Arc<Listener>),
        Poll(Arc<Set>),
    }

    pub trait Sealed {
        #[doc(hidden)]
        fn kind(&self) -> Kind;
    }

    impl Sealed for TcpListener {
        fn kind(&self) -> Kind {
            Kind::Listener(self.handle())
        }
    }

    impl Sealed for TcpStream {
        fn kind(&self) -> Kind {
            Kind::Stream(Arc::clone(self.connected()))
        }
    }

    impl Sealed for Poll {
        fn kind(&self) -> Kind {
            Kind::Poll(Arc::clone(&self.registry.set))
        }
    }

    impl Kind {
        /// The node of the socket.
        pub(in crate::poll) fn node(&self) -> &Arc<Shared> {
            match self {
                Kind::Stream(stream) => stream.node(),
                Kind::Listener(listener) => listener.node(),
                Kind::Poll(set) => &set.node,
            }
        }

        pub(in crate::poll) fn identity(&self, name: u32) -> Identity {
            let address = match self {
                Kind::Stream(stream) => Arc::as_ptr(stream).addr(),
                Kind::Listener(listener) => Arc::as_ptr(listener).addr(),
                Kind::Poll(set) => Arc::as_ptr(set).addr(),
            };
            Identity { address, name }
        }

        /// Calls `each` with the source's id in every shard that has one, until that fails.
        pub(in crate::poll) fn names(
            &self,
            each: &mut dyn FnMut(u8, Watched) -> io::Result<()>,
        ) -> io::Result<()> {
            match self {
                Kind::Stream(stream) => match &**stream {
                    Connected::Tcp(connection) => {
                        let (shard, id) = connection.place();
                        each(shard, Event::Connection(id).into())
                    }
                    Connected::Direct(_) => Ok(()),
                },
                Kind::Listener(listener) => {
                    let mut names = listener.names();
                    names.try_for_each(|(shard, name)| each(shard, name.into()))
                }
                Kind::Poll(set) => (0..set.polls.len() as u8)
                    .try_for_each(|shard| each(shard, Watched::Poll(set.poll(shard)))),
            }
        }

        /// A function that tells whether the program still has the source.
        pub(in crate::poll) fn is_there(&self) -> Box<dyn Fn() -> bool + Send + Sync> {
            fn check<T: Send + Sync + 'static>(weak: Weak<T>) -> Box<dyn Fn() -> bool + Send + Sync> {
                Box::new(move || weak.strong_count() > 0)
            }
            match self {
                Kind::Stream(stream) => check(Arc::downgrade(stream)),
                Kind::Listener(listener) => check(Arc::downgrade(listener)),
                Kind::Poll(set) => check(Arc::downgrade(set)),
            }
        }
    }
}

impl Registry {
    /// A registry of the same poll for registrations of another name; the usual name is 0. A socket
    /// is registered once under each name.
    #[must_use]
    pub fn named(&self, name: u32) -> Registry {
        Registry {
            set: Arc::clone(&self.set),
            name,
        }
    }

    /// Watches a socket. A socket that is dropped is not watched any longer.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if it is registered with this poll under this name; `InvalidInput` if it
    /// belongs to another node. ENOBUFS if the node watches as many sockets as it can.
    pub fn register<S: Source + ?Sized>(
        &self,
        source: &S,
        token: Token,
        interests: Interest,
    ) -> io::Result<()> {
        self.set.node.contain(|| {
            let kind = self.check(source)?;
            let asked = (token, interests);
            if !self.set.register_directly(&kind, self.name, asked)? {
                self.set.register_in_shards(&kind, self.name, asked)?;
            }
            self.set.begin_watching(&kind)
        })
    }

    /// Changes the events that are watched, and the token.
    ///
    /// # Errors
    ///
    /// `NotFound` if the socket is not registered.
    pub fn reregister<S: Source + ?Sized>(
        &self,
        source: &S,
        token: Token,
        interests: Interest,
    ) -> io::Result<()> {
        self.set.node.contain(|| {
            let kind = self.check(source)?;
            let identity = kind.identity(self.name);
            let direct = self.set.direct.as_ref();
            let is_direct = direct.is_some_and(|direct| direct.change(identity, token, interests));
            if is_direct && !self.set.is_leased(identity) {
                return Ok(());
            }
            kind.names(&mut |index, name| {
                let mut shard = self.set.enter(index)?;
                let registration = shard.registration(self.set.poll(index), name, self.name);
                shard.reregister(registration.ok_or(Errno::NOENT)?, token.0 as u64, interests);
                Ok(())
            })
        })
    }

    /// Ends watching a socket.
    ///
    /// # Errors
    ///
    /// `NotFound` if the socket is not registered.
    pub fn deregister<S: Source + ?Sized>(&self, source: &S) -> io::Result<()> {
        self.set.node.contain(|| {
            let kind = self.check(source)?;
            let identity = kind.identity(self.name);
            let was_direct = self.set.end_directly(&kind, identity);
            if was_direct && !self.set.is_leased(identity) {
                return Ok(());
            }
            self.set.deregister_in_shards(&kind, self.name)
        })
    }

    fn check<S: Source + ?Sized>(&self, source: &S) -> io::Result<Kind> {
        let kind = source.kind();
        if Arc::ptr_eq(kind.node(), &self.set.node) {
            Ok(kind)
        } else {
            Err(invalid("the socket and the poll belong to different nodes"))
        }
    }
}

impl Set {
    /// Watches a source without the lease, if it can be. A listener may have to be watched in
    /// shards as well, as may a poll. Returns `false` then.
    fn register_directly(
        &self,
        kind: &Kind,
        name: u32,
        (token, interest): (Token, Interest),
    ) -> io::Result<bool> {
        let (Some(set), Some(direct)) = (&self.direct, self.node.shards()?.direct()) else {
            return Ok(false);
        };
        let (watched, is_all) = match kind {
            Kind::Stream(stream) => match **stream {
                Connected::Direct(_) => (DirectWatched::Stream(Arc::downgrade(stream)), true),
                Connected::Tcp(_) => return Ok(false),
            },
            Kind::Listener(listener) => {
                let id = listener.direct_id(direct);
                let listener = Arc::downgrade(listener);
                (DirectWatched::Listener { listener, id }, id.is_some())
            }
            Kind::Poll(inner) => {
                if let Some(inner) = &inner.direct {
                    inner.add_outer(set);
                }
                (DirectWatched::Poll(Arc::downgrade(inner)), false)
            }
        };
        if !set.add(kind.identity(name), watched, token, interest) {
            return Err(Errno::EXIST.into());
        }
        self.use_shards(DIRECT)?;
        Ok(is_all)
    }

    /// Watches a source in the shards in which it is something.
    pub(in crate::poll) fn register_in_shards(
        &self,
        kind: &Kind,
        name: u32,
        (token, interest): (Token, Interest),
    ) -> io::Result<()> {
        let (mut done, mut places) = (0, 0);
        kind.names(&mut |_, _| {
            places += 1;
            Ok(())
        })?;
        let group = match places {
            0 | 1 => 0,
            _ => self.new_group(),
        };
        let registered = kind.names(&mut |index, watched| {
            let mut shard = self.enter(index)?;
            let poll = self.poll(index);
            if shard.registration(poll, watched, name).is_some() {
                return Err(Errno::EXIST.into());
            }
            let registered = shard.register(poll, (watched, name, group), token.0 as u64, interest);
            registered.ok_or(Errno::NOBUFS)?;
            done += 1;
            Ok(())
        });
        let mut used = 0;
        kind.names(&mut |index, watched| {
            used |= 1 << index;
            if registered.is_err() && done > 0 {
                done -= 1;
                let mut shard = self.enter(index)?;
                if let Some(registration) = shard.registration(self.poll(index), watched, name) {
                    shard.deregister(registration);
                }
            }
            Ok(())
        })?;
        registered?;
        self.note_leased(kind.identity(name), kind.is_there());
        self.use_shards(used)
    }

    /// Ends watching a source in shards.
    pub(super) fn deregister_in_shards(&self, kind: &Kind, name: u32) -> io::Result<()> {
        self.forget_leased(kind.identity(name));
        kind.names(&mut |index, watched| {
            let mut shard = self.enter(index)?;
            let registration = shard.registration(self.poll(index), watched, name);
            shard.deregister(registration.ok_or(Errno::NOENT)?);
            Ok(())
        })
    }

    /// Ends watching a source without the lease. Returns `false` if it was not.
    fn end_directly(&self, kind: &Kind, identity: Identity) -> bool {
        let Some(set) = &self.direct else { return false };
        if let Kind::Poll(inner) = kind
            && let Some(inner) = &inner.direct
        {
            inner.remove_outer(set);
        }
        set.end(identity)
    }

    /// Notes that a thread will wait for the source with the poll.
    fn begin_watching(&self, kind: &Kind) -> io::Result<()> {
        match kind {
            Kind::Listener(listener) => self.audience.is_for(&TcpListener::from(Arc::clone(listener))),
            // The outer poll tells those that wait with it.
            Kind::Poll(inner) => inner.audience.is_there(),
            Kind::Stream(_) => Ok(()),
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}
