//! What the handles of one stream share: the connection, how its calls wait,
//! and its end.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use toehold_node::{Guard, Holder, HolderError, Operation, Shard, SpinBudget};
use toehold_stack::{ConnectionId, Event, ReceiveFlags, SendFlags, Shutdown, SocketError};

use super::operations::{Linger, Receive, Send, must_wait};
use crate::error::{from_holder, from_socket, invalid, would_block};
use crate::node::Shared;

/// A longer write is queued and sent in pieces of about this many bytes.
const PIECE: usize = 65_536;

/// Bytes of a super-frame that are no payload, at most.
const HEADERS: usize = 120;

/// How long calls wait; no time at all stands for ever.
#[derive(Debug, Default)]
pub(crate) struct Timeout(AtomicU64);

impl Timeout {
    pub(crate) fn set(&self, span: Option<Duration>) -> io::Result<()> {
        if span.is_some_and(|span| span.is_zero()) {
            return Err(invalid("cannot set a 0 duration timeout"));
        }
        let ns = span.map_or(0, |span| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        self.0.store(ns, Relaxed);
        Ok(())
    }

    pub(crate) fn get(&self) -> Option<Duration> {
        Some(self.0.load(Relaxed))
            .filter(|&ns| ns != 0)
            .map(Duration::from_nanos)
    }
}

/// A connection as long as the program holds it.
pub(crate) struct Connection {
    pub(super) node: Arc<Shared>,
    pub(super) id: ConnectionId,
    /// Taken when it is dropped, and not before.
    holder: Option<Holder>,
    pub(super) nonblocking: AtomicBool,
    pub(super) read_timeout: Timeout,
    pub(super) write_timeout: Timeout,
    pub(super) spin: SpinBudget,
}

impl Connection {
    pub(super) fn new(node: Arc<Shared>, id: ConnectionId, holder: Holder) -> Self {
        Self {
            node,
            id,
            holder: Some(holder),
            nonblocking: AtomicBool::new(false),
            read_timeout: Timeout::default(),
            write_timeout: Timeout::default(),
            spin: SpinBudget::new(),
        }
    }

    pub(super) fn source(&self) -> Event {
        Event::Connection(self.id)
    }

    /// What keeps it open.
    pub(super) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        let holder = self.holder.as_ref();
        let descriptor = holder.map_or(Err(HolderError::Private), Holder::descriptor);
        descriptor.map_err(from_holder)
    }

    /// Does something that never waits.
    pub(super) fn with<T>(
        &self,
        call: impl FnOnce(&mut Shard, ConnectionId) -> Result<T, SocketError>,
    ) -> io::Result<T> {
        let mut shard = self.node.enter()?;
        let result = call(&mut shard, self.id);
        self.node.settle(&mut shard);
        result.map_err(from_socket)
    }

    pub(super) fn receive(&self, buffer: &mut [u8], flags: ReceiveFlags) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let mut shard = self.node.enter()?;
        self.receive_locked(&mut shard, buffer, flags)
    }

    #[inline]
    fn receive_locked(
        &self,
        shard: &mut Guard<'_>,
        buffer: &mut [u8],
        flags: ReceiveFlags,
    ) -> io::Result<usize> {
        let mut operation = Receive::new(self.id, buffer, flags);
        if let Some(result) = operation.attempt(shard) {
            self.node.settle(shard);
            return result.map_err(from_socket);
        }
        self.finish(shard, &mut operation, &self.read_timeout)?
            .unwrap_or(Err(SocketError::WouldBlock))
            .map_err(from_socket)
    }

    /// Goes on with an operation that could not be done at once: waits, or
    /// tries once more if the stream never waits. `None`: still not done.
    #[inline]
    fn finish<O: Operation>(
        &self,
        shard: &mut Guard<'_>,
        operation: &mut O,
        timeout: &Timeout,
    ) -> io::Result<Option<O::Output>> {
        if self.nonblocking.load(Relaxed) {
            return Ok(self.finish_without_waiting(shard, operation));
        }
        let deadline = timeout.get().map(|span| {
            shard.tick();
            shard.now + span
        });
        self.node.block(shard, operation, &self.spin, deadline)
    }

    /// One look at the link: nobody else may be looking.
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
    pub(super) fn receive_vectored(&self, buffers: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
        let mut buffers = buffers.iter_mut().filter(|buffer| !buffer.is_empty());
        let Some(first) = buffers.next() else { return Ok(0) };
        let mut shard = self.node.enter()?;
        let mut total = self.receive_locked(&mut shard, first, ReceiveFlags::default())?;
        let mut full = total == first.len();
        for buffer in buffers {
            if !full {
                break;
            }
            // An error, or the end of the stream, is for the next call.
            let readiness = shard.stack.readiness(self.id);
            if readiness.error || shard.stack.readable_bytes(self.id) == Ok(0) {
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
    }

    pub(super) fn send(&self, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut shard = self.node.enter()?;
        if bytes.len() <= PIECE {
            match shard.stack.send(self.id, bytes, flags) {
                Ok(queued) if queued == bytes.len() => {
                    self.sent(&mut shard);
                    return Ok(queued);
                }
                Ok(queued) => return self.send_rest(&mut shard, &bytes[queued..], flags, queued),
                Err(error) if must_wait(error) => {}
                Err(error) => return Err(from_socket(error)),
            }
        }
        self.send_rest(&mut shard, bytes, flags, 0)
    }

    /// Puts what was queued onto the link.
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
    ) -> io::Result<usize> {
        let mut operation = Send::new(self.id, bytes, flags, self.piece(shard));
        shard.tick();
        shard.respond();
        let result = match operation.attempt(shard) {
            Some(result) => {
                self.node.settle(shard);
                Some(result)
            }
            None => self.finish(shard, &mut operation, &self.write_timeout)?,
        };
        match result {
            Some(Ok(done)) => Ok(queued + done),
            Some(Err(error)) if queued == 0 => Err(from_socket(error)),
            None if queued + operation.done() == 0 => Err(would_block()),
            // What was queued counts; the next call gets what stopped this one.
            _ => Ok(queued + operation.done()),
        }
    }

    /// As many whole segments as make one super-frame.
    fn piece(&self, shard: &Shard) -> usize {
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
    pub(super) fn send_vectored(&self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let mut left = buffers
            .iter()
            .map(|buffer| &**buffer)
            .filter(|buffer| !buffer.is_empty());
        let mut shard = self.node.enter()?;
        let (mut total, mut refusal) = (0, None);
        let more = SendFlags {
            more: true,
            ..SendFlags::default()
        };
        let unsent = left.find_map(|buffer| {
            let queued = match shard.stack.send(self.id, buffer, more) {
                Ok(queued) => queued,
                Err(error) => {
                    refusal = Some(error);
                    0
                }
            };
            total += queued;
            (queued < buffer.len()).then(|| &buffer[queued..])
        });
        if let Some(error) = refusal.filter(|&error| total == 0 && !must_wait(error)) {
            return Err(from_socket(error));
        }
        if total > 0 {
            // Now all of it may go.
            let _ = shard.stack.send(self.id, &[], SendFlags::default());
            self.sent(&mut shard);
        }
        for buffer in unsent.into_iter().chain(left) {
            let before = total;
            match self.send_rest(&mut shard, buffer, SendFlags::default(), 0) {
                Ok(done) => total += done,
                Err(error) if total == 0 => return Err(error),
                Err(_) => break,
            }
            if total - before < buffer.len() {
                break;
            }
        }
        Ok(total)
    }

    /// Waits for the acknowledgement of everything if the program asked for that.
    fn linger(&self, shard: &mut Guard<'_>) -> io::Result<()> {
        let linger = shard
            .stack
            .settings(self.id)
            .ok()
            .and_then(|settings| settings.linger());
        let Some(span) = linger.filter(|span| !span.is_zero()) else {
            return Ok(());
        };
        if std::thread::panicking() || shard.stack.readable_bytes(self.id) != Ok(0) {
            return Ok(());
        }
        let mut operation = Linger { id: self.id };
        let now = shard.now;
        if shard.stack.shutdown(now, self.id, Shutdown::Write).is_ok() {
            shard.respond();
            if operation.attempt(shard).is_none() {
                let deadline = Some(now + span);
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
            let _ = self
                .node
                .unmake(holder, self.source(), |shard| self.linger(shard));
        }
    }
}
