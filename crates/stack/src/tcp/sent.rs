//! Records of the segments in flight: a list per connection in order of
//! sequence, empty when the connection is idle. A super-frame is one record.

use toehold_shm::{NONE, Steps};
use toehold_wire::tcp::Seq;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::ack::Progress;
use super::congestion::Prr;
use super::pcb::{Pcb, Repair};
use super::{Tcp, flag};
use crate::time::Instant;

const SACKED: u32 = 1 << 0;
const LOST: u32 = 1 << 1;
const RETRANSMITTED: u32 = 1 << 2;
const PUSHED: u32 = 1 << 3;

/// A segment in flight.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Sent {
    /// When it was last sent.
    pub(super) xmit: Instant,
    pub(super) start: Seq,
    /// The number behind its last byte, including a FIN.
    pub(super) end: Seq,
    pub(super) next: u32,
    flags: u32,
}

impl Sent {
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
pub(super) struct Flight {
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
    fn new(start: Seq) -> Self {
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
}

impl Tcp {
    /// A connection with segments in flight, and its flight record.
    #[inline]
    pub(super) fn flying(&mut self, index: u32) -> (&mut Pcb, &mut Flight) {
        let pcb = &mut self.pcbs[index];
        let flight = &mut self.flights[pcb.flight];
        (pcb, flight)
    }

    /// Frees the flight record when no segment is left in flight. The result of the last tail loss
    /// probe may show only afterwards.
    #[inline]
    pub(super) fn drop_empty_flight(&mut self, index: u32) {
        let pcb = &mut self.pcbs[index];
        let is_judged = !pcb.has(flag::TAIL_PROBE_OUT);
        if pcb.sent_head == NONE && pcb.flight != NONE && pcb.repair() == Repair::Open && is_judged {
            self.flights.remove(pcb.flight);
            pcb.flight = NONE;
            pcb.sacked = 0;
        }
    }

    /// Notes that `start..end` was sent for the first time. Returns `false` without memory for it.
    #[inline]
    pub(super) fn push_sent(
        &mut self,
        now: Instant,
        index: u32,
        (start, end): (Seq, Seq),
        pushed: bool,
    ) -> bool {
        let Some(new) = self.sent.insert(Sent {
            xmit: now,
            start,
            end,
            next: NONE,
            flags: if pushed { PUSHED } else { 0 },
        }) else {
            return false;
        };
        let pcb = &mut self.pcbs[index];
        if pcb.flight == NONE {
            // There is one for every connection.
            pcb.flight = self.flights.insert(Flight::new(start)).unwrap_or(NONE);
            self.count_flight(now, index);
        }
        let pcb = &mut self.pcbs[index];
        let tail = std::mem::replace(&mut pcb.sent_tail, new);
        if tail == NONE {
            pcb.sent_head = new;
        } else {
            self.sent[tail].next = new;
        }
        true
    }

    /// Retransmitted segments in flight whose loss or delivery was not reported since.
    pub(crate) fn retransmitted_in_flight(&self, index: u32) -> u32 {
        let (mut at, mut segments) = (self.pcbs[index].sent_head, 0_u32);
        let mss = u32::from(self.pcbs[index].mss).max(1);
        let mut steps = Steps::along(self.sent.capacity());
        while at != NONE {
            steps.count();
            let record = &self.sent[at];
            if record.is_retransmitted() && !record.is_sacked() && !record.is_lost() {
                segments = segments.saturating_add(record.len().div_ceil(mss));
            }
            at = record.next;
        }
        segments
    }

    /// Whether another record can be created.
    #[inline]
    pub(super) fn sent_available(&self) -> bool {
        self.sent.len() < self.sent.capacity()
    }

    /// Splits a record at `seq`. Returns `false` without memory for it.
    pub(super) fn split_sent(&mut self, index: u32, at: u32, seq: Seq) -> bool {
        let mut second = self.sent[at];
        debug_assert!(second.start.lt(seq) && seq.lt(second.end));
        second.start = seq;
        let Some(new) = self.sent.insert(second) else {
            return false;
        };
        let first = &mut self.sent[at];
        first.end = seq;
        first.next = new;
        first.flags &= !PUSHED;
        if self.pcbs[index].sent_tail == at {
            self.pcbs[index].sent_tail = new;
        }
        true
    }

    /// Removes records below `ack`, and updates estimates from them.
    #[inline]
    pub(super) fn release_sent(&mut self, now: Instant, index: u32, ack: Seq, progress: &mut Progress) {
        let mut steps = Steps::along(self.sent.capacity());
        let pcb = &mut self.pcbs[index];
        while pcb.sent_head != NONE {
            let at = pcb.sent_head;
            steps.count();
            let record = &mut self.sent[at];
            if record.start.ge(ack) {
                return;
            }
            let mut delivered = *record;
            if record.end.gt(ack) {
                record.start = ack;
                delivered.end = ack;
                account_delivered(now, pcb, &mut self.flights[pcb.flight], &delivered, progress);
                return;
            }
            account_delivered(now, pcb, &mut self.flights[pcb.flight], &delivered, progress);
            pcb.sent_head = delivered.next;
            if delivered.next == NONE {
                pcb.sent_tail = NONE;
            }
            self.sent.remove(at);
        }
    }

    /// Marks a record lost, once.
    pub(super) fn mark_lost(&mut self, index: u32, at: u32) {
        let record = &mut self.sent[at];
        if record.is_lost() || record.is_sacked() {
            return;
        }
        record.mark_lost();
        let len = record.len();
        let pcb = &mut self.pcbs[index];
        pcb.lost = pcb.lost.wrapping_add(len);
    }

    /// Drops every record.
    pub(super) fn drop_sent(&mut self, index: u32) {
        let pcb = &mut self.pcbs[index];
        let mut at = std::mem::replace(&mut pcb.sent_head, NONE);
        pcb.sent_tail = NONE;
        pcb.sacked = 0;
        pcb.lost = 0;
        let mut steps = Steps::along(self.sent.capacity());
        while at != NONE {
            steps.count();
            let next = self.sent[at].next;
            self.sent.remove(at);
            at = next;
        }
        self.pcbs[index].set_repair(Repair::Open);
        self.pcbs[index].clear(flag::TAIL_PROBE_OUT);
        self.drop_empty_flight(index);
    }
}

/// Accounts for a record that was delivered cumulatively.
#[inline]
fn account_delivered(
    now: Instant,
    pcb: &mut Pcb,
    flight: &mut Flight,
    record: &Sent,
    progress: &mut Progress,
) {
    let len = record.len();
    if record.is_sacked() {
        pcb.sacked = pcb.sacked.wrapping_sub(len);
        return;
    }
    if record.is_lost() {
        pcb.lost = pcb.lost.wrapping_sub(len);
    }
    progress.delivered = progress.delivered.wrapping_add(len);
    progress.repaired |= record.is_retransmitted();
    //= RFC 6298 §3 (Karn: no samples from segments sent more than once)
    if !record.is_retransmitted() && progress.rtt_ns.is_none() {
        progress.rtt_ns = Some(now.nanos_since(record.xmit));
    }
    let below = progress
        .highest_before
        .is_some_and(|highest| record.end.lt(highest));
    if below && !record.is_retransmitted() {
        progress.reordered = true;
        pcb.set(flag::REORDERING);
    }
    flight.rack_update(now, pcb, record);
}
