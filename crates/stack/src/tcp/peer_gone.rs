//! The end of a neighbour that the link reports gone. Its connections cannot go on, even if another
//! node answers at its address later, and programs need not wait for timers.

use super::Tcp;
use super::pcb::{Pcb, State};
use crate::Stack;
use crate::socket::SocketError;
use crate::time::Instant;
use core::net::IpAddr;

impl Stack {
    /// Ends the connections over the neighbour with this hardware address, whose state is lost. A
    /// connection whose peer had finished sending keeps the end of its stream; others are reset.
    pub fn neighbor_gone(&mut self, mac: [u8; 6]) {
        self.tcp.peer_gone(mac);
    }
}

impl Stack {
    /// Sets the hardware address of an IP address, as the link knows it: no other is believed.
    pub fn neighbor_bound(&mut self, now: Instant, address: IpAddr, mac: [u8; 6]) {
        self.ip.neighbor_bound(now, address.into(), mac);
    }

    /// Notes that the node with an IP address is gone, as the link reports. Attempts to connect to
    /// it fail at once, until another node answers at the address.
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
