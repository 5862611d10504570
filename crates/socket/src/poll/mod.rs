//! Waiting for many sockets at once, in the manner of mio and `poll(2)`.

mod events;

pub use events::{Event, Events, Iter, Token};
pub use toehold_node::Interest;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use toehold_node::{Guard, Operation, Ownership, Shard, SpinBudget, Subscription};
use toehold_stack::Event as SourceEvent;

use crate::error::invalid;
use crate::listener::TcpListener;
use crate::node::{Node, Shared};
use crate::stream::TcpStream;

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
    node: Arc<Shared>,
    index: u32,
    /// The process that made it. A forked child has a copy, and has no use for it.
    process: u16,
    ownership: Ownership,
}

/// Something that can be registered: a [`TcpListener`] or a [`TcpStream`].
pub trait Source: sealed::Sealed {}

impl Source for TcpListener {}
impl Source for TcpStream {}

mod sealed {
    use super::{Arc, Shared, SourceEvent, TcpListener, TcpStream};

    pub trait Sealed {
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn name(&self) -> (&Arc<Shared>, SourceEvent);
    }

    impl Sealed for TcpListener {
        #[allow(private_interfaces)]
        fn name(&self) -> (&Arc<Shared>, SourceEvent) {
            self.source()
        }
    }

    impl Sealed for TcpStream {
        #[allow(private_interfaces)]
        fn name(&self) -> (&Arc<Shared>, SourceEvent) {
            self.source()
        }
    }
}

impl Poll {
    /// A poll for sockets of one node.
    ///
    /// # Errors
    ///
    /// ENOBUFS if the node has as many as it may have.
    pub fn new(node: &Node) -> io::Result<Poll> {
        let node = Arc::clone(&node.shared);
        let mut shard = node.enter()?;
        let index = shard.open_poll().ok_or(Errno::NOBUFS)?;
        let ownership = match node.own(&mut shard, index) {
            Ok(ownership) => ownership,
            Err(error) => {
                shard.close_poll(index);
                return Err(error);
            }
        };
        drop(shard);
        let set = Set {
            process: node.process(),
            node,
            index,
            ownership,
        };
        Ok(Poll {
            registry: Registry { set: Arc::new(set) },
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
    /// `InvalidInput` if `events` has no capacity; `NetworkDown` if the node is gone; EBADF
    /// if the poll is that of the process which this one was forked from.
    pub fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        let Set { node, index, .. } = &*self.registry.set;
        if events.capacity() == 0 {
            return Err(invalid("there is no room for events"));
        }
        let mut operation = Wait { poll: *index, events };
        let mut shard = self.registry.set.enter()?;
        let at_once = timeout.is_some_and(|timeout| timeout.is_zero());
        if operation.attempt(&mut shard).is_none() {
            // One that does not wait has to look at the link; one that does
            // may look too, lest programs that are never idle starve it.
            shard.poll_once(None);
            if operation.attempt(&mut shard).is_none() && !at_once {
                let deadline = timeout.map(|timeout| shard.now + timeout);
                node.block(&mut shard, &mut operation, &self.spin, deadline)?;
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
    /// belongs to another node; ENOBUFS if the node watches as many sockets as it can.
    pub fn register<S: Source + ?Sized>(
        &self,
        source: &S,
        token: Token,
        interests: Interest,
    ) -> io::Result<()> {
        let (mut shard, name) = self.lock(source)?;
        let poll = self.set.index;
        if shard.registration(poll, name).is_some() {
            return Err(Errno::EXIST.into());
        }
        let registered = shard.register(poll, name, token.0 as u64, interests);
        registered.map(|_| ()).ok_or(Errno::NOBUFS.into())
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
        let registration = shard.registration(self.set.index, name).ok_or(Errno::NOENT)?;
        shard.reregister(registration, token.0 as u64, interests);
        Ok(())
    }

    /// Ends watching a socket.
    ///
    /// # Errors
    ///
    /// `NotFound` if the socket is not registered.
    pub fn deregister<S: Source + ?Sized>(&self, source: &S) -> io::Result<()> {
        let (mut shard, name) = self.lock(source)?;
        let registration = shard.registration(self.set.index, name).ok_or(Errno::NOENT)?;
        shard.deregister(registration);
        Ok(())
    }

    fn lock<S: Source + ?Sized>(&self, source: &S) -> io::Result<(Guard<'_>, SourceEvent)> {
        let (node, name) = source.name();
        if !Arc::ptr_eq(node, &self.set.node) {
            return Err(invalid("the socket and the poll belong to different nodes"));
        }
        Ok((self.set.enter()?, name))
    }
}

/// Wakes a thread that polls, from any other thread.
#[derive(Debug, Clone)]
pub struct Waker {
    entry: Arc<WakerEntry>,
}

#[derive(Debug)]
struct WakerEntry {
    registry: Registry,
    index: u32,
}

impl Waker {
    /// A waker that makes a poll tell of `token`, as readable.
    ///
    /// # Errors
    ///
    /// ENOBUFS if the node has no room for it.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Waker> {
        let set = &registry.set;
        let index = set.enter()?.open_waker(set.index, token.0 as u64);
        let index = index.ok_or(Errno::NOBUFS)?;
        let registry = registry.clone();
        Ok(Waker {
            entry: Arc::new(WakerEntry { registry, index }),
        })
    }

    /// Makes the present call of [`Poll::poll`] return, or the next one.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn wake(&self) -> io::Result<()> {
        let WakerEntry { registry, index } = &*self.entry;
        registry.set.enter()?.use_waker(*index);
        Ok(())
    }
}

impl Drop for WakerEntry {
    fn drop(&mut self) {
        // A node that is gone holds nothing.
        if let Ok(mut shard) = self.registry.set.enter() {
            shard.deregister(self.index);
        }
    }
}

/// Waits for readiness.
struct Wait<'a> {
    poll: u32,
    events: &'a mut Events,
}

impl Operation for Wait<'_> {
    type Output = ();

    fn attempt(&mut self, shard: &mut Shard) -> Option<()> {
        self.events.clear();
        let room = self.events.capacity();
        shard.collect(self.poll, room, &mut |token, readiness| {
            self.events.push(Event::new(Token(token as usize), readiness));
        });
        (!self.events.is_empty()).then_some(())
    }

    fn subscription(&self) -> Subscription {
        Subscription::Poll(self.poll)
    }
}

impl Set {
    /// Begins a call on the poll.
    fn enter(&self) -> io::Result<Guard<'_>> {
        if self.node.process() == self.process {
            self.node.enter()
        } else {
            Err(Errno::BADF.into())
        }
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        // A node that is gone holds nothing.
        if let Ok(mut shard) = self.enter() {
            shard.close_poll(self.index);
            self.node.disown(&mut shard, self.ownership);
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
