//! A node whose engine is this very process: its memory, its link, and the
//! thread that drives it.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use toehold_link::capture::{Capture, CaptureSettings};
use toehold_link::impair::Impair;
use toehold_link::loopback::{Loopback, LoopbackSettings};
use toehold_link::mq::{Mesh, MeshSettings};
use toehold_link::steering::Steering;
use toehold_link::{Capabilities, Link};
use toehold_shm::{Carver, Doorbell, Leased, Process, Region, RegionError};
use toehold_stack::Config;

use crate::config::NodeConfig;
use crate::driver::Driver;
use crate::error::NodeError;
use crate::fabric::Fabric;
use crate::memory::{Layout, Pieces};
use crate::placement::Placement;
use crate::shard::{Bells, Leaving, NodeLink, Resters, Shard, Wakes};
use crate::shards::{OneShard, Shards};
use crate::wait::{Ears, ShardHandle};

/// How long joining waits for the nodes that are there already. They answer
/// only while they are driven; one that comes late is none the worse for it.
const SETTLE: Duration = Duration::from_millis(100);

/// Blocks of payload memory of a shard, at least.
const LEAST_BLOCKS: u32 = 16;

/// A node of this process. Its end delivers the bytes that its programs have written, and their
/// closings.
pub struct LocalNode {
    shards: Arc<Shards>,
    drivers: Vec<(Arc<Driver>, JoinHandle<()>)>,
    drain: Duration,
    name: String,
    process: Process,
    /// The number of the process that made it.
    maker: u32,
}

impl LocalNode {
    /// Makes the node and joins its fabric, if it has one.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, the name is taken, or the system refuses
    /// memory, files or descriptors: the error says what to do.
    pub fn join(config: NodeConfig) -> Result<LocalNode, NodeError> {
        if config.capture.is_some() && config.shards > 1 {
            return Err(NodeError::OneCapture);
        }
        let Some(fabric) = &config.fabric else {
            return Self::alone(config);
        };
        let mut settings = MeshSettings::new(fabric, config.name.parse()?, config.hardware_address());
        settings.mtu = config.mtu;
        settings.ring_capacity = config.ring_capacity;
        settings.max_peers = config.max_peers;
        settings.quotas = config.quotas;
        settings.bound = config.bound();
        settings.registry = Fabric::registry_in(fabric);
        if let Some(impair) = config.impair {
            // Impaired frames are copies: there is nothing to be read in place.
            let mut mesh = Mesh::join(&settings)?;
            mesh.settle(SETTLE);
            return Self::with_link(config, Box::new(Impair::new(mesh, impair)));
        }
        let stack = stack_config(&config, settings.port_config().capabilities())?;
        let life = random()?;
        let mut parts = Vec::new();
        for stack in shards_of(&stack) {
            let mut settings = settings.clone();
            settings.steering = stack.steering;
            settings.incarnation = Some(life);
            let mut mesh = Mesh::join(&settings)?;
            let pieces = make_pieces(&config, stack)?;
            if config.zero_copy {
                mesh.attach_payload(pieces.stack.payload_arenas().clone());
            }
            parts.push((pieces, mesh));
        }
        let settled = |(pieces, mut mesh): (Pieces, Mesh)| {
            mesh.settle(SETTLE);
            let link = match config.capture {
                None => NodeLink::Mesh(Box::new(mesh)),
                Some(_) => NodeLink::Other(captured(&config, Box::new(mesh))?),
            };
            Ok((pieces, link))
        };
        let parts: Result<_, NodeError> = parts.into_iter().map(settled).collect();
        Self::assemble(&config, parts?)
    }

    fn alone(config: NodeConfig) -> Result<LocalNode, NodeError> {
        let loopback = || -> Box<dyn Link> {
            Box::new(Loopback::new(
                config.hardware_address(),
                loopback_settings(&config),
            ))
        };
        let stack = stack_config(&config, loopback().capabilities())?;
        let mut parts = Vec::new();
        for stack in shards_of(&stack) {
            let link = NodeLink::Other(captured(&config, loopback())?);
            parts.push((make_pieces(&config, stack)?, link));
        }
        Self::assemble(&config, parts)
    }

    /// Makes a node on a link, which can have one shard only. Its hardware address is the
    /// link's; what the configuration says about the fabric does not count.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, or the system refuses memory or descriptors.
    pub fn with_link(config: NodeConfig, link: Box<dyn Link>) -> Result<LocalNode, NodeError> {
        if !link.capabilities().any_thread {
            return Err(NodeError::SingleThread);
        }
        if config.shards != 1 {
            return Err(NodeError::OneQueue);
        }
        let config = config.mac(link.address());
        let stack = stack_config(&config, link.capabilities())?;
        let pieces = make_pieces(&config, stack)?;
        let link = NodeLink::Other(captured(&config, link)?);
        Self::assemble(&config, vec![(pieces, link)])
    }

    /// Two nodes with a cable between them: for tests. Fabrics do not count.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, or the system refuses memory or descriptors.
    pub fn pair(configs: [NodeConfig; 2]) -> Result<[LocalNode; 2], NodeError> {
        let addresses = [configs[0].hardware_address(), configs[1].hardware_address()];
        let settings = loopback_settings(&configs[0]);
        let (a, b) = Loopback::pair(addresses, settings).map_err(NodeError::Descriptors)?;
        let [first, second] = configs;
        Ok([Self::impaired(first, a)?, Self::impaired(second, b)?])
    }

    fn impaired(config: NodeConfig, link: Loopback) -> Result<LocalNode, NodeError> {
        match config.impair {
            Some(impair) => Self::with_link(config, Box::new(Impair::new(link, impair))),
            None => Self::with_link(config, Box::new(link)),
        }
    }

    /// A shard of each of the parts.
    fn assemble(config: &NodeConfig, parts: Vec<(Pieces, NodeLink)>) -> Result<LocalNode, NodeError> {
        let process = Process::this().map_err(RegionError::Create)?;
        let fabric = Arc::new(Doorbell::new().map_err(no_descriptors)?);
        let resters = Arc::new(Resters::new().map_err(no_descriptors)?);
        let bells: Result<Vec<Bells>, Errno> = parts.iter().map(|_| Bells::new(&fabric, &resters)).collect();
        let bells = bells.map_err(no_descriptors)?;
        let wakes = Arc::new(Wakes::default());
        let wake = |((pieces, _), bells): (&(Pieces, _), &Bells)| {
            bells.wake(&pieces.parking, pieces.stack.channels())
        };
        wakes.set(parts.iter().zip(&bells).map(wake));
        let mut handles = Vec::new();
        for ((pieces, link), bells) in parts.into_iter().zip(bells) {
            handles.push(handle(config, pieces, link, bells, Arc::clone(&wakes))?);
        }
        let shards = Arc::new(Shards::new(handles).ok_or(NodeError::OneQueue)?);
        let mut drivers = Vec::new();
        if config.placement != Placement::Inline {
            for index in 0..shards.count() {
                let shards = Arc::clone(&shards);
                drivers.push(start_driver(OneShard { shards, index })?);
            }
        }
        Ok(LocalNode {
            process,
            maker: process.number(),
            shards,
            drivers,
            drain: config.drain,
            name: config.name.clone(),
        })
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The ways to its shards. `None` in a forked child: what it has a copy of is its
    /// parent's, memory and threads included.
    #[inline]
    pub fn shards(&self) -> Option<&Shards> {
        (self.process.number() == self.maker).then_some(&*self.shards)
    }
}

impl Drop for LocalNode {
    /// Ends the node: no thread holds a socket any more. A forked child's copy is no node: what it
    /// shares with its parent's is left alone.
    fn drop(&mut self) {
        if self.process.number() != self.maker {
            std::mem::forget((Arc::clone(&self.shards), std::mem::take(&mut self.drivers)));
            return;
        }
        for (driver, thread) in self.drivers.drain(..) {
            driver.stop();
            // It has no reason to panic; if it did all the same, that was told.
            let _ = thread.join();
        }
        self.shards.drain(self.drain);
    }
}

pub(crate) fn no_descriptors(errno: Errno) -> NodeError {
    NodeError::Descriptors(errno.into())
}

pub(crate) fn start_driver(shard: OneShard) -> Result<(Arc<Driver>, JoinHandle<()>), NodeError> {
    let driver = Arc::new(Driver::new(shard, Arc::default()));
    let thread = std::thread::Builder::new().name("toehold-driver".into());
    let running = Arc::clone(&driver);
    let thread = thread.spawn(move || {
        // If the shard is gone there is nothing to drive.
        let _ = running.run();
    });
    Ok((driver, thread.map_err(NodeError::Thread)?))
}

fn handle(
    config: &NodeConfig,
    pieces: Pieces,
    link: NodeLink,
    bells: Bells,
    wakes: Arc<Wakes>,
) -> Result<ShardHandle, NodeError> {
    let descriptor = link
        .descriptor()
        .map(|descriptor| descriptor.try_clone_to_owned().map(Arc::new));
    let descriptor = descriptor.transpose().map_err(NodeError::Descriptors)?;
    let channels = pieces.stack.channels().clone();
    let accept_lengths = pieces.stack.accept_lengths().clone();
    let leaving = Leaving {
        wakes: Arc::clone(&wakes),
    };
    let mut shard = Shard::new(pieces.stack, link, pieces.waiting, bells.clone(), wakes);
    shard.housekeeping();
    pieces.signals.set_placement(config.placement);
    Ok(ShardHandle {
        lease: Leased::new(pieces.lease, shard).with_farewell(leaving),
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
    })
}

fn make_pieces(config: &NodeConfig, stack: Config) -> Result<Pieces, NodeError> {
    let layout = Layout::new(stack, None);
    let region = Region::create(&format!("toehold-{}", config.name), layout.region_len())?;
    Ok(layout.carve(&mut Carver::new(region)?)?)
}

pub(crate) fn stack_config(config: &NodeConfig, link: Capabilities) -> Result<Config, NodeError> {
    let (secret, seed) = match config.seed {
        Some(seed) => (u128::from(seed) << 64 | u128::from(seed.swap_bytes()), seed),
        None => {
            let secret = u128::from(random()?) << 64 | u128::from(random()?);
            (secret, random()?)
        }
    };
    Ok(Config {
        secret: secret.to_le_bytes(),
        seed,
        steering: steering(config)?,
        ..config.stack(link)?
    })
}

/// The peers get to know the key: it has nothing to do with the node's secret.
fn steering(config: &NodeConfig) -> Result<Steering, NodeError> {
    let key = match config.seed {
        Some(seed) => u128::from(seed),
        None => u128::from(random()?) << 64 | u128::from(random()?),
    };
    Ok(match config.shards {
        1 => Steering::SOLE,
        count => Steering {
            index: 0,
            count,
            key: key.to_le_bytes(),
        },
    })
}

/// The configurations of a node's shards, of that of a stack that is all of the node. They
/// share out its bounds; what would be less than the least is not less.
pub(crate) fn shards_of(node: &Config) -> impl Iterator<Item = Config> + use<> {
    let node = node.clone();
    let shares = u32::from(node.steering.count);
    (0..node.steering.count).map(move |index| Config {
        steering: Steering {
            index,
            ..node.steering
        },
        seed: node.seed.wrapping_add(index.into()),
        connections: (node.connections / shares).max(1),
        time_wait_records: (node.time_wait_records / shares).max(1),
        payload_blocks: (node.payload_blocks / shares).max(LEAST_BLOCKS),
        ..node.clone()
    })
}

pub(crate) fn random() -> Result<u64, NodeError> {
    let mut bytes = [0; 8];
    // Less than 256 bytes come whole and without interruption.
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(NodeError::Random)?;
    Ok(u64::from_le_bytes(bytes))
}

fn captured(config: &NodeConfig, link: Box<dyn Link>) -> Result<Box<dyn Link>, NodeError> {
    let Some(path) = &config.capture else {
        return Ok(link);
    };
    let settings = CaptureSettings {
        interface: config.name.clone(),
        ..CaptureSettings::default()
    };
    let capture = Capture::create(link, path, &settings).map_err(|source| NodeError::Capture {
        path: path.clone(),
        source,
    })?;
    Ok(Box::new(capture))
}

fn loopback_settings(config: &NodeConfig) -> LoopbackSettings {
    let mut settings = LoopbackSettings::default();
    settings.capabilities.mtu = config.mtu;
    settings
}
