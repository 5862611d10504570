//! The records of loss recovery: one for each segment in flight, and one for each connection with
//! segments in flight. A super-frame is one segment.

use toehold_shm::NONE;
use toehold_wire::tcp::Seq;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::congestion::Prr;
use super::pcb::Pcb;
use crate::time::Instant;

const SACKED: u32 = 1 << 0;
const LOST: u32 = 1 << 1;
const RETRANSMITTED: u32 = 1 << 2;
const PUSHED: u32 = 1 << 3;

/// A segment in flight.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Sent {
    /// When it was last sent.
    pub(super) xmit: Instant,
    pub(super) start: Seq,
    /// The number behind its last byte, including a FIN.
    pub(super) end: Seq,
    pub(super) next: u32,
    flags: u32,
}

impl Sent {
    /// The record of a segment that is sent for the first time, at `now`.
    pub(super) fn new(now: Instant, (start, end): (Seq, Seq), pushed: bool) -> Self {
        Self {
            xmit: now,
            start,
            end,
            next: NONE,
            flags: if pushed { PUSHED } else { 0 },
        }
    }

    /// Splits the record at `seq`, and returns the second part.
    pub(super) fn split(&mut self, seq: Seq) -> Self {
        debug_assert!(self.start.lt(seq) && seq.lt(self.end));
        let second = Self { start: seq, ..*self };
        self.end = seq;
        self.flags &= !PUSHED;
        second
    }

    pub(super) fn len(&self) -> u32 {
        self.end.distance(self.start)
    }

    pub(super) fn is_sacked(&self) -> bool {
        self.flags & SACKED != 0
    }

    pub(super) fn is_lost(&self) -> bool {
        self.flags & LOST != 0
    }

    pub(super) fn is_retransmitted(&self) -> bool {
        self.flags & RETRANSMITTED != 0
    }

    /// Whether its last byte ends pushed data, or a record.
    pub(super) fn is_pushed(&self) -> bool {
        self.flags & PUSHED != 0
    }

    pub(super) fn mark_sacked(&mut self) {
        self.flags = (self.flags | SACKED) & !LOST;
    }

    pub(super) fn mark_lost(&mut self) {
        self.flags |= LOST;
    }

    /// Notes a retransmission at `now`.
    pub(super) fn mark_retransmitted(&mut self, now: Instant) {
        self.flags = (self.flags | RETRANSMITTED) & !LOST;
        self.xmit = now;
    }

    pub(super) fn clear_marks(&mut self) {
        self.flags &= RETRANSMITTED | PUSHED;
    }
}

/// State of loss detection and recovery for a connection. It exists only while segments are in
/// flight, or a tail loss probe is not judged yet.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Flight {
    /// Transmission time of the segment most recently sent among those
    /// delivered (RFC 8985 §5.2 RACK.xmit_ts).
    pub(super) rack_xmit: Instant,
    /// Round trip of that segment, nanoseconds.
    pub(super) rack_rtt_ns: u64,
    /// End of that segment (RACK.end_seq).
    pub(super) rack_end: Seq,
    /// Highest sequence number that the peer reported by SACK, if any.
    pub(super) highest_sacked: Seq,
    /// Repair ends when this is acknowledged.
    pub(super) recover: Seq,
    /// `snd_nxt` when the tail loss probe was sent.
    pub(super) tail_probe_end: Seq,
    /// Bytes in flight when the tail loss probe was sent.
    pub(super) tail_probe_flight: u32,
    /// End of the last segment with PSH.
    pub(super) pushed: Seq,
    /// End of the last segment of less than full size, see `segmentation`.
    pub(super) small_end: Seq,
    /// Timestamp value of the first retransmission of this repair (RFC 3522); 0: none.
    pub(super) repair_ts: u32,
    /// 1 once an acknowledgement has shown whether this repair was needed.
    pub(super) judged: u16,
    /// 1 once a segment was retransmitted in this repair.
    pub(super) repaired: u16,
    pub(super) prr: Prr,
    /// Most bytes in flight at once since the data before `peak_end` were sent.
    pub(super) peak: u32,
    pub(super) peak_end: Seq,
}

impl Flight {
    pub(super) fn new(start: Seq) -> Self {
        Self {
            rack_xmit: Instant(0),
            rack_rtt_ns: 0,
            rack_end: start,
            highest_sacked: start,
            recover: start,
            tail_probe_end: start,
            tail_probe_flight: 0,
            pushed: start,
            small_end: start,
            repair_ts: 0,
            judged: 0,
            repaired: 0,
            prr: Prr::new(0, 0),
            peak: 0,
            peak_end: start,
        }
    }

    /// Handles the delivery of a segment, which may be the latest sent so far.
    //= RFC 8985 §6.2 (steps 1 and 2)
    #[inline]
    pub(super) fn rack_update(&mut self, now: Instant, pcb: &Pcb, record: &Sent) {
        let rtt = now.nanos_since(record.xmit);
        if record.is_retransmitted() && rtt < pcb.rtt.min_ns() {
            // The original arrived, most likely, not the retransmission.
            return;
        }
        // As on Linux, the round trip is that of the last segment examined. An acknowledgement
        // delayed by a gap then does not make other segments look lost.
        self.rack_rtt_ns = rtt;
        if record.xmit > self.rack_xmit || (record.xmit == self.rack_xmit && record.end.gt(self.rack_end)) {
            self.rack_xmit = record.xmit;
            self.rack_end = record.end;
        }
    }
}
