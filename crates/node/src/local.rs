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
use toehold_link::{Capabilities, Link};
use toehold_shm::{Carver, Leased, Process, Region, RegionError};
use toehold_stack::Config;

use crate::config::NodeConfig;
use crate::driver::Driver;
use crate::error::NodeError;
use crate::memory::{Layout, Pieces};
use crate::placement::Placement;
use crate::shard::{Bells, NodeLink, Shard, serve};
use crate::wait::ShardHandle;

/// How long joining waits for the nodes that are there already. They answer
/// only while they are driven; one that comes late is none the worse for it.
const SETTLE: Duration = Duration::from_millis(100);

/// A node of this process. Its end delivers what its programs have written and closed.
pub struct LocalNode {
    shard: Arc<ShardHandle>,
    driver: Option<(Arc<Driver>, JoinHandle<()>)>,
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
        let pieces = make_pieces(&config, mesh.capabilities())?;
        if config.zero_copy {
            mesh.attach_payload(pieces.stack.payload_area())?;
        }
        mesh.settle(SETTLE);
        let link = match config.capture {
            None => NodeLink::Mesh(Box::new(mesh)),
            Some(_) => NodeLink::Other(captured(&config, Box::new(mesh))?),
        };
        Self::assemble(config, pieces, link)
    }

    fn alone(config: NodeConfig) -> Result<LocalNode, NodeError> {
        let link = Loopback::new(config.hardware_address(), loopback_settings(&config));
        Self::with_link(config, Box::new(link))
    }

    /// Makes a node on a link. Its hardware address is the link's; what the
    /// configuration says about the fabric does not count.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, or the system refuses memory or descriptors.
    pub fn with_link(config: NodeConfig, link: Box<dyn Link>) -> Result<LocalNode, NodeError> {
        if !link.capabilities().any_thread {
            return Err(NodeError::SingleThread);
        }
        let config = config.mac(link.address());
        let pieces = make_pieces(&config, link.capabilities())?;
        let link = NodeLink::Other(captured(&config, link)?);
        Self::assemble(config, pieces, link)
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

    fn assemble(config: NodeConfig, pieces: Pieces, link: NodeLink) -> Result<LocalNode, NodeError> {
        let process = Process::this().map_err(RegionError::Create)?;
        let descriptor = link
            .descriptor()
            .map(|descriptor| descriptor.try_clone_to_owned());
        let descriptor = descriptor.transpose().map_err(NodeError::Descriptors)?;
        let bells = Bells::new().map_err(no_descriptors)?;
        let second = bells.try_clone().map_err(no_descriptors)?;
        let channels = pieces.stack.channels().clone();
        let mut shard = Shard::new(pieces.stack, link, pieces.waiting, second);
        shard.housekeeping();
        pieces.signals.set_placement(config.placement);
        let shard = Arc::new(ShardHandle {
            lease: Leased::new(pieces.lease, shard).serving(serve),
            channels,
            signals: pieces.signals,
            parking: pieces.parking,
            bells,
            descriptor,
            attachment: None,
        });
        let driver = match config.placement {
            Placement::Inline => None,
            Placement::Engine | Placement::Adaptive => Some(start_driver(Arc::clone(&shard))?),
        };
        Ok(LocalNode {
            process,
            maker: process.number(),
            shard,
            driver,
            drain: config.drain,
            name: config.name,
        })
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The way to its shard. `None` in a forked child: what it has a copy of is its
    /// parent's, memory and threads included.
    #[inline]
    pub fn shard(&self) -> Option<&ShardHandle> {
        (self.process.number() == self.maker).then_some(&*self.shard)
    }
}

impl Drop for LocalNode {
    /// Nobody holds a socket any more. A forked child's copy is no node: what it shares
    /// with its parent's is left alone.
    fn drop(&mut self) {
        if self.process.number() != self.maker {
            std::mem::forget((Arc::clone(&self.shard), self.driver.take()));
            return;
        }
        if let Some((driver, thread)) = self.driver.take() {
            driver.stop();
            // It has no reason to panic; if it did all the same, that was told.
            let _ = thread.join();
        }
        // A node that is gone has nothing to deliver.
        let _ = self.shard.drain(self.drain);
    }
}

pub(crate) fn no_descriptors(errno: Errno) -> NodeError {
    NodeError::Descriptors(errno.into())
}

pub(crate) fn start_driver(shard: Arc<ShardHandle>) -> Result<(Arc<Driver>, JoinHandle<()>), NodeError> {
    let driver = Arc::new(Driver::new(shard));
    let thread = std::thread::Builder::new().name("toehold-driver".into());
    let running = Arc::clone(&driver);
    let thread = thread.spawn(move || {
        // If the shard is gone there is nothing to drive.
        let _ = running.run();
    });
    Ok((driver, thread.map_err(NodeError::Thread)?))
}

fn make_pieces(config: &NodeConfig, link: Capabilities) -> Result<Pieces, NodeError> {
    let layout = Layout::new(stack_config(config, link)?, None);
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
        ..config.stack(link)?
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
