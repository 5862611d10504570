//! Ends of records (MSG_EOR): positions in the send queue that no segment spans.
//!
//! TCP carries a stream of bytes without records. A program that ends a record asks for a segment
//! that ends there. A peer that reads record by record then receives each record as soon as it is
//! complete. Only positions that were not sent yet are kept: retransmissions keep the bounds of
//! segments.
//!
//! If a position finds no memory, it is left out: the segments are larger then, and the bytes are
//! the same.

use toehold_shm::{Carver, NONE, OutOfMemory, Slab, Steps};
use toehold_wire::tcp::Seq;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::pcb::Pcb;
use crate::counters::Counters;

/// Most waiting ends of records, of all connections together.
const CAPACITY: u32 = 1 << 12;

/// An end of a record. The ends of a connection form a ring in order of sequence. The connection
/// refers to the last one, whose next is the first.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RecordEnd {
    /// The sequence number behind the record's last byte.
    end: Seq,
    pub(super) next: u32,
}

/// The waiting ends of records of all connections.
pub(crate) struct RecordEnds {
    pub(super) ends: Slab<RecordEnd>,
}

impl RecordEnds {
    pub(super) fn bytes_needed() -> usize {
        Slab::<RecordEnd>::bytes_needed(CAPACITY)
    }

    pub(super) fn create(carver: &mut Carver) -> Result<Self, OutOfMemory> {
        Ok(Self {
            ends: carver.slab(CAPACITY)?,
        })
    }

    /// Ends a record behind all bytes that a connection has queued so far.
    pub(crate) fn end_record(&mut self, pcb: &mut Pcb, counters: &mut Counters) {
        let (end, last) = (pcb.queue_end(), pcb.record_end());
        if pcb.unsent() == 0 || (last != NONE && self.ends[last].end == end) {
            return;
        }
        let Some(new) = self.ends.insert(RecordEnd { end, next: NONE }) else {
            counters.context_memory_out += 1;
            return;
        };
        let first = if last == NONE {
            new
        } else {
            std::mem::replace(&mut self.ends[last].next, new)
        };
        self.ends[new].next = first;
        pcb.accept_next = new;
    }

    /// The number of the next `len` bytes that belong to one record.
    #[inline]
    pub(super) fn within_record(&self, pcb: &Pcb, len: u32) -> u32 {
        if pcb.record_end() == NONE {
            return len;
        }
        let first = self.ends[pcb.record_end()].next;
        len.min(self.ends[first].end.after(pcb.snd_nxt))
    }

    /// Whether a record ends at `seq`, up to which the next segment reaches.
    #[inline]
    pub(super) fn ends_at(&self, pcb: &Pcb, seq: Seq) -> bool {
        pcb.record_end() != NONE && {
            let first = self.ends[pcb.record_end()].next;
            self.ends[first].end == seq
        }
    }

    /// Drops the ends up to which data were sent.
    #[inline]
    pub(super) fn drop_sent(&mut self, pcb: &mut Pcb) {
        let mut steps = Steps::along(self.ends.capacity());
        while pcb.record_end() != NONE {
            steps.count();
            let last = pcb.record_end();
            let first = self.ends[last].next;
            if self.ends[first].end.gt(pcb.snd_nxt) {
                return;
            }
            self.remove_first(pcb, last, first);
        }
    }

    /// Drops all ends of a connection.
    pub(super) fn drop_all(&mut self, pcb: &mut Pcb) {
        let mut steps = Steps::along(self.ends.capacity());
        while pcb.record_end() != NONE {
            steps.count();
            let last = pcb.record_end();
            self.remove_first(pcb, last, self.ends[last].next);
        }
    }

    fn remove_first(&mut self, pcb: &mut Pcb, last: u32, first: u32) {
        if first == last {
            pcb.accept_next = NONE;
        } else {
            self.ends[last].next = self.ends[first].next;
        }
        self.ends.remove(first);
    }
}
