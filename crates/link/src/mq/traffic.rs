//! Frames through a port: sending, receiving, sleeping.

use std::os::fd::{AsFd, BorrowedFd};

use toehold_shm::ring::{ReserveError, fence_before_sleep};

use super::peer::{Peer, count};
use super::port::Port;
use super::position::Position;
use super::record::{MAX_LINK_HEADER, MIN_FRAME};
use super::slots::Slots;
use super::state::{Offence, PeerRecord, pack_shard};
use crate::steering::Flow;
use crate::{
    Capabilities, Fence, Link, NeighborChange, Received, Transmit, TransmitError, Transmitter, Watch,
};

impl Port {
    /// To all peers; what comes from beyond this node, to no other gateway.
    #[cold]
    fn replicate(&mut self, frame: &Transmit<'_>, from_beyond: bool) {
        for position in 0..self.state.len() {
            let Some(slot) = self.state.live(position) else {
                return;
            };
            if from_beyond && self.state.head().gateways.contains(slot) {
                continue;
            }
            let peer = self.mappings.peer(&mut self.state, slot);
            let sent = peer.is_some_and(|mut peer| peer.send(frame, self.config.mac, None).is_ok());
            if sent {
                self.state.head_mut().sent.insert(slot);
            } else if let Some(record) = self.state.get_mut(slot) {
                // A peer that broke the rules is dismissed when next spoken to alone.
                count(&mut record.statistics.group_frames_dropped, 1);
            }
        }
    }

    /// Puts a frame into the ring of the shard that it is for. One that is for no shard
    /// alone goes to all of the node's, as group frames go to all nodes.
    #[inline(never)]
    fn transmit_steered(
        &mut self,
        frame: &Transmit<'_>,
        destination: [u8; 6],
        first: u8,
    ) -> Result<(), TransmitError> {
        let Some(flow) = Flow::of_frame(frame.headers) else {
            return self.transmit_to_shards(frame, destination);
        };
        let steering = self
            .state
            .get(first)
            .map(PeerRecord::steering)
            .unwrap_or_default();
        let shard = steering.shard_of(&flow);
        match self.state.find(pack_shard(destination, shard)) {
            Some(slot) => self.transmit_to(frame, slot),
            None => {
                count(&mut self.state.head_mut().statistics.unreachable, 1);
                Err(TransmitError::Unreachable)
            }
        }
    }

    /// What one shard has no room for is dropped, and told if it was the only one.
    #[cold]
    fn transmit_to_shards(
        &mut self,
        frame: &Transmit<'_>,
        destination: [u8; 6],
    ) -> Result<(), TransmitError> {
        let mut result = Err(TransmitError::Unreachable);
        for slot in self.state.shards_of(destination).take() {
            let sent = self.transmit_to(frame, slot);
            if result.is_err() {
                result = sent;
            }
        }
        result
    }

    #[inline]
    fn transmit_to(&mut self, frame: &Transmit<'_>, slot: u8) -> Result<(), TransmitError> {
        self.put(frame, slot, true)
    }

    #[inline]
    pub(super) fn put(
        &mut self,
        frame: &Transmit<'_>,
        slot: u8,
        may_refer: bool,
    ) -> Result<(), TransmitError> {
        let begun = self.state.head().sent.contains(slot);
        let own = self.payload.as_ref().filter(|_| may_refer);
        let sent = match self.mappings.peer(&mut self.state, slot) {
            Some(mut peer) => peer.send_in_burst(frame, self.config.mac, own, begun),
            // Somebody else has to, or this process a little later.
            None => Err(ReserveError::Full),
        };
        match sent {
            Ok(()) => {
                self.state.head_mut().sent.insert(slot);
                Ok(())
            }
            Err(error) => Err(self.not_sent(slot, error)),
        }
    }

    #[cold]
    fn not_sent(&mut self, slot: u8, error: ReserveError) -> TransmitError {
        match error {
            ReserveError::Full => {
                if let Some(record) = self.state.get_mut(slot) {
                    count(&mut record.statistics.full, 1);
                }
                TransmitError::Full
            }
            ReserveError::TooLong => {
                count(&mut self.state.head_mut().statistics.bad_length, 1);
                TransmitError::TooLong
            }
            ReserveError::Corrupt(corrupt) => {
                self.dismiss(slot, Some(Offence::Ring(corrupt)));
                TransmitError::Unreachable
            }
        }
    }

    /// One round over the peers. Returns how many frames there were.
    #[inline]
    fn poll_peers(&mut self, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        let peers = self.state.len();
        let mut frames = 0;
        let mut lost = None;
        let mut position = self.state.head().first as usize;
        if position >= peers {
            position = 0;
        }
        for _ in 0..peers {
            let Some(slot) = self.state.live(position) else {
                break;
            };
            if self.state.head().gateways.contains(slot) {
                let polled = self.poll_gateway(slot, budget - frames, handler);
                frames += polled.frames;
                if polled.offence.is_some() || polled.is_over {
                    lost = Some((slot, polled.offence));
                }
            } else if let Some(mut peer) = self.mappings.peer(&mut self.state, slot) {
                let polled = peer.poll(budget - frames, self.config.mac, &mut self.private, handler);
                let fenced = peer.mapping.rings.is_fenced_for();
                if polled.frames != 0 && !fenced {
                    self.state.head_mut().released.insert(slot);
                }
                frames += polled.frames;
                if polled.offence.is_some() || polled.is_over {
                    lost = Some((slot, polled.offence));
                }
            }
            position = if position + 1 == peers { 0 } else { position + 1 };
            if frames >= budget {
                break;
            }
        }
        if peers > 1 {
            self.state.head_mut().first = position as u32;
        }
        if let Some((slot, offence)) = lost {
            self.dismiss(slot, offence);
        }
        frames
    }

    /// Does something with each live peer of a set. Those that this process has not
    /// mapped are left for another one.
    #[inline]
    fn for_each(&mut self, mut slots: Slots, mut action: impl FnMut(&mut Peer<'_>)) -> Slots {
        let mut left = Slots::default();
        for slot in slots.take() {
            if let Some(mut peer) = self.mappings.peer(&mut self.state, slot) {
                action(&mut peer);
            } else if self.state.get(slot).is_some_and(PeerRecord::is_live) {
                left.insert(slot);
            }
        }
        left
    }

    /// Wakes peers that wait for room they were given.
    #[inline]
    fn wake_starving(&mut self) {
        let released = self.state.head().released;
        if !released.is_empty() {
            self.state.head_mut().released = self.for_each(released, |peer| peer.wake_if_starving());
        }
    }

    fn live_slots(&self) -> Slots {
        let mut slots = Slots::default();
        self.state.iter().for_each(|(slot, _)| slots.insert(slot));
        slots
    }

    /// Takes the announcements back. What another process announced to a peer that
    /// this one has not mapped stands: it is rung once in vain.
    fn end_sleep(&mut self) {
        self.for_each(self.live_slots(), |peer| peer.finish_sleep());
        self.state.head_mut().sleeping = 0;
    }

    /// Whether a change was added that the driver had no reason to ask for yet.
    fn take_unannounced(&mut self) -> bool {
        std::mem::take(&mut self.state.head_mut().unannounced) != 0
    }
}

impl Transmitter for Port {
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
                count(&mut self.state.head_mut().statistics.bad_length, 1);
                return Err(TransmitError::TooLong);
            }
        };
        let mut from_beyond = false;
        if self.config.gateway != 0 {
            let source = frame.headers.get(6..).and_then(<[u8]>::first_chunk).copied();
            from_beyond = source != Some(self.config.mac);
            if from_beyond && !self.may_pass(source) {
                return Ok(());
            }
        }
        if destination[0] & 1 == 1 {
            self.replicate(frame, from_beyond);
            return Ok(());
        }
        let Some(slot) = self.state.route(destination) else {
            return self.transmit_unrouted(frame, from_beyond);
        };
        if from_beyond && self.state.head().gateways.contains(slot) {
            return self.transmit_unrouted(frame, from_beyond);
        }
        if self.state.get(slot).is_some_and(PeerRecord::is_sharded) {
            return self.transmit_steered(frame, destination, slot);
        }
        self.transmit_to(frame, slot)
    }

    fn fence(&self, destination: [u8; 6], flow: &Flow) -> Fence {
        let shard = |shard| {
            let slot = self.state.find(pack_shard(destination, shard))?;
            Some((slot, self.state.get(slot)?))
        };
        let peer = match shard(0) {
            Some((_, record)) if record.is_sharded() => shard(record.steering().shard_of(flow)),
            peer => peer,
        };
        match peer {
            Some((slot, record)) if record.shares_payload() => Position {
                slot,
                generation: record.generation as u16,
                bytes: record.outgoing.position(),
            }
            .encode(),
            // Only copies of payload went there, or nothing did.
            _ => Fence::default(),
        }
    }

    fn passed(&self, fence: Fence) -> bool {
        let marked = Position::decode(fence);
        let generation = u32::from(marked.generation);
        let record = self.state.get(marked.slot).filter(|record| record.is_live());
        if generation == 0 || record.is_none_or(|record| record.generation != generation) {
            return true;
        }
        // Whoever has not mapped the peer cannot tell.
        self.mappings
            .get(marked.slot, generation)
            .is_some_and(|mapping| marked.is_reached_by(mapping.rings.consumed_now()))
    }
}

impl Link for Port {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn address(&self) -> [u8; 6] {
        self.config.mac
    }

    #[inline]
    fn receive(&mut self, _: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        self.mappings.sweep(&self.state);
        self.take_unannounced();
        // Only if the driver did not flush after the last round.
        self.wake_starving();
        self.poll_peers(budget, handler)
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        let is_quiet = |(slot, record): (u8, &PeerRecord)| {
            let mapping = self.mappings.get(slot, record.generation);
            !record.is_gone() && mapping.is_some_and(|mapping| !mapping.rings.has_next(&record.incoming))
        };
        self.mappings.are_complete(&self.state)
            && self.state.head().unannounced == 0
            && self.state.iter().all(is_quiet)
    }

    #[inline]
    fn flush(&mut self) {
        let sent = self.state.head().sent;
        if !sent.is_empty() {
            self.state.head_mut().sent = self.for_each(sent, |peer| peer.publish());
        }
        self.wake_starving();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    /// Also false while there is a peer that this process has not mapped.
    fn prepare_sleep(&mut self) -> bool {
        self.flush();
        self.mappings.sweep(&self.state);
        if self.take_unannounced() || self.unmapped().is_some() {
            return false;
        }
        let slots = self.live_slots();
        let (mut everywhere, mut idle) = (false, true);
        self.for_each(slots, |peer| everywhere |= peer.announce_sleep());
        let fenced = slots.is_empty() || fence_before_sleep(everywhere);
        if fenced {
            self.for_each(slots, |peer| idle &= idle && peer.confirm_sleep());
        }
        if !fenced || !idle {
            self.end_sleep();
            return false;
        }
        self.state.head_mut().sleeping = 1;
        true
    }

    fn finish_sleep(&mut self, _: u64) {
        self.end_sleep();
        self.bell.clear();
    }

    fn next_change(&mut self) -> Option<NeighborChange> {
        self.state.next_change()
    }

    fn watch(&self, watch: &mut Watch) -> bool {
        watch.clear();
        if self.unmapped().is_some() {
            return false;
        }
        for (slot, record) in self.state.iter() {
            let Some(mapping) = self.mappings.get(slot, record.generation) else {
                return false;
            };
            // Room cannot be watched for.
            let place = watch.add().filter(|_| record.wanted == 0);
            let Some(place) = place else {
                watch.clear();
                return false;
            };
            mapping.rings.watch(&record.incoming, place);
        }
        true
    }
}
