//! Interests that a poll is asked for, and the events that it reports.

use std::num::NonZero;

use toehold_node::Told;
use toehold_stack::Readiness;

/// A number of the program's that comes back with the events of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub usize);

/// A report that a socket is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    token: Token,
    readiness: Readiness,
}

impl Event {
    /// The token the socket was registered with.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether there are data, the end of the stream, an error to read, or a connection to accept.
    pub fn is_readable(&self) -> bool {
        self.readiness.readable
    }

    /// Whether there is room, or writing fails at once.
    pub fn is_writable(&self) -> bool {
        self.readiness.writable
    }

    /// Whether there are urgent data.
    pub fn is_priority(&self) -> bool {
        self.readiness.urgent
    }

    /// Whether the peer sends no more. Told if
    /// [`Interest::READ_CLOSED`](super::Interest::READ_CLOSED) was asked for.
    pub fn is_read_closed(&self) -> bool {
        self.readiness.read_closed
    }

    /// Whether nothing can be sent any more, and the peer sends no more: the connection hangs up
    /// (EPOLLHUP).
    pub fn is_write_closed(&self) -> bool {
        self.readiness.hang_up
    }

    /// Whether an error is pending: [`TcpStream::take_error`](crate::TcpStream::take_error).
    pub fn is_error(&self) -> bool {
        self.readiness.error
    }
}

/// The source in several shards that an event is of: a listener, or a poll. Of either there is
/// nothing to tell but that it is readable.
#[derive(Debug, Clone, Copy)]
struct Several {
    /// Where the event is in the list.
    place: usize,
    group: NonZero<u16>,
    /// Where it was told of first.
    shard: u8,
    is_one_shot: bool,
}

/// Room for the events of one call of [`Poll::poll`](super::Poll::poll).
#[derive(Debug)]
pub struct Events {
    list: Vec<Event>,
    /// The events of sources in several shards.
    several: Vec<Several>,
    capacity: usize,
}

impl Events {
    /// Makes room for this many events.
    pub fn with_capacity(capacity: usize) -> Events {
        Events {
            list: Vec::with_capacity(capacity),
            several: Vec::new(),
            capacity,
        }
    }

    /// The number of events for which there is room.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether the last call reported nothing: its time had passed.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The events of the last call.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            inner: self.list.iter(),
        }
    }

    /// Forgets the events.
    pub fn clear(&mut self) {
        self.list.clear();
        self.several.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds what is told of a source in a shard, once, however many shards it is in.
    pub(super) fn push(&mut self, shard: u8, told: &Told) {
        let event = Event {
            token: Token(told.token as usize),
            readiness: told.ready,
        };
        if let Some(group) = NonZero::new(told.group) {
            let is_known = |known: &Several| {
                known.group == group && self.list.get(known.place).is_some_and(|place| *place == event)
            };
            if self.several.iter().any(is_known) {
                return;
            }
            self.several.push(Several {
                place: self.list.len(),
                group,
                shard,
                is_one_shot: told.is_one_shot,
            });
        }
        self.list.push(event);
    }

    /// Adds the event of a source that is in no shard.
    pub(super) fn push_direct(&mut self, token: Token, readiness: Readiness) {
        self.list.push(Event { token, readiness });
    }

    /// The sources that were told of in a shard, that are in others as well, and that are not to be
    /// told of again.
    pub(super) fn spent(&self) -> impl Iterator<Item = (u8, u16)> + '_ {
        let once = self.several.iter().filter(|told| told.is_one_shot);
        once.map(|told| (told.shard, told.group.get()))
    }
}

/// Iterates over [`Events`].
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    inner: std::slice::Iter<'a, Event>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Event;

    fn next(&mut self) -> Option<&'a Event> {
        self.inner.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = &'a Event;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}
