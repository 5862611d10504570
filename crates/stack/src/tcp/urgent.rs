//! The urgent mark in the received stream (RFC 9293 §3.8.5, RFC 6093).

use toehold_shm::Direction;

use super::Tcp;
use super::pcb::urgent as urgent_state;
use super::segment::Segment;
use crate::socket::{Change, setting};

impl Tcp {
    /// Handles the announcement of urgent data. As in all common implementations, the pointer names
    /// the byte behind the urgent one.
    //= RFC 6093 §3.1
    pub(super) fn urgent_input(&mut self, index: u32, segment: &Segment<'_>) {
        let pcb = &mut self.pcbs[index];
        if !pcb.state().may_receive() || segment.urgent == 0 {
            return;
        }
        let mark = segment.seq + u32::from(segment.urgent) - 1;
        if mark.lt(pcb.rcv_nxt) {
            return;
        }
        if pcb.urgent_state != urgent_state::NONE && mark.le(pcb.rcv_up) {
            return;
        }
        self.pass_mark(index);
        let pcb = &mut self.pcbs[index];
        pcb.rcv_up = mark;
        pcb.urgent_state = urgent_state::AHEAD;
        pcb.settings.set(setting::URGENT_ANNOUNCED, true);
        self.mark_event(index, Change::DATA.and(Change::URGENT));
    }
    /// Steps over the former mark when another replaces it. A program that has read up to it finds
    /// no ordinary byte there, as on Linux.
    fn pass_mark(&mut self, index: u32) {
        let pcb = &self.pcbs[index];
        let stands = [urgent_state::HERE, urgent_state::TAKEN].contains(&pcb.urgent_state);
        let is_out_of_line = stands && !pcb.settings.has(setting::URGENT_INLINE);
        if !is_out_of_line || self.enter_lane(index, Direction::Receive).is_err() {
            return;
        }
        let pcb = &mut self.pcbs[index];
        let head = pcb.rcv_nxt - pcb.receive_queue.len() as u32;
        if pcb.rcv_up == head && !pcb.receive_queue.is_empty() {
            pcb.receive_queue.take(&mut self.payload, 1);
        }
        self.leave_lane(index, Direction::Receive);
    }
}
