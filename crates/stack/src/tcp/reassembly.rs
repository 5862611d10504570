//! Segments that arrive ahead of a gap: what becomes of their bytes, and of memory for them.

use toehold_wire::tcp::Seq;

use super::segment::Data;
use super::{Context, Tcp};

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
        if !fin && self.ranges.is_kept(&mut self.pcbs[index], start, end) {
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
        if self.ranges.insert(&mut self.pcbs[index], start, end, fin) {
            cx.counters.tcp_out_of_order += 1;
        } else {
            cx.counters.tcp_out_of_order_drops += 1;
        }
    }

    /// Reports the first part of `start..end`, above the acknowledgement, that arrived before.
    //= RFC 2883 §4.2 (partial duplicates: the block has the first contiguous part that came twice)
    pub(super) fn note_overlap(&mut self, cx: &mut Context<'_>, index: u32, start: Seq, end: Seq) {
        let pcb = &mut self.pcbs[index];
        if let Some((left, right)) = self.ranges.overlap(pcb, start, end) {
            pcb.report_duplicate(left, right, cx.counters);
        }
    }

    /// Drops every range of a connection, and the memory of its bytes.
    pub(super) fn drop_ranges(&mut self, index: u32) {
        let pcb = &mut self.pcbs[index];
        if self.ranges.drop_all(pcb) {
            // Frees blocks that held only bytes beyond a gap.
            pcb.receive_queue.trim(&mut self.payload);
            self.keep_place(index);
        }
    }
}
