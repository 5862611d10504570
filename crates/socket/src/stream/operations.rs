//! The calls on a stream that may have to wait.

use toehold_node::{Operation, Shard, Subscription, interrupts};
use toehold_stack::{
    ConnectionId, DirectReceive, Event, MOST_WHOLE, ReceiveFlags, SendFlags, SocketError, State,
};

/// Whether a stream has to wait: while nothing can be done, while it is being connected, and while
/// another thread copies along its channel.
pub(super) fn must_wait(error: SocketError) -> bool {
    matches!(
        error,
        SocketError::WouldBlock | SocketError::InProgress | SocketError::Taken
    )
}

/// Waits for the end of the handshake.
pub(super) struct Connect {
    pub(super) id: ConnectionId,
}

impl Operation for Connect {
    type Output = Result<(), SocketError>;

    fn attempt(&mut self, shard: &mut Shard) -> Option<Self::Output> {
        match shard.stack.state(self.id) {
            // It waits for what the program sends.
            Ok(State::SynSent) if shard.stack.is_deferred(self.id) => Some(Ok(())),
            Ok(State::SynSent | State::SynReceived) => None,
            Ok(State::Closed) => Some(match shard.stack.take_error(self.id) {
                Ok(None) => Err(SocketError::ConnectionAborted),
                Ok(Some(error)) | Err(error) => Err(error),
            }),
            Ok(_) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    }

    fn subscription(&self) -> Subscription {
        Subscription::Source(Event::Connection(self.id))
    }
}

/// Waits for data, the end of the stream, or an error.
pub(super) struct Receive<'a> {
    id: ConnectionId,
    buffer: &'a mut [u8],
    /// Bytes that went straight from the link into the buffer.
    placed: usize,
    flags: ReceiveFlags,
}

impl<'a> Receive<'a> {
    pub(super) fn new(id: ConnectionId, buffer: &'a mut [u8], flags: ReceiveFlags) -> Self {
        Self {
            id,
            buffer,
            placed: 0,
            flags,
        }
    }

    /// Whether a signal comes before the next bytes. A signal of urgent data does; see
    /// [`toehold_stack::Stack::set_owned`].
    #[cold]
    fn is_interrupted(&self, shard: &Shard) -> bool {
        shard.stack.at_mark(self.id) == Ok(true) && interrupts::is_pending()
    }

    /// How many bytes have come straight from the link.
    pub(super) fn placed(&self) -> usize {
        self.placed
    }
}

impl Operation for Receive<'_> {
    type Output = Result<usize, SocketError>;

    #[inline]
    fn attempt(&mut self, shard: &mut Shard) -> Option<Self::Output> {
        if self.placed > 0 {
            return Some(Ok(self.placed));
        }
        if shard.stack.is_owned(self.id) && self.is_interrupted(shard) {
            return None;
        }
        match shard.stack.receive(self.id, self.buffer, self.flags) {
            Err(error) if must_wait(error) => None,
            result => Some(result),
        }
    }

    #[inline]
    fn receive(&mut self, shard: &mut Shard) -> usize {
        if self.flags != ReceiveFlags::default() {
            return shard.receive(None);
        }
        let mut placement = DirectReceive {
            connection: self.id,
            buffer: self.buffer,
            filled: self.placed,
        };
        let frames = shard.receive(Some(&mut placement));
        self.placed = placement.filled;
        frames
    }

    fn subscription(&self) -> Subscription {
        Subscription::Source(Event::Connection(self.id))
    }
}

/// Waits until all bytes are queued, as a blocking `send(2)` does.
pub(super) struct Send<'a> {
    id: ConnectionId,
    bytes: &'a [u8],
    done: usize,
    flags: SendFlags,
    /// Bytes queued before they are sent, so that the peer works on one piece
    /// while this side copies the next.
    piece: usize,
}

impl<'a> Send<'a> {
    pub(super) fn new(id: ConnectionId, bytes: &'a [u8], flags: SendFlags, piece: usize) -> Self {
        Self {
            id,
            bytes,
            done: 0,
            flags,
            // What is queued as a whole or not at all is one piece.
            piece: piece.max(bytes.len().min(MOST_WHOLE)),
        }
    }

    /// Bytes queued so far.
    pub(super) fn done(&self) -> usize {
        self.done
    }
}

impl Operation for Send<'_> {
    type Output = Result<usize, SocketError>;

    const IS_FOR_ROOM: bool = true;

    fn attempt(&mut self, shard: &mut Shard) -> Option<Self::Output> {
        loop {
            if self.done > 0 && shard.stack.readiness(self.id).error {
                // The next call gets the error.
                return Some(Ok(self.done));
            }
            let end = self.bytes.len().min(self.done + self.piece);
            let last = end == self.bytes.len();
            let flags = SendFlags {
                urgent: self.flags.urgent && last,
                more: self.flags.more && last,
                end_of_record: self.flags.end_of_record && last,
            };
            let queued = match shard.stack.send(self.id, &self.bytes[self.done..end], flags) {
                Ok(queued) => queued,
                Err(error) if must_wait(error) => return None,
                Err(_) if self.done > 0 => return Some(Ok(self.done)),
                Err(error) => return Some(Err(error)),
            };
            self.done += queued;
            shard.tick();
            shard.transmit();
            if self.done == self.bytes.len() {
                return Some(Ok(self.done));
            }
            if self.done < end {
                return None;
            }
            if shard.is_stale() {
                shard.receive(None);
                shard.respond();
            }
        }
    }

    fn subscription(&self) -> Subscription {
        Subscription::Source(Event::Connection(self.id))
    }
}

/// Waits until the peer has acknowledged everything, the FIN included.
pub(super) struct Linger {
    pub(super) id: ConnectionId,
}

impl Operation for Linger {
    type Output = ();

    fn attempt(&mut self, shard: &mut Shard) -> Option<()> {
        let owing = [
            State::FinWait1,
            State::Closing,
            State::LastAck,
            State::SynReceived,
        ];
        let state = shard.stack.state(self.id);
        (!state.is_ok_and(|state| owing.contains(&state))).then_some(())
    }

    fn subscription(&self) -> Subscription {
        Subscription::Source(Event::Connection(self.id))
    }
}
