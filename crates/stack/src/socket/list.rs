//! What there is, for those who look in from outside.

use super::{Event, ListenerId, SocketError};
use crate::Stack;
use crate::tcp::flag;

impl Stack {
    /// Every listener, and every connection that a program holds. Takes time in
    /// proportion to the most there ever were.
    pub fn sockets(&self) -> impl Iterator<Item = Event> {
        let tcp = &self.tcp;
        let held = tcp.pcbs.iter_live().filter(|(_, pcb)| !pcb.has(flag::RELEASED));
        let connections = held.map(|(index, _)| Event::Connection(tcp.connection_id(index)));
        tcp.open_listeners().map(Event::Listener).chain(connections)
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
