//! The link: sending, receiving, sleeping.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use toehold_shm::PayloadArea;
use toehold_shm::ring::{ReserveError, fence_before_sleep};

use super::acquaintance::Acquaintances;
use super::changes::Changes;
use super::directory::{Directory, Place};
use super::events::{Events, Source};
use super::handshake::{Handshake, Identity, SharedPayload};
use super::name::NodeName;
use super::peer::{self, Peer};
use super::position::Position;
use super::record::{MAX_LINK_HEADER, MIN_FRAME, Private};
use super::settings::{JoinError, MeshSettings};
use super::slots::Slots;
use super::statistics::{Loss, MeshStatistics, PeerInfo, PeerState};
use super::table::{Table, pack};
use crate::{Capabilities, Fence, Link, NeighborChange, Received, Transmit, TransmitError, Transmitter};

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
    pub(super) identity: Identity,
    capabilities: Capabilities,
    pub(super) table: Table,
    /// Peers that frames were put into the rings of since the last flush.
    pub(super) sent: Slots,
    /// Peers that were given room since the last flush.
    pub(super) released: Slots,
    /// Position among the peers where the next round begins.
    first: usize,
    private: Box<Private>,
    empty_calls: u32,
    last_housekeeping_ns: u64,

    pub(super) directory: Directory,
    pub(super) listener: OwnedFd,
    pub(super) events: Events,
    pub(super) handshakes: Vec<Handshake>,
    pub(super) last_handshake: u32,
    pub(super) acquaintances: Acquaintances,
    /// When to accept again after having run out of descriptors.
    pub(super) listening_from_ns: Option<u64>,
    pub(super) statistics: MeshStatistics,
    pub(super) last_loss: Option<Loss>,
    pub(super) changes: Changes,
    /// Housekeeping has a clock of its own: the driver's may be any.
    origin: Instant,
    pub(super) now_ns: u64,
    /// Its drop removes the socket's file; last, when nobody can dial any more.
    _place: Place,
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
        settings.check()?;
        let identity = Identity::new(settings)?;
        let directory = Directory::open(&settings.directory)?;
        let events = Events::new().map_err(JoinError::Events)?;
        let (listener, place) = directory.take(&settings.name)?;
        events
            .add(listener.as_fd(), Source::Listener)
            .map_err(JoinError::Events)?;
        let mut acquaintances = Acquaintances::new(identity.incarnation);
        // Whoever comes later finds this node's socket and dials it.
        for name in directory
            .names()
            .into_iter()
            .filter(|name| *name != settings.name)
        {
            acquaintances.found(name, 0);
        }
        Ok(Mesh {
            capabilities: settings.capabilities(),
            table: Table::new(settings.max_peers),
            sent: Slots::default(),
            released: Slots::default(),
            first: 0,
            private: Box::new([0; size_of::<Private>()]),
            empty_calls: 0,
            last_housekeeping_ns: 0,
            identity,
            directory,
            listener,
            events,
            handshakes: Vec::new(),
            last_handshake: 0,
            acquaintances,
            listening_from_ns: None,
            statistics: MeshStatistics::default(),
            last_loss: None,
            changes: Changes::default(),
            origin: Instant::now(),
            now_ns: 0,
            _place: place,
        })
    }

    /// Shakes hands with the nodes that are there until all have answered, or
    /// `timeout` has passed. True: nobody is awaited any more.
    pub fn settle(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            self.housekeeping();
            if !self.is_shaking_hands() {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.arm_timer();
            let left = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let descriptor = self.events.descriptor();
            let _ = poll(
                &mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)],
                Some(&left),
            );
        }
    }

    /// Tells which memory frames may be sent by reference to. Peers that are
    /// connected already go on getting copies.
    ///
    /// # Errors
    ///
    /// If the memory has no descriptor that can be handed over.
    pub fn attach_payload(&mut self, area: PayloadArea) -> Result<(), JoinError> {
        self.identity.payload = Some(SharedPayload::new(area).map_err(JoinError::Payload)?);
        Ok(())
    }

    /// The node's name.
    pub fn name(&self) -> NodeName {
        self.identity.name
    }

    /// Which life of the node this is: random.
    pub fn incarnation(&self) -> u64 {
        self.identity.incarnation
    }

    /// The nodes this one knows of, connected or not.
    pub fn peers(&self) -> Vec<PeerInfo> {
        let connected = self.table.iter().map(|peer| PeerInfo {
            name: peer.name,
            state: PeerState::Connected {
                mac: peer.mac,
                incarnation: peer.incarnation,
                same_user: peer.same_user,
                statistics: peer.statistics,
            },
        });
        let others = self
            .acquaintances
            .iter()
            .filter(|known| self.table.by_name(&known.name).is_none());
        let others = others.map(|known| {
            let dialling = self
                .handshakes
                .iter()
                .any(|handshake| handshake.dials(&known.name));
            let away = PeerState::Away {
                refusal: known.last_refusal,
            };
            PeerInfo {
                name: known.name,
                state: if dialling { PeerState::Dialling } else { away },
            }
        });
        connected.chain(others).collect()
    }

    /// Number of nodes that frames can be exchanged with now.
    pub fn connected(&self) -> usize {
        self.table.iter().filter(|peer| !peer.is_gone()).count()
    }

    /// What the mesh has done so far.
    pub fn statistics(&self) -> MeshStatistics {
        self.statistics
    }

    /// How the last peer was lost.
    pub fn last_loss(&self) -> Option<Loss> {
        self.last_loss
    }

    /// Bytes of memory that this node provides for each peer, at most: shared
    /// memory, which takes up pages as the ring is first walked through, and
    /// private memory. The peer provides as much by its own settings.
    pub fn memory_per_peer(&self) -> usize {
        peer::memory(self.identity.ring_capacity)
    }

    pub(super) fn elapsed_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    #[cold]
    fn replicate(&mut self, frame: &Transmit<'_>) {
        for position in 0..self.table.len() {
            let Some(slot) = self.table.live(position) else {
                return;
            };
            let Some(peer) = self.table.get_mut(slot) else {
                continue;
            };
            match peer.send(frame, None) {
                Ok(()) => self.sent.insert(slot),
                // A peer that broke the rules is cut off when next spoken to alone.
                Err(_) => peer.statistics.group_frames_dropped += 1,
            }
        }
    }

    #[cold]
    fn not_sent(&mut self, slot: u8, error: ReserveError) -> TransmitError {
        match error {
            ReserveError::Full => {
                if let Some(peer) = self.table.get_mut(slot) {
                    peer.statistics.full += 1;
                }
                TransmitError::Full
            }
            ReserveError::TooLong => {
                self.statistics.bad_length += 1;
                TransmitError::TooLong
            }
            ReserveError::Corrupt(corrupt) => {
                if let Some(name) = self.table.get(slot).map(|peer| peer.name) {
                    self.cut_off(slot, Loss::Ring(name, corrupt));
                }
                TransmitError::Unreachable
            }
        }
    }

    /// One round over the peers. Returns how many frames there were.
    #[inline]
    fn poll_peers(&mut self, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        let peers = self.table.len();
        let mut frames = 0;
        let mut lost = None;
        if self.first >= peers {
            self.first = 0;
        }
        let mut position = self.first;
        for _ in 0..peers {
            let Some(slot) = self.table.live(position) else {
                break;
            };
            if let Some(peer) = self.table.get_mut(slot) {
                let polled = peer.poll(budget - frames, &mut self.private, handler);
                if polled.frames != 0 {
                    self.released.insert(slot);
                    frames += polled.frames;
                }
                if let Some(loss) = polled.loss {
                    lost = Some((slot, loss));
                }
            }
            position = if position + 1 == peers { 0 } else { position + 1 };
            if frames >= budget {
                break;
            }
        }
        self.first = position;
        match lost {
            None => {}
            Some((slot, Loss::HungUp(name))) => self.lose(slot, name),
            Some((slot, loss)) => self.cut_off(slot, loss),
        }
        frames
    }

    /// Wakes peers that wait for room they were given.
    #[inline]
    fn wake_starving(&mut self) {
        for slot in self.released.take() {
            if let Some(peer) = self.table.get_mut(slot) {
                peer.wake_if_starving();
            }
        }
    }

    fn end_sleep(&mut self) {
        self.table.iter_mut().for_each(Peer::finish_sleep);
    }
}

impl Transmitter for Mesh {
    #[inline]
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let len = frame.len();
        let Capabilities { mtu, super_frame, .. } = self.capabilities;
        let packet = if frame.offload.segment_size == 0 {
            usize::from(mtu)
        } else {
            super_frame as usize
        };
        let destination = match frame.headers.first_chunk::<6>() {
            Some(destination) if (MIN_FRAME..=packet + MAX_LINK_HEADER).contains(&len) => *destination,
            _ => {
                self.statistics.bad_length += 1;
                return Err(TransmitError::TooLong);
            }
        };
        if destination[0] & 1 == 1 {
            self.replicate(frame);
            return Ok(());
        }
        let Some(slot) = self.table.route(destination) else {
            self.statistics.unreachable += 1;
            return Err(TransmitError::Unreachable);
        };
        let Mesh { table, identity, .. } = self;
        let Some(peer) = table.get_mut(slot) else {
            return Err(TransmitError::Unreachable);
        };
        match peer.send(frame, identity.payload.as_ref().map(|shared| &shared.area)) {
            Ok(()) => {
                self.sent.insert(slot);
                Ok(())
            }
            Err(error) => Err(self.not_sent(slot, error)),
        }
    }

    fn fence(&self, destination: [u8; 6]) -> Fence {
        let peer = self
            .table
            .find(pack(destination))
            .and_then(|slot| Some((slot, self.table.get(slot)?)));
        match peer {
            Some((slot, peer)) if peer.shares_payload => Position {
                slot,
                generation: self.table.generation(slot),
                bytes: peer.producer.position(),
            }
            .encode(),
            // Only copies of payload went there, or nothing did.
            _ => Fence::default(),
        }
    }

    fn passed(&self, fence: Fence) -> bool {
        let marked = Position::decode(fence);
        if marked.generation == 0 || self.table.generation(marked.slot) != marked.generation {
            return true;
        }
        match self.table.get(marked.slot) {
            Some(peer) => marked.is_reached_by(peer.producer.consumed_now()),
            None => true,
        }
    }
}

impl Link for Mesh {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn address(&self) -> [u8; 6] {
        self.identity.mac
    }

    #[inline]
    fn receive(&mut self, now_ns: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        self.changes.take_unannounced();
        // Only if the driver did not flush after the last round.
        self.wake_starving();
        let frames = self.poll_peers(budget, handler);
        self.empty_calls = if frames == 0 { self.empty_calls + 1 } else { 0 };
        let since_ns = now_ns.wrapping_sub(self.last_housekeeping_ns);
        if since_ns >= HOUSEKEEPING_NS || self.empty_calls >= HOUSEKEEPING_CALLS {
            self.empty_calls = 0;
            self.last_housekeeping_ns = now_ns;
            self.housekeeping();
        }
        frames
    }

    #[inline]
    fn flush(&mut self) {
        for slot in self.sent.take() {
            if let Some(peer) = self.table.get_mut(slot) {
                peer.publish();
            }
        }
        self.wake_starving();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.descriptor())
    }

    fn prepare_sleep(&mut self) -> bool {
        self.flush();
        if self.changes.take_unannounced() {
            return false;
        }
        self.table.iter_mut().for_each(Peer::announce_sleep);
        let fenced = self.table.len() == 0 || fence_before_sleep();
        if !fenced || !self.table.iter_mut().all(Peer::confirm_sleep) {
            self.end_sleep();
            return false;
        }
        self.now_ns = self.elapsed_ns();
        self.arm_timer();
        true
    }

    fn finish_sleep(&mut self, now_ns: u64) {
        self.end_sleep();
        self.last_housekeeping_ns = now_ns;
        self.housekeeping();
    }

    fn next_change(&mut self) -> Option<NeighborChange> {
        self.changes.next()
    }
}
