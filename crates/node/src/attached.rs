//! A node whose engine is another process: attaching to its memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use toehold_link::Link;
use toehold_link::capture::Tap;
use toehold_link::mq::{Bell, NodeName, Port, PortError};
use toehold_link::tap::TapError;
use toehold_shm::{Access, Doorbell, Leased, OutOfMemory, PerProcess, Process, Region, RegionError};

use crate::attachment::{Attachment, Membership};
use crate::control::{Attached, Connection, ControlError, Door};
use crate::descriptors::copy;
use crate::fabric::Fabric;
use crate::kernel::{self, Outlet, queues_of_shard};
use crate::lookout::Lookout;
use crate::memory::Layout;
use crate::shard::{Bells, NodeLink, Resters, Shard, Wakes, serve};
use crate::shards::Shards;
use crate::wait::{Ears, Gone, ShardHandle};

/// What an engine tells a process that attaches, beside the descriptors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Description {
    /// Of each shard, what lies in its region, and what the engine's carver came to.
    pub(crate) shards: Vec<(Layout, u64)>,
    /// Tells this memory from what the node has had before and will have after it.
    pub(crate) life: u64,
    /// The TAP device, of which a descriptor for each queue comes after all others.
    pub(crate) kernel: Option<kernel::Description>,
}

/// The descriptors of one shard of an attachment, in this order. The node's bell for its
/// connections with others, and those for who rests on descriptors, come before all of them.
pub(crate) struct Descriptors {
    pub(crate) region: OwnedFd,
    pub(crate) sleeper: Doorbell,
    pub(crate) driver: Doorbell,
    pub(crate) port: Bell,
}

/// The bells of a node that all its shards have.
struct NodeBells {
    fabric: Doorbell,
    resters: Resters,
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

    /// Of all shards, the bells in front and what comes behind. `None`: there are not as
    /// many as there should be.
    fn all(
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
    /// The engine speaks of something else than this build.
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
    /// The node's TAP device is none.
    #[error("the node's device: {0}")]
    Device(#[from] TapError),
    /// The system has no descriptor left.
    #[error("cannot keep the node's descriptors: {0} (see `ulimit -n`)")]
    Descriptors(#[from] std::io::Error),
}

/// This process's part in a node of another process. A forked child attaches anew,
/// when it first needs to.
pub struct AttachedNode {
    shards: PerProcess<Shards>,
    process: Process,
    name: NodeName,
    /// For children, which may not be let in otherwise.
    door: Door,
    life: u64,
}

impl AttachedNode {
    /// Attaches to a node of a fabric.
    ///
    /// # Errors
    ///
    /// If there is no such node, it belongs to somebody else, or the system
    /// refuses memory or descriptors: the error says what to do.
    pub fn attach(fabric: &Fabric, node: &str) -> Result<AttachedNode, AttachError> {
        let process = Process::this().map_err(std::io::Error::from)?;
        let connection = Connection::open(fabric, node)?;
        let name = connection.node();
        let Opened { shards, life, door } = open(connection, process)?;
        Ok(AttachedNode {
            shards: PerProcess::new(process, shards),
            process,
            name,
            door,
            life,
        })
    }

    /// The same in a process that was forked. What its parent has in memory, this
    /// process has copies of that nobody will ever bring into order.
    #[cold]
    fn attach_anew(&self) -> Result<&Shards, Gone> {
        let inherited = self.shards.inherited();
        if let Some(attachment) = inherited.and_then(|shards| shards.get(0).attachment.as_ref()) {
            attachment.pool().abandon();
        }
        let connection = self.door.enter(self.name).map_err(|_| Gone)?;
        match open(connection, self.process) {
            Ok(Opened { shards, life, .. }) if life == self.life => Ok(self.shards.publish(shards)),
            // The node has begun anew; or the next call may be luckier.
            _ => Err(Gone),
        }
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The ways to its shards, if this process has attached: a forked child has not, as
    /// long as it does not use anything.
    #[inline]
    pub fn shards_in_use(&self) -> Option<&Shards> {
        self.shards.get()
    }

    /// The ways to its shards.
    ///
    /// # Errors
    ///
    /// If this process was forked and cannot attach.
    #[inline]
    pub fn shards(&self) -> Result<&Shards, Gone> {
        match self.shards.get() {
            Some(shards) => Ok(shards),
            None => self.attach_anew(),
        }
    }
}

/// What the node is at present, to a process.
struct Opened {
    shards: Shards,
    life: u64,
    door: Door,
}

/// Attaches to what the node is at present.
fn open(mut connection: Connection, process: Process) -> Result<Opened, AttachError> {
    let Attached {
        attachment: attached,
        door,
    } = connection.attach()?;
    let description: Description =
        serde_json::from_value(attached.description).map_err(|_| AttachError::Build)?;
    let Description { shards, life, kernel } = description;
    let (behind, count) = (
        kernel.as_ref().map_or(0, |kernel| kernel.queues.into()),
        shards.len(),
    );
    let (bells, descriptors, queues) =
        Descriptors::all(attached.descriptors, shards.len(), behind).ok_or(AttachError::Build)?;
    let wakes = Arc::new(Wakes::default());
    let lookout = Arc::new(Lookout {
        engine: copy(connection.socket())?,
        leases: OnceLock::new(),
        wakes: Arc::clone(&wakes),
    });
    let membership = Membership::new(connection, Arc::clone(&lookout), process, kernel.is_some());
    let membership = Arc::new(membership);
    let (fabric_bell, resters) = (Arc::new(bells.fabric), Arc::new(bells.resters));
    let mut handles = Vec::new();
    for (index, ((layout, fingerprint), descriptors)) in (0..).zip(shards.into_iter().zip(descriptors)) {
        let Descriptors {
            region,
            sleeper,
            driver,
            port,
        } = descriptors;
        let outlet = match &kernel {
            Some(kernel) => {
                let own = queues_of_shard(queues.len(), usize::from(index), count)
                    .map(|queue| copy(&queues[queue]));
                Some(Outlet::new(own.collect::<Result<_, _>>()?, &kernel.tap)?)
            }
            None => None,
        };
        let joining = Joining {
            outlet,
            layout,
            fingerprint,
            process: attached.process,
            bells: Bells {
                sleeper: Arc::new(sleeper),
                resters: Arc::clone(&resters),
                driver: Arc::new(driver),
                fabric: Arc::clone(&fabric_bell),
            },
            lookout: Arc::clone(&lookout),
        };
        let attachment = Attachment::new(Arc::clone(&membership), index);
        handles.push(joining.map(region, port, attachment)?);
    }
    // Without those who keep watch, who have the lookout themselves.
    let leases = handles
        .iter()
        .map(|handle| handle.lease.lease().with_holder(attached.process));
    // Nobody else has set them.
    let _ = lookout.leases.set(leases.collect());
    wakes.set(
        handles
            .iter()
            .map(|handle| handle.bells.wake(&handle.parking, &handle.channels)),
    );
    let shards = Shards::new(handles).ok_or(AttachError::Build)?;
    Ok(Opened { shards, life, door })
}

/// One of the shards, on the way to being this process's.
struct Joining {
    layout: Layout,
    fingerprint: u64,
    /// The number of this process.
    process: u16,
    bells: Bells,
    lookout: Arc<Lookout>,
    /// The way to the kernel.
    outlet: Option<Outlet>,
}

impl Joining {
    fn map(self, region: OwnedFd, port: Bell, attachment: Attachment) -> Result<ShardHandle, AttachError> {
        let Joining {
            layout,
            bells,
            lookout,
            outlet,
            ..
        } = self;
        let port_config = layout.port.ok_or(AttachError::Build)?;
        let region = Region::open(region, Access::ReadWrite)?;
        let mut outside = None;
        let lease = Leased::attach(region, |carver| {
            let pieces = layout.carve(carver)?;
            let payload = pieces.stack.payload_area();
            let tap = Tap::create(carver)?;
            let port = Port::create(carver, &port_config, port, Some(payload))?;
            if carver.fingerprint() != self.fingerprint {
                return Err(AttachError::Build);
            }
            let sleep_on = port.descriptor().map(|descriptor| copy(descriptor.as_fd()));
            let channels = pieces.stack.channels().clone();
            outside = Some((pieces.signals, pieces.parking, channels, sleep_on.transpose()?));
            let wakes = Arc::clone(&lookout.wakes);
            let lease = pieces
                .lease
                .with_holder(self.process)
                .with_vigil(Arc::new(move || {
                    // Whoever waits for the lease finds it closed.
                    let _ = lookout.check();
                }));
            let link = NodeLink::Port(Box::new(port), tap);
            let mut shard = Shard::new(pieces.stack, link, pieces.waiting, bells.clone(), wakes);
            shard.kernel = outlet;
            Ok((lease, shard))
        })?;
        let (signals, parking, channels, descriptor) = outside.ok_or(AttachError::Build)?;
        Ok(ShardHandle {
            lease: lease.serving(serve),
            signals,
            parking,
            channels,
            bells,
            descriptor,
            ears: Ears::default(),
            driving: crate::wait::SpinBudget::new(),
            attachment: Some(attachment),
        })
    }
}
