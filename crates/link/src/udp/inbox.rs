//! Datagrams as they came from the kernel, taken apart one by one.

use std::net::SocketAddr;
use std::ops::Range;

use rustix::io::Errno;

use super::header::Record;
use super::socket::{MAX_RECEIVED, Socket};

/// Room for a message: no run of datagrams is longer.
pub(super) const BUFFER_LEN: usize = 1 << 16;

/// What the kernel handed over at once: a datagram, or a run of them from one sender.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    pub(super) from: SocketAddr,
    pub(super) len: usize,
    /// Length of each datagram but the last; zero if there is one.
    pub(super) segment: usize,
    pub(super) is_cut: bool,
}

/// A datagram: where it lies, and whose it is.
#[derive(Debug, Clone)]
pub(super) struct Datagram {
    pub(super) from: SocketAddr,
    pub(super) range: Range<usize>,
    pub(super) is_cut: bool,
}

/// Messages of one call of the kernel, and how far they were taken apart.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) bytes: Box<[u8]>,
    messages: Vec<Message>,
    /// The message in hand, and where its next datagram begins.
    message: usize,
    offset: usize,
    /// What is left of the datagram in hand.
    records: Range<usize>,
    /// Whose it is.
    pub(super) peer: usize,
}

impl Inbox {
    pub(super) fn new() -> Inbox {
        Inbox {
            bytes: vec![0; MAX_RECEIVED * BUFFER_LEN].into_boxed_slice(),
            messages: Vec::with_capacity(MAX_RECEIVED),
            message: 0,
            offset: 0,
            records: 0..0,
            peer: 0,
        }
    }

    /// Takes what has come. Everything before must have been taken apart.
    pub(super) fn refill(&mut self, socket: &Socket) -> Result<(), Errno> {
        (self.message, self.offset, self.records) = (0, 0, 0..0);
        socket.receive(&mut self.bytes, &mut self.messages)
    }

    /// The next datagram.
    pub(super) fn next_datagram(&mut self) -> Option<Datagram> {
        loop {
            let message = self.messages.get(self.message)?;
            if self.offset >= message.len {
                (self.message, self.offset) = (self.message + 1, 0);
                continue;
            }
            let left = message.len - self.offset;
            let len = if message.segment == 0 {
                left
            } else {
                left.min(message.segment)
            };
            let start = self.message * BUFFER_LEN + self.offset;
            self.offset += len;
            return Some(Datagram {
                from: message.from,
                range: start..start + len,
                is_cut: message.is_cut && self.offset >= message.len,
            });
        }
    }

    /// Whether something is left to be taken apart.
    pub(super) fn has_more(&self) -> bool {
        !self.records.is_empty() || self.message < self.messages.len()
    }

    /// Takes the datagram in hand whose records lie here.
    pub(super) fn open(&mut self, peer: usize, records: Range<usize>) {
        (self.peer, self.records) = (peer, records);
    }

    /// The next record of the datagram in hand, and where its frame's bytes lie. `Err`: the
    /// rest of it is none.
    pub(super) fn next_record(&mut self) -> Option<Result<(Record, Range<usize>), ()>> {
        if self.records.is_empty() {
            return None;
        }
        let Some(record) = Record::parse(&self.bytes[self.records.clone()]) else {
            self.records = 0..0;
            return Some(Err(()));
        };
        let start = self.records.start + record.header_len();
        let end = start + record.len;
        self.records.start = end;
        Some(Ok((record, start..end)))
    }
}
