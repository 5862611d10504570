//! A node whose engine is another process: attaching to its memory.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use toehold_link::capture::Tap;
use toehold_link::mq::{Bell, NodeName, Port, PortError};
use toehold_link::tap::TapError;
use toehold_shm::direct::MemoryError;
use toehold_shm::{Doorbell, Leased, OutOfMemory, PerProcess, Process, RegionError, begin_to_leave, stay};

use crate::attachment::{Attachment, Membership};
use crate::clock;
use crate::control::{self, Attached, Connection, ControlError, Door};
use crate::descriptors::copy;
use crate::direct::{
    Banks, BellKeeper, Direct, DirectTape, Entry, ListenerBell, OWN, Own, Published, SharedWords,
};
use crate::estate::{DirectGround, Estate, Ground};
use crate::fabric::{Fabric, NodeRecord};
use crate::kernel;
use crate::lookout::Lookout;
use crate::memory::Layout;
use crate::shard::{Leaving, NodeLink, Resters, Shard, Wakes};
use crate::shards::Shards;
use crate::wait::{Ears, Gone, ShardHandle};
use crate::why::Reason;

/// The facts that an engine gives a process that attaches, beside the descriptors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Description {
    /// Of each shard, the layout of its region, and the fingerprint of the engine's carver.
    pub(crate) shards: Vec<(Layout, u64)>,
    /// Tells this memory from what the node has had before and will have after it.
    pub(crate) life: u64,
    /// The TAP device, of which a descriptor for each queue comes after all others.
    pub(crate) kernel: Option<kernel::Description>,
    /// Whether the node has direct connections. Then three descriptors come last: its directory, its
    /// journal, and the signals to the accepting side of its own bank.
    pub(crate) direct: bool,
}

/// The descriptors of one shard of an attachment, in this order. The node's bell for its
/// connections with others, and the bells of threads that rest on descriptors, come before all of
/// them.
pub(crate) struct Descriptors {
    pub(crate) region: OwnedFd,
    pub(crate) sleeper: Doorbell,
    pub(crate) driver: Doorbell,
    pub(crate) port: Bell,
}

/// The bells of a node that all its shards have.
pub(crate) struct NodeBells {
    pub(crate) fabric: Doorbell,
    pub(crate) resters: Resters,
}

impl Descriptors {
    /// How many there are.
    const COUNT: usize = 5;

    pub(crate) fn into_list(self) -> [OwnedFd; Self::COUNT] {
        let [receiver, sender] = self.port.into_descriptors();
        [
            self.region,
            self.sleeper.into_fd(),
            self.driver.into_fd(),
            receiver,
            sender,
        ]
    }

    fn from_list([region, sleeper, driver, receiver, sender]: [OwnedFd; Self::COUNT]) -> Descriptors {
        Descriptors {
            region,
            sleeper: Doorbell::from_fd(sleeper),
            driver: Doorbell::from_fd(driver),
            port: Bell::from_descriptors([receiver, sender]),
        }
    }

    /// The descriptors of all shards, the bells in front and what comes behind. Returns `None` if
    /// there are not as many as there should be.
    pub(crate) fn all(
        list: Vec<OwnedFd>,
        shards: usize,
        behind: usize,
    ) -> Option<(NodeBells, Vec<Descriptors>, Vec<OwnedFd>)> {
        let mut list = list.into_iter();
        let fabric = Doorbell::from_fd(list.next()?);
        let resters = Resters::from_list(list.by_ref().take(Resters::COUNT).collect())?;
        let mut all = Vec::new();
        while all.len() < shards {
            let own: Vec<OwnedFd> = list.by_ref().take(Self::COUNT).collect();
            all.push(Self::from_list(own.try_into().ok()?));
        }
        let rest: Vec<OwnedFd> = list.collect();
        (rest.len() == behind).then_some((NodeBells { fabric, resters }, all, rest))
    }
}

/// Why a process could not attach to a node.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The node cannot be reached, or refuses.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The engine is of another build than this process.
    #[error("the node's engine is of another build than this program; start it again with the same version")]
    Build,
    /// The node's memory cannot be mapped.
    #[error("cannot map the node's memory: {0}")]
    Region(#[from] RegionError),
    /// The node's memory is shorter than it should be.
    #[error("the node's memory: {0}")]
    Carve(#[from] OutOfMemory),
    /// The node's port is not what the engine said.
    #[error("the node's port: {0}")]
    Port(#[from] PortError),
    /// The memory of the node's direct connections cannot be mapped.
    #[error("the node's direct connections: {0}")]
    Direct(#[from] MemoryError),
    /// The descriptor of the node's TAP device is something else.
    #[error("the node's device: {0}")]
    Device(#[from] TapError),
    /// The system has no descriptor left.
    #[error("cannot keep the node's descriptors: {0} (see `ulimit -n`)")]
    Descriptors(#[from] std::io::Error),
}

/// This process's part in a node of another process. A forked child attaches anew, with what
/// its parent has, when it first needs to.
pub struct AttachedNode {
    part: PerProcess<Part>,
    process: Process,
    name: NodeName,
    /// The door for children, which may not be let in otherwise.
    door: Door,
    is_silent: AtomicBool,
    life: u64,
}

/// One process's part of a node.
struct Part {
    shards: Shards,
    /// The estate that its children take over.
    estate: Arc<Estate>,
}

impl AttachError {
    /// The reason why the process is not on the node.
    pub fn reason(&self) -> Reason {
        match self {
            AttachError::Control(error) => error.reason(),
            AttachError::Build | AttachError::Carve(_) | AttachError::Port(_) => Reason::OtherBuild,
            AttachError::Region(_) | AttachError::Device(_) | AttachError::Direct(_) => {
                Reason::DescriptorLimit
            }
            AttachError::Descriptors(error) => Reason::of_system(Errno::from_io_error(error)),
        }
    }
}

impl AttachedNode {
    /// Attaches to a node of a fabric.
    ///
    /// # Errors
    ///
    /// If there is no such node, it belongs to another user, or the system refuses memory or
    /// descriptors: the error says what to do.
    pub fn attach(fabric: &Fabric, node: &str) -> Result<AttachedNode, AttachError> {
        AttachedNode::over(Connection::open(fabric, node)?)
    }

    /// Attaches by a descriptor that [keeps](Connection::keep) the node, which this process has inherited.
    /// It takes neither the rights nor the names of the process that made it.
    ///
    /// # Errors
    ///
    /// If that node has ended, or the system refuses memory or descriptors.
    pub fn attach_by(keeper: BorrowedFd<'_>, node: &str) -> Result<AttachedNode, AttachError> {
        let name: NodeName = node.parse().map_err(ControlError::Name)?;
        AttachedNode::over(control::enter(keeper, name)?)
    }

    fn over(connection: Connection) -> Result<AttachedNode, AttachError> {
        let process = Process::this().map_err(std::io::Error::from)?;
        let name = connection.node();
        let (part, door) = open(connection, process)?;
        Ok(AttachedNode {
            life: part.estate.life(),
            part: PerProcess::new(process, part),
            process,
            name,
            door,
            is_silent: AtomicBool::new(false),
        })
    }

    /// Attaches again in a process that was forked. This process has copies of what its parent
    /// shares with no other process. No process will ever bring those into order.
    #[cold]
    fn attach_anew(&self) -> Result<&Shards, Gone> {
        let part = match self.take_over() {
            Some(part) => part,
            None => {
                let connection = self.door.enter(self.name).map_err(|_| Gone)?;
                open(connection, self.process).map_err(|_| Gone)?.0
            }
        };
        // The node has begun anew; or the next call may be luckier.
        if part.estate.life() != self.life {
            return Err(Gone);
        }
        Ok(&self.part.publish(part).shards)
    }

    /// Takes over the parent's part of the node, if it is whole.
    fn take_over(&self) -> Option<Part> {
        let parents = self.part.inherited()?;
        if let Some(attachment) = &parents.shards.get(0).attachment {
            attachment.pool().abandon();
        }
        let estate = Arc::new(parents.estate.of_child());
        let mut connection = self.door.enter(self.name).ok()?;
        let number = connection.take_over(self.life).ok()?;
        settle(estate, connection, self.process, number).ok()
    }

    /// Whether a thread of this process is in the middle of the node's stack: if it died now, the
    /// node would have to begin anew.
    pub fn is_busy(&self) -> bool {
        let shards = self.part.get().map(|part| &part.shards);
        shards.is_some_and(|shards| shards.iter().any(|(_, handle)| handle.lease.is_held_here()))
    }

    /// Keeps the threads of this process out of the node's stack, until [`AttachedNode::stay`].
    /// Waits until none is in the middle of it, but no longer than `longest`.
    pub fn leave(&self, longest: Duration) {
        if self.part.get().is_none() {
            return;
        }
        begin_to_leave(self.process);
        let until = clock::now() + longest;
        while self.is_busy() && clock::now() < until {
            std::thread::yield_now();
        }
    }

    /// Takes back [`AttachedNode::leave`]: this process does not end after all.
    pub fn stay(&self) {
        if self.part.get().is_some() {
            stay();
        }
    }

    /// Waits until the engine has closed what no process has any more by now, but no longer than
    /// `longest`. Takes neither memory nor locks.
    pub fn await_closing(&self, longest: Duration) {
        if !self.is_silent.load(Relaxed) {
            self.door.await_closing(longest);
        }
    }

    /// Has this process wait for no closing from now on. It is about to lose the right to the
    /// system calls that this takes.
    pub fn be_silent(&self) {
        self.is_silent.store(true, Relaxed);
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The record of a node of the fabric, or those of all nodes, as the node's engine sees them.
    /// It is for a process that may not look itself. Empty if there is no such node, or the engine
    /// does not answer.
    pub fn names(&self, node: Option<&str>) -> Vec<NodeRecord> {
        let shards = self.shards().ok();
        let attachment = shards.and_then(|shards| shards.get(0).attachment.as_ref());
        attachment.map_or_else(Vec::new, |attachment| attachment.names(node))
    }

    /// The ways to the node's shards, if this process has attached. A forked child has not, as long
    /// as it does not use anything.
    #[inline]
    pub fn shards_in_use(&self) -> Option<&Shards> {
        self.part.get().map(|part| &part.shards)
    }

    /// The ways to the node's shards.
    ///
    /// # Errors
    ///
    /// If this process was forked and cannot attach.
    #[inline]
    pub fn shards(&self) -> Result<&Shards, Gone> {
        match self.part.get() {
            Some(part) => Ok(&part.shards),
            None => self.attach_anew(),
        }
    }
}

/// Attaches to the node in its present life.
fn open(mut connection: Connection, process: Process) -> Result<(Part, Door), AttachError> {
    let Attached { attachment, door } = connection.attach()?;
    let description: Description =
        serde_json::from_value(attachment.description).map_err(|_| AttachError::Build)?;
    let estate = Arc::new(Estate::new(description, attachment.descriptors)?);
    let part = settle(estate, connection, process, attachment.process)?;
    Ok((part, door))
}

/// Makes what the engine gave, to this process or to the one it was forked from, this
/// process's part in the node. `number` is what it has in there.
fn settle(
    estate: Arc<Estate>,
    connection: Connection,
    process: Process,
    number: u16,
) -> Result<Part, AttachError> {
    let wakes = Arc::new(Wakes::default());
    let lookout = Arc::new(Lookout {
        engine: copy(connection.socket())?,
        leases: OnceLock::new(),
        wakes: Arc::clone(&wakes),
    });
    let membership = Membership::new(connection, Arc::clone(&lookout), process, Arc::clone(&estate));
    let membership = Arc::new(membership);
    let (mut handles, mut direct) = (Vec::new(), None);
    for (index, ground) in (0..).zip(estate.shards()) {
        let attachment = Attachment::new(Arc::clone(&membership), index);
        let (handle, found) = settle_in(ground, number, &lookout, attachment, estate.direct())?;
        handles.push(handle);
        direct = direct.or(found);
    }
    // `with_holder` makes handles without a vigil, which would refer to the lookout itself.
    let leases = handles
        .iter()
        .map(|handle| handle.lease.lease().with_holder(number));
    // No other code sets them, so this cannot fail.
    let _ = lookout.leases.set(leases.collect());
    wakes.set(
        handles
            .iter()
            .map(|handle| handle.bells.wake(&handle.parking, &handle.channels)),
    );
    let shards = Shards::new(handles).ok_or(AttachError::Build)?;
    let direct = match (direct, estate.direct()) {
        (Some(shared), Some(ground)) => {
            let SharedWords {
                table,
                counts,
                ports,
                listeners,
                tap,
            } = shared;
            wakes.set_listeners(ListenerBell {
                words: listeners.clone(),
                waiters: ground.waiters.clone(),
                signals: ground.signals.clone(),
            });
            let own = Own {
                waiters: ground.waiters.clone(),
                bells: Arc::clone(&ground.bells),
                payload_bound: estate.payload_bound(),
                tape: DirectTape {
                    tap,
                    mac: table.get(OWN[0]).map_or([0; 6], |entry| entry.addresses.mac),
                },
            };
            let banks = Banks::new(table, own, Arc::clone(&ground.banks));
            let keeper: Arc<dyn BellKeeper> = Arc::clone(&membership) as _;
            ground.bell_source.set(Arc::downgrade(&keeper));
            let ask = move |entry: &Entry| membership.bank(entry);
            let engine = Arc::clone(&shards.get(0).bells.fabric);
            let lengths = shards.iter().map(|(_, handle)| handle.accept_lengths.clone());
            let lengths = lengths.collect();
            let words = (counts, ports);
            let waiting = (listeners, lengths);
            Some(Direct::new(banks, words, waiting, engine, number, Box::new(ask)))
        }
        _ => None,
    };
    let shards = shards.with_direct(direct);
    Ok(Part { shards, estate })
}

/// Settles an attachment in one of the node's shards.
fn settle_in(
    ground: &Ground,
    number: u16,
    lookout: &Arc<Lookout>,
    attachment: Attachment,
    direct: Option<&DirectGround>,
) -> Result<(ShardHandle, Option<SharedWords>), AttachError> {
    let port_config = ground.layout.port.ok_or(AttachError::Build)?;
    let outlet = ground.outlet()?;
    let (lookout, bells) = (Arc::clone(lookout), &ground.bells);
    let leaving = Leaving {
        wakes: Arc::clone(&lookout.wakes),
    };
    let mut outside = None;
    let lease = Leased::attach(Arc::clone(&ground.region), |carver| {
        let pieces = ground.layout.carve(carver)?;
        let payload = pieces.stack.payload_arenas().clone();
        let tap = Tap::create(carver)?;
        let mut port = Port::create(carver, &port_config, Arc::clone(&ground.port), Some(payload))?;
        if carver.fingerprint() != ground.fingerprint {
            return Err(AttachError::Build);
        }
        ground.peers().iter().for_each(|peer| port.take_over(peer));
        let channels = pieces.stack.channels().clone();
        let accept_lengths = pieces.stack.accept_lengths().clone();
        let (shared, records) = pieces.direct.map_or((None, None), |pieces| {
            let words = pieces.shared.listeners.clone();
            (Some(pieces.shared), Some((pieces.records, words)))
        });
        outside = Some((
            pieces.signals,
            pieces.parking,
            channels,
            accept_lengths,
            pieces.descriptions,
            shared,
        ));
        let wakes = Arc::clone(&lookout.wakes);
        let lease = pieces.lease.with_holder(number).with_vigil(Arc::new(move || {
            // A thread that waits for the lease finds it closed.
            let _ = lookout.check();
        }));
        let link = NodeLink::Port(Box::new(port), tap);
        let mut stack = pieces.stack;
        stack.set_process(number);
        let mut shard = Shard::new(stack, link, pieces.waiting, bells.clone(), wakes);
        shard.kernel = outlet;
        shard.published = records.zip(direct).map(|((records, words), ground)| {
            Published::new(records, ground.waiters.directory().clone(), words)
        });
        Ok::<_, AttachError>((lease, shard))
    })?;
    let (signals, parking, channels, accept_lengths, descriptions, shared) =
        outside.ok_or(AttachError::Build)?;
    let handle = ShardHandle {
        lease: lease.with_farewell(leaving),
        signals,
        parking,
        channels,
        accept_lengths,
        descriptions,
        bells: bells.clone(),
        descriptor: Some(Arc::clone(&ground.sleep_on)),
        ears: Ears::default(),
        driving: crate::wait::SpinBudget::new(),
        attachment: Some(attachment),
    };
    Ok((handle, shared))
}
