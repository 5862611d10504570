//! The state that the handles of one stream share: the connection, how its calls wait, and its end.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use toehold_node::{
    Description, Direction, Guard, Holder, Operation, Relayed, Shard, ShardHandle, SpinBudget,
};
use toehold_stack::{ConnectionId, Event, ReceiveFlags, SendFlags, Shutdown, SocketError};

use super::operations::Linger;
use crate::error::{from_holder, from_socket, gone, invalid};
use crate::node::OnShard;

/// A longer write is queued and sent in pieces of about this many bytes.
pub(super) const PIECE: usize = 65_536;

/// Longer copies are made without the lease.
pub(super) const LONG: usize = 16 << 10;

/// Most requests that one connection leaves in a row for others to serve.
const MOST_LEFT: u32 = 8;

/// A number that no channel has.
const NO_CHANNEL: u32 = u32::MAX;

/// A span that calls may wait at most.
pub(super) fn bounded(span: Option<Duration>) -> io::Result<Option<Duration>> {
    match span.is_some_and(|span| span.is_zero()) {
        true => Err(invalid("cannot set a 0 duration timeout")),
        false => Ok(span),
    }
}

/// A connection as long as the program holds it.
pub(crate) struct Connection {
    pub(super) node: OnShard,
    pub(super) id: ConnectionId,
    /// The holder; taken when the connection is dropped, and not before.
    holder: Option<Holder>,
    /// Whether calls wait and how long, for all processes that have the connection.
    pub(super) description: Description,
    pub(super) spin: SpinBudget,
    /// The connection's channel, once this process knows of one.
    channel: AtomicU32,
    /// Bytes of the pieces of long writes, once the channel is known.
    piece: AtomicU32,
    /// Requests that were left in a row for others to serve.
    left: AtomicU32,
}

/// The way in which a call moves its bytes.
enum Way<'a> {
    /// With the lease.
    Leased(Guard<'a>),
    /// Along a lane of the connection's channel.
    Along(u32),
}

impl Connection {
    /// Makes a handle of a connection. `low_water` is that of a connection that is new.
    pub(super) fn new(node: OnShard, id: ConnectionId, holder: Holder, low_water: Option<u32>) -> Self {
        let handle = node.handle();
        let description =
            handle.map_or_else(|_| Description::private(), |handle| handle.description(&holder));
        if let Some(low_water) = low_water {
            description.set_low_water(low_water);
        }
        Self {
            node,
            id,
            holder: Some(holder),
            description,
            spin: SpinBudget::new(),
            channel: AtomicU32::new(NO_CHANNEL),
            piece: AtomicU32::new(PIECE as u32),
            left: AtomicU32::new(0),
        }
    }

    /// The shard, and the connection's id in it.
    pub(crate) fn place(&self) -> (u8, ConnectionId) {
        (self.node.index, self.id)
    }

    pub(super) fn source(&self) -> Event {
        Event::Connection(self.id)
    }

    pub(super) fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// The connection's holder, for as long as this is the only handle.
    pub(super) fn holder_mut(&mut self) -> Option<&mut Holder> {
        self.holder.as_mut()
    }

    /// Has the engine carry its bytes from now on.
    pub(super) fn relay(&self) -> io::Result<()> {
        self.node.node.contain(|| match &self.holder {
            Some(holder) => self.node.handle()?.relay(holder, self.id).map_err(from_holder),
            None => Ok(()),
        })
    }

    /// Has its owner signalled.
    pub(super) fn signal_owner(&self, messenger: [OwnedFd; 2]) -> io::Result<()> {
        self.node.node.contain(|| match &self.holder {
            Some(holder) => self
                .node
                .handle()?
                .signal_owner(holder, self.id, messenger)
                .map_err(from_holder),
            None => Ok(()),
        })
    }

    /// The ends of the connection, if the engine carries its bytes.
    pub(super) fn relayed(&self) -> io::Result<Option<Relayed>> {
        self.node.node.contain(|| match &self.holder {
            Some(holder) => self.node.handle()?.relayed(holder).map_err(gone),
            None => Ok(None),
        })
    }

    /// Calls `act`, which never waits, but for another thread's copy.
    pub(super) fn with<T>(
        &self,
        call: impl Fn(&mut Shard, ConnectionId) -> Result<T, SocketError>,
    ) -> io::Result<T> {
        self.node.node.contain(|| {
            loop {
                let mut shard = self.node.enter()?;
                shard.look_if_stale();
                let result = call(&mut shard, self.id);
                self.node.settle(&mut shard);
                let channel = shard.stack.channel(self.id);
                drop(shard);
                match (result, channel) {
                    (Err(SocketError::Taken), Some(channel)) => self.await_lane(channel, Direction::Send)?,
                    (result, _) => return result.map_err(from_socket),
                }
            }
        })
    }

    /// Asks something of the stack. Another look at the link would not improve an answer that is
    /// `good`.
    pub(super) fn ask<T>(
        &self,
        question: impl Fn(&Shard, ConnectionId) -> Result<T, SocketError>,
        good: impl Fn(&T) -> bool,
    ) -> io::Result<T> {
        self.node.node.contain(|| {
            let mut shard = self.node.enter()?;
            let mut answer = question(&shard, self.id);
            if answer.as_ref().is_ok_and(good) {
                shard.look_if_overdue();
            } else {
                shard.look_if_stale();
                answer = question(&shard, self.id);
            }
            self.node.settle(&mut shard);
            answer.map_err(from_socket)
        })
    }

    /// Whether calls wait, unless they say otherwise.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        !self.description.is_nonblocking()
    }

    pub(super) fn receive(&self, buffer: &mut [u8], flags: ReceiveFlags, waits: bool) -> io::Result<usize> {
        self.node.node.contain(|| {
            if buffer.is_empty() && !flags.urgent {
                return Ok(0);
            }
            match self.way(Direction::Receive, !flags.urgent, buffer.len())? {
                Way::Leased(mut shard) => self.receive_leased(&mut shard, buffer, flags, waits),
                Way::Along(channel) => self.receive_along(channel, buffer, flags, waits),
            }
        })
    }

    pub(super) fn send(&self, bytes: &[u8], flags: SendFlags, waits: bool) -> io::Result<usize> {
        self.node.node.contain(|| {
            if bytes.is_empty() {
                return self.send_nothing();
            }
            match self.way(Direction::Send, flags == SendFlags::default(), bytes.len())? {
                Way::Leased(mut shard) => self.send_leased(&mut shard, bytes, flags, waits),
                Way::Along(channel) => self.send_along(channel, bytes, waits),
            }
        })
    }

    /// The way to send or receive so many bytes; `plain` if there is nothing special about it.
    #[inline]
    fn way(&self, direction: Direction, plain: bool, len: usize) -> io::Result<Way<'_>> {
        let node = self.node.handle()?;
        let channel = self.channel.load(Relaxed);
        if channel == NO_CHANNEL {
            return self.first_way(node, len);
        }
        if !plain {
            return self.enter_free(direction).map(Way::Leased);
        }
        if node.channels().is_attended() || (len > LONG && self.is_long(node, channel, direction)) {
            return Ok(Way::Along(channel));
        }
        if self.left.load(Relaxed) >= MOST_LEFT {
            // Others have done enough for this one.
            self.left.store(0, Relaxed);
            return self.enter_free(direction).map(Way::Leased);
        }
        match node.try_enter().map_err(gone)? {
            Some(shard) if !shard.stack.is_taken(self.id, direction) => {
                self.left.store(0, Relaxed);
                Ok(Way::Leased(shard))
            }
            _ => Ok(Way::Along(channel)),
        }
    }

    /// The way of a call on a connection of which no channel is known. The connection gets one if
    /// that pays.
    #[inline]
    fn first_way<'a>(&self, node: &'a ShardHandle, len: usize) -> io::Result<Way<'a>> {
        let entered = node.try_enter().map_err(gone)?;
        let opens = entered.is_none() || len > LONG || node.channels().is_attended();
        let mut shard = match entered {
            Some(shard) => shard,
            None => node.enter().map_err(gone)?,
        };
        if opens && let Some(channel) = shard.stack.open_channel(self.id) {
            self.piece.store(self.piece(&shard) as u32, Relaxed);
            self.channel.store(channel, Relaxed);
        }
        Ok(Way::Leased(shard))
    }

    /// The connection's channel, which it gets if it can have one and `len` bytes are worth it.
    pub(super) fn channel_for(&self, len: usize) -> io::Result<Option<u32>> {
        if len <= LONG {
            return Ok(None);
        }
        if self.channel.load(Relaxed) == NO_CHANNEL
            && let Way::Leased(mut shard) = self.first_way(self.node.handle()?, len)?
        {
            self.node.settle(&mut shard);
        }
        Ok(Some(self.channel.load(Relaxed)).filter(|&channel| channel != NO_CHANNEL))
    }

    /// Bytes of one piece of a long write along the channel.
    pub(super) fn known_piece(&self) -> usize {
        self.piece.load(Relaxed) as usize
    }

    /// Whether a long copy can be made along a lane at once. Where nothing has come yet,
    /// waiting for it with the lease brings it without a copy in between.
    fn is_long(&self, node: &ShardHandle, channel: u32, direction: Direction) -> bool {
        let lane = node.channels().lane(channel, direction);
        let owner = self.source().word();
        direction == Direction::Send || lane.is_some_and(|lane| lane.bounds(owner).len > LONG)
    }

    /// Takes the lease at a moment when no other thread copies in that direction.
    pub(super) fn enter_free(&self, direction: Direction) -> io::Result<Guard<'_>> {
        loop {
            let shard = self.node.enter()?;
            if !shard.stack.is_taken(self.id, direction) {
                return Ok(shard);
            }
            let channel = shard.stack.channel(self.id);
            drop(shard);
            self.await_lane(channel.unwrap_or(NO_CHANNEL), direction)?;
        }
    }

    fn await_lane(&self, channel: u32, direction: Direction) -> io::Result<()> {
        let node = self.node.handle()?;
        node.await_lane(channel, direction).map_err(gone)
    }

    /// Leaves a request for the thread that has the lease.
    pub(super) fn leave_request(&self, node: &ShardHandle, channel: u32) -> io::Result<()> {
        let served = node.leave_request(channel).map_err(gone)?;
        self.count_left(served);
        Ok(())
    }

    /// Counts a request that was served, or left to others.
    pub(super) fn count_left(&self, served: bool) {
        let left = if served { 0 } else { self.left.load(Relaxed) + 1 };
        self.left.store(left, Relaxed);
    }

    /// How long the program wants to wait for the acknowledgement of everything. What it has
    /// not read resets the connection, and then there is nothing to wait for.
    fn linger(&self, shard: &Shard) -> Option<Duration> {
        let settings = shard.stack.settings(self.id).ok()?;
        let span = settings.linger().filter(|span| !span.is_zero())?;
        let waits = !std::thread::panicking() && shard.stack.readable_bytes(self.id) == Ok(0);
        waits.then_some(span)
    }

    /// Waits for the acknowledgement of everything, so long at most.
    fn await_acknowledgement(&self, shard: &mut Guard<'_>, longest: Duration) -> io::Result<()> {
        let mut operation = Linger { id: self.id };
        let now = shard.now;
        if shard.stack.shutdown(now, self.id, Shutdown::Write).is_ok() {
            shard.respond();
            if operation.attempt(shard).is_none() {
                let deadline = Some(now + longest);
                self.node.block(shard, &mut operation, &self.spin, deadline)?;
            }
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(holder) = self.holder.take() {
            // A node that is gone holds nothing.
            let _ = self.node.unmake(
                holder,
                self.source(),
                |shard| self.linger(shard),
                |shard, longest| self.await_acknowledgement(shard, longest),
            );
        }
    }
}
