//! A peer's memory as one process of the node maps it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use toehold_shm::ring::{PeerSection, Rings, Section, SectionError, connect};
use toehold_shm::{Access, Change, Process, Region, RegionError};

use super::bell;
use super::change::PeerDescriptors;
use super::peer::Peer;
use super::record::PayloadView;
use super::settings::MAX_PAYLOAD;
use super::state::{PeerRecord, State};

/// A peer's memory as a process maps it, which it needs besides the node's region to exchange
/// frames with the peer. A forked child has its parent's, and can go on with it
/// ([`Port::take_over`](super::Port::take_over)).
#[derive(Debug)]
pub struct Mapping {
    pub(super) slot: u16,
    /// Which occupant of its slot it belongs to.
    pub(super) generation: u32,
    pub(super) rings: Rings,
    /// The arena of what this node sends to the peer.
    pub(super) own_payload: Option<Arc<Region>>,
    /// The peer's payload memory.
    pub(super) payload: Option<PayloadView>,
    pub(super) doorbell: OwnedFd,
}

/// Why a process could not map a peer's memory.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The peer has left, or another one has its slot.
    #[error("there is no such peer any more")]
    Gone,
    /// The descriptors that this node's engine handed over do not belong to the peer.
    #[error("the memory is not the peer's")]
    Mismatch,
    /// This process cannot map memory: its own section, or for lack of address space.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// The peer has changed the memory that it handed over when it joined.
    #[error("the peer has changed the memory that it had handed over")]
    Changed,
}

impl MapError {
    /// Whether the peer broke a rule, so that no process of this node can map its memory.
    pub fn is_offence(&self) -> bool {
        matches!(self, MapError::Changed)
    }

    /// Why memory that a peer had handed over, and that was checked then, cannot be mapped.
    fn of_peer(error: SectionError) -> MapError {
        match error {
            SectionError::Region(RegionError::Map { .. }) => MapError::Section(error),
            _ => MapError::Changed,
        }
    }
}

impl Mapping {
    /// The peer's slot and generation.
    pub fn peer(&self) -> (u16, u16) {
        (self.slot, self.generation as u16)
    }

    /// Checks everything again: a peer can change what it wrote into its section.
    pub(super) fn new(
        slot: u16,
        record: &PeerRecord,
        descriptors: PeerDescriptors,
    ) -> Result<Mapping, MapError> {
        let expected = descriptors.expected(record.shares_payload(), record.gives_payload());
        let descriptors = expected.ok_or(MapError::Mismatch)?;
        let own = Section::attach(descriptors.own_section)?;
        // So is told what is another peer's from what a peer has changed.
        if own.number() != u64::from(slot) {
            return Err(MapError::Mismatch);
        }
        let peer = PeerSection::open(descriptors.peer_section, record.ring_capacity);
        let peer = peer.map_err(MapError::of_peer)?;
        if (peer.incarnation(), peer.capacity()) != (record.incarnation, record.ring_capacity) {
            return Err(MapError::Changed);
        }
        let payload = descriptors.payload.map(|descriptor| {
            let region = Region::open_within(descriptor, Access::ReadOnly, MAX_PAYLOAD);
            let mut region = region.map_err(|error| MapError::of_peer(error.into()))?;
            region.close_fd();
            PayloadView::new(region, record.payload_offset, record.payload_len).ok_or(MapError::Changed)
        });
        let own_payload = descriptors.own_payload.map(|descriptor| {
            let mut region = Region::open(descriptor, Access::ReadWrite)?;
            region.close_fd();
            Ok::<_, SectionError>(Arc::new(region))
        });
        Ok(Mapping {
            slot,
            generation: record.generation,
            rings: connect(own, peer),
            own_payload: own_payload.transpose()?,
            payload: payload.transpose()?,
            doorbell: descriptors.doorbell,
        })
    }

    /// Wakes the peer.
    pub(super) fn ring(&self) {
        bell::ring(self.doorbell.as_fd(), self.rings.number() as u16);
    }
}

/// A process's mappings, by slot.
#[derive(Debug)]
pub(super) struct Mappings {
    slots: Vec<Option<Arc<Mapping>>>,
    /// By slot, the occupant that this process could not map; 0: none.
    skipped: Vec<u32>,
    /// The epoch at which all live peers were mapped, and no others.
    complete_at: Option<u64>,
}

impl Mappings {
    pub(super) fn new(max_peers: usize) -> Mappings {
        Mappings {
            slots: std::iter::repeat_with(|| None).take(max_peers).collect(),
            skipped: vec![0; max_peers],
            complete_at: None,
        }
    }

    /// The mapping of the slot's occupant of this generation.
    #[inline]
    pub(super) fn get(&self, slot: u16, generation: u32) -> Option<&Mapping> {
        let mapping = self.slots.get(usize::from(slot))?.as_deref()?;
        (mapping.generation == generation).then_some(mapping)
    }

    /// The peer in a slot, if it is live and mapped.
    #[inline]
    pub(super) fn peer<'a>(&'a self, state: &'a mut State, slot: u16) -> Option<Peer<'a>> {
        self.peer_of(state.get_mut(slot)?, slot)
    }

    /// The peer of a slot's record, if it is live and mapped.
    #[inline]
    pub(super) fn peer_of<'a>(&'a self, record: &'a mut PeerRecord, slot: u16) -> Option<Peer<'a>> {
        if !record.is_live() {
            return None;
        }
        let mapping = self.get(slot, record.generation)?;
        Some(Peer { record, mapping })
    }

    pub(super) fn insert(&mut self, mapping: Arc<Mapping>) {
        let _change = Process::this().map(Change::begin);
        if let Some(place) = self.slots.get_mut(usize::from(mapping.slot)) {
            *place = Some(mapping);
        }
    }

    /// Goes on without a peer that this process cannot map now.
    pub(super) fn skip(&mut self, slot: u16, generation: u16) {
        if let Some(skipped) = self.skipped.get_mut(usize::from(slot)) {
            *skipped = generation.into();
        }
    }

    /// Tries those again. Returns whether there are any.
    pub(super) fn retry(&mut self) -> bool {
        let any = self.skipped.iter().any(|&generation| generation != 0);
        if any {
            self.skipped.fill(0);
            self.complete_at = None;
        }
        any
    }

    fn is_skipped(&self, slot: u16, generation: u32) -> bool {
        self.skipped.get(usize::from(slot)) == Some(&generation)
    }

    /// A live peer without a mapping, but those that are skipped.
    pub(super) fn missing(&self, state: &State) -> Option<(u16, u16)> {
        if self.are_complete(state) {
            return None;
        }
        let mut peers = state.iter();
        let is_missing = |(slot, record): &(u16, &PeerRecord)| {
            let generation = record.generation;
            self.get(*slot, generation).is_none() && !self.is_skipped(*slot, generation)
        };
        let (slot, record) = peers.find(is_missing)?;
        Some((slot, record.generation as u16))
    }

    /// Whether exactly the live peers are mapped or skipped. Stays true until a peer joins or
    /// leaves.
    #[inline]
    pub(super) fn are_complete(&self, state: &State) -> bool {
        self.complete_at == Some(state.head().epoch)
    }

    /// Lets go of the memory of peers that have left, if any has.
    #[inline]
    pub(super) fn sweep(&mut self, state: &State) {
        if !self.are_complete(state) {
            self.sweep_all(state);
        }
    }

    #[cold]
    fn sweep_all(&mut self, state: &State) {
        let _change = Process::this().map(Change::begin);
        for (slot, place) in self.slots.iter_mut().enumerate() {
            let record = state.get(slot as u16).filter(|record| record.is_live());
            let generation = record.map(|record| record.generation);
            if place
                .as_ref()
                .is_some_and(|mapping| generation != Some(mapping.generation))
            {
                *place = None;
            }
        }
        if self.missing(state).is_none() {
            self.complete_at = Some(state.head().epoch);
        }
    }
}
