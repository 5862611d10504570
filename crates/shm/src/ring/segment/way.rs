//! The two ends of a way from one member to another.

use core::fmt;

use super::super::layout::RecordHeader;
use super::super::protocol::Ring;
use super::super::rings::Direction;
use super::super::{Consumer, ConsumerState, ProducerState, ReserveError};
use super::session::Session;
use super::words::WayWords;
use crate::Gather;
use crate::copy::copy_racing;

/// Why a record was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The receiver has to make room first.
    #[error("the ring is full")]
    Full,
    /// Longer than any record of the ring.
    #[error("the record is longer than the ring allows")]
    TooLong,
    /// There is no session: the receiver is not ready, or broke the rules.
    #[error("the receiver is not ready")]
    Closed,
}

/// The sending end.
pub struct Outbound {
    ring: Ring<Direction>,
    words: WayWords,
    state: ProducerState,
    /// The session it is in, or 0.
    session: u64,
    /// The one it was in last: its offer still stands, and must not be taken up again.
    last: u64,
}

impl Outbound {
    pub(super) fn new(ring: Ring<Direction>, words: WayWords) -> Outbound {
        Outbound {
            ring,
            words,
            state: ProducerState::default(),
            session: 0,
            last: 0,
        }
    }

    /// Whether records can be sent.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.session != 0
    }

    /// Begins a session if the receiver, which lives the life `peer`, offers a new one to
    /// this life. What was sent in the one before and not received is lost. True: it did.
    pub fn attend(&mut self, own: u64, peer: u64) -> bool {
        let session = self.session();
        let Some(number) = session.offered(self.last, peer, own) else {
            return false;
        };
        session.begin(number);
        self.state = ProducerState::default();
        (self.session, self.last) = (number, number);
        true
    }

    /// Ends the session: nothing is sent until the receiver offers another one.
    pub fn end(&mut self) {
        if self.is_open() {
            self.session().end();
            self.session = 0;
        }
    }

    /// Bytes of the longest record.
    pub fn max_record(&self) -> usize {
        super::super::layout::max_record(self.ring.capacity) as usize
    }

    /// Copies a record into the ring. It is seen once published. `kind` is what the two
    /// sides agree upon, from 1 to 65534.
    #[inline]
    pub fn send(&mut self, kind: u16, parts: [&[u8]; 2], rest: &Gather<'_>) -> Result<(), SendError> {
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        let len = parts[0].len() + parts[1].len() + rest.len();
        let mut outgoing = self.ring.outgoing(&mut self.state);
        let position = match outgoing.reserve(len as u64) {
            Ok(position) => position,
            Err(ReserveError::Full) => return Err(SendError::Full),
            Err(ReserveError::TooLong) => return Err(SendError::TooLong),
            Err(ReserveError::Corrupt(_)) => {
                self.end();
                return Err(SendError::Closed);
            }
        };
        let mut to = self.ring.words.body(position).as_ptr();
        let mut put = |from: *const u8, len: usize| {
            // SAFETY: `reserve` found room for all parts together behind the header at
            // `position`, in a mapping that the ring keeps. Any member may write there too,
            // so it is known by raw pointers only; what comes out then is theirs to answer
            // for. A part of `rest` may be in such memory itself.
            unsafe {
                copy_racing(from, to, len);
                to = to.add(len);
            }
        };
        for part in parts {
            put(part.as_ptr(), part.len());
        }
        for (first, len) in rest.parts() {
            put(first, len);
        }
        let header = RecordHeader::new(position, kind, len as u32);
        self.ring.outgoing(&mut self.state).commit(header);
        Ok(())
    }

    /// Lets the receiver see what was sent. There is no bell for it: it looks.
    #[inline]
    pub fn publish(&mut self) {
        if self.is_open() {
            let _ = self.ring.outgoing(&mut self.state).publish();
        }
    }

    /// How far the receiver is, while it is not done with everything published: if that
    /// stays what it is, it is stuck. Ends the session if it breaks the rules.
    pub fn behind(&mut self) -> Option<u64> {
        if !self.is_open() {
            return None;
        }
        let mut outgoing = self.ring.outgoing(&mut self.state);
        match outgoing.consumed() {
            Ok(consumed) => (consumed != outgoing.position()).then_some(consumed),
            Err(_) => {
                self.end();
                None
            }
        }
    }

    fn session(&self) -> Session<'_> {
        self.words.session(&self.ring.words)
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// The receiving end.
pub struct Inbound {
    ring: Ring<Direction>,
    words: WayWords,
    state: ConsumerState,
    /// The session that was offered last, or 0.
    offered: u64,
    /// Whether the sender is in it.
    is_open: bool,
}

impl Inbound {
    pub(super) fn new(ring: Ring<Direction>, words: WayWords) -> Inbound {
        Inbound {
            ring,
            words,
            state: ConsumerState::default(),
            offered: 0,
            is_open: false,
        }
    }

    /// Offers a session to the sender that lives the life `peer`. `number` is random, and
    /// not 0. Nothing is received until the sender has taken it up.
    pub fn offer(&mut self, number: u64, own: u64, peer: u64) {
        self.words.session(&self.ring.words).offer(number, own, peer);
        (self.offered, self.is_open) = (number, false);
    }

    /// Looks whether the sender has taken up what was offered, or is not in it any more:
    /// then it waits for another offer.
    pub fn attend(&mut self) {
        let is_in = self.words.session(&self.ring.words).is_taken_up(self.offered);
        match (self.is_open, self.offered != 0 && is_in) {
            (false, true) => (self.state, self.is_open) = (ConsumerState::default(), true),
            (true, false) => self.end(),
            (true, true) | (false, false) => {}
        }
    }

    /// Receives nothing more until another session is offered.
    pub fn end(&mut self) {
        (self.offered, self.is_open) = (0, false);
    }

    /// Whether records can come.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether a record is there.
    #[inline]
    pub fn has_next(&self) -> bool {
        self.is_open && self.words.has_record(&self.ring.words, self.state.position())
    }

    /// The records, if there is a session.
    #[inline]
    pub fn consumer(&mut self) -> Option<Consumer<'_>> {
        self.is_open
            .then(|| Consumer::new(self.ring.incoming(&mut self.state)))
    }
}

impl fmt::Debug for Inbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbound")
            .field("offered", &self.offered)
            .field("is_open", &self.is_open)
            .finish_non_exhaustive()
    }
}
