//! The beginning of a life: its memory, a shard at a time, and its threads.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use toehold_link::Link;
use toehold_link::capture::Tap;
use toehold_link::mq::{Membership, MeshSettings, Port};
use toehold_shm::direct::Directory;
use toehold_shm::{Carver, Doorbell, Lease, Leased, Region};
use toehold_stack::Config;

use super::threads::start;
use super::{Life, Part};
use crate::attached::Description;
use crate::clock;
use crate::config::NodeConfig;
use crate::direct::{Addresses, Published, SharedWords};
use crate::driver::Driver;
use crate::engine::host::connections::Connections;
use crate::engine::host::direct::Banks;
use crate::engine::host::guard::Guard;
use crate::engine::host::relay::Relays;
use crate::error::NodeError;
use crate::fabric::Fabric;
use crate::kernel::Device;
use crate::local::{no_descriptors, random, shards_of, stack_config};
use crate::memory::Layout;
use crate::processes::Processes;
use crate::shard::{Bells, Leaving, NodeLink, Resters, Shard, Wakes};
use crate::shards::{OneShard, Shards};
use crate::wait::{Ears, ShardHandle};

/// How long the beginning waits for the nodes that are there already.
const SETTLE: Duration = Duration::from_millis(100);

impl Life {
    /// Takes the node's place in its fabric, and makes its memory and threads, which
    /// say so when they end.
    pub(in crate::engine::host) fn begin(
        config: &NodeConfig,
        alarm: &Sender<()>,
        processes: &Arc<Processes>,
    ) -> Result<Life, NodeError> {
        let settings = mesh_settings(config)?;
        let stack = stack_config(config, settings.port_config().capabilities())?;
        let life = random()?;
        let closes_at = Arc::new(AtomicU64::new(u64::MAX));
        let common = Common {
            config,
            settings,
            life,
            wakes: Arc::default(),
            fabric: Arc::new(Doorbell::new().map_err(no_descriptors)?),
            resters: Arc::new(Resters::new().map_err(no_descriptors)?),
            closes_at: Arc::clone(&closes_at),
            directory: match config.has_direct() {
                true => Some(Directory::create("toehold-directory", life)?),
                false => None,
            },
        };
        let (mut parts, mut handles, mut memberships) = (Vec::new(), Vec::new(), Vec::new());
        let (mut shards, mut direct) = (Vec::new(), None);
        for stack in shards_of(&stack) {
            let Made {
                part,
                description,
                handle,
                membership,
                direct: found,
            } = common.make(stack)?;
            direct = direct.or(found);
            parts.push(part);
            shards.push(description);
            handles.push(handle);
            memberships.push(membership);
        }
        let wake = |handle: &ShardHandle| handle.bells.wake(&handle.parking, &handle.channels);
        common.wakes.set(handles.iter().map(wake));
        for membership in &mut memberships {
            membership.settle(SETTLE);
        }
        let ways = Arc::new(Shards::new(handles).ok_or(NodeError::OneQueue)?);
        let direct = match (direct, &common.directory) {
            (Some(shared), Some(directory)) => {
                let own = Addresses {
                    ipv4: config.ipv4.map(|(address, _)| address),
                    ipv6: config.ipv6.map(|(address, _)| address),
                    mac: config.hardware_address(),
                };
                let payload_bound = config.payload_memory as u64;
                let banks = Banks::begin(shared, (directory, payload_bound), own, life)?;
                let banks = Arc::new(banks);
                common
                    .wakes
                    .set_listeners(banks.listener_bell().map_err(NodeError::Descriptors)?);
                let closing = Arc::clone(&banks);
                start("toehold-closing", alarm, move || closing.run_closer())?;
                Some(banks)
            }
            _ => None,
        };
        let fabric = Connections::new(memberships, Arc::clone(&ways), direct.clone());
        let fabric = Arc::new(fabric);
        // Shards that were just made are not gone.
        let _ = fabric.round();
        let events = fabric.events().map_err(NodeError::Descriptors)?;
        let connections = Arc::clone(&fabric);
        let connecting = start("toehold-fabric", alarm, move || connections.run(&events))?;
        let (mut drivers, mut guards) = (Vec::new(), Vec::new());
        for index in 0..ways.count() {
            let shards = Arc::clone(&ways);
            let shard = OneShard { shards, index };
            let guard = Arc::new(Guard::new(shard.clone(), Arc::clone(processes)));
            let guarding = Arc::clone(&guard);
            guards.push((guard, start("toehold-guard", alarm, move || guarding.run())?));
            let driver = Arc::new(Driver::new(shard, Arc::clone(processes)));
            let running = Arc::clone(&driver);
            let driving = start("toehold-driver", alarm, move || {
                // If the shard is gone there is nothing to drive.
                let _ = running.run();
            })?;
            drivers.push((driver, Some(driving)));
        }
        let relays = Relays::new(&ways, direct.as_ref(), alarm);
        let kernel = config.kernel.clone();
        let inlets = kernel.as_deref().map(|kernel| carry(kernel, &ways, alarm));
        Ok(Life {
            inlets: inlets.transpose()?.unwrap_or_default(),
            description: Description {
                shards,
                life,
                kernel: kernel.as_ref().map(|kernel| kernel.description().clone()),
                direct: direct.is_some(),
            },
            kernel,
            direct,
            processes: Arc::clone(processes),
            parts,
            closes_at,
            shards: ways,
            drivers,
            guards,
            fabric,
            connecting: Some(connecting),
            relays,
            drain: config.drain,
        })
    }
}

/// The parts that the shards of a life have in common.
struct Common<'a> {
    config: &'a NodeConfig,
    settings: MeshSettings,
    life: u64,
    wakes: Arc<Wakes>,
    fabric: Arc<Doorbell>,
    resters: Arc<Resters>,
    closes_at: Arc<AtomicU64>,
    /// The directory of the node's listeners, if it has direct connections.
    directory: Option<Directory>,
}

/// A shard that was just made.
struct Made {
    part: Part,
    description: (Layout, u64),
    handle: ShardHandle,
    membership: Membership,
    /// The shared words of the first shard of a node with direct connections.
    direct: Option<SharedWords>,
}

impl Common<'_> {
    /// Takes a shard's place in the node's fabric, and makes its memory.
    fn make(&self, stack: Config) -> Result<Made, NodeError> {
        let (mut settings, steering) = (self.settings.clone(), stack.steering);
        settings.steering = steering;
        settings.incarnation = Some(self.life);
        settings.direct = self.directory.clone();
        let mut membership = Membership::join(&settings)?;
        let port_config = settings.port_config();
        let layout = Layout::new(stack, Some(port_config)).with_direct(self.directory.is_some());
        let region = Region::create(&format!("toehold-{}", self.config.name), layout.region_len())?;
        let mut carver = Carver::new(region)?;
        let pieces = layout.carve(&mut carver)?;
        let payload = pieces.stack.payload_arenas().clone();
        if self.config.zero_copy {
            membership.attach_payload(payload.clone());
        }
        let tap = Tap::create(&mut carver)?;
        let player = tap.player();
        let port = Port::create(&mut carver, &port_config, membership.bell()?, Some(payload))?;
        let descriptor = port
            .descriptor()
            .map(|descriptor| descriptor.try_clone_to_owned().map(Arc::new));
        let descriptor = descriptor.transpose().map_err(NodeError::Descriptors)?;
        let bells = Bells::new(&self.fabric, &self.resters).map_err(no_descriptors)?;
        let link = NodeLink::Port(Box::new(port), tap);
        pieces.signals.set_placement(self.config.placement);
        let mark = layout.stack.seed as u32 | 1;
        pieces.marks.set(mark);
        let wakes = Arc::clone(&self.wakes);
        let channels = pieces.stack.channels().clone();
        let accept_lengths = pieces.stack.accept_lengths().clone();
        let leaving = Leaving {
            wakes: Arc::clone(&wakes),
        };
        let mut shard = Shard::new(pieces.stack, link, pieces.waiting, bells.clone(), wakes);
        let (direct, records) = pieces.direct.map_or((None, None), |pieces| {
            let words = pieces.shared.listeners.clone();
            (Some(pieces.shared), Some((pieces.records, words)))
        });
        let directory = self.directory.clone();
        shard.published = records
            .zip(directory)
            .map(|((records, words), directory)| Published::new(records, directory, words));
        shard.kernel = match &self.config.kernel {
            Some(kernel) => Some(kernel.outlet(steering.index.into(), steering.count.into())?),
            None => None,
        };
        let handle = ShardHandle {
            lease: Leased::new(closing(pieces.lease, &self.closes_at), shard).with_farewell(leaving),
            channels,
            accept_lengths,
            descriptions: pieces.descriptions,
            signals: pieces.signals,
            parking: pieces.parking,
            bells,
            descriptor,
            ears: Ears::default(),
            driving: crate::wait::SpinBudget::new(),
            attachment: None,
        };
        Ok(Made {
            part: Part {
                region: carver.mapping(),
                marks: pieces.marks,
                mark,
                player,
            },
            description: (layout, carver.fingerprint()),
            handle,
            membership,
            direct,
        })
    }
}

/// A lease that the engine's threads, while they wait for it, close when its time has come.
fn closing(lease: Lease, closes_at: &Arc<AtomicU64>) -> Lease {
    let closes_at = Arc::clone(closes_at);
    let closed = lease.clone();
    lease.with_vigil(Arc::new(move || {
        if clock::now().0 >= closes_at.load(Relaxed) {
            closed.close();
        }
    }))
}

/// Starts the threads that carry the kernel's frames to the fabric.
fn carry(
    kernel: &Device,
    shards: &Arc<Shards>,
    alarm: &Sender<()>,
) -> Result<Vec<(Doorbell, JoinHandle<()>)>, NodeError> {
    let carry = |queue| {
        let stop = Doorbell::new().map_err(no_descriptors)?;
        let stopped = stop.try_clone().map_err(no_descriptors)?;
        let inlet = kernel.inlet(queue, shards, stopped)?;
        Ok((stop, start("toehold-kernel", alarm, move || inlet.run())?))
    };
    (0..kernel.description().queues.into()).map(carry).collect()
}

fn mesh_settings(config: &NodeConfig) -> Result<MeshSettings, NodeError> {
    let fabric = config.fabric.clone().unwrap_or_default();
    let mut settings = MeshSettings::new(fabric, config.name.parse()?, config.hardware_address());
    settings.mtu = config.mtu;
    settings.ring_capacity = config.ring_capacity;
    settings.max_peers = config.max_peers;
    settings.quotas = config.quotas;
    settings.bound = config.bound();
    settings.registry = config.fabric.as_deref().and_then(Fabric::registry_in);
    Ok(settings)
}
