//! Another member, with the rings to and from it.

use toehold_shm::Gather;
use toehold_shm::ring::segment::{Inbound, Outbound, Segment, SendError, Sight};
use zerocopy::{FromZeros, IntoBytes};

use super::record::{FRAME, PREFACE, Preface};
use super::{IvshmemPeerInfo, IvshmemPeerStatistics};
use crate::random::unpredictable;
use crate::{Offload, Received, Transmit, TransmitError};

/// Time without sessions for a member that broke the rules, in nanoseconds.
const PENANCE_NS: u64 = 100_000_000;
/// Time until another offer replaces an unanswered one, in nanoseconds.
const OFFER_NS: u64 = 100_000_000;
/// Longest time for which a member may leave frames before the session begins anew,
/// in nanoseconds. If its memory was overwritten, the member no longer sees them.
const STUCK_NS: u64 = 1_000_000_000;

/// The result of taking a frame from a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Frame,
    /// An invalid record was skipped.
    Malformed,
    BadLength,
    /// The ring is empty.
    Nothing,
    /// The ring is invalid, and its session is over.
    Broken,
}

#[derive(Debug)]
pub(super) struct Peer {
    member: usize,
    /// The peer's current life, or 0.
    life: u64,
    pub(super) address: [u8; 6],
    outbound: Outbound,
    inbound: Inbound,
    /// Whether frames were sent that the peer cannot see yet.
    unpublished: bool,
    /// Earliest time of the next offer.
    not_before_ns: u64,
    /// The peer's position in the frames sent to it, and since when.
    behind: Option<u64>,
    behind_ns: u64,
    statistics: IvshmemPeerStatistics,
}

impl Peer {
    pub(super) fn new(segment: &Segment, own: usize, member: usize) -> Peer {
        Peer {
            member,
            life: 0,
            address: [0; 6],
            outbound: segment.outbound(own, member),
            inbound: segment.inbound(member, own),
            unpublished: false,
            not_before_ns: 0,
            behind: None,
            behind_ns: 0,
            statistics: IvshmemPeerStatistics::default(),
        }
    }

    pub(super) fn member(&self) -> usize {
        self.member
    }

    pub(super) fn is_present(&self) -> bool {
        self.life != 0
    }

    pub(super) fn info(&self) -> IvshmemPeerInfo {
        IvshmemPeerInfo {
            member: self.member,
            address: self.address,
            is_connected: self.outbound.is_open() && self.inbound.is_open(),
            statistics: self.statistics,
        }
    }

    /// Returns whether the peer's life has begun, changed or ended.
    pub(super) fn differs(&self, seen: Option<Sight>) -> bool {
        seen.map_or(0, |seen| seen.present) != self.life
    }

    /// Begins with a new life of the peer.
    pub(super) fn begin(&mut self, seen: Sight) {
        self.life = seen.present;
        self.address = address_of(seen.identity);
    }

    /// Ends with the peer's life.
    pub(super) fn end(&mut self) {
        self.life = 0;
        self.outbound.end();
        self.inbound.end();
        (self.unpublished, self.not_before_ns) = (false, 0);
    }

    /// Offers and accepts sessions. `own` is this member's current life.
    pub(super) fn update_sessions(&mut self, own: u64, now_ns: u64) {
        if self.outbound.attend(own, self.life) {
            self.unpublished = false;
            self.statistics.sessions += 1;
        }
        let was_open = self.inbound.is_open();
        self.inbound.attend();
        self.statistics.sessions += u64::from(!was_open && self.inbound.is_open());
        if !self.inbound.is_open() && now_ns >= self.not_before_ns {
            self.inbound.offer(unpredictable().max(1), own, self.life);
            self.not_before_ns = now_ns + OFFER_NS;
        }
        let behind = self.outbound.behind();
        if behind != self.behind || behind.is_none() {
            (self.behind, self.behind_ns) = (behind, now_ns);
        } else if now_ns.saturating_sub(self.behind_ns) >= STUCK_NS {
            self.outbound.end();
        }
    }

    pub(super) fn send(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let preface = Preface::new(frame.offload);
        let parts = [preface.as_bytes(), frame.headers];
        match self.outbound.send(FRAME, parts, frame.payload) {
            Ok(()) => {
                self.unpublished = true;
                self.statistics.frames_sent += 1;
                Ok(())
            }
            Err(SendError::Full) => Err(TransmitError::Full),
            Err(SendError::TooLong) => Err(TransmitError::TooLong),
            Err(SendError::Closed) => Err(TransmitError::Unreachable),
        }
    }

    /// Returns whether frames can be sent to the peer.
    pub(super) fn is_open(&self) -> bool {
        self.outbound.is_open()
    }

    pub(super) fn publish(&mut self) {
        if std::mem::take(&mut self.unpublished) {
            self.outbound.publish();
        }
    }

    #[inline]
    pub(super) fn has_next(&self) -> bool {
        self.inbound.has_next()
    }

    /// Passes the next frame on. Its beginning is copied to `private`.
    pub(super) fn take(
        &mut self,
        lengths: &std::ops::RangeInclusive<usize>,
        private: &mut [u8],
        handler: impl FnOnce(&Received<'_>),
    ) -> Taken {
        let Some(mut consumer) = self.inbound.consumer() else {
            return Taken::Nothing;
        };
        let record = match consumer.peek() {
            Ok(Some(record)) => record,
            Ok(None) => return Taken::Nothing,
            Err(_) => return Taken::Broken,
        };
        let mut preface = Preface::new_zeroed();
        record.copy_to(0, preface.as_mut_bytes());
        let len = record.len().saturating_sub(PREFACE);
        let taken = match preface.offload() {
            _ if record.kind() != FRAME => Taken::Malformed,
            None => Taken::Malformed,
            Some(_) if !lengths.contains(&len) => Taken::BadLength,
            Some(offload) => {
                let beginning = len.min(private.len());
                record.copy_to(PREFACE, &mut private[..beginning]);
                let rest = record.slice(PREFACE + beginning, len - beginning);
                hand_over(&private[..beginning], rest, offload, handler);
                self.statistics.frames_received += 1;
                Taken::Frame
            }
        };
        consumer.advance();
        taken
    }

    /// Returns the space of taken frames to the peer.
    pub(super) fn release(&mut self) {
        if let Some(mut consumer) = self.inbound.consumer() {
            // The peer polls, so no wake-up is sent.
            let _ = consumer.release();
        }
    }

    /// Ends the session after an invalid record. A new one may begin after a while.
    pub(super) fn break_off(&mut self, now_ns: u64) {
        self.inbound.end();
        self.not_before_ns = now_ns + PENANCE_NS;
    }
}

fn hand_over(private: &[u8], rest: Gather<'_>, offload: Offload, handler: impl FnOnce(&Received<'_>)) {
    handler(&Received {
        private,
        rest,
        offload,
    });
}

/// Encodes a hardware address as a member's identity.
pub(super) fn identity_of(address: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = address;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

fn address_of(identity: u64) -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = identity.to_le_bytes();
    [a, b, c, d, e, f]
}
