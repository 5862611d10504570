//! The scoreboard of loss recovery: the segments in flight of all connections.
//!
//! Each connection has a list of its segments in order of sequence, which is empty when the
//! connection is idle. Its control block names the first and the last of them. The name is that of
//! RFC 6675 §3.

use core::ops::{Index, IndexMut};

use toehold_shm::{Carver, NONE, OutOfMemory, Slab, Steps};
use toehold_wire::tcp::Seq;

use super::pcb::{Pcb, Repair, flag};
use super::progress::Progress;
use super::sent::{Flight, Sent};
use crate::time::Instant;

/// Records of segments in flight, and of connections that have any.
pub(crate) struct Scoreboard {
    pub(super) sent: Slab<Sent>,
    pub(super) flights: Slab<Flight>,
}

impl Index<u32> for Scoreboard {
    type Output = Sent;

    #[inline]
    fn index(&self, at: u32) -> &Sent {
        &self.sent[at]
    }
}

impl IndexMut<u32> for Scoreboard {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut Sent {
        &mut self.sent[at]
    }
}

/// Records of segments for this many connections: two each on average, with a floor for few
/// connections on long paths.
fn capacity(connections: u32) -> u32 {
    connections.saturating_mul(2).max(1 << 14)
}

impl Scoreboard {
    pub(super) fn bytes_needed(connections: u32) -> usize {
        Slab::<Sent>::bytes_needed(capacity(connections)) + Slab::<Flight>::bytes_needed(connections)
    }

    pub(super) fn create(carver: &mut Carver, connections: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            sent: carver.slab(capacity(connections))?,
            flights: carver.slab(connections)?,
        })
    }

    /// The flight record of a connection that has one.
    #[inline]
    pub(super) fn flight_mut(&mut self, pcb: &Pcb) -> &mut Flight {
        &mut self.flights[pcb.flight]
    }

    /// Counts the steps along one connection's list.
    #[inline]
    pub(super) fn steps(&self) -> Steps {
        Steps::along(self.sent.capacity())
    }

    /// Whether another record can be created.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.sent.len() < self.sent.capacity()
    }

    /// Most bytes in flight at once in the last round trip.
    #[inline]
    pub(super) fn peak(&self, pcb: &Pcb) -> u32 {
        self.flights.get(pcb.flight).map_or(0, |flight| flight.peak)
    }

    /// The highest sequence number the peer has reported, if any above the left edge.
    pub(super) fn highest_sacked(&self, pcb: &Pcb) -> Option<Seq> {
        let reported = pcb.sacked > 0 && pcb.flight != NONE && pcb.has(flag::SACK);
        reported.then(|| self.flights[pcb.flight].highest_sacked)
    }

    /// Whether sending up to `end` would exceed half of the largest window since the last PSH.
    //= RFC 9293 §3.9.1 (a sender may push of its own accord)
    pub(super) fn fills_half_window(&self, pcb: &Pcb, end: Seq) -> bool {
        let pushed = match self.flights.get(pcb.flight) {
            Some(flight) => flight.pushed,
            None => pcb.snd_nxt,
        };
        end.after(pushed) > pcb.max_snd_wnd / 2
    }

    /// Whether a tail loss probe is in flight and the data it repeats are not acknowledged.
    pub(super) fn tail_probe_flies(&self, pcb: &Pcb) -> bool {
        pcb.has(flag::TAIL_PROBE_OUT) && self.flights[pcb.flight].tail_probe_end.gt(pcb.snd_una)
    }

    /// Whether a segment of less than full size is in flight.
    #[inline]
    pub(super) fn small_flies(&self, pcb: &Pcb) -> bool {
        pcb.sent_head != NONE && !self.flights[pcb.flight].small_end.le(pcb.snd_una)
    }

    /// Frees the flight record when no segment is left in flight. The result of the last tail loss
    /// probe may show only afterwards.
    #[inline]
    pub(super) fn drop_empty_flight(&mut self, pcb: &mut Pcb) {
        let is_judged = !pcb.has(flag::TAIL_PROBE_OUT);
        if pcb.sent_head == NONE && pcb.flight != NONE && pcb.repair() == Repair::Open && is_judged {
            self.flights.remove(pcb.flight);
            pcb.flight = NONE;
            pcb.sacked = 0;
        }
    }

    /// Notes that `start..end` was sent for the first time. Returns `false` without memory for it.
    #[inline]
    pub(super) fn push(
        &mut self,
        now: Instant,
        pcb: &mut Pcb,
        (start, end): (Seq, Seq),
        pushed: bool,
    ) -> bool {
        let Some(new) = self.sent.insert(Sent::new(now, (start, end), pushed)) else {
            return false;
        };
        if pcb.flight == NONE {
            // There is one for every connection.
            pcb.flight = self.flights.insert(Flight::new(start)).unwrap_or(NONE);
        }
        let tail = std::mem::replace(&mut pcb.sent_tail, new);
        if tail == NONE {
            pcb.sent_head = new;
        } else {
            self.sent[tail].next = new;
        }
        true
    }

    /// Retransmitted segments in flight whose loss or delivery was not reported since.
    pub(crate) fn retransmitted_in_flight(&self, pcb: &Pcb) -> u32 {
        let (mut at, mut segments) = (pcb.sent_head, 0_u32);
        let mss = u32::from(pcb.mss).max(1);
        let mut steps = self.steps();
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

    /// Splits a record at `seq`. Returns `false` without memory for it.
    pub(super) fn split(&mut self, pcb: &mut Pcb, at: u32, seq: Seq) -> bool {
        let mut first = self.sent[at];
        let second = first.split(seq);
        let Some(new) = self.sent.insert(second) else {
            return false;
        };
        first.next = new;
        self.sent[at] = first;
        if pcb.sent_tail == at {
            pcb.sent_tail = new;
        }
        true
    }

    /// Removes records below `ack`, and updates estimates from them.
    #[inline]
    pub(super) fn release(&mut self, now: Instant, pcb: &mut Pcb, ack: Seq, progress: &mut Progress) {
        let mut steps = self.steps();
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
    pub(super) fn mark_lost(&mut self, pcb: &mut Pcb, at: u32) {
        let record = &mut self.sent[at];
        if record.is_lost() || record.is_sacked() {
            return;
        }
        record.mark_lost();
        pcb.lost = pcb.lost.wrapping_add(record.len());
    }

    /// Marks the chosen records lost.
    pub(super) fn mark_lost_where(&mut self, pcb: &mut Pcb, is_chosen: impl Fn(&Sent) -> bool) {
        let mut at = pcb.sent_head;
        let mut steps = self.steps();
        while at != NONE {
            steps.count();
            let record = self.sent[at];
            if is_chosen(&record) {
                self.mark_lost(pcb, at);
            }
            at = record.next;
        }
    }

    /// Clears the marks of the chosen records.
    pub(super) fn clear_marks_where(&mut self, pcb: &Pcb, is_chosen: impl Fn(&Sent) -> bool) {
        let mut at = pcb.sent_head;
        let mut steps = self.steps();
        while at != NONE {
            steps.count();
            let record = &mut self.sent[at];
            if is_chosen(record) {
                record.clear_marks();
            }
            at = record.next;
        }
    }

    /// Drops every record of a connection.
    pub(super) fn drop_all(&mut self, pcb: &mut Pcb) {
        let mut at = std::mem::replace(&mut pcb.sent_head, NONE);
        pcb.sent_tail = NONE;
        pcb.sacked = 0;
        pcb.lost = 0;
        let mut steps = self.steps();
        while at != NONE {
            steps.count();
            let next = self.sent[at].next;
            self.sent.remove(at);
            at = next;
        }
        pcb.set_repair(Repair::Open);
        pcb.clear(flag::TAIL_PROBE_OUT);
        self.drop_empty_flight(pcb);
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
