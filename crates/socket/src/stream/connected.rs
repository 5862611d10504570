//! A connection, in whichever of the two ways it carries its bytes.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use toehold_node::{Description, Holder, HolderError, Relayed};
use toehold_stack::{Details, ReceiveFlags, SocketOption};

use super::connection::Connection;
use super::direct::DirectConnection;
use crate::error::{from_holder, from_socket};
use crate::node::Shared;

/// The connection that the handles of one stream share.
pub(crate) enum Connected {
    /// Over TCP, in a shard of the node.
    Tcp(Connection),
    /// Over memory that both nodes map.
    Direct(DirectConnection),
}

impl Connected {
    /// The node of the connection.
    pub(crate) fn node(&self) -> &Arc<Shared> {
        match self {
            Connected::Tcp(connection) => &connection.node.node,
            Connected::Direct(connection) => connection.node(),
        }
    }

    /// The state that all processes with the connection share.
    #[inline]
    pub(super) fn description(&self) -> &Description {
        match self {
            Connected::Tcp(connection) => &connection.description,
            Connected::Direct(connection) => &connection.description,
        }
    }

    fn holder(&self) -> Option<&Holder> {
        match self {
            Connected::Tcp(connection) => connection.holder(),
            Connected::Direct(connection) => connection.holder(),
        }
    }

    /// The holder, for as long as this is the only handle.
    pub(super) fn holder_mut(&mut self) -> Option<&mut Holder> {
        match self {
            Connected::Tcp(connection) => connection.holder_mut(),
            Connected::Direct(connection) => connection.holder_mut(),
        }
    }

    /// The descriptor that keeps the connection open.
    pub(super) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        let descriptor = self
            .holder()
            .map_or(Err(HolderError::Private), Holder::descriptor);
        descriptor.map_err(from_holder)
    }

    /// Notes that the descriptor stands for nothing else any more.
    pub(super) fn mark_descriptor(&self) {
        if let Some(holder) = self.holder() {
            holder.mark();
        }
    }

    /// Has the engine carry the bytes from now on.
    pub(super) fn relay(&self) -> io::Result<()> {
        match self {
            Connected::Tcp(connection) => connection.relay(),
            Connected::Direct(connection) => connection.relay(),
        }
    }

    /// The ends of the connection, if the engine carries its bytes.
    pub(super) fn relayed(&self) -> io::Result<Option<Relayed>> {
        match self {
            Connected::Tcp(connection) => connection.relayed(),
            Connected::Direct(connection) => connection.relayed(),
        }
    }

    /// Has the owner signalled of urgent data.
    pub(super) fn signal_owner(&self, messenger: [OwnedFd; 2]) -> io::Result<()> {
        match self {
            Connected::Tcp(connection) => connection.signal_owner(messenger),
            Connected::Direct(connection) => connection.signal_owner(messenger),
        }
    }

    /// The peer's address.
    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Connected::Tcp(connection) => connection.with(|shard, id| shard.stack.peer_addr(id)),
            Connected::Direct(connection) => Ok(connection.peer_addr()),
        }
    }

    /// This side's address.
    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Connected::Tcp(connection) => connection.with(|shard, id| shard.stack.local_addr(id)),
            Connected::Direct(connection) => Ok(connection.local_addr()),
        }
    }

    /// Whether calls wait, unless they say otherwise.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        !self.description().is_nonblocking()
    }
}

impl Connection {
    pub(super) fn shutdown(&self, how: toehold_stack::Shutdown) -> io::Result<()> {
        self.with(|shard, id| {
            shard.tick();
            let now = shard.now;
            shard.stack.shutdown(now, id, how)
        })
    }

    pub(super) fn disconnect(&self) -> io::Result<()> {
        self.with(|shard, id| {
            shard.tick();
            shard.stack.disconnect(id)?;
            shard.respond();
            Ok(())
        })
    }

    pub(super) fn set_option(&self, option: SocketOption) -> io::Result<()> {
        self.set_options(&[option])?;
        if let SocketOption::ReceiveLowWater(_) = option {
            let settings = self.with(|shard, id| shard.stack.settings(id))?;
            self.description.set_low_water(settings.receive_low_water());
        }
        Ok(())
    }

    /// Sets all of these options, or none.
    pub(super) fn set_options(&self, options: &[SocketOption]) -> io::Result<()> {
        self.with(|shard, id| {
            shard.tick();
            let now = shard.now;
            let mut trial = shard.stack.settings(id)?;
            options.iter().try_for_each(|option| trial.apply(*option))?;
            options
                .iter()
                .try_for_each(|option| shard.stack.set_option(now, id, *option))
        })
    }

    pub(super) fn out_of_band(&self, buf: &mut [u8], peek: bool) -> io::Result<usize> {
        self.node.node.contain(|| {
            let mut shard = self.node.enter()?;
            if !shard.stack.readiness(self.id).urgent {
                shard.poll_once(None);
            }
            let flags = ReceiveFlags { peek, urgent: true };
            let result = shard.stack.receive(self.id, buf, flags);
            self.node.settle(&mut shard);
            result.map_err(from_socket)
        })
    }

    pub(super) fn send_room(&self) -> io::Result<usize> {
        self.with(|shard, id| {
            let bound = shard.stack.settings(id)?.send_buffer() as usize;
            Ok(bound.saturating_sub(shard.stack.unacknowledged_bytes(id)?))
        })
    }

    pub(super) fn details(&self) -> io::Result<Details> {
        self.with(|shard, id| {
            let now = shard.now;
            shard.stack.details(now, id)
        })
    }

    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self
            .with(|shard, id| shard.stack.take_error(id))?
            .map(from_socket))
    }
}
