//! Waiting for many sockets at once, in the manner of mio and `poll(2)`.

mod audience;
mod direct;
mod events;
mod registry;
mod set;
mod waiting;
mod waker;

pub use events::{Event, Events, Iter, Token};
pub use registry::{Registry, Source};
pub use toehold_node::{Beside, Interest};
pub use waker::Waker;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use toehold_node::{Everywhere, Glance, Operation, Shard, SpinBudget, Subscription};

use self::set::{DIRECT, Set};
use crate::error::{gone, invalid};
use crate::node::Node;

/// Tells which of many sockets are ready.
///
/// Readiness is a level, not an edge, unless [`Interest::EDGE`] was asked for: [`Poll::poll`]
/// goes on telling that a socket is ready until it is not. Errors and hang-ups are told
/// whatever was asked for. The cost of a call depends on how many sockets are ready, not on
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
    /// The shard that is looked at first the next time. So sockets of one shard that are always
    /// ready do not keep those of the others from being reported.
    next: AtomicU8,
}

/// How [`Poll::wait`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// Sockets are ready; descriptors beside them may be as well.
    Sockets,
    /// Descriptors beside them are ready.
    Beside,
    /// Nothing was ready in time.
    TimedOut,
}

/// The result of a look at a poll's sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Sockets,
    Beside,
    /// Sockets of other shards were registered, for which the thread does not wait.
    Changed,
}

impl Poll {
    /// Makes a poll for sockets of one node.
    ///
    /// # Errors
    ///
    /// ENOBUFS if the node has as many polls as it may have.
    pub fn new(node: &Node) -> io::Result<Poll> {
        let set = Set::open(Arc::clone(&node.shared))?;
        let next = set.home;
        Ok(Poll {
            registry: Registry {
                set: Arc::new(set),
                name: 0,
            },
            spin: SpinBudget::new(),
            next: AtomicU8::new(next),
        })
    }

    /// The registry of the poll's sockets.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Waits until a registered socket is ready, or `timeout` has passed (`None` means any time).
    /// Tells all sockets that are ready, up to the capacity of `events`, in turn.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `events` has no capacity; `NetworkDown` if the node is gone. EBADF if the
    /// poll is that of the process which this one was forked from.
    pub fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        self.wait(events, timeout, &[]).map(drop)
    }

    /// Waits like [`Poll::poll`], for any number of threads at once. Each thread that waits may be
    /// told of what is ready. Beside the sockets it waits for descriptors of the kernel:
    /// [`Beside::found`] tells what they have. They are looked at when the thread goes to sleep and
    /// when it wakes up, and now and then while it is kept busy. So the caller should look at them
    /// before ([`Beside::look`]).
    ///
    /// ```
    /// use std::os::fd::AsFd;
    /// use rustix::event::{EventfdFlags, PollFlags, eventfd};
    /// use toehold_socket::{Beside, Events, Node, NodeConfig, Poll, Waited};
    ///
    /// let node = Node::join(NodeConfig::alone("doc").ipv4([10, 0, 0, 1], 24))?;
    /// let poll = Poll::new(&node)?;
    /// let count = eventfd(1, EventfdFlags::NONBLOCK)?;
    /// let beside = [Beside::new(count.as_fd(), PollFlags::IN)];
    /// let mut events = Events::with_capacity(16);
    /// assert_eq!(poll.wait(&mut events, None, &beside)?, Waited::Beside);
    /// assert_eq!(beside[0].found(), PollFlags::IN);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `events` has no capacity; `NetworkDown` if the node is gone. EBADF if the
    /// poll is that of the process which this one was forked from.
    pub fn wait(
        &self,
        events: &mut Events,
        timeout: Option<Duration>,
        beside: &[Beside<'_>],
    ) -> io::Result<Waited> {
        self.registry.set.node.contain(|| {
            if events.capacity() == 0 {
                return Err(invalid("there is no room for events"));
            }
            self.registry.set.audience.is_there()?;
            events.clear();
            Beside::forget(beside);
            self.wait_in_shards(events, timeout, beside)
        })
    }

    /// Leaves this life of the node, which has told of a source that was never registered: a program
    /// has written nonsense to its memory. The engine begins another life.
    pub fn abandon_node(&self) {
        self.registry.set.node.leave_damaged();
    }

    /// Whether a socket is ready. The next call of [`Poll::poll`] still tells of it.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone; EBADF if the poll is that of the process which this one
    /// was forked from.
    pub fn is_ready(&self) -> io::Result<bool> {
        self.registry.set.node.contain(|| {
            let set = &*self.registry.set;
            if set.is_directly_ready()? {
                return Ok(true);
            }
            if !set.has_leased() {
                return Ok(false);
            }
            let used = set.used.load(Relaxed) & !DIRECT;
            for index in (0..set.polls.len() as u8).filter(|index| used & 1 << index != 0) {
                let mut shard = set.enter(index)?;
                let mut ready = shard.is_poll_ready(set.poll(index));
                if !ready {
                    shard.poll_once(None);
                    ready = shard.is_poll_ready(set.poll(index));
                }
                set.node.settle(index, &mut shard);
                if ready {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// Waits for sockets of one shard.
    fn poll_in(
        &self,
        index: u8,
        used: u32,
        events: &mut Events,
        (timeout, beside): (Option<Duration>, &[Beside<'_>]),
    ) -> io::Result<Option<Seen>> {
        let set = &*self.registry.set;
        let mut operation = Wait::new(set, used, events, beside);
        let mut shard = set.enter(index)?;
        let mut changed = operation.look(index, &mut shard);
        let at_once = timeout.is_some_and(|timeout| timeout.is_zero());
        if changed.is_none() {
            // A thread that does not wait has to look at the link. A thread that waits may look
            // too; otherwise programs that are never idle would starve it.
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
        Ok(changed)
    }

    /// Waits for sockets of several shards.
    fn poll_in_several(
        &self,
        used: u32,
        events: &mut Events,
        (timeout, beside): (Option<Duration>, &[Beside<'_>]),
    ) -> io::Result<Option<Seen>> {
        let set = &*self.registry.set;
        let shards = set.node.shards()?;
        let among = |shard: &u8| used & 1 << shard != 0;
        let mut operation = Wait::new(set, used, events, beside);
        let mut deadline = None;
        let (first, count) = (self.next.load(Relaxed), shards.count());
        self.next.store((first + 1) % count, Relaxed);
        let in_turn = (0..count).map(|step| (first + step) % count);
        for index in in_turn.filter(among) {
            let mut shard = set.enter(index)?;
            shard.tick();
            // What was taken would be taken again: it is still ready.
            let found = operation.look(index, &mut shard).is_some();
            if !found || shard.is_stale() {
                shard.poll_once(None);
            }
            if !found {
                operation.look(index, &mut shard);
            }
            deadline = timeout.map(|timeout| shard.now + timeout);
            set.node.settle(index, &mut shard);
        }
        let at_once = timeout.is_some_and(|timeout| timeout.is_zero());
        if !operation.events.is_empty() {
            return Ok(Some(Seen::Sockets));
        }
        if at_once {
            return Ok(None);
        }
        let waited = shards.block(
            shards.from_home().filter(among),
            &mut operation,
            &self.spin,
            deadline,
        );
        waited.map_err(gone)
    }
}

/// Waits for readiness.
struct Wait<'a> {
    set: &'a Set,
    /// The shards that were used when it began.
    used: u32,
    events: &'a mut Events,
    glance: Glance<'a>,
}

impl<'a> Wait<'a> {
    fn new(set: &'a Set, used: u32, events: &'a mut Events, beside: &'a [Beside<'a>]) -> Wait<'a> {
        Wait {
            set,
            used,
            events,
            glance: Glance::new(beside),
        }
    }

    /// Takes the sources that are ready in a shard.
    fn look(&mut self, index: u8, shard: &mut Shard) -> Option<Seen> {
        let before = self.events.len();
        let room = self.events.capacity() - before;
        shard.collect(self.set.poll(index), room, &mut |told| {
            self.events.push(index, &told)
        });
        if self.events.len() > before {
            return Some(Seen::Sockets);
        }
        if self.set.used.load(Relaxed) != self.used {
            return Some(Seen::Changed);
        }
        self.glance.finds(shard.now).then_some(Seen::Beside)
    }
}

impl Everywhere for Wait<'_> {
    type Output = Seen;

    fn attempt(&mut self, index: u8, shard: &mut Shard) -> Option<Seen> {
        self.look(index, shard)
    }

    fn subscription(&self, index: u8) -> Subscription {
        Subscription::Poll(self.set.poll(index))
    }

    fn beside(&self) -> &[Beside<'_>] {
        self.glance.beside()
    }
}

/// A wait of a poll that has sockets in one shard alone.
struct WaitIn<'a> {
    index: u8,
    operation: Wait<'a>,
}

impl Operation for WaitIn<'_> {
    type Output = Seen;

    fn attempt(&mut self, shard: &mut Shard) -> Option<Seen> {
        self.operation.look(self.index, shard)
    }

    fn subscription(&self) -> Subscription {
        Subscription::Poll(self.operation.set.poll(self.index))
    }

    fn beside(&self) -> &[Beside<'_>] {
        self.operation.glance.beside()
    }
}

impl fmt::Debug for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poll").finish_non_exhaustive()
    }
}
