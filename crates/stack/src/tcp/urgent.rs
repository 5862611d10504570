//! The urgent mark in the received stream (RFC 9293 §3.8.5, RFC 6093).

use super::segment::Segment;
use super::{Tcp, urgent_state};
use crate::socket::Change;

impl Tcp {
    /// A segment announces urgent data. As everywhere in practice, the pointer
    /// names the byte behind the urgent one.
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
        pcb.rcv_up = mark;
        pcb.urgent_state = urgent_state::AHEAD;
        self.mark_event(index, Change::DATA);
    }
}
