//! Received datagrams, taken apart one by one.

use std::net::SocketAddr;
use std::ops::Range;

use rustix::io::Errno;

use super::header::Record;
use super::socket::{MAX_RECEIVED, Socket};

/// Room for a message: no run of datagrams is longer.
pub(super) const BUFFER_LEN: usize = 1 << 16;

/// A message from the kernel: a datagram, or a run of them from one sender.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    pub(super) from: SocketAddr,
    pub(super) len: usize,
    /// Length of each datagram but the last; zero for a single one.
    pub(super) segment: usize,
    pub(super) is_cut: bool,
}

/// A datagram's range and sender.
#[derive(Debug, Clone)]
pub(super) struct Datagram {
    pub(super) from: SocketAddr,
    pub(super) range: Range<usize>,
    pub(super) is_cut: bool,
}

/// The messages of one system call, and the position in them.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) bytes: Box<[u8]>,
    messages: Vec<Message>,
    /// Index of the current message, and the offset of its next datagram.
    message: usize,
    offset: usize,
    /// Unread records of the current datagram.
    records: Range<usize>,
    /// Sender of the current datagram.
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

    /// Receives further messages. All earlier ones must have been taken apart.
    pub(super) fn refill(&mut self, socket: &Socket) -> Result<(), Errno> {
        (self.message, self.offset, self.records) = (0, 0, 0..0);
        socket.receive(&mut self.bytes, &mut self.messages)
    }

    /// Returns the next datagram.
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

    /// Returns whether there are unread datagrams or records.
    pub(super) fn has_more(&self) -> bool {
        !self.records.is_empty() || self.message < self.messages.len()
    }

    /// Starts to read the records of a datagram.
    pub(super) fn open(&mut self, peer: usize, records: Range<usize>) {
        (self.peer, self.records) = (peer, records);
    }

    /// Returns the next record of the current datagram, and the range of its
    /// frame's bytes. Returns `Err` if the rest of the datagram is invalid.
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
