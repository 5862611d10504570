//! Notes in a shard that a process has a connection, a listener or a poll of it. So the shard
//! closes what no process has any more, however the process ended.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use toehold_shm::Direction;
use toehold_stack::{ConnectionId, Event, SocketError};

use crate::callers::{Callers, Forwarded};
use crate::description::Description;
use crate::holder::{Holder, HolderError};
use crate::placement::Placement;
use crate::shard::Shard;
use crate::wait::{Gone, Guard, ShardHandle};

/// A connection whose bytes the engine carries, see [`ShardHandle::relay`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relayed {
    /// This side's address; none, if the connection is over.
    pub local: Option<SocketAddr>,
    /// The peer's address.
    pub peer: Option<SocketAddr>,
}

/// The note that this process has a poll, see [`ShardHandle::own`].
#[derive(Debug, Clone, Copy)]
pub struct Ownership(Option<u32>);

impl ShardHandle {
    /// The threads that drive the shard.
    #[inline]
    pub fn placement(&self) -> Placement {
        self.signals.placement()
    }

    /// A holder that will keep a connection or listener open. Take it before the lease: it may have
    /// to be asked for.
    ///
    /// # Errors
    ///
    /// If this process or the engine has no descriptors left, or the node is gone.
    #[inline]
    pub fn holder(&self) -> Result<Holder, HolderError> {
        match &self.attachment {
            // An engine that has begun anew refuses what is of its former life.
            Some(attachment) => match attachment.holder() {
                Err(_) if self.lease.lease().is_closed() => Err(Gone.into()),
                holder => holder,
            },
            None => Ok(Holder::PRIVATE),
        }
    }

    /// Takes a port for the listener that a holder will stand for from the kernel, if that is
    /// beside the node. Returns the port. Port 0 is any, and left to the stack where there is no
    /// kernel. The port is given back with the holder. Call it without the lease.
    ///
    /// # Errors
    ///
    /// `Port` with ADDRINUSE if a program of the kernel's has the port, or if the node is gone.
    pub fn take_port(
        &self,
        holder: &mut Holder,
        address: SocketAddr,
        only_ipv6: bool,
    ) -> Result<u16, HolderError> {
        let attachment = self.attachment.as_ref();
        attachment.map_or(Ok(address.port()), |attachment| {
            attachment.take_port(holder, address, only_ipv6)
        })
    }

    /// Lets a holder stand for a connection or listener. Returns `false` if it cannot.
    #[inline]
    pub fn hold(&self, shard: &mut Shard, holder: &Holder, source: Event) -> bool {
        let set = |number| {
            self.descriptions.begin(number);
            holder.begin(self.descriptions.looks());
            shard.waiting.holders.set(number, self.process(), source)
        };
        holder.number().is_none_or(set)
    }

    /// The state that all processes with a holder's connection or listener share.
    #[inline]
    pub fn description(&self, holder: &Holder) -> Description {
        let shared = holder.number().and_then(|number| self.descriptions.of(number));
        shared.unwrap_or_else(Description::private)
    }

    /// Whether this process alone has what a holder stands for. If so, it is to be closed by this
    /// process, and by the engine otherwise.
    #[inline]
    pub fn is_exclusive(&self, holder: &Holder) -> bool {
        let attachment = self.attachment.as_ref();
        attachment.is_none_or(|attachment| attachment.pool().is_exclusive(holder))
    }

    /// Lets a holder stand for nothing any more: it was closed.
    #[inline]
    pub fn release(&self, shard: &mut Guard<'_>, holder: &Holder) {
        if let Some(number) = holder.number() {
            shard.waiting.holders.take(number);
        }
    }

    /// Lets go of a holder that is not exclusive. If no other process has it either, it
    /// comes back, and is: what it stands for is to be closed by this process. To be called
    /// without the lease.
    pub fn inherit(&self, holder: Holder) -> Option<Holder> {
        self.attachment.as_ref()?.inherit(holder)
    }

    /// Gives back a holder that stands for nothing. To be called without the lease.
    #[inline]
    pub fn give_back(&self, holder: Holder) {
        if let Some(attachment) = &self.attachment {
            holder.end(self.descriptions.looks());
            attachment.give_back(holder);
        }
    }

    /// The holder that a descriptor is, which another process has given to this one.
    pub(crate) fn identify(&self, descriptor: OwnedFd) -> Result<Holder, HolderError> {
        let attachment = self.attachment.as_ref().ok_or(HolderError::Private)?;
        attachment.identify(descriptor)
    }

    /// The connection or listener that a holder stands for in this shard.
    pub(crate) fn held(&self, holder: &Holder) -> Result<Option<Event>, Gone> {
        let shard = self.enter()?;
        let number = holder.number();
        Ok(number.and_then(|number| shard.waiting.holders.get(number)))
    }

    /// Has the engine carry the bytes between a connection and its descriptor, which then is a
    /// connected Unix socket to any program. No process has the connection by its former name any
    /// more. Call it without the lease.
    ///
    /// # Errors
    ///
    /// If the node is only this process's, has no descriptors left, or is gone.
    pub fn relay(&self, holder: &Holder, id: ConnectionId) -> Result<(), HolderError> {
        let attachment = self.attachment.as_ref().ok_or(HolderError::Private)?;
        let number = holder.number().ok_or(HolderError::Private)?;
        loop {
            let mut shard = self.enter()?;
            if shard.waiting.holders.relayed(number).is_some() {
                break;
            }
            match shard.relay(number, id) {
                Ok(()) => {
                    self.settle(&mut shard);
                    break;
                }
                Err(SocketError::Taken) => {
                    let channel = shard.stack.channel(id);
                    drop(shard);
                    for direction in [Direction::Send, Direction::Receive] {
                        channel.map_or(Ok(()), |channel| self.await_lane(channel, direction))?;
                    }
                }
                Err(_) => return Err(HolderError::Foreign),
            }
        }
        attachment.relay(number)
    }

    /// Has the kernel signal the owner of a connection (SIGURG) when its peer announces urgent
    /// data. The owner is that of the first of two connected Unix sockets. Call it without the
    /// lease, and again if the owner changes.
    ///
    /// # Errors
    ///
    /// If the node is only this process's, has no descriptors left, or is gone.
    pub fn signal_owner(
        &self,
        holder: &Holder,
        id: ConnectionId,
        messenger: [OwnedFd; 2],
    ) -> Result<(), HolderError> {
        let attachment = self.attachment.as_ref().ok_or(HolderError::Private)?;
        let number = holder.number().ok_or(HolderError::Private)?;
        let set_owned = |owned| {
            let mut shard = self.enter()?;
            let set = shard.stack.set_owned(id, owned);
            shard.respond();
            self.settle(&mut shard);
            set.map_err(|_| HolderError::Foreign)
        };
        // What is announced until the engine looks is not lost.
        set_owned(true)?;
        attachment
            .own(number, messenger)
            .or_else(|error| set_owned(false).and(Err(error)))
    }

    /// Notes that the program is told on the node when the holder's socket is ready, or waits for
    /// it there.
    #[inline]
    pub fn attend(&self, shard: &mut Shard, holder: &Holder) {
        if let Some(number) = holder.number() {
            shard.waiting.holders.attend(number);
            if let Some(Event::Listener(id)) = shard.waiting.holders.get(number) {
                shard.attend(id);
            }
        }
    }

    /// Has the engine forward peers that connect to a holder's listener to one of the kernel's, and
    /// note their addresses in the table. `which` says which peers.
    ///
    /// # Errors
    ///
    /// If the node is only this process's, the engine cannot reach the kernel's listener, or
    /// the node is gone.
    pub fn forward(
        &self,
        holder: &Holder,
        listener: BorrowedFd<'_>,
        callers: &Callers,
        which: Forwarded,
    ) -> Result<(), HolderError> {
        let attachment = self.attachment.as_ref().ok_or(HolderError::Private)?;
        self.keep_from_peers(holder, which)?;
        attachment.forward(holder, (listener, callers), which)
    }

    /// The engine forwards connections that come over TCP only: so do those of peers, as long as it may
    /// forward them.
    fn keep_from_peers(&self, holder: &Holder, which: Forwarded) -> Result<(), Gone> {
        let mut shard = self.enter()?;
        let number = holder.number();
        let source = number.and_then(|number| shard.waiting.holders.get(number));
        if let (Some(number), Some(Event::Listener(id))) = (number, source) {
            match which {
                Forwarded::All => shard.keep_out(id),
                Forwarded::Unattended if shard.waiting.holders.is_attended(number) => {}
                Forwarded::Unattended => shard.park(id),
            }
        }
        self.settle(&mut shard);
        Ok(())
    }

    /// Whether the engine carries the bytes of the connection that a holder stands for.
    #[inline]
    pub fn is_relayed(&self, shard: &Shard, holder: &Holder) -> bool {
        let number = holder.number();
        number.is_some_and(|number| shard.waiting.holders.relayed(number).is_some())
    }

    /// The ends of the connection whose bytes the engine carries to and from a holder's
    /// descriptor, if it does.
    ///
    /// # Errors
    ///
    /// If the node is gone.
    pub fn relayed(&self, holder: &Holder) -> Result<Option<Relayed>, Gone> {
        let shard = self.enter()?;
        let number = holder.number();
        let source = number.and_then(|number| shard.waiting.holders.relayed(number));
        Ok(match source {
            Some(Event::Connection(id)) => Some(Relayed {
                local: shard.stack.local_addr(id).ok(),
                peer: shard.stack.peer_addr(id).ok(),
            }),
            _ => None,
        })
    }

    /// Notes that this process has a poll, which is to be closed when the process ends. Returns
    /// `None` if there is no room for that.
    pub fn own(&self, shard: &mut Guard<'_>, poll: u32) -> Option<Ownership> {
        if self.attachment.is_none() {
            // The node ends with this process.
            return Some(Ownership(None));
        }
        let record = shard.waiting.owners.insert(self.process(), poll)?;
        Some(Ownership(Some(record)))
    }

    /// Notes that this process has closed the poll.
    pub fn disown(&self, shard: &mut Guard<'_>, ownership: Ownership) {
        if let Ownership(Some(record)) = ownership {
            shard.waiting.owners.remove(record);
        }
    }
}
