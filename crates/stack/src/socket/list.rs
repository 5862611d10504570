//! What there is, for those who look in from outside.

use core::net::SocketAddr;

use super::{Event, ListenerId, SocketError};
use crate::Stack;
use crate::tcp::{State, flag};
use crate::tuple::FourTuple;

impl Stack {
    /// Every listener, and every connection that a program holds. Takes time in
    /// proportion to the most there ever were.
    pub fn sockets(&self) -> impl Iterator<Item = Event> {
        let tcp = &self.tcp;
        let held = tcp.pcbs.iter_live().filter(|(_, pcb)| !pcb.has(flag::RELEASED));
        let connections = held.map(|(index, _)| Event::Connection(tcp.connection_id(index)));
        tcp.open_listeners().map(Event::Listener).chain(connections)
    }

    /// Whether a connection has a port, one in TIME-WAIT included, so that no socket may be bound there: as in the
    /// kernel, both must have said otherwise (SO_REUSEADDR), which is not known of one in TIME-WAIT. An address of
    /// zeroes stands for all of its family. Takes time in proportion to the most connections there ever were.
    pub fn is_port_taken(&self, local: SocketAddr, reuses: bool) -> bool {
        let (ip, port) = (local.ip(), local.port());
        let has = |tuple: &FourTuple| {
            let at = tuple.local_addr();
            let is_there = at.ip() == ip || (ip.is_unspecified() && at.is_ipv4() == ip.is_ipv4());
            at.port() == port && is_there
        };
        let tcp = &self.tcp;
        let connections = tcp.pcbs.iter_live().map(|(_, pcb)| pcb);
        let mut taken = connections.filter(|pcb| pcb.state() != State::Closed && has(&pcb.tuple));
        taken.any(|pcb| !reuses || !pcb.settings.reuse_address())
            || (!reuses && tcp.time_waits.iter().any(|record| has(&record.tuple)))
    }

    /// Most connections that may wait for the listener's program, less one.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn backlog(&self, listener: ListenerId) -> Result<u32, SocketError> {
        Ok(self.tcp.backlog(self.tcp.resolve_listener(listener)?))
    }
}
