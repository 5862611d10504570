//! The calls on a stream with the lease.

use std::io;
use std::time::Duration;

use toehold_node::{Description, Direction, Guard, Operation, Shard};
use toehold_stack::{MOST_WHOLE, ReceiveFlags, SendFlags, SocketError};

use super::connection::{Connection, PIECE};
use super::operations::{Receive, Send, must_wait};
use crate::error::{from_socket, would_block};

/// Bytes of a super-frame that are no payload, at most.
const HEADERS: usize = 120;

impl Connection {
    #[inline]
    pub(super) fn receive_leased(
        &self,
        shard: &mut Guard<'_>,
        buffer: &mut [u8],
        flags: ReceiveFlags,
        waits: bool,
    ) -> io::Result<usize> {
        let mut operation = Receive::new(self.id, buffer, flags);
        if let Some(result) = operation.attempt(shard) {
            self.node.settle(shard);
            return result.map_err(from_socket);
        }
        self.finish(shard, &mut operation, Description::read_timeout, waits)?
            .unwrap_or(Err(SocketError::WouldBlock))
            .map_err(from_socket)
    }

    /// Goes on with an operation that could not be done at once: waits, or tries once more if it
    /// may not wait. Returns `None` if it is still not done.
    #[inline]
    pub(super) fn finish<O: Operation>(
        &self,
        shard: &mut Guard<'_>,
        operation: &mut O,
        timeout: fn(&Description) -> Option<Duration>,
        waits: bool,
    ) -> io::Result<Option<O::Output>> {
        if !waits {
            return Ok(self.finish_without_waiting(shard, operation));
        }
        let deadline = timeout(&self.description).map(|span| {
            shard.tick();
            shard.now + span
        });
        self.node.block(shard, operation, &self.spin, deadline)
    }

    /// Looks once at the link, if no other thread is looking.
    fn finish_without_waiting<O: Operation>(
        &self,
        shard: &mut Guard<'_>,
        operation: &mut O,
    ) -> Option<O::Output> {
        shard.tick();
        operation.receive(shard);
        shard.respond();
        if shard.housekeeping_due() {
            shard.housekeeping();
        }
        let output = operation.attempt(shard);
        self.node.settle(shard);
        output
    }

    /// Receives into the first buffer, waiting if it has to, and into the
    /// others what is there.
    pub(super) fn receive_vectored(
        &self,
        buffers: &mut [io::IoSliceMut<'_>],
        waits: bool,
    ) -> io::Result<usize> {
        self.node.node.contain(|| {
            let mut buffers = buffers.iter_mut().filter(|buffer| !buffer.is_empty());
            let Some(first) = buffers.next() else { return Ok(0) };
            let mut shard = self.enter_free(Direction::Receive)?;
            let mut total = self.receive_leased(&mut shard, first, ReceiveFlags::default(), waits)?;
            let mut full = total == first.len();
            for buffer in buffers {
                if !full {
                    break;
                }
                // An error, the end of the stream, or what is behind a mark is for the next call.
                let readiness = shard.stack.readiness(self.id);
                let at_mark = shard.stack.at_mark(self.id) == Ok(true);
                if readiness.error || at_mark || shard.stack.readable_bytes(self.id) == Ok(0) {
                    break;
                }
                let Ok(received) = shard.stack.receive(self.id, buffer, ReceiveFlags::default()) else {
                    break;
                };
                total += received;
                full = received == buffer.len();
            }
            self.node.settle(&mut shard);
            Ok(total)
        })
    }

    #[inline]
    pub(super) fn send_leased(
        &self,
        shard: &mut Guard<'_>,
        bytes: &[u8],
        flags: SendFlags,
        waits: bool,
    ) -> io::Result<usize> {
        if bytes.len() <= PIECE {
            match shard.stack.send(self.id, bytes, flags) {
                Ok(queued) if queued == bytes.len() => {
                    self.sent(shard);
                    return Ok(queued);
                }
                Ok(queued) => return self.send_rest(shard, &bytes[queued..], flags, queued, waits),
                Err(error) if must_wait(error) => {}
                Err(error) => return Err(from_socket(error)),
            }
        }
        self.send_rest(shard, bytes, flags, 0, waits)
    }

    /// Puts queued bytes onto the link.
    #[inline]
    fn sent(&self, shard: &mut Guard<'_>) {
        shard.tick();
        shard.respond();
        if shard.is_stale() {
            shard.receive(None);
            shard.respond();
            if shard.housekeeping_due() {
                shard.housekeeping();
            }
        }
        self.node.settle(shard);
    }

    /// Goes on with a write of which `queued` bytes are queued already.
    fn send_rest(
        &self,
        shard: &mut Guard<'_>,
        bytes: &[u8],
        flags: SendFlags,
        queued: usize,
        waits: bool,
    ) -> io::Result<usize> {
        let mut operation = Send::new(self.id, bytes, flags, self.piece(shard));
        shard.tick();
        shard.respond();
        let result = match operation.attempt(shard) {
            Some(result) => {
                self.node.settle(shard);
                Some(result)
            }
            None => self.finish(shard, &mut operation, Description::write_timeout, waits)?,
        };
        match result {
            Some(Ok(done)) => Ok(queued + done),
            Some(Err(error)) if queued == 0 => Err(from_socket(error)),
            None if queued + operation.done() == 0 => Err(would_block()),
            // What was queued counts; the next call gets what stopped this one.
            _ => Ok(queued + operation.done()),
        }
    }

    /// Sends no bytes. Returns the error of sending all the same.
    #[cold]
    pub(super) fn send_nothing(&self) -> io::Result<usize> {
        self.node.node.contain(|| {
            let mut shard = self.enter_free(Direction::Send)?;
            match shard.stack.may_send(self.id) {
                Err(error) if must_wait(error) => Err(would_block()),
                may_send => may_send.map(|()| 0).map_err(from_socket),
            }
        })
    }

    /// Sends what the SYN, which has waited for these bytes, may carry. `waits` says that the
    /// caller waits to send more.
    #[cold]
    pub(super) fn send_with_syn(&self, bytes: &[u8], flags: SendFlags, waits: bool) -> io::Result<usize> {
        self.node.node.contain(|| {
            let mut shard = self.enter_free(Direction::Send)?;
            let sent = match shard.stack.send(self.id, bytes, flags) {
                Err(error) if must_wait(error) => 0,
                sent => sent.map_err(from_socket)?,
            };
            if waits && sent < bytes.len() {
                shard.stack.note_waiting_sender(self.id);
            }
            self.sent(&mut shard);
            Ok(sent)
        })
    }

    /// The bytes of as many whole segments as make one super-frame.
    pub(super) fn piece(&self, shard: &Shard) -> usize {
        let segment = shard
            .stack
            .info(self.id)
            .map_or(1, |info| usize::from(info.segment_size).max(1));
        let frame = (shard.link().capabilities().super_frame as usize)
            .min(PIECE)
            .saturating_sub(HEADERS);
        (frame - frame % segment).max(segment)
    }

    /// Queues all buffers before anything is sent, so that they share segments.
    pub(super) fn send_vectored(
        &self,
        buffers: &[io::IoSlice<'_>],
        last: SendFlags,
        waits: bool,
    ) -> io::Result<usize> {
        self.node.node.contain(|| {
            let mut left = buffers
                .iter()
                .map(|buffer| &**buffer)
                .filter(|buffer| !buffer.is_empty())
                .peekable();
            if left.peek().is_none() {
                return self.send_nothing();
            }
            let mut shard = self.enter_free(Direction::Send)?;
            if buffers.len() > 1 {
                let len: usize = buffers.iter().map(|buffer| buffer.len()).sum();
                if len <= MOST_WHOLE && !shard.stack.readiness(self.id).writable {
                    return self.send_leased(&mut shard, &concatenated(buffers), last, waits);
                }
            }
            let (mut total, mut refusal, mut unsent) = (0, None, None);
            let more = SendFlags {
                more: true,
                ..SendFlags::default()
            };
            while unsent.is_none()
                && let Some(buffer) = left.next()
            {
                let flags = if left.peek().is_some() { more } else { last };
                let queued = match shard.stack.send(self.id, buffer, flags) {
                    Ok(queued) => queued,
                    Err(error) => {
                        refusal = Some(error);
                        0
                    }
                };
                total += queued;
                unsent = (queued < buffer.len()).then(|| &buffer[queued..]);
            }
            if let Some(error) = refusal.filter(|&error| total == 0 && !must_wait(error)) {
                return Err(from_socket(error));
            }
            if total > 0 {
                if unsent.is_some() {
                    // What is queued may go: there is no room for more.
                    let _ = shard.stack.send(self.id, &[], SendFlags::default());
                }
                self.sent(&mut shard);
            }
            while let Some(buffer) = unsent.take().or_else(|| left.next()) {
                let before = total;
                let flags = if left.peek().is_some() { more } else { last };
                match self.send_rest(&mut shard, buffer, flags, 0, waits) {
                    Ok(done) => total += done,
                    Err(error) if total == 0 => return Err(error),
                    Err(_) => break,
                }
                if total - before < buffer.len() {
                    break;
                }
            }
            Ok(total)
        })
    }
}

/// The bytes of a record in several buffers, which are queued as a whole.
#[cold]
fn concatenated(buffers: &[io::IoSlice<'_>]) -> Vec<u8> {
    buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect()
}
