//! Lists open sockets, for `toehold sockets` and for `bind`.

use core::net::SocketAddr;

use super::{Event, ListenerId, SocketError};
use crate::Stack;
use crate::tcp::{State, flag};
use crate::tuple::FourTuple;

impl Stack {
    /// Every listener, and every connection that a program holds. Takes time in proportion to the
    /// most sockets so far.
    pub fn sockets(&self) -> impl Iterator<Item = Event> {
        let tcp = &self.tcp;
        let held = tcp.pcbs.iter_live().filter(|(_, pcb)| !pcb.has(flag::RELEASED));
        let connections = held.map(|(index, _)| Event::Connection(tcp.connection_id(index)));
        tcp.listeners.open().map(Event::Listener).chain(connections)
    }

    /// Whether a connection, possibly in TIME-WAIT, prevents a socket from binding to an address
    /// and port. As in the kernel, both sides must have set SO_REUSEADDR to share; a TIME-WAIT
    /// record counts as if it had not. An unspecified address stands for all of its family. Takes
    /// time in proportion to the most connections so far.
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

    /// The listener's backlog: one less than the most connections in its accept queue.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn backlog(&self, listener: ListenerId) -> Result<u32, SocketError> {
        let index = self.tcp.listeners.resolve(listener)?;
        Ok(self.tcp.listeners[index].backlog())
    }
}
