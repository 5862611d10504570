//! A node as programs hold it.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use toehold_link::{Capabilities, Link};
use toehold_node::fabric::Fabric;
use toehold_node::{
    AttachError, AttachedNode, Everywhere, Guard, Holder, LocalNode, NodeConfig, NodeError, Operation,
    Ownership, Shard, ShardHandle, Shards, SpinBudget, Subscription,
};
use toehold_stack::{Counters, Event, Settings};

use crate::error::{from_holder, gone, parents};

/// A node of a fabric. A handle: clones stand for the same node.
///
/// Listeners and streams are made on a node, and keep it. When the last handle
/// of any kind goes, what was written and closed is still delivered, for
/// [`NodeConfig::drain`] at most; what is left then is reset, and the node
/// leaves its fabric.
///
/// ```
/// use std::io::{Read, Write};
/// use toehold_socket::{Node, NodeConfig, TcpListener, TcpStream};
///
/// let fabric = std::env::temp_dir().join(format!("toehold-doc-{}", std::process::id()));
/// let config = |name| NodeConfig::new(&fabric, name);
/// let server = Node::join(config("server").ipv4([10, 0, 0, 1], 24))?;
/// let client = Node::join(config("client").ipv4([10, 0, 0, 2], 24))?;
///
/// let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
/// let echo = std::thread::spawn(move || -> std::io::Result<()> {
///     let (mut stream, _) = listener.accept()?;
///     let mut bytes = [0; 5];
///     stream.read_exact(&mut bytes)?;
///     stream.write_all(&bytes)?;
///     drop((stream, listener, server));
///     Ok(())
/// });
/// let mut stream = TcpStream::connect(&client, "10.0.0.1:7")?;
/// stream.write_all(b"hello")?;
/// let mut answer = String::new();
/// stream.read_to_string(&mut answer)?;
/// assert_eq!(answer, "hello");
/// echo.join().unwrap()?;
/// # drop((stream, client));
/// # std::fs::remove_dir_all(&fabric)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Node {
    pub(crate) shared: Arc<Shared>,
}

/// What all handles of a node share.
pub(crate) struct Shared {
    place: Place,
    /// Of calls that concern no socket.
    spin: SpinBudget,
}

/// Where the node's engine is.
enum Place {
    /// In this process.
    Here(LocalNode),
    /// In another one.
    Elsewhere(AttachedNode),
}

/// What a node's stacks hold at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackInfo {
    /// Connections in context memory, half-open and closing ones included.
    pub connections: u32,
    /// Blocks of payload memory in use, of 16 KiB each.
    pub payload_blocks_used: u32,
    /// Bytes of context memory that an idle connection takes.
    pub context_bytes_per_connection: usize,
    /// What the link can do.
    pub link: Capabilities,
    /// Independent stacks in the node, of which these are the sums.
    pub shards: u8,
}

impl Shared {
    #[inline]
    pub(crate) fn shards(&self) -> io::Result<&Shards> {
        match &self.place {
            Place::Here(node) => node.shards().ok_or_else(parents),
            Place::Elsewhere(node) => node.shards().map_err(gone),
        }
    }

    #[inline]
    fn handle(&self, shard: u8) -> io::Result<&ShardHandle> {
        Ok(self.shards()?.get(shard))
    }

    /// The same, if this process has used it before; a forked child need not begin to
    /// just to let go of what it has copies of.
    #[inline]
    fn shards_in_use(&self) -> Option<&Shards> {
        match &self.place {
            Place::Here(node) => node.shards(),
            Place::Elsewhere(node) => node.shards_in_use(),
        }
    }

    /// Begins a call that concerns a shard.
    #[inline]
    pub(crate) fn enter(&self, shard: u8) -> io::Result<Guard<'_>> {
        self.handle(shard)?.enter().map_err(gone)
    }

    /// The number of this process in the node; 0 if it was forked and has none yet.
    pub(crate) fn process(&self) -> u16 {
        self.shards_in_use().map_or(0, |shards| shards.get(0).process())
    }

    /// Makes a connection in a shard, and what keeps it open. An error of `make` is the
    /// error.
    pub(crate) fn make<T>(
        &self,
        shard: u8,
        make: impl FnOnce(&mut Guard<'_>) -> io::Result<(Event, T)>,
    ) -> io::Result<(Holder, T)> {
        let handle = self.handle(shard)?;
        let holder = handle.holder().map_err(from_holder)?;
        let mut shard = handle.enter().map_err(gone)?;
        let made = make(&mut shard).and_then(|(source, made)| {
            if handle.hold(&mut shard, &holder, source) {
                return Ok(made);
            }
            shard.close(source);
            Err(Errno::NFILE.into())
        });
        if Guard::is_held(&shard) {
            handle.settle(&mut shard);
        }
        drop(shard);
        match made {
            Ok(made) => Ok((holder, made)),
            Err(error) => {
                handle.give_back(holder);
                Err(error)
            }
        }
    }

    /// Lets go of a connection of a shard: closes it, unless another process may have it
    /// too, and then it is closed once nobody has it. `linger` says how long whoever is
    /// the last to have it waits before that, if at all, and `wait` does so.
    pub(crate) fn unmake(
        &self,
        shard: u8,
        holder: Holder,
        source: Event,
        linger: impl FnOnce(&Shard) -> Option<Duration>,
        wait: impl FnOnce(&mut Guard<'_>, Duration) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(handle) = self.shards_in_use().map(|shards| shards.get(shard)) else {
            return Ok(());
        };
        // Of a node that is gone, nothing is left to be closed.
        let mut shard = handle.enter().map_err(gone)?;
        let linger = linger(&shard);
        let holder = if handle.is_exclusive(&holder) {
            holder
        } else {
            shard.unwatch(source, handle.process());
            if linger.is_none() {
                return Ok(());
            }
            drop(shard);
            let Some(holder) = handle.inherit(holder) else {
                return Ok(());
            };
            shard = handle.enter().map_err(gone)?;
            holder
        };
        shard.tick();
        if let Some(longest) = linger {
            wait(&mut shard, longest)?;
        }
        shard.close(source);
        handle.release(&mut shard, &holder);
        shard.respond();
        handle.settle(&mut shard);
        drop(shard);
        handle.give_back(holder);
        Ok(())
    }

    /// Makes something in every shard, the first one first, and what keeps all of it open.
    /// What was made is closed again if it cannot be made in one of them.
    pub(crate) fn make_everywhere<T>(
        &self,
        mut make: impl FnMut(u8, &mut Guard<'_>) -> io::Result<(Event, T)>,
    ) -> io::Result<(Holder, Vec<T>)> {
        let shards = self.shards()?;
        let holder = shards.get(0).holder().map_err(from_holder)?;
        let (mut made, mut sources) = (Vec::new(), Vec::new());
        for (index, handle) in shards.iter() {
            let one = handle.enter().map_err(gone).and_then(|mut shard| {
                let (source, one) = make(index, &mut shard)?;
                if handle.hold(&mut shard, &holder, source) {
                    handle.settle(&mut shard);
                    return Ok((source, one));
                }
                shard.close(source);
                Err(Errno::NFILE.into())
            });
            match one {
                Ok((source, one)) => {
                    sources.push(source);
                    made.push(one);
                }
                Err(error) => {
                    // A node that is gone holds nothing.
                    let _ = self.unmake_everywhere(holder, &sources);
                    return Err(error);
                }
            }
        }
        Ok((holder, made))
    }

    /// Lets go of what was made so, by shard: a port is free when it is closed in the
    /// first one, which is the last.
    pub(crate) fn unmake_everywhere(&self, holder: Holder, sources: &[Event]) -> io::Result<()> {
        let Some(shards) = self.shards_in_use() else {
            return Ok(());
        };
        let exclusive = shards.get(0).is_exclusive(&holder);
        let made = sources.iter().enumerate().rev();
        for (handle, &source) in made.map(|(index, source)| (shards.get(index as u8), source)) {
            let mut shard = handle.enter().map_err(gone)?;
            if !exclusive {
                shard.unwatch(source, handle.process());
                continue;
            }
            shard.tick();
            shard.close(source);
            handle.release(&mut shard, &holder);
            shard.respond();
            handle.settle(&mut shard);
        }
        if exclusive {
            shards.get(0).give_back(holder);
        }
        Ok(())
    }

    /// The connection or listener that a descriptor is, in every shard that has it.
    pub(crate) fn identify(&self, descriptor: OwnedFd) -> io::Result<(Holder, Vec<(u8, Event)>)> {
        let shards = self.shards()?;
        shards.identify(descriptor).map_err(from_holder)
    }

    /// Notes that this process has a poll that has to be closed when it ends.
    pub(crate) fn own(&self, index: u8, shard: &mut Guard<'_>, poll: u32) -> io::Result<Ownership> {
        let owned = self.handle(index)?.own(shard, poll);
        owned.ok_or_else(|| Errno::NOBUFS.into())
    }

    /// It was closed.
    pub(crate) fn disown(&self, index: u8, shard: &mut Guard<'_>, ownership: Ownership) {
        if let Ok(handle) = self.handle(index) {
            handle.disown(shard, ownership);
        }
    }

    /// Waits until an operation that has just failed in a shard is done, `deadline` at
    /// most; `None` if that has passed.
    pub(crate) fn block<O: Operation>(
        &self,
        index: u8,
        shard: &mut Guard<'_>,
        operation: &mut O,
        spin: &SpinBudget,
        deadline: Option<toehold_stack::Instant>,
    ) -> io::Result<Option<O::Output>> {
        let handle = self.handle(index)?;
        handle.block(shard, operation, spin, deadline).map_err(gone)
    }

    /// Ends a call that did not wait.
    #[inline]
    pub(crate) fn settle(&self, index: u8, shard: &mut Guard<'_>) {
        if let Ok(handle) = self.handle(index) {
            handle.settle(shard);
        }
    }
}

/// The shard of a node to which a connection belongs.
pub(crate) struct OnShard {
    pub(crate) node: Arc<Shared>,
    pub(crate) index: u8,
}

impl OnShard {
    /// The way to the shard.
    #[inline]
    pub(crate) fn handle(&self) -> io::Result<&ShardHandle> {
        self.node.handle(self.index)
    }

    /// Begins a call.
    #[inline]
    pub(crate) fn enter(&self) -> io::Result<Guard<'_>> {
        self.node.enter(self.index)
    }

    /// See [`Shared::block`].
    pub(crate) fn block<O: Operation>(
        &self,
        shard: &mut Guard<'_>,
        operation: &mut O,
        spin: &SpinBudget,
        deadline: Option<toehold_stack::Instant>,
    ) -> io::Result<Option<O::Output>> {
        self.node.block(self.index, shard, operation, spin, deadline)
    }

    /// Ends a call that did not wait.
    #[inline]
    pub(crate) fn settle(&self, shard: &mut Guard<'_>) {
        self.node.settle(self.index, shard);
    }

    /// See [`Shared::unmake`].
    pub(crate) fn unmake(
        &self,
        holder: Holder,
        source: Event,
        linger: impl FnOnce(&Shard) -> Option<Duration>,
        wait: impl FnOnce(&mut Guard<'_>, Duration) -> io::Result<()>,
    ) -> io::Result<()> {
        self.node.unmake(self.index, holder, source, linger, wait)
    }
}

impl Node {
    /// Makes the node and joins its fabric, if it has one. Its engine is a thread
    /// of this process, and nobody else's: in a forked child every call on the node and
    /// its sockets fails with `NetworkDown`.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, the name is taken, or the system refuses
    /// memory, files or descriptors: the error says what to do.
    pub fn join(config: NodeConfig) -> Result<Node, NodeError> {
        LocalNode::join(config).map(Node::local)
    }

    /// Makes a node on a link. Its hardware address is the link's; what the
    /// configuration says about the fabric does not count.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, or the system refuses memory or descriptors.
    pub fn with_link(config: NodeConfig, link: Box<dyn Link>) -> Result<Node, NodeError> {
        LocalNode::with_link(config, link).map(Node::local)
    }

    /// Two nodes of one process with a cable between them: for tests. Fabrics do
    /// not count.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, or the system refuses memory or descriptors.
    pub fn in_process_pair(configs: [NodeConfig; 2]) -> Result<[Node; 2], NodeError> {
        Ok(LocalNode::pair(configs)?.map(Node::local))
    }

    /// Attaches to a node that runs in an engine process, as `toehold up` starts one:
    /// this process shares its address, its ports and its bounds with all others that
    /// are attached to it.
    ///
    /// Connections and listeners are kept open by descriptors, like the kernel's: a
    /// forked child has its parent's, they can be [given](crate::TcpStream::into_fd) to
    /// other processes, and are closed once nobody has them, however that came about.
    /// Polls are not shared: a forked child makes its own.
    ///
    /// # Errors
    ///
    /// If there is no such node, it belongs to another user, or the system refuses
    /// memory or descriptors: the error says what to do.
    pub fn attach(fabric: &Fabric, name: &str) -> Result<Node, AttachError> {
        AttachedNode::attach(fabric, name).map(|node| Node::new(Place::Elsewhere(node)))
    }

    fn local(node: LocalNode) -> Node {
        Node::new(Place::Here(node))
    }

    fn new(place: Place) -> Node {
        let spin = SpinBudget::new();
        Node {
            shared: Arc::new(Shared { place, spin }),
        }
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        match &self.shared.place {
            Place::Here(node) => node.name(),
            Place::Elsewhere(node) => node.name(),
        }
    }

    /// Sends, receives and acknowledges on behalf of all sockets of the node,
    /// until frames have arrived or `timeout` (`None`: any time) has passed.
    /// Returns whether frames have arrived. For programs with a loop of their own.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn drive(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let shared = &*self.shared;
        let shards = shared.shards()?;
        let mut operation = DriveOnce { frames: 0 };
        let mut now = toehold_stack::Instant::default();
        for (_, handle) in shards.iter() {
            let mut shard = handle.enter().map_err(gone)?;
            operation.frames += shard.poll_once(None);
            now = shard.now;
            handle.settle(&mut shard);
        }
        if operation.frames > 0 || timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Ok(operation.frames > 0);
        }
        let deadline = timeout.map(|timeout| now + timeout);
        let driven = if shards.count() == 1 {
            let mut shard = shared.enter(0)?;
            shared.block(0, &mut shard, &mut operation, &shared.spin, deadline)?
        } else {
            let blocked = shards.block(shards.from_home(), &mut operation, &shared.spin, deadline);
            blocked.map_err(gone)?
        };
        Ok(driven.is_some())
    }

    /// What the stack has counted since the node was made.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn counters(&self) -> io::Result<Counters> {
        let shards = self.shared.shards()?;
        let mut counters = Counters::default();
        for (_, handle) in shards.iter() {
            counters.add(handle.enter().map_err(gone)?.stack.counters());
        }
        Ok(counters)
    }

    /// What the stack holds now.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn stack_info(&self) -> io::Result<StackInfo> {
        let shards = self.shared.shards()?;
        let shard = self.shared.enter(0)?;
        let mut info = StackInfo {
            connections: shard.stack.connections(),
            payload_blocks_used: shard.stack.payload_blocks_used(),
            context_bytes_per_connection: shard.stack.context_bytes_per_connection(),
            link: shard.link().capabilities(),
            shards: shards.count(),
        };
        drop(shard);
        for (_, handle) in shards.iter().skip(1) {
            let shard = handle.enter().map_err(gone)?;
            info.connections += shard.stack.connections();
            info.payload_blocks_used += shard.stack.payload_blocks_used();
        }
        Ok(info)
    }

    /// Settings that sockets of this node begin with.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn default_settings(&self) -> io::Result<Settings> {
        Ok(self.shared.enter(0)?.stack.default_settings())
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

struct DriveOnce {
    frames: usize,
}

impl Operation for DriveOnce {
    type Output = ();

    fn attempt(&mut self, _: &mut Shard) -> Option<()> {
        (self.frames > 0).then_some(())
    }

    fn receive(&mut self, shard: &mut Shard) -> usize {
        self.frames = shard.receive(None);
        self.frames
    }

    fn subscription(&self) -> Subscription {
        Subscription::Nothing
    }
}

impl Everywhere for DriveOnce {
    type Output = ();

    fn attempt(&mut self, _: u8, _: &mut Shard) -> Option<()> {
        (self.frames > 0).then_some(())
    }

    fn receive(&mut self, shard: &mut Shard) -> usize {
        self.frames = shard.receive(None);
        self.frames
    }

    fn subscription(&self, _: u8) -> Subscription {
        Subscription::Nothing
    }
}
