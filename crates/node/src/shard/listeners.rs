//! Listeners of a shard. Those of a node's first shard take direct connections, if the node has
//! them. The node's directory is told of every change there.

use std::net::SocketAddr;

use toehold_shm::direct;
use toehold_stack::{Event, ListenerId, Settings, SocketError, SocketOption};

use super::Shard;

impl Shard {
    /// Opens a listener, as [`Stack::listen`](toehold_stack::Stack::listen).
    ///
    /// # Errors
    ///
    /// The errors of [`Stack::listen`](toehold_stack::Stack::listen).
    pub fn listen(
        &mut self,
        local: SocketAddr,
        backlog: u32,
        settings: &Settings,
    ) -> Result<ListenerId, SocketError> {
        self.tick();
        let id = self.stack.listen(self.now, local, backlog, settings)?;
        if let Some(published) = &mut self.published {
            let bound = self.stack.listener_addr(id)?;
            published.publish(Event::Listener(id), bound, backlog, settings);
        }
        Ok(id)
    }

    /// Changes how many connections may wait at a listener.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn set_backlog(&mut self, id: ListenerId, backlog: u32) -> Result<(), SocketError> {
        self.stack.set_backlog(id, backlog)?;
        if let Some(published) = &mut self.published {
            published.set_backlog(Event::Listener(id), backlog);
        }
        Ok(())
    }

    /// Sets an option of a listener. One that only the stack knows how to keep ends direct
    /// connections to the listener.
    ///
    /// # Errors
    ///
    /// The errors of [`Stack::set_listener_option`](toehold_stack::Stack::set_listener_option).
    pub fn set_listener_option(&mut self, id: ListenerId, option: SocketOption) -> Result<(), SocketError> {
        self.stack.set_listener_option(id, option)?;
        if matches!(option, SocketOption::DeferAccept(_)) {
            self.keep_out(id);
        }
        Ok(())
    }

    /// The id by which peers know a listener, if it takes direct connections.
    pub fn direct_listener(&mut self, id: ListenerId) -> Option<direct::ListenerId> {
        self.published.as_mut()?.listener_of(Event::Listener(id))
    }

    /// Lets peers connect to a listener over TCP only, as long as it is open.
    pub(crate) fn keep_out(&mut self, id: ListenerId) {
        if let (Some(published), Ok(bound)) = (&mut self.published, self.stack.listener_addr(id)) {
            published.keep_out(Event::Listener(id), bound.port());
        }
    }

    /// Lets peers connect to a listener over TCP only until something waits for it.
    pub(crate) fn park(&mut self, id: ListenerId) {
        if let Some(published) = &mut self.published {
            published.park(Event::Listener(id));
        }
    }

    /// Notes that a call or poll waits for a listener.
    pub(crate) fn attend(&mut self, id: ListenerId) {
        if let Some(published) = &mut self.published {
            published.attend(Event::Listener(id));
        }
    }

    /// Withdraws a listener that is about to be closed from peers.
    pub(super) fn unpublish(&mut self, id: ListenerId) {
        if let (Some(published), Ok(bound)) = (&mut self.published, self.stack.listener_addr(id))
            && published.close(Event::Listener(id), bound.port())
        {
            // The engine empties its queues.
            self.bells.fabric.ring();
        }
    }
}
