//! Ends of records (MSG_EOR): places in the send queue that no segment spans.
//!
//! TCP carries a stream of bytes, and records are no part of it. A program that
//! ends one asks for segments that end there as well, so that a peer which reads
//! record by record is handed each as soon as it is whole. Only places not yet
//! sent are kept: what was sent keeps its bounds when it is sent again.
//!
//! A place that finds no memory is left out: the segments are larger then, and
//! the bytes are the same.

use toehold_shm::{NONE, Steps};
use toehold_wire::tcp::Seq;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Pcb, Tcp};
use crate::counters::Counters;

/// Ends of records that wait to be sent, of all connections together.
pub(super) const CAPACITY: u32 = 1 << 12;

/// One end. Those of a connection form a ring in order of sequence; the
/// connection knows the last one, whose next is the first.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RecordEnd {
    /// Behind the record's last byte.
    end: Seq,
    pub(super) next: u32,
}

impl Tcp {
    /// Ends a record behind everything queued so far.
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

    /// How many of the next `len` bytes to be sent belong to one record.
    #[inline]
    pub(super) fn within_record(&self, pcb: &Pcb, len: u32) -> u32 {
        if pcb.record_end() == NONE {
            return len;
        }
        let first = self.record_ends[pcb.record_end()].next;
        len.min(self.record_ends[first].end.after(pcb.snd_nxt))
    }

    /// Whether a record ends at `seq`, which is next to be sent up to.
    #[inline]
    pub(super) fn ends_record(&self, pcb: &Pcb, seq: Seq) -> bool {
        pcb.record_end() != NONE && {
            let first = self.record_ends[pcb.record_end()].next;
            self.record_ends[first].end == seq
        }
    }

    /// Forgets the ends that were sent up to.
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

    /// Forgets all ends.
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
