//! A peer's memory as one process of the node maps it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use toehold_shm::ring::{PeerSection, Rings, Section, SectionError, connect};
use toehold_shm::{Access, Change, Process, Region, RegionError};

use super::bell;
use super::change::PeerDescriptors;
use super::peer::Peer;
use super::record::PayloadView;
use super::state::{PeerRecord, State};

/// What a process needs besides the node's region to exchange frames with a peer. A forked
/// child has its parent's, and can go on with it ([`Port::take_over`](super::Port::take_over)).
#[derive(Debug)]
pub struct Mapping {
    pub(super) slot: u16,
    /// Which occupant of its slot it belongs to.
    pub(super) generation: u32,
    pub(super) rings: Rings,
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
    /// What was handed over is not what the peer gave when it joined.
    #[error("the memory is not the peer's")]
    Mismatch,
    /// A ring's memory cannot be mapped.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// The payload memory cannot be mapped.
    #[error("the peer's payload memory cannot be mapped: {0}")]
    Payload(#[from] RegionError),
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
        let own = Section::attach(descriptors.own_section)?;
        let peer = PeerSection::open(descriptors.peer_section, record.ring_capacity)?;
        let same = (peer.incarnation(), peer.capacity()) == (record.incarnation, record.ring_capacity);
        if !same || descriptors.payload.is_some() != record.gives_payload() {
            return Err(MapError::Mismatch);
        }
        let payload = descriptors.payload.map(|descriptor| {
            let mut region = Region::open(descriptor, Access::ReadOnly)?;
            region.close_fd();
            PayloadView::new(region, record.payload_offset, record.payload_len).ok_or(MapError::Mismatch)
        });
        Ok(Mapping {
            slot,
            generation: record.generation,
            rings: connect(own, peer),
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
    /// The epoch at which all live peers were mapped, and no others.
    complete_at: Option<u64>,
}

impl Mappings {
    pub(super) fn new(max_peers: usize) -> Mappings {
        Mappings {
            slots: std::iter::repeat_with(|| None).take(max_peers).collect(),
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

    /// The same of a slot's record.
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

    /// A live peer without a mapping.
    pub(super) fn missing(&self, state: &State) -> Option<(u16, u16)> {
        if self.are_complete(state) {
            return None;
        }
        let mut peers = state.iter();
        let (slot, record) = peers.find(|(slot, record)| self.get(*slot, record.generation).is_none())?;
        Some((slot, record.generation as u16))
    }

    /// Whether all live peers were mapped, and no other, since somebody last joined or left.
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
