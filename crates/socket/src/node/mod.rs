//! A node as programs hold it.

mod shared;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use toehold_link::{Capabilities, Link};
use toehold_node::fabric::{Fabric, NodeRecord};
use toehold_node::{
    AttachError, AttachedNode, Everywhere, LocalNode, NodeConfig, NodeError, Operation, Relayed, Shard,
    SpinBudget, Subscription,
};
use toehold_stack::{Counters, Settings};

use self::shared::Place;
pub(crate) use self::shared::{Identified, OnShard, Shared};
use crate::error::gone;

/// A node of a fabric. This is a handle: its clones are handles of the same node.
///
/// Listeners and streams are made on a node, and keep it. When the last handle of any kind goes,
/// what was written and closed is still delivered, for [`NodeConfig::drain`] at most. What is left
/// then is reset, and the node leaves its fabric.
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

/// The contents of a node's stacks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackInfo {
    /// Connections in context memory, half-open and closing ones included.
    pub connections: u32,
    /// Blocks of payload memory in use, of 16 KiB each.
    pub payload_blocks_used: u32,
    /// Bytes of context memory that an idle connection takes.
    pub context_bytes_per_connection: usize,
    /// The capabilities of the link.
    pub link: Capabilities,
    /// Independent stacks in the node, of which the other fields are the sums.
    pub shards: u8,
}

impl Node {
    /// Makes the node and joins its fabric, if it has one. Its engine is a thread of this process,
    /// which alone can use the node. In a forked child every call on the node and its sockets fails
    /// with `NetworkDown`.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, the name is taken, or the system refuses
    /// memory, files or descriptors: the error says what to do.
    pub fn join(config: NodeConfig) -> Result<Node, NodeError> {
        LocalNode::join(config).map(Node::local)
    }

    /// Makes a node on a link. Its hardware address is the link's; the configuration of the fabric
    /// does not count.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, or the system refuses memory or descriptors.
    pub fn with_link(config: NodeConfig, link: Box<dyn Link>) -> Result<Node, NodeError> {
        LocalNode::with_link(config, link).map(Node::local)
    }

    /// Makes two nodes of one process with a cable between them, for tests. Fabrics do not count.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, or the system refuses memory or descriptors.
    pub fn in_process_pair(configs: [NodeConfig; 2]) -> Result<[Node; 2], NodeError> {
        Ok(LocalNode::pair(configs)?.map(Node::local))
    }

    /// Attaches to a node that runs in an engine process, as `toehold up` starts one. This process
    /// shares the node's address, its ports and its bounds with all others that are attached to it.
    ///
    /// Connections and listeners are kept open by descriptors, like the kernel's. A forked child
    /// has its parent's, and they can be [given](crate::TcpStream::into_fd) to other processes.
    /// They are closed once no process has them, for whatever reason. Polls are not shared: a
    /// forked child makes its own.
    ///
    /// # Errors
    ///
    /// If there is no such node, it belongs to another user, or the system refuses
    /// memory or descriptors: the error says what to do.
    pub fn attach(fabric: &Fabric, name: &str) -> Result<Node, AttachError> {
        AttachedNode::attach(fabric, name).map(|node| Node::new(Place::Elsewhere(node)))
    }

    /// Attaches by a descriptor that this process has inherited from `toehold run`: it takes neither the
    /// rights nor the names that the fabric's directory asks for.
    ///
    /// # Errors
    ///
    /// If that node has ended, or the system refuses memory or descriptors.
    pub fn attach_by(keeper: BorrowedFd<'_>, name: &str) -> Result<Node, AttachError> {
        AttachedNode::attach_by(keeper, name).map(|node| Node::new(Place::Elsewhere(node)))
    }

    /// The record of a node of the fabric, or those of all nodes, as the node's engine sees them.
    /// It is for a process that may not look itself. Empty if there is no such node, or this one is
    /// the process's own.
    pub fn names(&self, node: Option<&str>) -> Vec<NodeRecord> {
        match &self.shared.place {
            Place::Here(_) => Vec::new(),
            Place::Elsewhere(attached) => attached.names(node),
        }
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

    /// Sends, receives and acknowledges on behalf of all sockets of the node, until frames have
    /// arrived or `timeout` has passed (`None` means any time). Returns whether frames have
    /// arrived. For programs with a loop of their own.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn drive(&self, timeout: Option<Duration>) -> io::Result<bool> {
        self.shared.contain(|| {
            let shared = &*self.shared;
            let shards = shared.shards()?;
            let mut operation = DriveOnce { frames: 0 };
            let mut now = toehold_stack::Instant::default();
            for (_, handle) in shards.iter() {
                let mut shard = handle.enter().map_err(gone)?;
                operation.frames += shard.look_unless_unread();
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
        })
    }

    /// Whether a thread of this process is in the middle of the stack of a node that it has
    /// attached to. If the process were killed now, the node would have to begin anew. May be
    /// called in a signal's handler.
    pub fn is_busy(&self) -> bool {
        match &self.shared.place {
            Place::Here(_) => false,
            Place::Elsewhere(node) => node.is_busy(),
        }
    }

    /// Keeps the process's other threads out of the stack of a node that it has attached to, before
    /// it ends. Waits until none is in the middle of it, for some time at most. May be called in a
    /// signal's handler.
    pub fn leave(&self, longest: Duration) {
        if let Place::Elsewhere(node) = &self.shared.place {
            node.leave(longest);
        }
    }

    /// Waits until the node's engine has closed what a process had that has ended, but no longer
    /// than `longest`. The process may have been the last one to have a connection or listener. May
    /// be called in a signal's handler.
    pub fn await_closing(&self, longest: Duration) {
        if let Place::Elsewhere(node) = &self.shared.place {
            node.await_closing(longest);
        }
    }

    /// Has this process wait for no closing from now on. It is about to lose the right to the
    /// system calls that this takes.
    pub fn be_silent(&self) {
        if let Place::Elsewhere(node) = &self.shared.place {
            node.be_silent();
        }
    }

    /// Lets the process go on after [`Node::leave`].
    pub fn stay(&self) {
        if let Place::Elsewhere(node) = &self.shared.place {
            node.stay();
        }
    }

    /// The stack's counters since the node was made.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn counters(&self) -> io::Result<Counters> {
        self.shared.contain(|| {
            let shards = self.shared.shards()?;
            let mut counters = Counters::default();
            for (_, handle) in shards.iter() {
                counters.add(handle.enter().map_err(gone)?.stack.counters());
            }
            Ok(counters)
        })
    }

    /// Returns the present contents of the stacks.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn stack_info(&self) -> io::Result<StackInfo> {
        self.shared.contain(|| {
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
        })
    }

    /// The ends of the connection whose bytes the engine carries to and from a descriptor,
    /// see [`TcpStream::relay`](crate::TcpStream::relay), if it does.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the descriptor is no connection of this node; `NetworkDown` if the
    /// node is gone.
    pub fn relayed(&self, descriptor: OwnedFd) -> io::Result<Option<Relayed>> {
        self.shared.relayed(descriptor)
    }

    /// How many listeners programs of this node have for connections to an address and port.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn listeners_at(&self, local: SocketAddr) -> io::Result<usize> {
        self.shared
            .contain(|| Ok(self.shared.enter(0)?.stack.listeners_at(local)))
    }

    /// Whether a connection of the node has a port, so that no socket may be bound there. A socket
    /// may be if both have set SO_REUSEADDR, as `reuses` says of the one that is to be bound. An
    /// address of zeroes stands for all of its family. Takes time in proportion to the most
    /// connections there ever were.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn is_port_taken(&self, local: SocketAddr, reuses: bool) -> io::Result<bool> {
        self.shared.contain(|| {
            for shard in 0..self.shared.shards()?.count() {
                if self.shared.enter(shard)?.stack.is_port_taken(local, reuses) {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// Whether an address is one of the node's own, or loops back to it.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn is_local(&self, address: IpAddr) -> io::Result<bool> {
        self.shared
            .contain(|| Ok(self.shared.enter(0)?.stack.is_local(address)))
    }

    /// Settings that sockets of this node begin with.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn default_settings(&self) -> io::Result<Settings> {
        self.shared
            .contain(|| Ok(self.shared.enter(0)?.stack.default_settings()))
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
