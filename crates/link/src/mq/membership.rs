//! A node's membership in a fabric: which nodes are its peers. One process of the node has it, and
//! stands for the node's life. When that process ends, however that happens, all peers see it at
//! once.
//!
//! It never touches rings, and needs no lease: what comes of it is told as
//! [`Change`]s, to be applied to the node's [`Port`](super::Port).

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use toehold_shm::Arenas;

use super::acquaintance::Acquaintances;
use super::bell::{Belfry, Bell};
use super::change::{Change, Departed, PeerDescriptors};
use super::direct::DirectChange;
use super::directory::{Directory, Place};
use super::events::{Events, Source};
use super::handshake::{Handshake, Identity};
use super::identity::Registry;
use super::members::Members;
use super::message::Refusal;
use super::name::{MemberName, NodeName};
use super::quotas::{Caller, Quotas};
use super::settings::{JoinError, MeshSettings};
use super::statistics::{Loss, MembershipStatistics, PeerInfo, PeerState};

/// Bytes of a block as `stat(2)` counts them.
const STAT_BLOCK: u64 = 512;

/// A node's place in a fabric, and its connections with the nodes that are there.
///
/// ```
/// use std::time::Duration;
/// use toehold_link::mq::{Membership, MeshSettings, Port};
/// use toehold_shm::{Carver, Region};
///
/// let fabric = std::env::temp_dir().join(format!("toehold-member-{}", std::process::id()));
/// let settings = MeshSettings::new(&fabric, "alone".parse()?, [2, 0, 0, 0, 0, 1]);
/// let mut membership = Membership::join(&settings)?;
///
/// // The port lies in the node's region, and any of its processes can use it.
/// let region = Region::create("node", Port::bytes_needed(settings.max_peers))?;
/// let mut carver = Carver::new(region)?;
/// let mut port = Port::create(&mut carver, &settings.port_config(), membership.bell()?, None)?;
///
/// // Now and then, and whenever its descriptor is readable:
/// membership.housekeeping();
/// while let Some(change) = membership.next_change() {
///     // With the node's lease.
///     let _ = port.apply(change);
/// }
/// while let Some(departed) = port.departed() {
///     membership.let_go(departed);
/// }
/// membership.leave();
/// # std::fs::remove_dir(&fabric)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Membership {
    pub(super) identity: Identity,
    pub(super) members: Members,
    pub(super) quotas: Quotas,
    pub(super) registry: Option<Registry>,
    /// Not told yet: at most two for each slot, see [`Membership::has_room`].
    pub(super) changes: VecDeque<Change>,
    /// Not told yet: at most one for each message that peers may send, and one for their end.
    pub(super) direct_changes: VecDeque<DirectChange>,
    /// Banks that the owner has room for.
    pub(super) bank_room: usize,
    pub(super) belfry: Belfry,
    pub(super) directory: Directory,
    pub(super) listener: OwnedFd,
    pub(super) events: Events,
    pub(super) handshakes: Vec<Handshake>,
    pub(super) last_handshake: u32,
    pub(super) acquaintances: Acquaintances,
    /// When to accept again after having run out of descriptors.
    pub(super) listening_from_ns: Option<u64>,
    pub(super) statistics: MembershipStatistics,
    last_loss: Option<Loss>,
    /// Housekeeping has a clock of its own.
    origin: Instant,
    pub(super) now_ns: u64,
    /// The node's place, whose drop removes the socket's file. It comes last, when no node can dial
    /// any more.
    _place: Place,
}

impl Membership {
    /// Takes the node's place in the fabric and begins to dial the nodes that
    /// are there.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, the name is taken, or the system refuses
    /// files or descriptors.
    pub fn join(settings: &MeshSettings) -> Result<Membership, JoinError> {
        settings.check()?;
        let identity = Identity::new(settings)?;
        let mut directory = Directory::open(&settings.directory)?;
        let events = Events::new().map_err(JoinError::Events)?;
        let (listener, place) = directory.take(&settings.member())?;
        let belfry = Belfry::new(directory.handle()).map_err(JoinError::Bell)?;
        events
            .add(listener.as_fd(), Source::Listener)
            .map_err(JoinError::Events)?;
        let mut acquaintances = Acquaintances::new(identity.incarnation);
        // A node that joins later finds this node's socket and dials it.
        for name in directory
            .names()
            .into_iter()
            .filter(|name| name.node != settings.name)
        {
            acquaintances.found(name, 0);
        }
        let mut membership = Membership {
            members: Members::new(settings.max_peers),
            quotas: settings.quotas,
            registry: settings.registry.clone(),
            changes: VecDeque::new(),
            direct_changes: VecDeque::new(),
            bank_room: usize::MAX,
            identity,
            belfry,
            directory,
            listener,
            events,
            handshakes: Vec::new(),
            last_handshake: 0,
            acquaintances,
            listening_from_ns: None,
            statistics: MembershipStatistics::default(),
            last_loss: None,
            origin: Instant::now(),
            now_ns: 0,
            _place: place,
        };
        // A thread that sleeps before its first housekeeping is woken to dial.
        membership.arm_timer();
        Ok(membership)
    }

    /// Leaves the fabric: peers see it at once. So they do when this process dies.
    pub fn leave(self) {}

    /// Does the work that is due: answers, dials, notices which peers are gone. Costs one system
    /// call if there is none. Never waits.
    pub fn housekeeping(&mut self) {
        self.now_ns = self.elapsed_ns();
        self.resume_listening();
        for source in self.events.take() {
            match source {
                Source::Listener => self.accept(),
                Source::Timer => self.events.set_timer(None),
                Source::Handshake(id) => self.continue_handshake(id),
                Source::Peer { slot, generation } => {
                    if self.members.of_generation(slot, generation).is_some() {
                        self.hear(slot);
                        self.notice_hang_up(slot);
                    }
                }
                // Its owner clears it.
                Source::Bell => {}
            }
        }
        self.end_late_handshakes();
        self.dial_due();
        self.arm_timer();
    }

    /// Becomes readable when there is housekeeping to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.events.descriptor()
    }

    /// The next peer that came or went since housekeeping was done.
    pub fn next_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// Shakes hands with the nodes that are there until all have answered, or `timeout` has passed.
    /// Returns `true` if no answer is awaited any more.
    pub fn settle(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            self.housekeeping();
            if !self.is_shaking_hands() {
                return true;
            }
            if !self.wait(deadline) {
                return false;
            }
        }
    }

    /// Waits until there is housekeeping to do. Returns `false` if the time is over.
    pub(super) fn wait(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut state = [PollFd::from_borrowed_fd(self.descriptor(), PollFlags::IN)];
        let _ = poll(&mut state, Some(&timeout));
        !left.is_zero()
    }

    /// Gives each peer that joins from now on an arena of its own, for frames that are sent by
    /// reference.
    pub fn attach_payload(&mut self, arenas: Arenas) {
        self.identity.payload = Some(arenas);
    }

    /// A handle of the node's bell, for a process of the node, with a sender of its own.
    ///
    /// # Errors
    ///
    /// If there are no descriptors left.
    pub fn bell(&self) -> Result<Bell, JoinError> {
        self.belfry.bell().map_err(JoinError::Bell)
    }

    /// The descriptors that another process of the node needs to exchange frames with a peer;
    /// `None` if the peer has left.
    ///
    /// # Errors
    ///
    /// If there are no descriptors left.
    pub fn descriptors(&self, slot: u16, generation: u16) -> Result<Option<PeerDescriptors>, Errno> {
        let member = self.members.of_generation(slot, generation);
        member.map(|member| member.descriptors.try_clone()).transpose()
    }

    /// Bytes of memory that the rings to all peers take up at present: those pages that
    /// something was written to. A peer that could be, and is not, takes none.
    pub fn memory(&self) -> u64 {
        let members = self.members.all(|_| true).into_iter();
        let members = members.filter_map(|slot| self.members.get(slot));
        let sections = members.map(|member| rustix::fs::fstat(&member.descriptors.own_section));
        // One that cannot be asked is not there.
        let blocks = sections.map(|section| section.map_or(0, |section| section.st_blocks as u64));
        blocks.sum::<u64>() * STAT_BLOCK
    }

    /// The node's name.
    pub fn name(&self) -> NodeName {
        self.identity.name.node
    }

    /// Which life of the node this is: random.
    pub fn incarnation(&self) -> u64 {
        self.identity.incarnation
    }

    /// The nodes this one knows of and is not connected with.
    pub fn others(&self) -> Vec<PeerInfo> {
        let known = self.acquaintances.iter();
        let others = known.filter(|known| self.members.connected().all(|member| member.name != known.name));
        let info = others.map(|known| {
            let dialling = self
                .handshakes
                .iter()
                .any(|handshake| handshake.dials(&known.name));
            let away = PeerState::Away {
                refusal: known.last_refusal,
            };
            PeerInfo {
                name: known.name.node,
                shard: known.name.shard,
                state: if dialling { PeerState::Dialling } else { away },
            }
        });
        info.collect()
    }

    /// Number of nodes that this one is connected with.
    pub fn connected(&self) -> usize {
        self.members.connected().count()
    }

    /// Counters of the membership so far.
    pub fn statistics(&self) -> MembershipStatistics {
        self.statistics
    }

    /// How the last peer was lost.
    pub fn last_loss(&self) -> Option<Loss> {
        self.last_loss
    }

    /// Lets go of a peer that the port is done with. One that broke the rules is kept
    /// away for a while that grows with every offence. Its slot is free for others, and
    /// a new life of the node may be waiting for that.
    pub fn let_go(&mut self, departed: Departed) {
        let Departed {
            slot,
            generation,
            offence,
        } = departed;
        let Some(name) = self.name_of(slot, generation) else {
            return;
        };
        self.remove(slot, offence.unwrap_or(Loss::HungUp(name.node)));
        if offence.is_some() {
            self.statistics.corrupt += 1;
            self.acquaintances.offended(name, self.now_ns);
        } else {
            self.statistics.lost += 1;
            self.acquaintances.lost(name, self.now_ns);
        }
        self.answer_waiting(&name.node);
        self.arm_timer();
    }

    /// Closes the connection with a peer that this node cannot keep, for lack of
    /// memory. It is made again a little later.
    pub fn disconnect(&mut self, slot: u16, generation: u16) {
        if let Some(name) = self.name_of(slot, generation) {
            self.dismiss(slot, Loss::Disconnected(name.node));
            self.acquaintances.lost(name, self.now_ns);
            self.arm_timer();
        }
    }

    fn name_of(&self, slot: u16, generation: u16) -> Option<MemberName> {
        let member = self.members.of_generation(slot, generation);
        member.map(|member| member.name)
    }

    /// Whether there is room for another peer. Not while its owner does not ask for
    /// changes.
    pub(super) fn has_room(&self) -> bool {
        self.members.vacancy().is_some() && self.changes.len() < 2 * MeshSettings::MAX_PEERS
    }

    /// Returns an error if a process may have no more peers.
    pub(super) fn admit(&self, caller: &Caller) -> Result<(), Refusal> {
        let (slots, own) = (self.members.slots(), self.identity.uid);
        if !self.quotas.admit(slots, self.members.callers(), own, caller) {
            return Err(Refusal::Quota);
        }
        Ok(())
    }

    /// If a peer has hung up: tells the port to take what is left, and keeps the slot
    /// until it has.
    pub(super) fn notice_hang_up(&mut self, slot: u16) {
        let Some(generation) = self.members.generation(slot) else {
            return;
        };
        let Some(member) = self.members.get_mut(slot) else {
            return;
        };
        if member.gone || member.is_connected() {
            return;
        }
        member.gone = true;
        self.events.remove(member.control.as_fd());
        self.part(slot);
        self.changes.push_back(Change::Left {
            slot,
            generation,
            at_once: false,
        });
    }

    /// Makes an end with a peer, whatever it has sent.
    pub(super) fn dismiss(&mut self, slot: u16, loss: Loss) {
        if let Some(generation) = self.remove(slot, loss) {
            self.changes.push_back(Change::Left {
                slot,
                generation,
                at_once: true,
            });
        }
    }

    fn remove(&mut self, slot: u16, loss: Loss) -> Option<u16> {
        self.part(slot);
        let (generation, member) = self.members.remove(slot)?;
        self.events.remove(member.control.as_fd());
        self.last_loss = Some(loss);
        Some(generation)
    }

    /// Sets the timer for whatever is due next.
    fn arm_timer(&mut self) {
        let deadlines = self.handshakes.iter().map(|handshake| handshake.deadline_ns);
        let due = deadlines
            .chain(self.acquaintances.next_attempt_ns())
            .chain(self.listening_from_ns)
            .min();
        self.events
            .set_timer(due.map(|due| Duration::from_nanos(due.saturating_sub(self.now_ns))));
    }

    /// Whether a node is being dialled or answered.
    pub(super) fn is_shaking_hands(&self) -> bool {
        !self.handshakes.is_empty()
            || self
                .acquaintances
                .next_attempt_ns()
                .is_some_and(|at| at <= self.now_ns)
    }

    fn elapsed_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}
