//! Waiting for many sockets at once, in the manner of mio and `poll(2)`.

mod events;

pub use events::{Event, Events, Iter, Token};
pub use toehold_node::Interest;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use toehold_node::{Everywhere, Guard, Operation, Ownership, Shard, SpinBudget, Subscription};
use toehold_stack::Event as SourceEvent;

use crate::error::{gone, invalid};
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
    /// The shard that is looked at first the next time: sockets of one that are always
    /// ready take nobody's turn.
    next: u8,
}

/// Where sockets are registered with a [`Poll`], from any thread.
#[derive(Clone)]
pub struct Registry {
    set: Arc<Set>,
}

/// A poll as long as a handle of it exists: one in every shard of its node.
struct Set {
    node: Arc<Shared>,
    polls: Vec<PollIn>,
    /// The shard of the thread that made it, in which its wakers are.
    home: u8,
    /// The shards in which something was registered, and the home, as bits. A poll whose
    /// sockets are all of one shard waits for that one alone.
    used: AtomicU32,
    /// The process that made it. A forked child has a copy, and has no use for it.
    process: u16,
}

/// What a poll is in one shard.
struct PollIn {
    index: u32,
    ownership: Ownership,
}

/// Something that can be registered: a [`TcpListener`] or a [`TcpStream`].
pub trait Source: sealed::Sealed {}

impl Source for TcpListener {}
impl Source for TcpStream {}

mod sealed {
    use super::{Arc, Shared, SourceEvent, TcpListener, TcpStream};

    pub trait Sealed {
        /// Its node.
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn node(&self) -> &Arc<Shared>;

        /// What it is in each shard in which it is something, until `each` fails.
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn names(&self, each: &mut dyn FnMut(u8, SourceEvent) -> std::io::Result<()>) -> std::io::Result<()>;
    }

    impl Sealed for TcpListener {
        #[allow(private_interfaces)]
        fn node(&self) -> &Arc<Shared> {
            self.sources().0
        }

        #[allow(private_interfaces)]
        fn names(&self, each: &mut dyn FnMut(u8, SourceEvent) -> std::io::Result<()>) -> std::io::Result<()> {
            let (_, mut names) = self.sources();
            names.try_for_each(|(shard, name)| each(shard, name))
        }
    }

    impl Sealed for TcpStream {
        #[allow(private_interfaces)]
        fn node(&self) -> &Arc<Shared> {
            self.source().0
        }

        #[allow(private_interfaces)]
        fn names(&self, each: &mut dyn FnMut(u8, SourceEvent) -> std::io::Result<()>) -> std::io::Result<()> {
            let (_, shard, name) = self.source();
            each(shard, name)
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
        let shards = node.shards()?;
        let (home, count) = (shards.home(), shards.count());
        let mut set = Set {
            process: node.process(),
            node,
            polls: Vec::new(),
            home,
            used: AtomicU32::new(1 << home),
        };
        for shard in 0..count {
            // What was opened is closed again if there is no room for all.
            let poll = PollIn::open(&set.node, shard)?;
            set.polls.push(poll);
        }
        Ok(Poll {
            registry: Registry { set: Arc::new(set) },
            spin: SpinBudget::new(),
            next: home,
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
        if events.capacity() == 0 {
            return Err(invalid("there is no room for events"));
        }
        events.clear();
        let several = self.registry.set.polls.len() > 1;
        let began = timeout.filter(|_| several).map(|_| Instant::now());
        let mut left = timeout;
        loop {
            let used = self.registry.set.used.load(Relaxed);
            let changed = if used.is_power_of_two() {
                self.poll_in(used.trailing_zeros() as u8, used, events, left)?
            } else {
                self.poll_in_several(used, events, left)?
            };
            if !changed {
                return Ok(());
            }
            // Somebody has registered a socket of another shard meanwhile.
            left =
                timeout.map(|timeout| timeout.saturating_sub(began.unwrap_or_else(Instant::now).elapsed()));
        }
    }

    /// Waits for sockets of one shard. True: there are sockets of others now.
    fn poll_in(
        &mut self,
        index: u8,
        used: u32,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> io::Result<bool> {
        let set = &*self.registry.set;
        let mut operation = Wait { set, used, events };
        let mut shard = set.enter(index)?;
        let mut changed = operation.look(index, &mut shard);
        let at_once = timeout.is_some_and(|timeout| timeout.is_zero());
        if changed.is_none() {
            // One that does not wait has to look at the link; one that does
            // may look too, lest programs that are never idle starve it.
            shard.poll_once(None);
            changed = operation.look(index, &mut shard);
            if changed.is_none() && !at_once {
                let deadline = timeout.map(|timeout| shard.now + timeout);
                let mut operation = WaitIn { index, operation };
                changed = set
                    .node
                    .block(index, &mut shard, &mut operation, &self.spin, deadline)?;
            }
        } else {
            shard.tick();
            if shard.is_stale() {
                shard.poll_once(None);
            }
        }
        set.node.settle(index, &mut shard);
        Ok(changed == Some(true))
    }

    /// Waits for sockets of several shards. True: there are sockets of others now.
    fn poll_in_several(
        &mut self,
        used: u32,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> io::Result<bool> {
        let set = &*self.registry.set;
        let shards = set.node.shards()?;
        let among = |shard: &u8| used & 1 << shard != 0;
        let mut operation = Wait { set, used, events };
        let mut deadline = None;
        let (first, count) = (self.next, shards.count());
        self.next = (first + 1) % count;
        let in_turn = (0..count).map(|step| (first + step) % count);
        for index in in_turn.filter(among) {
            let mut shard = set.enter(index)?;
            shard.tick();
            if operation.look(index, &mut shard).is_none() || shard.is_stale() {
                shard.poll_once(None);
                operation.look(index, &mut shard);
            }
            deadline = timeout.map(|timeout| shard.now + timeout);
            set.node.settle(index, &mut shard);
        }
        let at_once = timeout.is_some_and(|timeout| timeout.is_zero());
        if !operation.events.is_empty() || at_once {
            return Ok(false);
        }
        let waited = shards.block(
            shards.from_home().filter(among),
            &mut operation,
            &self.spin,
            deadline,
        );
        Ok(waited.map_err(gone)? == Some(true))
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
        self.check(source)?;
        let mut done = 0;
        let registered = source.names(&mut |index, name| {
            let mut shard = self.set.enter(index)?;
            let poll = self.set.poll(index);
            if shard.registration(poll, name).is_some() {
                return Err(Errno::EXIST.into());
            }
            let registered = shard.register(poll, name, token.0 as u64, interests);
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
                if let Some(registration) = shard.registration(self.set.poll(index), name) {
                    shard.deregister(registration);
                }
            }
            Ok(())
        })?;
        registered?;
        self.set.use_shards(used)
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
        self.check(source)?;
        source.names(&mut |index, name| {
            let mut shard = self.set.enter(index)?;
            let registration = shard.registration(self.set.poll(index), name);
            shard.reregister(registration.ok_or(Errno::NOENT)?, token.0 as u64, interests);
            Ok(())
        })
    }

    /// Ends watching a socket.
    ///
    /// # Errors
    ///
    /// `NotFound` if the socket is not registered.
    pub fn deregister<S: Source + ?Sized>(&self, source: &S) -> io::Result<()> {
        self.check(source)?;
        source.names(&mut |index, name| {
            let mut shard = self.set.enter(index)?;
            let registration = shard.registration(self.set.poll(index), name);
            shard.deregister(registration.ok_or(Errno::NOENT)?);
            Ok(())
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
        let index = set
            .enter(set.home)?
            .open_waker(set.poll(set.home), token.0 as u64);
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
        registry.set.enter(registry.set.home)?.use_waker(*index);
        Ok(())
    }
}

impl Drop for WakerEntry {
    fn drop(&mut self) {
        // A node that is gone holds nothing.
        let set = &self.registry.set;
        if let Ok(mut shard) = set.enter(set.home) {
            shard.deregister(self.index);
        }
    }
}

/// Waits for readiness.
struct Wait<'a> {
    set: &'a Set,
    /// The shards that were used when it began.
    used: u32,
    events: &'a mut Events,
}

impl Wait<'_> {
    /// Takes what is ready in a shard. Some: there is something ready, or, if true, there
    /// are sockets of shards that it does not wait for.
    fn look(&mut self, index: u8, shard: &mut Shard) -> Option<bool> {
        let before = self.events.len();
        let room = self.events.capacity() - before;
        shard.collect(self.set.poll(index), room, &mut |token, readiness| {
            self.events.push(Event::new(Token(token as usize), readiness));
        });
        if self.events.len() > before {
            return Some(false);
        }
        (self.set.used.load(Relaxed) != self.used).then_some(true)
    }
}

impl Everywhere for Wait<'_> {
    type Output = bool;

    fn attempt(&mut self, index: u8, shard: &mut Shard) -> Option<bool> {
        self.look(index, shard)
    }

    fn subscription(&self, index: u8) -> Subscription {
        Subscription::Poll(self.set.poll(index))
    }
}

/// The same in one shard.
struct WaitIn<'a> {
    index: u8,
    operation: Wait<'a>,
}

impl Operation for WaitIn<'_> {
    type Output = bool;

    fn attempt(&mut self, shard: &mut Shard) -> Option<bool> {
        self.operation.look(self.index, shard)
    }

    fn subscription(&self) -> Subscription {
        Subscription::Poll(self.operation.set.poll(self.index))
    }
}

impl PollIn {
    fn open(node: &Shared, index: u8) -> io::Result<PollIn> {
        let mut shard = node.enter(index)?;
        let poll = shard.open_poll().ok_or(Errno::NOBUFS)?;
        match node.own(index, &mut shard, poll) {
            Ok(ownership) => Ok(PollIn {
                index: poll,
                ownership,
            }),
            Err(error) => {
                shard.close_poll(poll);
                Err(error)
            }
        }
    }
}

impl Set {
    /// Begins a call on the poll in a shard.
    fn enter(&self, index: u8) -> io::Result<Guard<'_>> {
        if self.node.process() == self.process {
            self.node.enter(index)
        } else {
            Err(Errno::BADF.into())
        }
    }

    /// Its number in a shard; one that no poll has if it is in none.
    fn poll(&self, index: u8) -> u32 {
        let poll = self.polls.get(usize::from(index));
        poll.map_or(u32::MAX, |poll| poll.index)
    }

    /// Something is registered in these shards from now on. Who waits has to know.
    fn use_shards(&self, shards: u32) -> io::Result<()> {
        let before = self.used.fetch_or(shards, Relaxed);
        if before | shards == before {
            return Ok(());
        }
        for index in (0..self.polls.len() as u8).filter(|index| before & 1 << index != 0) {
            let mut shard = self.enter(index)?;
            shard.rouse_poll(self.poll(index));
            self.node.settle(index, &mut shard);
        }
        Ok(())
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        for (index, poll) in (0..).zip(&self.polls) {
            // A node that is gone holds nothing.
            if let Ok(mut shard) = self.enter(index) {
                shard.close_poll(poll.index);
                self.node.disown(index, &mut shard, poll.ownership);
            }
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
