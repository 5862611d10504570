//! The readiness of a direct connection, as `poll(2)` would tell it, and how calls wait for it.

use toehold_node::direct::WaitTarget;
use toehold_shm::direct::{ArmError, Look, Noted, StreamState, ThreadNumber, WaiterNumber, Wish};
use toehold_stack::Readiness;

use super::{DirectCall, DirectConnection};

/// The state of a connection, of its peer and of its own node, at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Present {
    /// Bytes that the next call can receive, up to the urgent byte.
    pub(crate) readable: u64,
    /// All bytes that are there.
    pub(crate) unread: u64,
    /// Whether a third of the room for the peer's bytes is free.
    pub(crate) has_room: bool,
    /// Whether the peer sends no more.
    pub(crate) is_read_closed: bool,
    /// Whether the program reads no more.
    pub(crate) is_read_shut: bool,
    /// Whether nothing can be sent any more.
    pub(crate) is_write_shut: bool,
    /// Whether the connection is over: reset, or the peer's node gone.
    pub(crate) is_closed: bool,
    /// Whether an urgent byte waits to be taken.
    pub(crate) has_urgent: bool,
    pub(crate) has_error: bool,
}

/// Looks at a connection: whether there is something is told without a lock.
pub(crate) fn look(call: &DirectCall<'_>, connection: &DirectConnection) -> Present {
    let found = call.end.look();
    present(call, connection, &found)
}

fn present(call: &DirectCall<'_>, connection: &DirectConnection, found: &Look) -> Present {
    let end = &call.end;
    let is_gone = !call.is_peer_there();
    let is_over = is_gone || matches!(found.peer, StreamState::Reset(_)) || end.is_beyond_limit();
    if is_over && !end.has_noted(Noted::ResetSeen) {
        call.notice();
    }
    let is_closed = end.has_noted(Noted::ResetSeen) || end.has_noted(Noted::SentInVain);
    let urgent = match found.urgent {
        0 => Urgent::default(),
        position => connection.urgent(end, position, found.readable),
    };
    Present {
        readable: urgent
            .limit
            .map_or(found.readable, |limit| found.readable.min(limit)),
        unread: found.readable,
        has_room: found.has_room,
        is_read_closed: found.peer != StreamState::Open || is_gone || is_closed,
        is_read_shut: end.has_noted(Noted::ReadShut),
        is_write_shut: end.is_write_shut(),
        is_closed,
        has_urgent: urgent.is_there,
        has_error: end.error() != 0,
    }
}

/// The effect of an urgent byte on the bytes that can be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Urgent {
    /// Bytes that can be received before the mark; `None` if there is no mark ahead.
    pub(super) limit: Option<u64>,
    /// The urgent byte has come, and was not taken.
    pub(super) is_there: bool,
}

impl Present {
    /// Whether a call that wants so many bytes is done.
    pub(crate) fn is_readable(&self, low: u64) -> bool {
        self.readable >= low.max(1) || self.is_read_closed || self.is_read_shut || self.has_error
    }

    /// Whether a call that sends is done.
    pub(crate) fn is_writable(&self) -> bool {
        self.has_room || self.is_write_shut || self.is_closed || self.has_error
    }

    /// The readiness in the terms of `poll(2)`.
    pub(crate) fn readiness(&self, low: u64) -> Readiness {
        let is_read_closed = self.is_read_closed || self.is_read_shut;
        Readiness {
            readable: self.is_readable(low),
            writable: self.is_writable(),
            urgent: self.has_urgent,
            read_closed: is_read_closed,
            hang_up: self.is_closed || is_read_closed && self.is_write_shut,
            error: self.has_error,
            announced: false,
        }
    }
}

/// Waits for so many bytes to receive.
pub(super) struct ForBytes<'a> {
    pub(super) call: DirectCall<'a>,
    pub(super) connection: &'a DirectConnection,
    pub(super) low: u64,
}

impl WaitTarget for ForBytes<'_> {
    fn is_ready(&self) -> bool {
        look(&self.call, self.connection).is_readable(self.low)
    }

    fn arm(&mut self, thread: ThreadNumber, waiter: WaiterNumber) -> Result<bool, ArmError> {
        let wish = Wish {
            read: Some(self.low),
            edge: false,
            room: false,
        };
        let found = self.call.end.arm(thread, waiter, wish)?;
        Ok(present(&self.call, self.connection, &found).is_readable(self.low))
    }
}

/// Waits for room to send.
pub(super) struct ForRoom<'a> {
    pub(super) call: DirectCall<'a>,
    pub(super) connection: &'a DirectConnection,
}

impl WaitTarget for ForRoom<'_> {
    fn is_ready(&self) -> bool {
        look(&self.call, self.connection).is_writable()
    }

    fn arm(&mut self, thread: ThreadNumber, waiter: WaiterNumber) -> Result<bool, ArmError> {
        let wish = Wish {
            read: None,
            edge: false,
            room: true,
        };
        let found = self.call.end.arm(thread, waiter, wish)?;
        Ok(present(&self.call, self.connection, &found).is_writable())
    }
}
