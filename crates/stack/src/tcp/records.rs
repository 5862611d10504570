//! Ends of records (MSG_EOR): positions in the send queue that no segment spans.
//!
//! TCP carries a stream of bytes without records. A program that ends a record asks for a segment
//! that ends there. A peer that reads record by record then receives each record as soon as it is
//! complete. Only positions that were not sent yet are kept: retransmissions keep the bounds of
//! segments.
//!
//! If a position finds no memory, it is left out: the segments are larger then, and the bytes are
//! the same.

use toehold_shm::{NONE, Steps};
use toehold_wire::tcp::Seq;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Pcb, Tcp};
use crate::counters::Counters;

/// Most waiting ends of records, of all connections together.
pub(super) const CAPACITY: u32 = 1 << 12;

/// An end of a record. The ends of a connection form a ring in order of sequence. The connection
/// refers to the last one, whose next is the first.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RecordEnd {
    /// The sequence number behind the record's last byte.
    end: Seq,
    pub(super) next: u32,
}

impl Tcp {
    /// Ends a record behind all bytes queued so far.
    pub(crate) fn end_record(&mut self, index: u32, counters: &mut Counters) {
        let pcb = &self.pcbs[index];
        let (end, last) = (pcb.queue_end(), pcb.record_end());
        if pcb.unsent() == 0 || (last != NONE && self.record_ends[last].end == end) {
            return;
        }
        let Some(new) = self.record_ends.insert(RecordEnd { end, next: NONE }) else {
            counters.context_memory_out += 1;
            return;
        };
        let first = if last == NONE {
            new
        } else {
            std::mem::replace(&mut self.record_ends[last].next, new)
        };
        self.record_ends[new].next = first;
        self.pcbs[index].accept_next = new;
    }

    /// The number of the next `len` bytes that belong to one record.
    #[inline]
    pub(super) fn within_record(&self, pcb: &Pcb, len: u32) -> u32 {
        if pcb.record_end() == NONE {
            return len;
        }
        let first = self.record_ends[pcb.record_end()].next;
        len.min(self.record_ends[first].end.after(pcb.snd_nxt))
    }

    /// Whether a record ends at `seq`, up to which the next segment reaches.
    #[inline]
    pub(super) fn ends_record(&self, pcb: &Pcb, seq: Seq) -> bool {
        pcb.record_end() != NONE && {
            let first = self.record_ends[pcb.record_end()].next;
            self.record_ends[first].end == seq
        }
    }

    /// Drops the ends up to which data were sent.
    #[inline]
    pub(super) fn forget_sent_records(&mut self, index: u32) {
        let mut steps = Steps::along(self.record_ends.capacity());
        while self.pcbs[index].record_end() != NONE {
            steps.count();
            let last = self.pcbs[index].record_end();
            let first = self.record_ends[last].next;
            if self.record_ends[first].end.gt(self.pcbs[index].snd_nxt) {
                return;
            }
            self.remove_first(index, last, first);
        }
    }

    /// Drops all ends.
    pub(super) fn drop_records(&mut self, index: u32) {
        let mut steps = Steps::along(self.record_ends.capacity());
        while self.pcbs[index].record_end() != NONE {
            steps.count();
            let last = self.pcbs[index].record_end();
            self.remove_first(index, last, self.record_ends[last].next);
        }
    }

    fn remove_first(&mut self, index: u32, last: u32, first: u32) {
        if first == last {
            self.pcbs[index].accept_next = NONE;
        } else {
            self.record_ends[last].next = self.record_ends[first].next;
        }
        self.record_ends.remove(first);
    }
}
