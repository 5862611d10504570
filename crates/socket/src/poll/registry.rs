//! What a poll watches: which sockets, for what, and under which token.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use toehold_node::Interest;

use super::set::Set;
use super::{Poll, Token};
use crate::error::invalid;
use crate::listener::TcpListener;
use crate::stream::TcpStream;

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
    use std::sync::Arc;

    use toehold_node::Watched;

    use super::{Poll, Set, TcpListener, TcpStream};
    use crate::node::Shared;

    pub trait Sealed {
        /// Its node.
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn node(&self) -> &Arc<Shared>;

        /// What it is in each shard in which it is something, until `each` fails.
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn names(&self, each: &mut dyn FnMut(u8, Watched) -> std::io::Result<()>) -> std::io::Result<()>;

        /// Something will be waited for with the poll.
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn watched_by(&self, _set: &Set) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Sealed for TcpListener {
        #[allow(private_interfaces)]
        fn node(&self) -> &Arc<Shared> {
            self.sources().0
        }

        #[allow(private_interfaces)]
        fn names(&self, each: &mut dyn FnMut(u8, Watched) -> std::io::Result<()>) -> std::io::Result<()> {
            let (_, mut names) = self.sources();
            names.try_for_each(|(shard, name)| each(shard, name.into()))
        }

        #[allow(private_interfaces)]
        fn watched_by(&self, set: &Set) -> std::io::Result<()> {
            set.audience.is_for(self)
        }
    }

    impl Sealed for TcpStream {
        #[allow(private_interfaces)]
        fn node(&self) -> &Arc<Shared> {
            self.source().0
        }

        #[allow(private_interfaces)]
        fn names(&self, each: &mut dyn FnMut(u8, Watched) -> std::io::Result<()>) -> std::io::Result<()> {
            let (_, shard, name) = self.source();
            each(shard, name.into())
        }
    }

    impl Sealed for Poll {
        #[allow(private_interfaces)]
        fn node(&self) -> &Arc<Shared> {
            &self.registry.set.node
        }

        #[allow(private_interfaces)]
        fn names(&self, each: &mut dyn FnMut(u8, Watched) -> std::io::Result<()>) -> std::io::Result<()> {
            let set = &self.registry.set;
            (0..set.polls.len() as u8).try_for_each(|shard| each(shard, Watched::Poll(set.poll(shard))))
        }

        /// Who waits with the outer one is told by the outer one.
        #[allow(private_interfaces)]
        fn watched_by(&self, _set: &Set) -> std::io::Result<()> {
            self.registry.set.audience.is_there()
        }
    }
}

impl Registry {
    /// The same for registrations of another name, 0 being usual: a socket is registered once under each.
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
    /// belongs to another node; ENOBUFS if the node watches as many sockets as it can.
    pub fn register<S: Source + ?Sized>(
        &self,
        source: &S,
        token: Token,
        interests: Interest,
    ) -> io::Result<()> {
        self.set.node.contain(|| {
            self.check(source)?;
            let (mut done, mut places) = (0, 0);
            source.names(&mut |_, _| {
                places += 1;
                Ok(())
            })?;
            let group = match places {
                0 | 1 => 0,
                _ => self.set.new_group(),
            };
            let registered = source.names(&mut |index, name| {
                let mut shard = self.set.enter(index)?;
                let poll = self.set.poll(index);
                if shard.registration(poll, name, self.name).is_some() {
                    return Err(Errno::EXIST.into());
                }
                let registered = shard.register(poll, (name, self.name, group), token.0 as u64, interests);
                registered.ok_or(Errno::NOBUFS)?;
                done += 1;
                Ok(())
            });
            let mut used = 0;
            source.names(&mut |index, name| {
                used |= 1 << index;
                if registered.is_err() && done > 0 {
                    done -= 1;
                    let mut shard = self.set.enter(index)?;
                    if let Some(registration) = shard.registration(self.set.poll(index), name, self.name) {
                        shard.deregister(registration);
                    }
                }
                Ok(())
            })?;
            registered?;
            source.watched_by(&self.set)?;
            self.set.use_shards(used)
        })
    }

    /// Changes what is watched, and under which token.
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
            self.check(source)?;
            source.names(&mut |index, name| {
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
            self.check(source)?;
            source.names(&mut |index, name| {
                let mut shard = self.set.enter(index)?;
                let registration = shard.registration(self.set.poll(index), name, self.name);
                shard.deregister(registration.ok_or(Errno::NOENT)?);
                Ok(())
            })
        })
    }

    fn check<S: Source + ?Sized>(&self, source: &S) -> io::Result<()> {
        if Arc::ptr_eq(source.node(), &self.set.node) {
            Ok(())
        } else {
            Err(invalid("the socket and the poll belong to different nodes"))
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}
