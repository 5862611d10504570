//! Header prediction (Jacobson): a fast path for expected segments. Such a segment carries the next
//! bytes, or acknowledges the last ones, and nothing else. Nearly all segments do. The fast path
//! changes the state exactly as the general path does: see the tests.

#[cfg(test)]
mod tests;

use toehold_shm::NONE;
use toehold_wire::tcp::Flags;

use super::data::Fresh;
use super::pcb::{Pcb, Repair, State, flag, urgent as urgent_state};
use super::progress::Progress;
use super::segment::Segment;
use super::{Context, Tcp};
use crate::socket::{Change, DirectReceive, setting};
use crate::time::Instant;

/// A connection with one of these flags takes the general path.
const UNCOMMON: u32 = flag::RELEASED
    | flag::RESET
    | flag::SYN_PENDING
    | flag::FIN_QUEUED
    | flag::URGENT_OUT
    | flag::TAIL_PROBE_OUT;

impl Tcp {
    /// Whether a segment is as predicted.
    #[inline]
    pub(super) fn predicts(&self, index: u32, segment: &Segment<'_>) -> bool {
        #[cfg(test)]
        if self.long_way_only {
            return false;
        }
        is_predicted(&self.pcbs[index], segment)
    }

    /// Handles a segment that is as predicted.
    #[inline]
    pub(super) fn predicted_input(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        segment: &Segment<'_>,
        direct_receive: Option<&mut DirectReceive<'_>>,
    ) {
        #[cfg(test)]
        {
            self.predictions += 1;
        }
        let pcb = &mut self.pcbs[index];
        pcb.last_received = cx.now;
        pcb.keepalive_probes = 0;
        pcb.note_window(segment);
        if segment.ack != pcb.snd_una {
            self.predicted_ack(cx, index, segment);
        } else if pcb.outstanding() > 0 {
            self.arm_retransmit(cx.now, index);
        }
        let pcb = &mut self.pcbs[index];
        pcb.remember_timestamp(cx.now, segment);
        if !segment.payload.is_empty() {
            self.predicted_data(cx, index, segment, direct_receive);
        }
        let pcb = &self.pcbs[index];
        if pcb.has(flag::ACK_NOW) || pcb.unsent() > 0 {
            self.mark_ready(index);
        }
        self.rearm(index);
    }

    /// Handles an acknowledgement of new data, without losses or SACK.
    #[inline]
    fn predicted_ack(&mut self, cx: &mut Context<'_>, index: u32, segment: &Segment<'_>) {
        let mut progress = Progress::default();
        self.advance(cx, index, segment.ack, &mut progress);
        self.pcbs[index].measure(cx.now, segment, &progress);
        self.pcbs[index].dup_acks = 0;
        self.grow_window(cx, index, &progress);
        let pcb = &mut self.pcbs[index];
        pcb.waiting_since = if pcb.outstanding() > 0 {
            cx.now
        } else {
            Instant::NEVER
        };
        self.arm_retransmit(cx.now, index);
        self.count_delivered(cx.now, index);
        self.scoreboard.drop_empty_flight(&mut self.pcbs[index]);
    }

    /// Handles the next bytes, which lie entirely in the window.
    #[inline]
    fn predicted_data(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        segment: &Segment<'_>,
        direct_receive: Option<&mut DirectReceive<'_>>,
    ) {
        let fresh = Fresh {
            start: segment.seq,
            offset: 0,
            len: segment.payload.len(),
            fin: false,
        };
        let (taken, direct) = self.take_in_order(cx, index, &segment.payload, &fresh, direct_receive);
        self.schedule_ack(cx.now, index, taken as u32, false);
        if !direct {
            self.mark_event(index, Change::DATA);
        }
    }
}

#[inline]
fn is_predicted(pcb: &Pcb, segment: &Segment<'_>) -> bool {
    let timely = match segment.options.timestamps {
        Some(timestamps) => timestamps.value.wrapping_sub(pcb.ts_recent) as i32 >= 0,
        None => true,
    };
    let acknowledges = segment.ack.ge(pcb.snd_una) && segment.ack.le(pcb.snd_nxt);
    // A segment without new data or a new acknowledgement may indicate a loss.
    let repeats = segment.ack == pcb.snd_una && pcb.outstanding() > 0 && segment.payload.is_empty();
    let end = segment.seq + segment.payload.len() as u32;
    pcb.state_raw == State::Established as u8
        && segment.flags & !Flags::PSH == Flags::ACK
        && segment.seq == pcb.rcv_nxt
        && end.le(pcb.rcv_adv)
        && acknowledges
        && !repeats
        && !pcb.has(UNCOMMON)
        && !pcb.settings.has(setting::FAST_OPEN)
        && timely
        && segment.options.sack.is_empty()
        && !segment.congestion_experienced
        && pcb.snd_wnd != 0
        && pcb.repair_raw == Repair::Open as u8
        && pcb.sacked | pcb.lost == 0
        && pcb.ranges == NONE
        && pcb.urgent_state == urgent_state::NONE
}
