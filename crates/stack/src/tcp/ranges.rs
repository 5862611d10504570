//! Ranges received ahead of a gap. Their bytes lie in the receive queue's chain at their final
//! place; the records mark these bytes.

use toehold_shm::{NONE, Steps};
use toehold_wire::tcp::Seq;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::segment::Data;
use super::{Context, Tcp, flag};

/// Most ranges of a connection.
const MAX_RANGES: u32 = 64;

/// A range received ahead of a gap.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Range {
    pub(super) start: Seq,
    pub(super) end: Seq,
    pub(super) next: u32,
    /// The range that was reported most recently before this one.
    pub(super) older: u32,
    /// 1 if the peer's FIN stands behind the range.
    fin: u32,
}

impl Range {
    /// End of the range in SACK blocks: behind a FIN, which takes a number too.
    pub(super) fn reported_end(&self) -> Seq {
        self.end + self.fin
    }
}

impl Tcp {
    /// Stores a segment that arrived ahead of a gap.
    pub(super) fn keep_ahead(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        start: Seq,
        payload: &Data<'_>,
        (from, len): (usize, usize),
        fin: bool,
    ) {
        let end = start + len as u32;
        self.note_overlap(cx, index, start, end);
        if !fin && self.is_kept(index, start, end) {
            return;
        }
        let pcb = &self.pcbs[index];
        let head = pcb.rcv_nxt - pcb.receive_queue.len() as u32;
        let offset = start.distance(head) as usize;
        if self.is_scarce() {
            cx.counters.tcp_out_of_order_drops += 1;
            return;
        }
        if self.place_payload(index, offset, payload, (from, len)) < len {
            cx.counters.payload_memory_out += 1;
            cx.counters.tcp_out_of_order_drops += 1;
            return;
        }
        if self.insert_range(index, start, end, fin) {
            cx.counters.tcp_out_of_order += 1;
        } else {
            cx.counters.tcp_out_of_order_drops += 1;
        }
    }

    /// Whether all of `start..end` is stored already, ahead of a gap. Its range then becomes the
    /// most recent one.
    fn is_kept(&mut self, index: u32, start: Seq, end: Seq) -> bool {
        match self.overlapping(index, start, end) {
            Some(at) if self.ranges[at].start.le(start) && self.ranges[at].end.ge(end) => {
                self.make_latest(index, at);
                true
            }
            _ => false,
        }
    }

    /// The first range that contains bytes of `start..end`.
    fn overlapping(&self, index: u32, start: Seq, end: Seq) -> Option<u32> {
        let mut at = self.pcbs[index].ranges;
        let mut steps = Steps::along(self.ranges.capacity());
        while at != NONE && self.ranges[at].end.le(start) {
            steps.count();
            at = self.ranges[at].next;
        }
        (at != NONE && self.ranges[at].start.lt(end)).then_some(at)
    }

    /// Reports the first part of `start..end`, above the acknowledgement, that arrived before.
    //= RFC 2883 §4.2 (partial duplicates: the block has the first contiguous part that came twice)
    pub(super) fn note_overlap(&mut self, cx: &mut Context<'_>, index: u32, start: Seq, end: Seq) {
        if let Some(at) = self.overlapping(index, start, end) {
            let Range {
                start: left,
                end: right,
                ..
            } = self.ranges[at];
            self.report_duplicate(cx, index, left.max(start), right.min(end));
        }
    }

    /// The end of the data ahead of gaps, if the peer has learnt it by SACK and continues there.
    pub(super) fn highest_kept(&self, index: u32) -> Option<Seq> {
        let pcb = &self.pcbs[index];
        let (mut at, mut highest) = (pcb.ranges, None);
        let mut steps = Steps::along(self.ranges.capacity());
        while pcb.has(flag::SACK)
            && let Some(range) = self.ranges.get(at)
        {
            steps.count();
            highest = Some(range.reported_end());
            at = range.next;
        }
        highest
    }

    /// Makes a range the first to report. Ranges reported before follow in their order.
    //= RFC 2018 §4 (the block of the newest segment, then the most recently reported ones)
    fn make_latest(&mut self, index: u32, at: u32) {
        if self.pcbs[index].latest_range == at {
            return;
        }
        self.leave_recency(index, at);
        self.ranges[at].older = std::mem::replace(&mut self.pcbs[index].latest_range, at);
    }

    /// Removes a range from the order of reports.
    fn leave_recency(&mut self, index: u32, at: u32) {
        let older = self.ranges[at].older;
        let latest = self.pcbs[index].latest_range;
        if latest == at {
            self.pcbs[index].latest_range = older;
            return;
        }
        let mut newer = latest;
        let mut steps = Steps::along(self.ranges.capacity());
        while newer != NONE && self.ranges[newer].older != at {
            steps.count();
            newer = self.ranges[newer].older;
        }
        if newer != NONE {
            self.ranges[newer].older = older;
        }
    }

    /// Adds `start..end` to the connection's list and joins adjacent ranges.
    fn insert_range(&mut self, index: u32, start: Seq, end: Seq, fin: bool) -> bool {
        let (mut previous, mut at, mut count) = (NONE, self.pcbs[index].ranges, 0);
        while at != NONE && self.ranges[at].end.lt(start) {
            previous = at;
            at = self.ranges[at].next;
            count += 1;
            if count >= MAX_RANGES {
                return false;
            }
        }
        if at != NONE && self.ranges[at].start.le(end) {
            self.widen_range(index, at, start, end, fin);
            return true;
        }
        if self.count_from(at) + count >= MAX_RANGES {
            return false;
        }
        let Some(new) = self.ranges.insert(Range {
            start,
            end,
            next: at,
            older: self.pcbs[index].latest_range,
            fin: fin.into(),
        }) else {
            return false;
        };
        if previous == NONE {
            self.pcbs[index].ranges = new;
        } else {
            self.ranges[previous].next = new;
        }
        self.pcbs[index].latest_range = new;
        true
    }

    fn count_from(&self, mut at: u32) -> u32 {
        let mut count = 0;
        while at != NONE && count < MAX_RANGES {
            count += 1;
            at = self.ranges[at].next;
        }
        count
    }

    /// Widens a range, and absorbs the ranges behind it that it now touches.
    fn widen_range(&mut self, index: u32, at: u32, start: Seq, end: Seq, fin: bool) {
        let range = &mut self.ranges[at];
        range.start = range.start.min(start);
        range.end = range.end.max(end);
        range.fin |= u32::from(fin);
        self.make_latest(index, at);
        loop {
            let range = self.ranges[at];
            let Some(&behind) = self.ranges.get(range.next) else {
                return;
            };
            if behind.start.gt(range.end) {
                return;
            }
            self.leave_recency(index, range.next);
            self.ranges.remove(range.next);
            let range = &mut self.ranges[at];
            range.end = range.end.max(behind.end);
            range.fin |= behind.fin;
            range.next = behind.next;
        }
    }

    /// After a gap was filled, takes the data that are now in order. Returns `true` if a FIN is
    /// among them.
    pub(super) fn join_ranges(&mut self, index: u32) -> bool {
        loop {
            let at = self.pcbs[index].ranges;
            let Some(&range) = self.ranges.get(at) else {
                return false;
            };
            let pcb = &mut self.pcbs[index];
            if range.start.gt(pcb.rcv_nxt) {
                return false;
            }
            if range.end.gt(pcb.rcv_nxt) {
                let more = range.end.distance(pcb.rcv_nxt);
                pcb.receive_queue.extend(more as usize);
                pcb.rcv_nxt = range.end;
                pcb.bytes_received = pcb.bytes_received.wrapping_add(more.into());
            }
            pcb.ranges = range.next;
            self.leave_recency(index, at);
            self.ranges.remove(at);
            if range.fin != 0 {
                return true;
            }
        }
    }

    /// Drops every range.
    pub(super) fn drop_ranges(&mut self, index: u32) {
        let pcb = &mut self.pcbs[index];
        let mut at = std::mem::replace(&mut pcb.ranges, NONE);
        pcb.latest_range = NONE;
        if at == NONE {
            return;
        }
        let mut steps = Steps::along(self.ranges.capacity());
        while at != NONE {
            steps.count();
            let next = self.ranges[at].next;
            self.ranges.remove(at);
            at = next;
        }
        // Frees blocks that held only bytes beyond a gap.
        self.pcbs[index].receive_queue.trim(&mut self.payload);
        self.keep_place(index);
    }
}
