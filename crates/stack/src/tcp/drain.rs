//! The undelivered data of a node that is about to end.

use super::Tcp;
use super::pcb::{Pcb, State, flag};
use crate::Stack;

impl Stack {
    /// Connections that their program has closed, and whose data or FIN the peer has not
    /// acknowledged yet.
    pub fn undelivered(&self) -> u32 {
        self.tcp.undelivered().count() as u32
    }

    /// Aborts these connections, with a reset to each peer.
    pub fn abort_undelivered(&mut self) {
        self.tcp.abort_undelivered();
    }
}

impl Tcp {
    fn undelivered(&self) -> impl Iterator<Item = u32> + '_ {
        let owes = |pcb: &Pcb| match pcb.state() {
            State::FinWait1 | State::Closing | State::LastAck => true,
            State::SynReceived => pcb.has(flag::FIN_QUEUED),
            _ => false,
        };
        let pcbs = self.pcbs.iter_live();
        pcbs.filter(move |(_, pcb)| pcb.has(flag::RELEASED) && owes(pcb))
            .map(|(index, _)| index)
    }

    fn abort_undelivered(&mut self) {
        let owing: Vec<u32> = self.undelivered().collect();
        for index in owing {
            self.abort(index);
        }
    }
}
