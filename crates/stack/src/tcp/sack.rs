//! Selective acknowledgements: received blocks (RFC 2018, RFC 6675) and sent blocks, including
//! those for duplicates (RFC 2883).

use toehold_shm::{NONE, Steps};
use toehold_wire::tcp::Seq;

use super::pcb::{Pcb, flag};
use super::progress::Progress;
use super::scoreboard::Scoreboard;
use super::segment::Segment;
use super::{Context, Tcp};
use crate::counters::Counters;
use crate::time::Instant;

impl Scoreboard {
    /// Marks the segments that the blocks cover.
    pub(super) fn sack_input(
        &mut self,
        now: Instant,
        pcb: &mut Pcb,
        segment: &Segment<'_>,
        progress: &mut Progress,
    ) {
        for (position, (left, right)) in segment.options.sack.iter().enumerate() {
            if !left.lt(right) {
                continue;
            }
            if position == 0 && right.le(segment.ack.max(pcb.snd_una)) {
                //= RFC 2883 §4 (the first block may report a duplicate below the acknowledgement)
                progress.duplicate_end = Some(right);
                continue;
            }
            // A block must lie within the data in flight; any other is forged or old.
            if left.lt(pcb.snd_una) || right.gt(pcb.snd_nxt) {
                continue;
            }
            self.mark_sacked(now, pcb, left, right, progress);
        }
    }

    /// Marks the segments in flight within `left..right`. A segment that lies there only in part is
    /// split first.
    fn mark_sacked(&mut self, now: Instant, pcb: &mut Pcb, left: Seq, right: Seq, progress: &mut Progress) {
        let mut at = pcb.sent_head;
        // A record that is split here is examined twice.
        let mut steps = Steps::along(self.sent.capacity().saturating_mul(2));
        while at != NONE && self[at].start.lt(right) {
            steps.count();
            let record = self[at];
            if record.end.le(left) || record.is_sacked() {
                at = record.next;
                continue;
            }
            if record.start.lt(left) {
                if !self.split(pcb, at, left) {
                    return;
                }
                at = self[at].next;
                continue;
            }
            if record.end.gt(right) && !self.split(pcb, at, right) {
                return;
            }
            self.sacked_one(now, pcb, at, progress);
            at = self[at].next;
        }
    }

    fn sacked_one(&mut self, now: Instant, pcb: &mut Pcb, at: u32, progress: &mut Progress) {
        let record = self[at];
        let len = record.len();
        let flight = self.flight_mut(pcb);
        if record.is_lost() {
            pcb.lost = pcb.lost.saturating_sub(len);
        }
        //= RFC 8985 §6.2 (step 3: a segment delivered below the highest one tells of reordering)
        if !record.is_retransmitted()
            && progress
                .highest_before
                .is_some_and(|highest| record.end.lt(highest))
        {
            progress.reordered = true;
            pcb.set(flag::REORDERING);
        }
        if pcb.sacked == 0 || record.end.gt(flight.highest_sacked) {
            flight.highest_sacked = record.end;
        }
        pcb.sacked += len;
        progress.delivered += len;
        progress.sack_news = true;
        flight.rack_update(now, pcb, &record);
        self[at].mark_sacked();
    }
}

impl Tcp {
    /// Notes that data arrived twice, to report it.
    pub(super) fn note_duplicate(&mut self, cx: &mut Context<'_>, index: u32, segment: &Segment<'_>) {
        let pcb = &mut self.pcbs[index];
        let rcv_nxt = pcb.rcv_nxt;
        let (left, right) = (segment.seq, segment.seq + segment.len());
        if left.lt(right) && left.lt(rcv_nxt) {
            //= RFC 2883 §4 (a duplicate that starts below the acknowledgement)
            pcb.report_duplicate(left, right.min(rcv_nxt), cx.counters);
        } else {
            cx.counters.tcp_duplicate_bytes += segment.payload.len() as u64;
        }
    }
}

impl Pcb {
    /// Reports bytes that arrived twice with the next acknowledgement.
    pub(super) fn report_duplicate(&mut self, left: Seq, right: Seq, counters: &mut Counters) {
        counters.tcp_duplicate_bytes += u64::from(right.distance(left));
        if self.has(flag::SACK) {
            self.set(flag::DSACK);
            self.dsack_left = left;
            self.dsack_right = right;
        }
    }
}
