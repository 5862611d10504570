//! The link over a segment: frames to and from all other members.

mod membership;

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use toehold_shm::ring::segment::Segment;

use super::liveness::Liveness;
use super::peer::{Peer, Taken};
use super::{IvshmemError, IvshmemPeerInfo, IvshmemSettings, IvshmemStatistics};
use crate::address_table::AddressTable;
use crate::{
    Capabilities, Link, MIN_PRIVATE, NeighborChange, Received, Transmit, TransmitError, Transmitter,
};

/// Longest IP packet.
const MAX_PACKET: usize = 65_535;
/// Longest header before an IP packet: Ethernet with two VLAN tags.
const MAX_LINK_HEADER: usize = 22;
/// Shortest frame: its Ethernet header.
const MIN_FRAME: usize = 14;
/// Most frames from one member before the next one's turn.
const TURN: usize = 16;
/// Bounds of a pause between two polls, in nanoseconds. With the longest, an idle
/// member uses less than a hundredth of a processor. The shortest is about the cost
/// of a pause.
const LONGEST_PAUSE_NS: u64 = 4_000_000;
const SHORTEST_PAUSE_NS: u64 = 20_000;
/// A link to the other members of a segment.
#[derive(Debug)]
pub struct IvshmemLink {
    segment: Segment,
    address: [u8; 6],
    mtu: u16,
    /// The only acceptable number, if the settings name one.
    wanted: Option<usize>,
    /// The current number, if the link has one.
    member: Option<usize>,
    /// The current life of this member.
    life: u64,
    /// All other members, present or not.
    peers: Vec<Peer>,
    /// Hardware addresses learnt behind the peers, by index in `peers`.
    learned: AddressTable,
    liveness: Liveness,
    /// Index of the peer whose turn is next.
    next: usize,
    private: Box<[u8; MIN_PRIVATE]>,
    changes: VecDeque<NeighborChange>,
    statistics: IvshmemStatistics,
    now_ns: u64,
    tick_ns: u64,
    beat_ns: u64,
    age_ns: u64,
    /// When the last frame was sent or received.
    carried_ns: u64,
}

impl IvshmemLink {
    /// Becomes a member. Takes seconds if it has to make sure that another member
    /// is gone.
    ///
    /// # Errors
    ///
    /// If the settings are impossible, the memory is not available, or no number is
    /// free.
    pub fn open(settings: &IvshmemSettings) -> Result<IvshmemLink, IvshmemError> {
        settings.check()?;
        let segment = Segment::open(&settings.path, settings.size, settings.members, settings.part)?;
        let members = segment.members();
        if let Some(member) = settings.member.filter(|&member| member >= members) {
            return Err(IvshmemError::NoSuchMember { member, members });
        }
        let longest = segment.max_record() - super::record::PREFACE;
        if longest < usize::from(settings.mtu) + MAX_LINK_HEADER {
            return Err(IvshmemError::TooSmall {
                mtu: settings.mtu,
                longest,
            });
        }
        let mut link = IvshmemLink {
            address: settings.address,
            mtu: settings.mtu,
            wanted: settings.member,
            member: None,
            life: 0,
            peers: Vec::new(),
            learned: AddressTable::default(),
            liveness: Liveness::new(members),
            next: 0,
            private: Box::new([0; MIN_PRIVATE]),
            changes: VecDeque::new(),
            statistics: IvshmemStatistics::default(),
            now_ns: 0,
            tick_ns: 0,
            beat_ns: 0,
            age_ns: 0,
            carried_ns: 0,
            segment,
        };
        link.join()?;
        Ok(link)
    }

    /// The number in the segment; `None` just after losing it.
    pub fn member(&self) -> Option<usize> {
        self.member
    }

    /// The link's counters.
    pub fn statistics(&self) -> IvshmemStatistics {
        self.statistics
    }

    /// The present other members.
    pub fn peers(&self) -> impl Iterator<Item = IvshmemPeerInfo> {
        self.peers.iter().filter(|peer| peer.is_present()).map(Peer::info)
    }

    /// Permitted lengths of a received frame in bytes.
    fn lengths(&self) -> RangeInclusive<usize> {
        MIN_FRAME..=self.super_frame() + MAX_LINK_HEADER
    }

    /// Length in bytes of the longest packet that a ring takes.
    fn super_frame(&self) -> usize {
        let room = self.segment.max_record() - super::record::PREFACE - MAX_LINK_HEADER;
        room.min(MAX_PACKET)
    }

    /// Sends a frame to all members. A full member does not hold up others.
    fn replicate(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let mut reached = false;
        for peer in self.peers.iter_mut().filter(|peer| peer.is_open()) {
            match peer.send(frame) {
                Ok(()) => reached = true,
                Err(_) => self.statistics.group_frames_dropped += 1,
            }
        }
        if !reached {
            self.statistics.unreachable += 1;
            return Err(TransmitError::Unreachable);
        }
        self.carried_ns = self.now_ns;
        Ok(())
    }

    /// Returns the member that has an address, or behind which it was seen.
    fn find(&self, address: [u8; 6]) -> Option<usize> {
        let own = |peer: &Peer| peer.is_present() && peer.address == address;
        self.peers
            .iter()
            .position(own)
            .or_else(|| self.learned.find(address))
    }

    /// Passes a member's frames on, one turn at most.
    fn take_turn(&mut self, index: usize, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        let lengths = self.lengths();
        let mut frames = 0;
        for _ in 0..budget.min(TURN) {
            let mut source = None;
            let taken = self.peers[index].take(&lengths, &mut self.private[..], |frame| {
                source = frame.private.get(6..).and_then(<[u8]>::first_chunk).copied();
                handler(frame);
            });
            match taken {
                Taken::Frame => frames += 1,
                Taken::Malformed => self.statistics.malformed += 1,
                Taken::BadLength => self.statistics.bad_length += 1,
                Taken::Nothing => break,
                Taken::Broken => {
                    self.statistics.broken += 1;
                    self.peers[index].break_off(self.now_ns);
                    break;
                }
            }
            if let Some(source) = source {
                self.learn(source, index);
            }
        }
        self.peers[index].release();
        frames
    }

    /// Notes the peer behind an address. Members' own addresses are known.
    fn learn(&mut self, source: [u8; 6], index: usize) {
        let is_member = self
            .peers
            .iter()
            .any(|peer| peer.is_present() && peer.address == source);
        if source[0] & 1 == 0 && !is_member && !self.learned.learn(source, index, self.now_ns) {
            self.statistics.not_learned += 1;
        }
    }
}

impl Transmitter for IvshmemLink {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let packet = match frame.offload.segment_size {
            0 => usize::from(self.mtu),
            _ => self.super_frame(),
        };
        let destination = match frame.headers.first_chunk::<6>() {
            Some(destination) if (MIN_FRAME..=packet + MAX_LINK_HEADER).contains(&frame.len()) => {
                *destination
            }
            _ => {
                self.statistics.bad_length += 1;
                return Err(TransmitError::TooLong);
            }
        };
        if destination[0] & 1 == 1 {
            // Without receivers a multicast frame counts as sent.
            let _ = self.replicate(frame);
            return Ok(());
        }
        let Some(index) = self.find(destination) else {
            self.statistics.flooded += 1;
            return self.replicate(frame);
        };
        let sent = self.peers[index].send(frame);
        match sent {
            Ok(()) => self.carried_ns = self.now_ns,
            Err(TransmitError::Full) => self.statistics.full += 1,
            Err(TransmitError::Unreachable) => self.statistics.unreachable += 1,
            Err(TransmitError::TooLong) => self.statistics.bad_length += 1,
        }
        sent
    }
}

impl Link for IvshmemLink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.mtu,
            super_frame: self.super_frame() as u32,
            checksum_offload: true,
            // The link neither loses nor damages frames, but a sleeping member
            // answers late.
            local: false,
            any_thread: false,
        }
    }

    fn address(&self) -> [u8; 6] {
        self.address
    }

    fn receive(&mut self, now_ns: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        self.now_ns = now_ns;
        self.check_place();
        self.tick();
        let (mut frames, mut idle) = (0, 0);
        // Members take turns until none of them has a frame.
        while frames < budget && idle < self.peers.len() {
            self.next = (self.next + 1) % self.peers.len();
            if !self.peers[self.next].has_next() {
                idle += 1;
                continue;
            }
            let taken = self.take_turn(self.next, budget - frames, handler);
            frames += taken;
            // A member that writes invalid records loses its turn.
            idle = if taken == 0 { idle + 1 } else { 0 };
        }
        if frames != 0 {
            self.carried_ns = now_ns;
        }
        frames
    }

    fn is_quiet(&self) -> bool {
        !self.peers.iter().any(Peer::has_next)
    }

    fn flush(&mut self) {
        // If this member was held up, another one may have its rings by now.
        self.check_place();
        for peer in &mut self.peers {
            peer.publish();
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn longest_sleep(&self) -> Option<Duration> {
        let idle_ns = self.now_ns.saturating_sub(self.carried_ns);
        let pause_ns = (idle_ns / 4).clamp(SHORTEST_PAUSE_NS, LONGEST_PAUSE_NS);
        Some(Duration::from_nanos(pause_ns))
    }

    fn prepare_sleep(&mut self) -> bool {
        self.flush();
        self.is_quiet()
    }

    fn finish_sleep(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    fn next_change(&mut self) -> Option<NeighborChange> {
        self.changes.pop_front()
    }
}

impl Drop for IvshmemLink {
    fn drop(&mut self) {
        if let Some(member) = self.member {
            self.segment.slot(member).leave(self.life);
        }
    }
}
