//! Waiting for many sockets at once, in the manner of mio and `poll(2)`.

mod events;
mod registry;
mod set;
mod waker;

pub use events::{Event, Events, Iter, Token};
pub use registry::{Registry, Source};
pub use toehold_node::Interest;
pub use waker::Waker;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use toehold_node::{Everywhere, Operation, Shard, SpinBudget, Subscription};

use self::set::Set;
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
    /// The shard that is looked at first the next time: sockets of one that are always
    /// ready take nobody's turn.
    next: u8,
}

impl Poll {
    /// A poll for sockets of one node.
    ///
    /// # Errors
    ///
    /// ENOBUFS if the node has as many as it may have.
    pub fn new(node: &Node) -> io::Result<Poll> {
        let set = Set::open(Arc::clone(&node.shared))?;
        let next = set.home;
        Ok(Poll {
            registry: Registry { set: Arc::new(set) },
            spin: SpinBudget::new(),
            next,
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

impl fmt::Debug for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poll").finish_non_exhaustive()
    }
}
