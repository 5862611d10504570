//! A node's port on its fabric: what frames go through, for every process of the
//! node.
//!
//! Its state lies in the node's region; the holder of the node's lease uses it. A process only
//! keeps its mappings of the peers' memory for itself. It never waits, and knows nothing of how
//! peers come and go but what it is told.

use std::sync::Arc;

use toehold_shm::{ArenaId, Arenas, Carver, OutOfMemory};

use super::bell::Bell;
use super::change::{Change, Departed, Joined, PeerDescriptors};
use super::mapping::{MapError, Mapping, Mappings};
use super::record::Private;
use super::settings::{MAX_PEERS, PortConfig};
use super::state::{Offence, State};
use super::statistics::{Conflict, PeerInfo, PortStatistics};
use crate::Capabilities;

/// A process's handle of its node's port.
///
/// The process that connects the node with others applies their
/// [changes](super::Membership::next_change). Any other process finds [peers that it has not
/// mapped](Port::unmapped), gets their descriptors from that process, and [maps](Port::map) them.
/// In the meantime their frames are left for other processes, and frames for them find the link
/// full.
///
/// All of this, and all that [`Link`](crate::Link) offers, is for the holder of the
/// node's lease.
#[derive(Debug)]
pub struct Port {
    pub(super) state: State,
    pub(super) config: PortConfig,
    pub(super) capabilities: Capabilities,
    pub(super) mappings: Mappings,
    pub(super) bell: Arc<Bell>,
    /// Arenas for what this node sends to peers, if they may read it in place.
    pub(super) payload: Option<Arenas>,
    /// The arena of the peer that a frame was last sent to.
    pub(super) last_arena: ArenaId,
    pub(super) private: Box<Private>,
}

/// Why there is no port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The region is too small.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The number of peers is out of range.
    #[error("{0} is no number of peers; choose 1 to 512")]
    MaxPeers(u32),
    /// The region holds a port that was made differently.
    #[error("the node's port was made with other settings")]
    Mismatch,
}

impl Port {
    /// Bytes that a port for up to `max_peers` peers takes from a region.
    pub fn bytes_needed(max_peers: usize) -> usize {
        State::bytes_needed(max_peers)
    }

    /// Makes a port in a fresh region, or a handle to the one in an attached region.
    /// `bell` is what wakes the node, and `payload` the arenas of what frames may be sent by
    /// reference to.
    ///
    /// # Errors
    ///
    /// If there is no room for it, or a port of another configuration.
    pub fn create(
        carver: &mut Carver,
        config: &PortConfig,
        bell: impl Into<Arc<Bell>>,
        payload: Option<Arenas>,
    ) -> Result<Port, PortError> {
        let bell = bell.into();
        let max_peers = usize::from(config.max_peers);
        if !(1..=MAX_PEERS).contains(&max_peers) {
            return Err(PortError::MaxPeers(config.max_peers.into()));
        }
        let mut state = State::carve(carver, max_peers)?;
        if carver.is_fresh() {
            state.begin(*config);
            state.head_mut().rings_held = bell.held();
        } else if state.head().config != *config {
            return Err(PortError::Mismatch);
        }
        Ok(Port {
            state,
            config: *config,
            capabilities: config.capabilities(),
            mappings: Mappings::new(max_peers),
            bell,
            payload,
            last_arena: ArenaId::PRIVATE,
            private: Box::new([0; size_of::<Private>()]),
        })
    }

    /// Tells the arenas of what frames may be sent by reference to. Peers without one get copies.
    pub fn attach_payload(&mut self, arenas: Arenas) {
        self.payload = Some(arenas);
    }

    /// The slot and generation of a peer that frames can be exchanged with, but not by
    /// this process yet. As long as there is one, this process cannot sleep for the
    /// node.
    pub fn unmapped(&self) -> Option<(u16, u16)> {
        self.mappings.missing(&self.state)
    }

    /// Goes on without a peer that this process cannot map: it may sleep, and the frames of
    /// the peer wait for another process.
    pub fn skip(&mut self, slot: u16, generation: u16) {
        self.mappings.skip(slot, generation);
    }

    /// Has [`Port::unmapped`] name the peers again that were skipped, if there are any.
    pub fn retry_skipped(&mut self) -> bool {
        self.mappings.retry()
    }

    /// Maps the memory of a peer, and says what it has so. A peer that has changed its memory
    /// since it joined is cut off, for all processes of the node.
    ///
    /// # Errors
    ///
    /// If the peer has left in the meantime, the memory cannot be mapped, or it is not
    /// the peer's.
    pub fn map(
        &mut self,
        slot: u16,
        generation: u16,
        descriptors: PeerDescriptors,
    ) -> Result<Arc<Mapping>, MapError> {
        let record = self.state.get(slot).filter(|record| record.is_live());
        let record = record
            .filter(|record| record.generation == u32::from(generation))
            .ok_or(MapError::Gone)?;
        match Mapping::new(slot, record, descriptors) {
            Ok(mapping) => {
                let mapping = Arc::new(mapping);
                self.adopt(&mapping);
                self.mappings.insert(Arc::clone(&mapping));
                Ok(mapping)
            }
            Err(error) => {
                if error.is_offence() {
                    self.dismiss(slot, Some(Offence::Memory));
                }
                Err(error)
            }
        }
    }

    /// Maps a peer's arena as its mapping does.
    fn adopt(&self, mapping: &Mapping) {
        let record = self.state.get(mapping.slot);
        let arena = record.map_or(ArenaId::PRIVATE, |record| record.arena);
        if let (Some(arenas), Some(memory)) = (&self.payload, &mapping.own_payload) {
            arenas.adopt(arena, Arc::clone(memory));
        }
    }

    /// Lets no more payload be put into the arena of a slot's peer.
    fn close_arena(&mut self, slot: u16) {
        if let Some(record) = self.state.get_mut(slot)
            && let arena = std::mem::take(&mut record.arena)
            && let Some(arenas) = &self.payload
        {
            arenas.close(arena);
        }
    }

    /// Goes on with a peer's memory as the process which this one was forked from has mapped
    /// it, unless that peer has left. It has to be of a port of the same node and shard.
    pub fn take_over(&mut self, mapping: &Arc<Mapping>) {
        let record = self.state.get(mapping.slot).filter(|record| record.is_live());
        if record.is_some_and(|record| record.generation == mapping.generation) {
            self.adopt(mapping);
            self.mappings.insert(Arc::clone(mapping));
        }
    }

    /// Takes a peer in that joined, and maps it, or forgets one that left. Only the process that
    /// connects the node calls this, in the order of the changes. Wakes the processes that sleep
    /// for the node, since the sleep was not announced to the new peer.
    ///
    /// # Errors
    ///
    /// If the peer's memory cannot be mapped by this process. The peer has joined for
    /// all others, unless it [broke a rule](MapError::is_offence).
    pub fn apply(&mut self, change: Change) -> Result<(), MapError> {
        let applied = match change {
            Change::Joined(joined) => self.join(*joined),
            Change::Left {
                slot,
                generation,
                at_once,
            } => {
                self.leave(slot, generation, at_once);
                Ok(())
            }
        };
        if self.state.head().sleeping != 0 {
            self.bell.ring();
        }
        applied
    }

    fn join(&mut self, joined: Joined) -> Result<(), MapError> {
        let slot = joined.slot;
        self.close_arena(slot);
        self.state.insert(&joined);
        let mapping = self.map(slot, joined.generation, joined.descriptors)?;
        if let (Some(arenas), Some(memory)) = (&self.payload, &mapping.own_payload)
            && let Some(record) = self.state.get_mut(slot)
        {
            // Without one, the peer gets copies.
            record.arena = arenas.open(Arc::clone(memory)).unwrap_or_default();
        }
        Ok(())
    }

    fn leave(&mut self, slot: u16, generation: u16, at_once: bool) {
        let record = self.state.get(slot);
        if record.is_none_or(|record| record.generation != u32::from(generation)) {
            return;
        }
        let peer = self.mappings.peer(&mut self.state, slot);
        let stays = peer.filter(|_| !at_once).is_some_and(|mut peer| {
            let unread = peer.has_unread();
            if unread {
                peer.record.hang_up();
            }
            unread
        });
        match stays {
            true => self.state.rouse(slot),
            false => self.dismiss(slot, None),
        }
    }

    /// A peer that is done with, told once. Its owner [tells](super::Membership::let_go) the
    /// membership of it, after each change and now and then. The slot can then be used again, and a
    /// peer that broke the rules is cut off.
    pub fn departed(&mut self) -> Option<Departed> {
        let slot = self.state.next_departed()?;
        let record = self.state.get(slot)?;
        Some(Departed {
            slot,
            generation: record.generation as u16,
            offence: record.loss(),
        })
    }

    /// Whether a peer waits to be reported by [`Port::departed`].
    #[inline]
    pub fn has_departed(&self) -> bool {
        !self.state.head().departed.is_empty()
    }

    /// Peers that frames are exchanged with.
    pub fn peers(&self) -> Vec<PeerInfo> {
        self.state.infos()
    }

    /// Number of peers that frames are exchanged with, each of their shards.
    pub fn connected(&self) -> usize {
        self.state.connected().count()
    }

    /// Number of nodes that frames are exchanged with, which may have several shards.
    pub fn nodes(&self) -> usize {
        self.state.nodes()
    }

    /// Whether the peer that has the address leads to others that are no members.
    pub fn leads_on(&self, mac: [u8; 6]) -> bool {
        let gateways = &self.state.head().gateways;
        self.state
            .addresses()
            .of_node(mac)
            .any(|slot| gateways.contains(slot))
    }

    /// The claim of an address that was refused last, if any was.
    pub fn conflict(&self) -> Option<Conflict> {
        self.state.conflict()
    }

    /// Counters of frames that were not sent, by the reason.
    pub fn statistics(&self) -> PortStatistics {
        self.state.head().statistics
    }

    /// No more frames are exchanged with a peer: it is gone, or broke a rule.
    #[cold]
    pub(super) fn dismiss(&mut self, slot: u16, offence: Option<Offence>) {
        self.close_arena(slot);
        self.state.dismiss(slot, offence);
        self.mappings.sweep(&self.state);
    }
}
