//! A node whose engine is another process: attaching to its memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toehold_link::Link;
use toehold_link::capture::Tap;
use toehold_link::mq::{Bell, Port, PortError};
use toehold_shm::{Access, Doorbell, Leased, OutOfMemory, PerProcess, Process, Region, RegionError};

use crate::attachment::Attachment;
use crate::control::{Connection, ControlError};
use crate::fabric::Fabric;
use crate::lookout::Lookout;
use crate::memory::Layout;
use crate::shard::{Bells, NodeLink, Shard, serve};
use crate::wait::{Gone, ShardHandle};

/// What an engine tells a process that attaches, beside the descriptors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Description {
    pub(crate) layout: Layout,
    /// What the engine's carver came to.
    pub(crate) fingerprint: u64,
    /// Tells this memory from what the node has had before and will have after it.
    pub(crate) life: u64,
}

/// The descriptors of an attachment, in this order.
pub(crate) struct Descriptors {
    pub(crate) region: OwnedFd,
    pub(crate) bells: Bells,
    pub(crate) port: Bell,
}

impl Descriptors {
    pub(crate) fn into_list(self) -> Vec<OwnedFd> {
        let [receiver, sender] = self.port.into_descriptors();
        let Bells {
            sleeper,
            driver,
            fabric,
        } = self.bells;
        let doorbells = [sleeper, driver, fabric].map(Doorbell::into_fd);
        let mut list = vec![self.region];
        list.extend(doorbells);
        list.extend([receiver, sender]);
        list
    }

    fn from_list(list: Vec<OwnedFd>) -> Option<Descriptors> {
        let [region, sleeper, driver, fabric, receiver, sender] = list.try_into().ok()?;
        Some(Descriptors {
            region,
            bells: Bells {
                sleeper: Doorbell::from_fd(sleeper),
                driver: Doorbell::from_fd(driver),
                fabric: Doorbell::from_fd(fabric),
            },
            port: Bell::from_descriptors([receiver, sender]),
        })
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
    /// The system has no descriptor left.
    #[error("cannot keep the node's descriptors: {0} (see `ulimit -n`)")]
    Descriptors(#[from] std::io::Error),
}

/// This process's part in a node of another process. A forked child attaches anew,
/// when it first needs to.
pub struct AttachedNode {
    shard: PerProcess<ShardHandle>,
    process: Process,
    fabric: Fabric,
    name: String,
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
        let (shard, life) = open(fabric, node, process)?;
        Ok(AttachedNode {
            shard: PerProcess::new(process, shard),
            process,
            fabric: fabric.try_clone()?,
            name: node.to_owned(),
            life,
        })
    }

    /// The same in a process that was forked. What its parent has in memory, this
    /// process has copies of that nobody will ever bring into order.
    #[cold]
    fn attach_anew(&self) -> Result<&ShardHandle, Gone> {
        if let Some(attachment) = self.shard.inherited().and_then(|shard| shard.attachment.as_ref()) {
            attachment.pool().abandon();
        }
        match open(&self.fabric, &self.name, self.process) {
            Ok((shard, life)) if life == self.life => Ok(self.shard.publish(shard)),
            // Another node of that name, or the same one after it began anew; or the
            // next call may be luckier.
            _ => Err(Gone),
        }
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The way to its shard, if this process has attached: a forked child has not, as
    /// long as it does not use anything.
    #[inline]
    pub fn shard_in_use(&self) -> Option<&ShardHandle> {
        self.shard.get()
    }

    /// The way to its shard.
    ///
    /// # Errors
    ///
    /// If this process was forked and cannot attach.
    #[inline]
    pub fn shard(&self) -> Result<&ShardHandle, Gone> {
        match self.shard.get() {
            Some(shard) => Ok(shard),
            None => self.attach_anew(),
        }
    }
}

/// Attaches to what the node is at present.
fn open(fabric: &Fabric, node: &str, process: Process) -> Result<(ShardHandle, u64), AttachError> {
    let mut connection = Connection::open(fabric, node)?;
    let attached = connection.attach()?;
    let description: Description =
        serde_json::from_value(attached.description).map_err(|_| AttachError::Build)?;
    let descriptors = Descriptors::from_list(attached.descriptors).ok_or(AttachError::Build)?;
    let number = attached.process;
    let shard = join(connection, (process, number), &description, descriptors)?;
    Ok((shard, description.life))
}

fn join(
    connection: Connection,
    (process, number): (Process, u16),
    description: &Description,
    descriptors: Descriptors,
) -> Result<ShardHandle, AttachError> {
    let Description {
        layout, fingerprint, ..
    } = description;
    let port_config = layout.port.ok_or(AttachError::Build)?;
    let region = Region::open(descriptors.region, Access::ReadWrite)?;
    let bells = descriptors.bells.try_clone().map_err(std::io::Error::from)?;
    let engine = connection.socket().try_clone_to_owned()?;
    let sleeper = descriptors.bells.sleeper.try_clone();
    let sleeper = sleeper.map_err(std::io::Error::from)?;
    let mut outside = None;
    let lease = Leased::attach(region, |carver| {
        let pieces = layout.carve(carver)?;
        let payload = pieces.stack.payload_area();
        let tap = Tap::create(carver)?;
        let port = Port::create(carver, &port_config, descriptors.port, Some(payload))?;
        if carver.fingerprint() != *fingerprint {
            return Err(AttachError::Build);
        }
        let sleep_on = port
            .descriptor()
            .map(|descriptor| descriptor.as_fd().try_clone_to_owned());
        let lease = pieces.lease.with_holder(number);
        let lookout = Arc::new(Lookout {
            engine,
            lease: lease.clone(),
            parking: pieces.parking.clone(),
            sleeper,
        });
        let watching = Arc::clone(&lookout);
        let lease = lease.with_vigil(Arc::new(move || {
            // Whoever waits for the lease finds it closed.
            let _ = watching.check();
        }));
        let channels = pieces.stack.channels().clone();
        let waiting = (pieces.parking, channels);
        outside = Some((pieces.signals, waiting, sleep_on.transpose()?, lookout));
        let shard = Shard::new(
            pieces.stack,
            NodeLink::Port(Box::new(port), tap),
            pieces.waiting,
            bells,
        );
        Ok((lease, shard))
    })?;
    let (signals, (parking, channels), descriptor, lookout) = outside.ok_or(AttachError::Build)?;
    Ok(ShardHandle {
        lease: lease.serving(serve),
        signals,
        parking,
        channels,
        bells: descriptors.bells,
        descriptor,
        attachment: Some(Attachment::new(connection, lookout, process)),
    })
}
