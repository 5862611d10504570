//! One life of a node: its memory, its threads, its connections with others.
//!
//! A node usually has one. It begins another one, with new memory, when a program
//! has died while it ran the stack, which may then be in any state.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use toehold_link::Link;
use toehold_link::capture::{Player, Tap};
use toehold_link::mq::{Membership, MeshSettings, PeerDescriptors, Port, PortConfig};
use toehold_shm::{Carver, Lease, Leased, Region};

use super::connections::Connections;
use crate::attached::{Description, Descriptors};
use crate::clock;
use crate::config::NodeConfig;
use crate::driver::Driver;
use crate::error::NodeError;
use crate::local::{no_descriptors, random, stack_config};
use crate::lookout::rouse_all;
use crate::memory::{Layout, Marks};
use crate::shard::{Bells, NodeLink, Shard, serve};
use crate::wait::ShardHandle;

/// How long the beginning waits for the nodes that are there already.
const SETTLE: Duration = Duration::from_millis(100);

/// How long an orderly end may take beside what is left to be delivered. Only a
/// program that was stopped while it ran the stack makes it take that long.
const FAREWELL: Duration = Duration::from_secs(1);

/// A moment: many times as long as anybody has the lease.
const TURN: Duration = Duration::from_millis(100);

/// How long a thread may take to see that the lease was closed. It does not hold the
/// lease for longer than a burst of frames takes, unless it does so for ever.
const END: Duration = Duration::from_secs(5);

pub(super) struct Life {
    description: Description,
    region: Arc<Region>,
    marks: Marks,
    /// What the marks are.
    mark: u32,
    /// When the lease is closed if it cannot be had, in nanoseconds.
    closes_at: Arc<AtomicU64>,
    player: Player,
    pub(super) shard: Arc<ShardHandle>,
    driver: Arc<Driver>,
    driving: Option<JoinHandle<()>>,
    fabric: Arc<Connections>,
    connecting: Option<JoinHandle<()>>,
    drain: Duration,
}

impl Life {
    /// Takes the node's place in its fabric, and makes its memory and threads, which
    /// say so when they end.
    pub(super) fn begin(config: &NodeConfig, alarm: &Sender<()>) -> Result<Life, NodeError> {
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
        let tap = Tap::create(&mut carver)?;
        let player = tap.player();
        let port = Port::create(&mut carver, &port_config, membership.bell()?, Some(payload))?;
        let descriptor = port
            .descriptor()
            .map(|descriptor| descriptor.try_clone_to_owned());
        let descriptor = descriptor.transpose().map_err(NodeError::Descriptors)?;
        let bells = Bells::new().map_err(no_descriptors)?;
        let second = bells.try_clone().map_err(no_descriptors)?;
        let link = NodeLink::Port(Box::new(port), tap);
        pieces.signals.set_placement(config.placement);
        let mark = layout.stack.seed as u32 | 1;
        pieces.marks.set(mark);
        let channels = pieces.stack.channels().clone();
        let shard = Shard::new(pieces.stack, link, pieces.waiting, second);
        let closes_at = Arc::new(AtomicU64::new(u64::MAX));
        let shard = Arc::new(ShardHandle {
            lease: Leased::new(closing(pieces.lease, &closes_at), shard).serving(serve),
            channels,
            signals: pieces.signals,
            parking: pieces.parking,
            bells,
            descriptor,
            attachment: None,
        });
        membership.settle(SETTLE);
        let fabric = Arc::new(Connections::new(membership, Arc::clone(&shard)));
        // A shard that was just made is not gone.
        let _ = fabric.round();
        let events = fabric.events().map_err(NodeError::Descriptors)?;
        let connections = Arc::clone(&fabric);
        let connecting = start("toehold-fabric", alarm, move || connections.run(&events))?;
        let driver = Arc::new(Driver::new(Arc::clone(&shard)));
        let running = Arc::clone(&driver);
        let driving = start("toehold-driver", alarm, move || {
            // If the shard is gone there is nothing to drive.
            let _ = running.run();
        })?;
        Ok(Life {
            description: Description {
                layout,
                fingerprint: carver.fingerprint(),
                life: random()?,
            },
            region: carver.mapping(),
            marks: pieces.marks,
            mark,
            closes_at,
            player,
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

    /// What plays the frames that cross the link; of all these, one at a time.
    pub(super) fn player(&self) -> Player {
        self.player.clone()
    }

    /// Changes who drives.
    pub(super) fn set_placement(&self, placement: crate::Placement) {
        self.shard.signals.set_placement(placement);
        self.driver.wake();
        self.fabric.wake_sleeper();
    }

    /// A process of the node is dead. False: it died while it ran the stack, and this
    /// life with it. Never waits for the lease, which another one may have that is dead
    /// as well.
    #[must_use]
    pub(super) fn bury(&self, process: u16) -> bool {
        let lease = self.shard.lease.lease();
        if lease.seize(process) {
            lease.close();
            return false;
        }
        // It may have died between marking a thread and waking it.
        rouse_all(&self.shard.parking, &self.shard.bells.sleeper);
        self.fabric.bury(process);
        true
    }

    /// Whether the lease can be had within a moment: with a guard that does nothing.
    pub(super) fn comes_round(&self) -> bool {
        let until = clock::now() + TURN;
        // A lease that is closed is noticed elsewhere.
        self.shard
            .lease
            .lock_until(until.0)
            .is_ok_and(|guard| guard.is_some())
    }

    /// Whether a process of that number is dead, and something of it still there.
    pub(super) fn is_burying(&self, process: u16) -> bool {
        self.fabric.is_burying(process)
    }

    /// Holders of this node, at most.
    pub(super) fn holders(&self) -> u32 {
        self.description.layout.holders
    }

    /// No process has these holders any more. What they stood for is closed soon, and
    /// their numbers are [free](Life::freed) then.
    pub(super) fn let_go(&self, holders: Vec<u32>) {
        self.fabric.let_go(holders);
    }

    /// Holders that stand for nothing any more.
    pub(super) fn freed(&self) -> Vec<u32> {
        self.fabric.freed()
    }

    /// Whether this life is lost.
    pub(super) fn is_over(&self) -> bool {
        let ended = |thread: &Option<JoinHandle<()>>| thread.as_ref().is_none_or(JoinHandle::is_finished);
        self.shard.lease.lease().is_closed()
            || ended(&self.driving)
            || ended(&self.connecting)
            || !self.marks.are(self.mark)
    }

    /// Ends this life at once: whoever holds something of it is told so.
    fn abandon(&mut self) {
        self.shard.lease.lease().close();
        rouse_all(&self.shard.parking, &self.shard.bells.sleeper);
        self.driver.stop();
        self.fabric.stop();
        let threads = [self.driving.take(), self.connecting.take()];
        threads.into_iter().flatten().for_each(join);
    }

    /// Ends this life when what was written and closed has been delivered.
    pub(super) fn end(&mut self) {
        let closes_at = clock::now() + self.drain + FAREWELL;
        self.closes_at.store(closes_at.0, Relaxed);
        self.driver.stop();
        // A shard that is gone has nothing to deliver.
        let _ = self.shard.drain(self.drain);
        self.abandon();
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.abandon();
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

/// Starts a thread that says so when it ends, however it does.
fn start(
    name: &str,
    alarm: &Sender<()>,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, NodeError> {
    struct Last(Sender<()>);
    impl Drop for Last {
        fn drop(&mut self) {
            // Nobody listens to the end of a node that was asked to end.
            let _ = self.0.send(());
        }
    }
    let last = Last(alarm.clone());
    let thread = std::thread::Builder::new().name(name.to_owned());
    let thread = thread.spawn(move || {
        let _last = last;
        run();
    });
    thread.map_err(NodeError::Thread)
}

/// Waits for the end of a thread, the lease being closed. One that has lost its way in
/// memory that a program has written nonsense to would never end, and nothing can stop
/// it but the end of the process, which its peers and programs survive.
fn join(thread: JoinHandle<()>) {
    let deadline = Instant::now() + END;
    while !thread.is_finished() {
        if Instant::now() >= deadline {
            give_up("a thread does not end");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // If it has panicked, that was told.
    let _ = thread.join();
}

/// Ends the process: the node cannot go on.
pub(super) fn give_up(why: &str) -> ! {
    eprintln!("the node's memory is damaged, and {why}: the engine ends");
    std::process::abort()
}

fn mesh_settings(config: &NodeConfig) -> Result<MeshSettings, NodeError> {
    let fabric = config.fabric.clone().unwrap_or_default();
    let mut settings = MeshSettings::new(fabric, config.name.parse()?, config.hardware_address());
    settings.mtu = config.mtu;
    settings.ring_capacity = config.ring_capacity;
    settings.max_peers = config.max_peers;
    Ok(settings)
}
