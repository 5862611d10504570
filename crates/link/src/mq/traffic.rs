//! Frames through a port: what a driver of the link calls, and sending.

use std::os::fd::{AsFd, BorrowedFd};

use toehold_shm::ArenaId;
use toehold_shm::ring::ReserveError;

use super::addresses::pack_shard;
use super::peer::{Peer, count};
use super::port::Port;
use super::position::Position;
use super::record::{MAX_LINK_HEADER, MIN_FRAME};
use super::slots::{Slots, next_bit};
use super::state::{Head, Offence, PeerRecord};
use crate::steering::Flow;
use crate::{
    Capabilities, Fence, Link, NeighborChange, Received, Transmit, TransmitError, Transmitter, Watch,
};

impl Port {
    /// To all peers; what comes from beyond this node, to no gateway that is barred to it.
    #[cold]
    fn replicate(&mut self, frame: &Transmit<'_>, from_beyond: bool) {
        for position in 0..self.state.len() {
            let Some(slot) = self.state.live(position) else {
                return;
            };
            if from_beyond && self.is_barred(slot) {
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
        first: u16,
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

    /// Sends a frame to each of the shards, some of which may have no room for it. Returns an error
    /// only if no shard takes it.
    #[cold]
    fn transmit_to_shards(
        &mut self,
        frame: &Transmit<'_>,
        destination: [u8; 6],
    ) -> Result<(), TransmitError> {
        let mut result = Err(TransmitError::Unreachable);
        for slot in self.state.shards_of(destination).iter() {
            let sent = self.transmit_to(frame, slot);
            if result.is_err() {
                result = sent;
            }
        }
        result
    }

    #[inline]
    fn transmit_to(&mut self, frame: &Transmit<'_>, slot: u16) -> Result<(), TransmitError> {
        self.put(frame, slot, true)
    }

    #[inline]
    pub(super) fn put(
        &mut self,
        frame: &Transmit<'_>,
        slot: u16,
        may_refer: bool,
    ) -> Result<(), TransmitError> {
        let begun = self.state.head().sent.contains(slot);
        let arenas = self.payload.as_ref().filter(|_| may_refer);
        let sent = match self.mappings.peer(&mut self.state, slot) {
            Some(mut peer) => {
                if arenas.is_some() {
                    self.last_arena = peer.record.arena;
                }
                peer.send_in_burst(frame, self.config.mac, arenas, begun)
            }
            // Another process has to, or this process a little later.
            None => Err(ReserveError::Full),
        };
        match sent {
            Ok(()) => {
                if !begun {
                    let head = self.state.head_mut();
                    head.sent.insert(slot);
                    head.activity.note(slot);
                }
                Ok(())
            }
            Err(error) => Err(self.not_sent(slot, error)),
        }
    }

    #[cold]
    fn not_sent(&mut self, slot: u16, error: ReserveError) -> TransmitError {
        match error {
            ReserveError::Full => {
                if let Some(record) = self.state.get_mut(slot) {
                    count(&mut record.statistics.full, 1);
                }
                // Its room is awaited.
                self.state.rouse(slot);
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

    /// Does something with each live peer of a set, and removes it from the set. Peers that this
    /// process has not mapped stay in the set for another process.
    #[inline(always)]
    fn drain(&mut self, set: impl Fn(&mut Head) -> &mut Slots, action: impl FnMut(&mut Peer<'_>)) {
        if set(self.state.head_mut()).is_empty() {
            return;
        }
        self.drain_filled(set, action);
    }

    #[inline]
    fn drain_filled(&mut self, set: impl Fn(&mut Head) -> &mut Slots, mut action: impl FnMut(&mut Peer<'_>)) {
        let mut filled = set(self.state.head_mut()).take_filled();
        while let Some(word) = next_bit(&mut filled) {
            let mut bits = set(self.state.head_mut()).take_word(word);
            let mut left = 0;
            while let Some(bit) = next_bit(&mut bits) {
                let slot = (word * 64 + bit) as u16;
                if let Some(mut peer) = self.mappings.peer(&mut self.state, slot) {
                    action(&mut peer);
                } else if self.state.get(slot).is_some_and(PeerRecord::is_live) {
                    left |= 1 << bit;
                }
            }
            if left != 0 {
                set(self.state.head_mut()).put_word(word, left);
            }
        }
    }

    /// Wakes peers that wait for room they were given.
    #[inline]
    fn wake_starving(&mut self) {
        self.drain(|head| &mut head.released, |peer| peer.wake_if_starving());
    }
}

impl Transmitter for Port {
    #[inline]
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        self.last_arena = ArenaId::PRIVATE;
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
        if from_beyond && self.is_barred(slot) {
            count(&mut self.state.head_mut().statistics.unreachable, 1);
            return Err(TransmitError::Unreachable);
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
        // A process that has not mapped the peer cannot tell.
        self.mappings
            .get(marked.slot, generation)
            .is_some_and(|mapping| marked.is_reached_by(mapping.rings.consumed_now()))
    }

    #[inline]
    fn payload_arena(&self) -> ArenaId {
        self.last_arena
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

    fn look_ahead(&mut self, most: usize, see: &mut dyn FnMut(&Received<'_>)) {
        self.see_ahead(most, see);
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        self.mappings.are_complete(&self.state) && self.state.head().unannounced == 0 && self.has_nothing()
    }

    #[inline]
    fn flush(&mut self) {
        self.drain(|head| &mut head.sent, |peer| peer.publish());
        self.wake_starving();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    /// Prepares a sleep. Returns `false` also while there is a peer that this process has not
    /// mapped.
    fn prepare_sleep(&mut self) -> bool {
        self.flush();
        self.mappings.sweep(&self.state);
        self.announce_sleep()
    }

    fn finish_sleep(&mut self, _: u64) {
        self.end_sleep();
        self.take_rings();
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
