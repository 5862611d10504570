//! Ranges received ahead of a gap. Their bytes lie in the receive queue's chain at their final
//! place; the records mark these bytes.

use toehold_shm::{Carver, NONE, OutOfMemory, Slab, Steps};
use toehold_wire::tcp::{SackBlocks, Seq};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::pcb::{Pcb, flag};

/// Most ranges of a connection.
const MAX_RANGES: u32 = 64;

/// Ranges for this many connections.
fn capacity(connections: u32) -> u32 {
    connections.max(1 << 12)
}

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

/// The ranges of all connections.
pub(crate) struct Ranges {
    pub(super) ranges: Slab<Range>,
}

impl Ranges {
    pub(super) fn bytes_needed(connections: u32) -> usize {
        Slab::<Range>::bytes_needed(capacity(connections))
    }

    pub(super) fn create(carver: &mut Carver, connections: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            ranges: carver.slab(capacity(connections))?,
        })
    }

    /// The number of ranges of all connections.
    pub(super) fn len(&self) -> u32 {
        self.ranges.len()
    }

    /// Whether all of `start..end` is stored already, ahead of a gap. Its range then becomes the
    /// most recent one.
    pub(super) fn is_kept(&mut self, pcb: &mut Pcb, start: Seq, end: Seq) -> bool {
        match self.overlapping(pcb, start, end) {
            Some(at) if self.ranges[at].start.le(start) && self.ranges[at].end.ge(end) => {
                self.make_latest(pcb, at);
                true
            }
            _ => false,
        }
    }

    /// The first part of `start..end` that is stored already.
    pub(super) fn overlap(&self, pcb: &Pcb, start: Seq, end: Seq) -> Option<(Seq, Seq)> {
        let range = self.ranges[self.overlapping(pcb, start, end)?];
        Some((range.start.max(start), range.end.min(end)))
    }

    /// The first range that contains bytes of `start..end`.
    fn overlapping(&self, pcb: &Pcb, start: Seq, end: Seq) -> Option<u32> {
        let mut at = pcb.ranges;
        let mut steps = Steps::along(self.ranges.capacity());
        while at != NONE && self.ranges[at].end.le(start) {
            steps.count();
            at = self.ranges[at].next;
        }
        (at != NONE && self.ranges[at].start.lt(end)).then_some(at)
    }

    /// The end of the data ahead of gaps, if the peer has learnt it by SACK and continues there.
    pub(super) fn highest_kept(&self, pcb: &Pcb) -> Option<Seq> {
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

    /// The blocks to report in acknowledgements: a duplicate, then the ranges, the most recently
    /// changed one first.
    //= RFC 2018 §4 (the block of the newest segment, then the most recently reported ones)
    pub(super) fn blocks_to_report(&self, pcb: &Pcb) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        if pcb.has(flag::DSACK) {
            blocks.push(pcb.dsack_left, pcb.dsack_right);
        }
        let mut at = pcb.latest_range;
        while blocks.len() < 4
            && let Some(range) = self.ranges.get(at)
        {
            blocks.push(range.start, range.reported_end());
            at = range.older;
        }
        blocks
    }

    /// Makes a range the first to report. Ranges reported before follow in their order.
    //= RFC 2018 §4 (the block of the newest segment, then the most recently reported ones)
    fn make_latest(&mut self, pcb: &mut Pcb, at: u32) {
        if pcb.latest_range == at {
            return;
        }
        self.leave_recency(pcb, at);
        self.ranges[at].older = std::mem::replace(&mut pcb.latest_range, at);
    }

    /// Removes a range from the order of reports.
    fn leave_recency(&mut self, pcb: &mut Pcb, at: u32) {
        let older = self.ranges[at].older;
        let latest = pcb.latest_range;
        if latest == at {
            pcb.latest_range = older;
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
    pub(super) fn insert(&mut self, pcb: &mut Pcb, start: Seq, end: Seq, fin: bool) -> bool {
        let (mut previous, mut at, mut count) = (NONE, pcb.ranges, 0);
        while at != NONE && self.ranges[at].end.lt(start) {
            previous = at;
            at = self.ranges[at].next;
            count += 1;
            if count >= MAX_RANGES {
                return false;
            }
        }
        if at != NONE && self.ranges[at].start.le(end) {
            self.widen(pcb, at, start, end, fin);
            return true;
        }
        if self.count_from(at) + count >= MAX_RANGES {
            return false;
        }
        let Some(new) = self.ranges.insert(Range {
            start,
            end,
            next: at,
            older: pcb.latest_range,
            fin: fin.into(),
        }) else {
            return false;
        };
        if previous == NONE {
            pcb.ranges = new;
        } else {
            self.ranges[previous].next = new;
        }
        pcb.latest_range = new;
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
    fn widen(&mut self, pcb: &mut Pcb, at: u32, start: Seq, end: Seq, fin: bool) {
        let range = &mut self.ranges[at];
        range.start = range.start.min(start);
        range.end = range.end.max(end);
        range.fin |= u32::from(fin);
        self.make_latest(pcb, at);
        loop {
            let range = self.ranges[at];
            let Some(&behind) = self.ranges.get(range.next) else {
                return;
            };
            if behind.start.gt(range.end) {
                return;
            }
            self.leave_recency(pcb, range.next);
            self.ranges.remove(range.next);
            let range = &mut self.ranges[at];
            range.end = range.end.max(behind.end);
            range.fin |= behind.fin;
            range.next = behind.next;
        }
    }

    /// After a gap was filled, takes the data that are now in order. Returns `true` if a FIN is
    /// among them.
    pub(super) fn join(&mut self, pcb: &mut Pcb) -> bool {
        loop {
            let at = pcb.ranges;
            let Some(&range) = self.ranges.get(at) else {
                return false;
            };
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
            self.leave_recency(pcb, at);
            self.ranges.remove(at);
            if range.fin != 0 {
                return true;
            }
        }
    }

    /// Drops every range. Returns `false` if there was none.
    pub(super) fn drop_all(&mut self, pcb: &mut Pcb) -> bool {
        let mut at = std::mem::replace(&mut pcb.ranges, NONE);
        pcb.latest_range = NONE;
        if at == NONE {
            return false;
        }
        let mut steps = Steps::along(self.ranges.capacity());
        while at != NONE {
            steps.count();
            let next = self.ranges[at].next;
            self.ranges.remove(at);
            at = next;
        }
        true
    }
}
