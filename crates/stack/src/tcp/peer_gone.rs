//! The end of a neighbour that the link saw go: its connections cannot go on,
//! whoever answers at its address later, and nobody has to wait for timers.

use super::{Pcb, State, Tcp};
use crate::Stack;
use crate::socket::SocketError;
use crate::time::Instant;
use core::net::IpAddr;

impl Stack {
    /// Ends the connections over the neighbour with this hardware address, which
    /// is gone with all it knew. Those it had finished sending on keep the end
    /// of their stream; the others are reset.
    pub fn neighbor_gone(&mut self, mac: [u8; 6]) {
        self.tcp.peer_gone(mac);
    }
}

impl Stack {
    /// The link knows which hardware address belongs to an IP address: no other is believed.
    pub fn neighbor_bound(&mut self, now: Instant, address: IpAddr, mac: [u8; 6]) {
        self.ip.neighbor_bound(now, address.into(), mac);
    }

    /// The node that had an IP address is gone, as the link knows. Who connects to it is told so at
    /// once, until another one answers at the address.
    pub fn neighbor_unbound(&mut self, now: Instant, address: IpAddr) {
        self.ip
            .neighbor_unbound(now, address.into(), &mut self.counters[0]);
        self.neighbor_events(now);
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
