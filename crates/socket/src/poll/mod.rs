//! Waiting for many sockets at once, in the manner of mio and `poll(2)`.

mod events;
mod set;

pub use events::{Event, Events, Interest, Iter, Token};
pub(crate) use set::PollSet;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use toehold_stack::Event as SourceEvent;

use crate::error::invalid;
use crate::interests::Registration;
use crate::listener::TcpListener;
use crate::node::{Membership, Node};
use crate::shard::Shard;
use crate::spin::SpinBudget;
use crate::stream::TcpStream;
use crate::wait::{Operation, Subscription};

/// Tells which of many sockets are ready.
///
/// Readiness is a level, not an edge: [`Poll::poll`] goes on telling that a
/// socket is ready until it is not. Errors and hang-ups are told whatever was
/// asked for. The cost of a call depends on how many sockets are ready, not on
/// how many are registered.
///
/// ```
/// use std::io::{Read, Write};
/// use toehold_socket::{Events, Interest, Node, NodeConfig, Poll, TcpListener, TcpStream, Token};
///
/// let node = Node::join(NodeConfig::alone("doc").ipv4([10, 0, 0, 1], 24))?;
/// let listener = TcpListener::bind(&node, "10.0.0.1:80")?;
/// let mut client = TcpStream::connect(&node, "10.0.0.1:80")?;
/// let (mut server, _) = listener.accept()?;
///
/// let mut poll = Poll::new(&node)?;
/// poll.registry().register(&server, Token(7), Interest::READABLE)?;
/// client.write_all(b"ping")?;
/// let mut events = Events::with_capacity(16);
/// poll.poll(&mut events, None)?;
/// let event = events.iter().next().unwrap();
/// assert!(event.token() == Token(7) && event.is_readable());
/// server.read_exact(&mut [0; 4])?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Poll {
    registry: Registry,
    spin: SpinBudget,
}

/// Where sockets are registered with a [`Poll`], from any thread.
#[derive(Clone)]
pub struct Registry {
    set: Arc<Set>,
}

/// A poll as long as a handle of it exists.
struct Set {
    node: Arc<Membership>,
    index: usize,
}

/// Something that can be registered: a [`TcpListener`] or a [`TcpStream`].
pub trait Source: sealed::Sealed {}

impl Source for TcpListener {}
impl Source for TcpStream {}

mod sealed {
    use super::{Arc, Membership, SourceEvent, TcpListener, TcpStream};

    pub trait Sealed {
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn name(&self) -> (&Arc<Membership>, SourceEvent);
    }

    impl Sealed for TcpListener {
        #[allow(private_interfaces)]
        fn name(&self) -> (&Arc<Membership>, SourceEvent) {
            self.source()
        }
    }

    impl Sealed for TcpStream {
        #[allow(private_interfaces)]
        fn name(&self) -> (&Arc<Membership>, SourceEvent) {
            self.source()
        }
    }
}

impl Poll {
    /// A poll for sockets of one node.
    ///
    /// # Errors
    ///
    /// Never; mio's can run out of descriptors.
    pub fn new(node: &Node) -> io::Result<Poll> {
        let node = Arc::clone(&node.shared);
        let index = node.enter().polls.insert(PollSet::default());
        Ok(Poll {
            registry: Registry {
                set: Arc::new(Set { node, index }),
            },
            spin: SpinBudget::new(),
        })
    }

    /// Where to register sockets.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Waits until a registered socket is ready, or `timeout` (`None`: any
    /// time) has passed, and tells all that are, up to the capacity of
    /// `events`, in turn.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `events` has no capacity.
    pub fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        let Set { node, index } = &*self.registry.set;
        if events.capacity() == 0 {
            return Err(invalid("a poll needs room for at least one event"));
        }
        let mut operation = Wait { poll: *index, events };
        let mut shard = node.enter();
        if operation.attempt(&mut shard).is_none() {
            let at_once = timeout.is_some_and(|timeout| timeout.is_zero());
            // A poll that finds nothing has to look at the link; one that does
            // may look too, lest programs that are never idle starve it.
            shard.poll_once(None);
            if operation.attempt(&mut shard).is_none() && !at_once {
                let deadline = timeout.map(|timeout| shard.now + timeout);
                node.block(&mut shard, &mut operation, &self.spin, deadline);
            }
        } else {
            shard.tick();
            if shard.is_stale() {
                shard.poll_once(None);
            }
        }
        node.settle(&mut shard);
        Ok(())
    }
}

impl Registry {
    /// Watches a socket. A socket that is dropped is not watched any longer.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if it is registered with this poll; `InvalidInput` if it
    /// belongs to another node.
    pub fn register<S: Source + ?Sized>(
        &self,
        source: &S,
        token: Token,
        interests: Interest,
    ) -> io::Result<()> {
        let (mut shard, name) = self.lock(source)?;
        if self.find(&shard, name).is_some() {
            return Err(Errno::EXIST.into());
        }
        let Shard {
            polls,
            interests: all,
            ..
        } = &mut *shard;
        let entry = polls[self.set.index].insert(name, token, interests);
        all.add_registration(
            name,
            Registration {
                poll: self.set.index,
                entry,
            },
        );
        self.look(&mut shard, entry);
        Ok(())
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
        let (mut shard, name) = self.lock(source)?;
        let registration = self.find(&shard, name).ok_or(Errno::NOENT)?;
        shard.polls[self.set.index].change(registration.entry, token, interests);
        self.look(&mut shard, registration.entry);
        Ok(())
    }

    /// Ends watching a socket.
    ///
    /// # Errors
    ///
    /// `NotFound` if the socket is not registered.
    pub fn deregister<S: Source + ?Sized>(&self, source: &S) -> io::Result<()> {
        let (mut shard, name) = self.lock(source)?;
        let registration = self.find(&shard, name).ok_or(Errno::NOENT)?;
        shard.interests.remove_registration(name, registration);
        shard.polls[self.set.index].remove(registration.entry);
        Ok(())
    }

    fn lock<S: Source + ?Sized>(
        &self,
        source: &S,
    ) -> io::Result<(crate::lock::Guard<'_, Shard>, SourceEvent)> {
        let (node, name) = source.name();
        if !Arc::ptr_eq(node, &self.set.node) {
            return Err(invalid("the socket and the poll belong to different nodes"));
        }
        Ok((self.set.node.enter(), name))
    }

    fn find(&self, shard: &Shard, name: SourceEvent) -> Option<Registration> {
        shard.interests.of(name)?.registration_with(self.set.index)
    }

    /// A new or changed registration may be ready from the start; a thread that
    /// is polling already has to learn of it.
    fn look(&self, shard: &mut Shard, entry: usize) {
        let Shard { polls, .. } = shard;
        polls[self.set.index].may_be_ready(entry, &self.set.node.bell);
    }
}

/// Wakes a thread that polls, from any other thread.
#[derive(Debug, Clone)]
pub struct Waker {
    registry: Registry,
    token: Token,
}

impl Waker {
    /// A waker that makes a poll tell of `token`, as readable.
    ///
    /// # Errors
    ///
    /// Never; mio's can run out of descriptors.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Waker> {
        Ok(Waker {
            registry: registry.clone(),
            token,
        })
    }

    /// Makes the present call of [`Poll::poll`] return, or the next one.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn wake(&self) -> io::Result<()> {
        let Set { node, index } = &*self.registry.set;
        node.enter().polls[*index].wake(self.token, &node.bell);
        Ok(())
    }
}

/// Waits for readiness.
struct Wait<'a> {
    poll: usize,
    events: &'a mut Events,
}

impl Operation for Wait<'_> {
    type Output = ();

    fn attempt(&mut self, shard: &mut Shard) -> Option<()> {
        let Shard { polls, stack, .. } = shard;
        polls[self.poll].collect(stack, self.events);
        (!self.events.is_empty()).then_some(())
    }

    fn subscription(&self) -> Subscription {
        Subscription::Poll(self.poll)
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let mut shard = self.node.enter();
        let set = shard.polls.remove(self.index);
        for (entry, source) in set.sources() {
            shard.interests.remove_registration(
                source,
                Registration {
                    poll: self.index,
                    entry,
                },
            );
        }
    }
}

impl fmt::Debug for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poll").finish_non_exhaustive()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}
