//! The end of a neighbour that the link saw go: its connections cannot go on,
//! whoever answers at its address later, and nobody has to wait for timers.

use super::{Pcb, State, Tcp};
use crate::Stack;
use crate::socket::SocketError;

impl Stack {
    /// Ends the connections over the neighbour with this hardware address, which
    /// is gone with all it knew. Those it had finished sending on keep the end
    /// of their stream; the others are reset.
    pub fn neighbor_gone(&mut self, mac: [u8; 6]) {
        self.tcp.peer_gone(mac);
    }
}

impl Tcp {
    fn peer_gone(&mut self, mac: [u8; 6]) {
        let over = |pcb: &Pcb| {
            pcb.state() != State::Closed && pcb.path.destination == mac && !pcb.path.is_loopback()
        };
        let lost: Vec<u32> = self
            .pcbs
            .iter_live()
            .filter(|(_, pcb)| over(pcb))
            .map(|(i, _)| i)
            .collect();
        for index in lost {
            let error = match self.pcbs[index].state() {
                State::SynSent | State::SynReceived => Some(SocketError::HostUnreachable),
                State::CloseWait | State::Closing | State::LastAck => None,
                _ => Some(SocketError::ConnectionReset),
            };
            self.finish(index, error);
            self.rearm(index);
            self.free_if_done(index);
        }
    }
}
