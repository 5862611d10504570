//! A node: one network identity, with the memory, the stack and the link that
//! make it one.

use std::fmt;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use toehold_link::capture::{Capture, CaptureSettings};
use toehold_link::impair::Impair;
use toehold_link::loopback::{Loopback, LoopbackSettings};
use toehold_link::mq::{Mesh, MeshSettings};
use toehold_link::{Capabilities, Link};
use toehold_shm::{Carver, Doorbell, Region};
use toehold_stack::{Config, Counters, Settings, Stack};

use crate::clock;
use crate::config::NodeConfig;
use crate::engine::{EngineSignals, Placement};
use crate::error::NodeError;
use crate::lock::Lock;
use crate::shard::Shard;
use crate::spin::SpinBudget;
use crate::wait::{Operation, Subscription};

/// How long joining waits for the nodes that are there already. They answer
/// only while they are driven; one that comes late is none the worse for it.
const SETTLE: Duration = Duration::from_millis(100);

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
    pub(crate) shared: Arc<Membership>,
}

/// What ends when the last handle goes.
pub(crate) struct Membership {
    shared: Arc<Shared>,
    engine: Option<JoinHandle<()>>,
    drain: Duration,
    name: String,
}

impl Deref for Membership {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// What all handles of a node share, and its engine.
pub(crate) struct Shared {
    pub(crate) lock: Lock<Shard>,
    /// Wakes the thread that sleeps on the link's descriptor.
    pub(crate) bell: Arc<Doorbell>,
    pub(crate) engine: EngineSignals,
    /// A handle of the link's descriptor, to sleep on without the lock.
    pub(crate) descriptor: Option<OwnedFd>,
    /// Of calls that concern no socket.
    spin: SpinBudget,
}

/// What a node's stack holds at the moment.
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
}

impl Node {
    /// Makes the node and joins its fabric, if it has one.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, the name is taken, or the system refuses
    /// memory, files or descriptors: the error says what to do.
    pub fn join(config: NodeConfig) -> Result<Node, NodeError> {
        let Some(fabric) = &config.fabric else {
            return Self::alone(config);
        };
        let mut settings = MeshSettings::new(fabric, config.name.parse()?, config.hardware_address());
        settings.mtu = config.mtu;
        settings.ring_capacity = config.ring_capacity;
        settings.max_peers = config.max_peers;
        let mut mesh = Mesh::join(&settings)?;
        if let Some(impair) = config.impair {
            // Impaired frames are copies: there is nothing to be read in place.
            mesh.settle(SETTLE);
            return Self::with_link(config, Box::new(Impair::new(mesh, impair)));
        }
        let stack = make_stack(&config, mesh.capabilities())?;
        if config.zero_copy {
            mesh.attach_payload(stack.payload_area())?;
        }
        mesh.settle(SETTLE);
        Self::assemble(config, stack, Box::new(mesh))
    }

    fn alone(config: NodeConfig) -> Result<Node, NodeError> {
        let link = Loopback::new(config.hardware_address(), loopback_settings(&config));
        Self::with_link(config, Box::new(link))
    }

    /// Makes a node on a link. Its hardware address is the link's; what the
    /// configuration says about the fabric does not count.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, or the system refuses memory or descriptors.
    pub fn with_link(config: NodeConfig, link: Box<dyn Link>) -> Result<Node, NodeError> {
        if !link.capabilities().any_thread {
            return Err(NodeError::SingleThread);
        }
        let config = config.mac(link.address());
        let stack = make_stack(&config, link.capabilities())?;
        Self::assemble(config, stack, link)
    }

    /// Two nodes of one process with a cable between them: for tests. Fabrics do
    /// not count.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, or the system refuses memory or descriptors.
    pub fn in_process_pair(configs: [NodeConfig; 2]) -> Result<[Node; 2], NodeError> {
        let addresses = [configs[0].hardware_address(), configs[1].hardware_address()];
        let settings = loopback_settings(&configs[0]);
        let (a, b) = Loopback::pair(addresses, settings).map_err(NodeError::Descriptors)?;
        let [first, second] = configs;
        Ok([Self::impaired(first, a)?, Self::impaired(second, b)?])
    }

    fn impaired(config: NodeConfig, link: Loopback) -> Result<Node, NodeError> {
        match config.impair {
            Some(impair) => Self::with_link(config, Box::new(Impair::new(link, impair))),
            None => Self::with_link(config, Box::new(link)),
        }
    }

    fn assemble(config: NodeConfig, stack: Stack, link: Box<dyn Link>) -> Result<Node, NodeError> {
        let link = match &config.capture {
            Some(path) => {
                let settings = CaptureSettings {
                    interface: config.name.clone(),
                    ..CaptureSettings::default()
                };
                let captured = Capture::create(link, path, &settings);
                Box::new(captured.map_err(|source| NodeError::Capture {
                    path: path.clone(),
                    source,
                })?)
            }
            None => link,
        };
        let descriptor = link
            .descriptor()
            .map(|descriptor| descriptor.try_clone_to_owned());
        let descriptor = descriptor.transpose().map_err(NodeError::Descriptors)?;
        let doorbell = || Doorbell::new().map_err(|errno| NodeError::Descriptors(errno.into()));
        let bell = Arc::new(doorbell()?);
        let mut shard = Shard::new(stack, link, Arc::clone(&bell));
        shard.housekeeping();
        let shared = Arc::new(Shared {
            lock: Lock::new(shard),
            bell,
            engine: EngineSignals::new(doorbell()?),
            descriptor,
            spin: SpinBudget::new(),
        });
        let engine = match config.placement {
            Placement::Inline => None,
            Placement::Adaptive => Some(start_engine(Arc::clone(&shared))?),
        };
        let membership = Membership {
            shared,
            engine,
            drain: config.drain,
            name: config.name,
        };
        Ok(Node {
            shared: Arc::new(membership),
        })
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Sends, receives and acknowledges on behalf of all sockets of the node,
    /// until frames have arrived or `timeout` (`None`: any time) has passed.
    /// Returns whether frames have arrived. For programs with a loop of their own.
    pub fn drive(&self, timeout: Option<Duration>) -> bool {
        let shared = &*self.shared;
        let mut shard = shared.enter();
        let mut operation = DriveOnce {
            frames: shard.poll_once(None),
        };
        if operation.frames > 0 || timeout.is_some_and(|timeout| timeout.is_zero()) {
            shared.settle(&mut shard);
            return operation.frames > 0;
        }
        let deadline = timeout.map(|timeout| shard.now + timeout);
        shared
            .block(&mut shard, &mut operation, &shared.spin, deadline)
            .is_some()
    }

    /// What the stack has counted since the node was made.
    pub fn counters(&self) -> Counters {
        *self.shared.lock.lock().stack.counters()
    }

    /// What the stack holds now.
    pub fn stack_info(&self) -> StackInfo {
        let shard = self.shared.lock.lock();
        StackInfo {
            connections: shard.stack.connections(),
            payload_blocks_used: shard.stack.payload_blocks_used(),
            context_bytes_per_connection: shard.stack.context_bytes_per_connection(),
            link: shard.link().capabilities(),
        }
    }

    /// Settings that sockets of this node begin with.
    pub fn default_settings(&self) -> Settings {
        self.shared.lock.lock().stack.default_settings()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("name", &self.shared.name)
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

impl Drop for Membership {
    /// Nobody holds a socket any more: delivers what was written and closed.
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            self.shared.stop_engine();
            // It has no reason to panic; if it did all the same, that was told.
            let _ = engine.join();
        }
        let shared = &*self.shared;
        let mut shard = shared.lock.lock();
        let deadline = clock::now() + self.drain;
        loop {
            shard.tick();
            let frames = shard.receive(None);
            shard.housekeeping();
            if shard.stack.undelivered() == 0 || shard.now >= deadline {
                break;
            }
            if frames == 0 && shard.arm() {
                let until = clock::earlier(Some(deadline), shard.next_due());
                shared
                    .lock
                    .unlocked(&mut shard, || shared.sleep(&shared.bell, true, until));
                shard.disarm();
            }
        }
        shard.stack.abort_undelivered();
        shard.transmit();
    }
}

fn start_engine(shared: Arc<Shared>) -> Result<JoinHandle<()>, NodeError> {
    let engine = std::thread::Builder::new().name("toehold-engine".into());
    engine
        .spawn(move || shared.run_engine())
        .map_err(NodeError::Thread)
}

fn make_stack(config: &NodeConfig, link: Capabilities) -> Result<Stack, NodeError> {
    let (secret, seed) = match config.seed {
        Some(seed) => ([seed.to_le_bytes(), seed.to_be_bytes()].concat(), seed),
        None => {
            let bytes = random()?;
            (
                bytes[..16].to_vec(),
                u64::from_le_bytes(std::array::from_fn(|i| bytes[16 + i])),
            )
        }
    };
    let config_of_stack = Config {
        secret: std::array::from_fn(|i| secret[i]),
        seed,
        ..config.stack(link)?
    };
    let region = Region::create(
        &format!("toehold-{}", config.name),
        Stack::region_len(&config_of_stack),
    )?;
    Ok(Stack::create(&mut Carver::new(region)?, &config_of_stack)?)
}

fn random() -> Result<[u8; 24], NodeError> {
    let mut bytes = [0; 24];
    // Less than 256 bytes come whole and without interruption.
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(NodeError::Random)?;
    Ok(bytes)
}

fn loopback_settings(config: &NodeConfig) -> LoopbackSettings {
    let mut settings = LoopbackSettings::default();
    settings.capabilities.mtu = config.mtu;
    settings
}
