//! A node's membership and port in one process.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use toehold_shm::{ArenaId, Arenas, Carver, Region};

use super::change::Change;
use super::events::Source;
use super::membership::Membership;
use super::name::NodeName;
use super::peer;
use super::port::Port;
use super::settings::{JoinError, MeshSettings};
use super::statistics::{Conflict, Loss, MembershipStatistics, PeerInfo, PortStatistics};
use crate::steering::Flow;
use crate::{
    Capabilities, Fence, Link, NeighborChange, Received, Transmit, TransmitError, Transmitter, Watch,
};

/// Housekeeping is due after this much time on the driver's clock, or this many
/// calls of [`Link::receive`] that found nothing.
const HOUSEKEEPING_NS: u64 = 10_000_000;
const HOUSEKEEPING_CALLS: u32 = 1024;

/// A node's link to every other node of its fabric.
///
/// One thread at a time drives it, as [`Link`] says. Nodes find each other while
/// they are driven; [`Mesh::settle`] waits until the ones that are there did.
///
/// ```
/// use std::time::Duration;
/// use toehold_link::mq::{Mesh, MeshSettings};
///
/// let fabric = std::env::temp_dir().join(format!("toehold-example-{}", std::process::id()));
/// let mut mesh = Mesh::join(&MeshSettings::new(&fabric, "alone".parse()?, [2, 0, 0, 0, 0, 1]))?;
/// assert!(mesh.settle(Duration::from_secs(1)));
/// assert_eq!(mesh.peers().len(), 0);
/// # drop(mesh);
/// # std::fs::remove_dir(&fabric)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Mesh {
    pub(super) port: Port,
    pub(super) membership: Membership,
    ring_capacity: usize,
    empty_calls: u32,
    last_housekeeping_ns: u64,
}

impl Mesh {
    /// Takes the node's place in the fabric and begins to dial the nodes that
    /// are there.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, the name is taken, or the system refuses
    /// files or descriptors.
    pub fn join(settings: &MeshSettings) -> Result<Mesh, JoinError> {
        let membership = Membership::join(settings)?;
        let bell = membership.bell()?;
        membership
            .events
            .add(bell.as_fd(), Source::Bell)
            .map_err(JoinError::Events)?;
        let region = Region::private(Port::bytes_needed(settings.max_peers))?;
        let config = settings.port_config();
        let port = Port::create(&mut Carver::new(region)?, &config, bell, settings.payload.clone())?;
        Ok(Mesh {
            port,
            membership,
            ring_capacity: settings.ring_capacity,
            empty_calls: 0,
            last_housekeeping_ns: 0,
        })
    }

    /// Shakes hands with the nodes that are there until all have answered, or `timeout` has passed.
    /// Returns `true` if no answer is awaited any more.
    pub fn settle(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            self.housekeeping();
            if !self.membership.is_shaking_hands() {
                return true;
            }
            if !self.membership.wait(deadline) {
                return false;
            }
        }
    }

    /// Tells in which memory payload may lie that peers read in place. Peers that are
    /// connected already go on getting copies.
    pub fn attach_payload(&mut self, arenas: Arenas) {
        self.membership.attach_payload(arenas.clone());
        self.port.attach_payload(arenas);
    }

    /// The node's name.
    pub fn name(&self) -> NodeName {
        self.membership.name()
    }

    /// Which life of the node this is: random.
    pub fn incarnation(&self) -> u64 {
        self.membership.incarnation()
    }

    /// The nodes this one knows of, connected or not.
    pub fn peers(&self) -> Vec<PeerInfo> {
        let mut peers = self.port.peers();
        peers.extend(self.membership.others());
        peers
    }

    /// Number of members that frames can be exchanged with now: of a node, each of its shards.
    pub fn connected(&self) -> usize {
        self.port.connected()
    }

    /// Number of nodes that frames can be exchanged with now.
    pub fn nodes(&self) -> usize {
        self.port.nodes()
    }

    /// Counters of the membership so far: how the mesh got to know other nodes.
    pub fn statistics(&self) -> MembershipStatistics {
        self.membership.statistics()
    }

    /// Counters of frames that were not sent, by the reason.
    pub fn port_statistics(&self) -> PortStatistics {
        self.port.statistics()
    }

    /// The claim of an address that was refused last, if any was.
    pub fn conflict(&self) -> Option<Conflict> {
        self.port.conflict()
    }

    /// How the last peer was lost.
    pub fn last_loss(&self) -> Option<Loss> {
        self.membership.last_loss()
    }

    /// The most bytes of memory that this node provides for each peer. They are shared memory and
    /// private memory. Shared memory takes up pages as the ring is first walked through. The peer
    /// provides as much by its own settings.
    pub fn memory_per_peer(&self) -> usize {
        peer::memory(self.ring_capacity)
    }

    /// Does what has come up. Costs two system calls if nothing has.
    fn housekeeping(&mut self) {
        // A ring that comes now is for a sleep that is over.
        self.port.take_rings();
        self.membership.housekeeping();
        self.agree();
    }

    /// Makes membership and port agree on the peers.
    #[cold]
    pub(super) fn agree(&mut self) {
        loop {
            if let Some(change) = self.membership.next_change() {
                self.apply(change);
            } else if let Some(departed) = self.port.departed() {
                self.membership.let_go(departed);
            } else {
                return;
            }
        }
    }

    fn apply(&mut self, change: Change) {
        let joined = match &change {
            Change::Joined(joined) => Some((joined.slot, joined.generation)),
            Change::Left { .. } => None,
        };
        let applied = self.port.apply(change);
        if let (Err(error), Some((slot, generation))) = (applied, joined)
            && !error.is_offence()
        {
            self.membership.disconnect(slot, generation);
        }
    }
}

impl Transmitter for Mesh {
    #[inline]
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let sent = self.port.transmit(frame);
        if sent.is_err() && self.port.has_departed() {
            self.agree();
        }
        sent
    }

    fn fence(&self, destination: [u8; 6], flow: &Flow) -> Fence {
        self.port.fence(destination, flow)
    }

    fn passed(&self, fence: Fence) -> bool {
        self.port.passed(fence)
    }

    #[inline]
    fn payload_arena(&self) -> ArenaId {
        self.port.payload_arena()
    }
}

impl Link for Mesh {
    fn capabilities(&self) -> Capabilities {
        self.port.capabilities()
    }

    fn address(&self) -> [u8; 6] {
        self.port.address()
    }

    #[inline]
    fn receive(&mut self, now_ns: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        let frames = self.port.receive(now_ns, budget, handler);
        if self.port.has_departed() {
            self.agree();
        }
        self.empty_calls = if frames == 0 { self.empty_calls + 1 } else { 0 };
        let since_ns = now_ns.wrapping_sub(self.last_housekeeping_ns);
        if since_ns >= HOUSEKEEPING_NS || self.empty_calls >= HOUSEKEEPING_CALLS {
            self.empty_calls = 0;
            self.last_housekeeping_ns = now_ns;
            self.housekeeping();
        }
        frames
    }

    fn look_ahead(&mut self, most: usize, see: &mut dyn FnMut(&Received<'_>)) {
        self.port.look_ahead(most, see);
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        !self.port.has_departed() && self.port.is_quiet()
    }

    #[inline]
    fn flush(&mut self) {
        self.port.flush();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.membership.descriptor())
    }

    fn prepare_sleep(&mut self) -> bool {
        self.port.prepare_sleep()
    }

    fn finish_sleep(&mut self, now_ns: u64) {
        self.port.finish_sleep(now_ns);
        self.last_housekeeping_ns = now_ns;
        self.housekeeping();
    }

    fn next_change(&mut self) -> Option<NeighborChange> {
        self.port.next_change()
    }

    fn watch(&self, watch: &mut Watch) -> bool {
        self.port.watch(watch)
    }
}
