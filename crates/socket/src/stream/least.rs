//! Receiving at least so many bytes, as MSG_WAITALL and SO_RCVLOWAT demand.

use std::io::{self, IoSliceMut};
use std::time::Instant;

use toehold_node::{Direction, Operation, Shard, Subscription};
use toehold_stack::{ConnectionId, DirectReceive, Event, ReceiveFlags};

use super::connection::Connection;
use super::operations::must_wait;

/// A call that has received some bytes and is to get more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    pub(super) received: usize,
    /// The number of bytes with which it is done.
    pub(super) least: usize,
    pub(super) at: Instant,
}

impl Connection {
    /// Goes on with a call until there is as much as it wants, or the time has come. An end, an
    /// error or a mark ends it, too, which the next call is told. Returns how many bytes it has
    /// then.
    #[cold]
    pub(super) fn receive_rest(&self, buffers: &mut [IoSliceMut<'_>], begun: Begun) -> io::Result<usize> {
        let mut left = buffers;
        IoSliceMut::advance_slices(&mut left, begun.received);
        let mut rest = Rest {
            id: self.id,
            left,
            received: begun.received,
            least: begun.least,
        };
        self.wait_for_more(&mut rest, begun.at)?;
        Ok(rest.received)
    }

    /// Waits for a call that leaves all bytes in the stream, until there are as many as it wants.
    /// The call looks again afterwards.
    #[cold]
    pub(super) fn await_bytes(&self, begun: Begun) -> io::Result<()> {
        let least = begun.least;
        self.wait_for_more(&mut Bytes { id: self.id, least }, begun.at)
    }

    fn wait_for_more(&self, operation: &mut impl Operation, began: Instant) -> io::Result<()> {
        self.node.node.contain(|| {
            let mut shard = self.enter_free(Direction::Receive)?;
            if operation.attempt(&mut shard).is_some() {
                self.node.settle(&mut shard);
                return Ok(());
            }
            let deadline = self.description.read_timeout().map(|span| {
                shard.tick();
                shard.now + span.saturating_sub(began.elapsed())
            });
            // What there is counts, whatever has ended the waiting.
            let _ = self.node.block(&mut shard, operation, &self.spin, deadline);
            Ok(())
        })
    }
}

/// Receives until there are enough bytes.
struct Rest<'a, 'b> {
    id: ConnectionId,
    left: &'a mut [IoSliceMut<'b>],
    received: usize,
    least: usize,
}

impl Rest<'_, '_> {
    fn advance(&mut self, len: usize) {
        IoSliceMut::advance_slices(&mut self.left, len);
        self.received += len;
    }
}

impl Operation for Rest<'_, '_> {
    type Output = ();

    fn attempt(&mut self, shard: &mut Shard) -> Option<()> {
        while let Some(buffer) = self.left.first_mut() {
            if shard.stack.readiness(self.id).error || shard.stack.mark(self.id) == Ok(Some(0)) {
                return Some(());
            }
            match shard.stack.receive(self.id, buffer, ReceiveFlags::default()) {
                Ok(0) => return Some(()),
                Ok(len) => self.advance(len),
                Err(error) if must_wait(error) => return (self.received >= self.least).then_some(()),
                Err(_) => return Some(()),
            }
        }
        Some(())
    }

    fn receive(&mut self, shard: &mut Shard) -> usize {
        let Some(buffer) = self.left.first_mut() else {
            return shard.receive(None);
        };
        let mut placement = DirectReceive {
            connection: self.id,
            buffer,
            filled: 0,
        };
        let frames = shard.receive(Some(&mut placement));
        let filled = placement.filled;
        self.advance(filled);
        frames
    }

    fn subscription(&self) -> Subscription {
        Subscription::Source(Event::Connection(self.id))
    }
}

/// Waits until so many bytes are there.
struct Bytes {
    id: ConnectionId,
    least: usize,
}

impl Operation for Bytes {
    type Output = ();

    fn attempt(&mut self, shard: &mut Shard) -> Option<()> {
        let unread = shard.stack.readable_bytes(self.id).ok()?;
        let before_mark = shard.stack.mark(self.id).ok()?.filter(|&distance| distance > 0);
        let readiness = shard.stack.readiness(self.id);
        let is_over = readiness.error || readiness.read_closed;
        let is_enough = unread >= before_mark.map_or(self.least, |distance| distance.min(self.least));
        (is_over || is_enough).then_some(())
    }

    fn subscription(&self) -> Subscription {
        Subscription::Source(Event::Connection(self.id))
    }
}
