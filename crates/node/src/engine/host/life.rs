//! One life of a node: its memory, its threads, its connections with others.
//!
//! A node usually has one. It begins another one, with new memory, when a program
//! has died while it ran the stack, which may then be in any state.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use toehold_link::Link;
use toehold_link::mq::{Change, Membership, MeshSettings, PeerDescriptors, Port, PortConfig};
use toehold_shm::{Carver, Leased, Region, Rest};

use crate::attached::{Description, Descriptors};
use crate::config::NodeConfig;
use crate::driver::Driver;
use crate::error::NodeError;
use crate::local::{no_descriptors, stack_config, start_driver};
use crate::memory::Layout;
use crate::shard::{Bells, NodeLink, Shard};
use crate::wait::{Gone, ShardHandle};

/// How long the beginning waits for the nodes that are there already.
const SETTLE: Duration = Duration::from_millis(100);

pub(super) struct Life {
    description: Description,
    region: Arc<Region>,
    pub(super) shard: Arc<ShardHandle>,
    driver: Arc<Driver>,
    driving: Option<JoinHandle<()>>,
    fabric: Arc<Connections>,
    connecting: Option<JoinHandle<()>>,
    drain: Duration,
}

impl Life {
    /// Takes the node's place in its fabric, and makes its memory and threads.
    pub(super) fn begin(config: &NodeConfig) -> Result<Life, NodeError> {
        let settings = mesh_settings(config)?;
        let mut membership = Membership::join(&settings)?;
        let port_config = PortConfig {
            mac: settings.mac,
            mtu: settings.mtu,
            ring_capacity: settings.ring_capacity as u32,
            max_peers: settings.max_peers as u32,
        };
        let stack = stack_config(config, port_config.capabilities())?;
        let layout = Layout::new(stack, Some(port_config));
        let region = Region::create(&format!("toehold-{}", config.name), layout.region_len())?;
        let mut carver = Carver::new(region)?;
        let pieces = layout.carve(&mut carver)?;
        let payload = pieces.stack.payload_area();
        if config.zero_copy {
            membership.attach_payload(&payload)?;
        }
        let port = Port::create(&mut carver, &port_config, membership.bell()?, Some(payload))?;
        let descriptor = port
            .descriptor()
            .map(|descriptor| descriptor.try_clone_to_owned());
        let descriptor = descriptor.transpose().map_err(NodeError::Descriptors)?;
        let bells = Bells::new().map_err(no_descriptors)?;
        let second = bells.try_clone().map_err(no_descriptors)?;
        let link = NodeLink::Port(Box::new(port));
        pieces.signals.set_placement(config.placement);
        let shard = Shard::new(pieces.stack, link, pieces.waiting, second);
        let shard = Arc::new(ShardHandle {
            lease: Leased::new(pieces.lease, shard),
            signals: pieces.signals,
            parking: pieces.parking,
            bells,
            descriptor,
            attachment: None,
        });
        membership.settle(SETTLE);
        let fabric = Arc::new(Connections {
            membership: Mutex::new(membership),
            shard: Arc::clone(&shard),
            stop: AtomicBool::new(false),
        });
        // A shard that was just made is not gone.
        let _ = fabric.round();
        let connecting = fabric.start()?;
        let (driver, driving) = start_driver(Arc::clone(&shard))?;
        Ok(Life {
            description: Description {
                layout,
                fingerprint: carver.fingerprint(),
            },
            region: carver.mapping(),
            shard,
            driver,
            driving: Some(driving),
            fabric,
            connecting: Some(connecting),
            drain: config.drain,
        })
    }

    /// What a process needs to attach.
    pub(super) fn offer(&self) -> std::io::Result<(Description, Vec<OwnedFd>)> {
        let region = self.region.fd().map(|region| region.try_clone_to_owned());
        let region = region.ok_or(std::io::ErrorKind::Unsupported)??;
        let port = self.fabric.lock().bell().map_err(std::io::Error::other)?;
        let descriptors = Descriptors {
            region,
            bells: self.shard.bells.try_clone()?,
            port,
        };
        Ok((self.description.clone(), descriptors.into_list()))
    }

    /// What a process needs to exchange frames with a peer.
    pub(super) fn peer(&self, slot: u8, generation: u16) -> Option<PeerDescriptors> {
        self.fabric.lock().descriptors(slot, generation).ok()?
    }

    /// Changes who drives.
    pub(super) fn set_placement(&self, placement: crate::Placement) {
        self.shard.signals.set_placement(placement);
        self.driver.wake();
    }

    /// A process of the node is dead. False: it died while it ran the stack, and this
    /// life with it.
    pub(super) fn bury(&self, process: u16) -> bool {
        if self.shard.lease.seize(process).is_some() {
            return false;
        }
        // It may have died between marking a thread and waking it.
        self.rouse_all();
        if let Ok(mut shard) = self.shard.lease.lock() {
            shard.forget_process(process);
            self.shard.settle(&mut shard);
            let seats = &shard.waiting.seats;
            if seats.driver().is_none() && seats.somebody_rests() {
                self.shard.hand_over(&mut shard);
            }
        }
        true
    }

    fn rouse_all(&self) {
        let parking = &self.shard.parking;
        for slot in 0..parking.slots() {
            if parking.rouse(slot) == Some(Rest::Seated) {
                self.shard.bells.sleeper.ring();
            }
        }
    }

    /// Ends this life at once: whoever holds something of it is told so.
    pub(super) fn abandon(&mut self) {
        self.shard.lease.lease().close();
        self.rouse_all();
        self.stop_threads();
    }

    /// Ends this life when what was written and closed has been delivered.
    pub(super) fn end(&mut self) {
        self.stop_driver();
        // A shard that is gone has nothing to deliver.
        let _ = self.shard.drain(self.drain);
        self.abandon();
    }

    fn stop_driver(&mut self) {
        if let Some(driving) = self.driving.take() {
            self.driver.stop();
            // It has no reason to panic; if it did all the same, that was told.
            let _ = driving.join();
        }
    }

    fn stop_threads(&mut self) {
        self.stop_driver();
        if let Some(connecting) = self.connecting.take() {
            self.fabric.stop.store(true, Release);
            self.shard.bells.fabric.ring();
            let _ = connecting.join();
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// The node's connections with others, in a thread of their own: it tells the port
/// who comes and goes.
struct Connections {
    membership: Mutex<Membership>,
    shard: Arc<ShardHandle>,
    stop: AtomicBool,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Membership> {
        self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(self: &Arc<Self>) -> Result<JoinHandle<()>, NodeError> {
        let events = self.lock().descriptor().try_clone_to_owned();
        let events = events.map_err(NodeError::Descriptors)?;
        let connections = Arc::clone(self);
        let thread = std::thread::Builder::new().name("toehold-fabric".into());
        thread
            .spawn(move || connections.run(&events))
            .map_err(NodeError::Thread)
    }

    fn run(&self, events: &OwnedFd) {
        let bell = &self.shard.bells.fabric;
        while !self.stop.load(Acquire) {
            let mut state = [
                PollFd::from_borrowed_fd(events.as_fd(), PollFlags::IN),
                PollFd::new(bell, PollFlags::IN),
            ];
            // A signal ends the sleep early, which does no harm.
            let _ = poll(&mut state, None);
            bell.clear();
            if self.round().is_err() {
                return;
            }
        }
    }

    /// Does what has come up, until nothing is left.
    fn round(&self) -> Result<(), Gone> {
        loop {
            let mut membership = self.lock();
            membership.housekeeping();
            let changes: Vec<Change> = std::iter::from_fn(|| membership.next_change()).collect();
            drop(membership);
            let mut shard = self.shard.lease.lock()?;
            let mut unmapped = Vec::new();
            let Some(port) = shard.link.port() else {
                return Ok(());
            };
            let mut joined = false;
            for change in changes {
                let peer = match &change {
                    Change::Joined(peer) => Some((peer.slot, peer.generation)),
                    Change::Left { .. } => None,
                };
                joined |= peer.is_some();
                if port.apply(change).is_err() {
                    unmapped.extend(peer);
                }
            }
            let departed: Vec<_> = std::iter::from_fn(|| port.departed()).collect();
            if joined {
                self.shard.signals.peer_joined();
            }
            shard.housekeeping();
            drop(shard);
            if unmapped.is_empty() && departed.is_empty() {
                return Ok(());
            }
            let mut membership = self.lock();
            unmapped
                .into_iter()
                .for_each(|(slot, generation)| membership.disconnect(slot, generation));
            departed.into_iter().for_each(|peer| membership.let_go(peer));
        }
    }
}

fn mesh_settings(config: &NodeConfig) -> Result<MeshSettings, NodeError> {
    let fabric = config.fabric.clone().unwrap_or_default();
    let mut settings = MeshSettings::new(fabric, config.name.parse()?, config.hardware_address());
    settings.mtu = config.mtu;
    settings.ring_capacity = config.ring_capacity;
    settings.max_peers = config.max_peers;
    Ok(settings)
}
