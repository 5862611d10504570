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

/// The reason why a record was refused.
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
    /// The present session, or 0.
    session: u64,
    /// The last session: its offer still stands, and must not be accepted again.
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

    /// Begins a session if the receiver's life `peer` offers a new one to this life. Records of the
    /// session before that were not received are lost. Returns `true` if it began one.
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

    /// Ends the session: nothing can be sent until the receiver offers another one.
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

    /// Copies a record into the ring. The receiver sees it once published. The two sides agree upon
    /// `kind`, from 1 to 65534.
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
            // SAFETY: `reserve` found room for all parts together behind the header at `position`,
            // in a mapping that the ring keeps. Other members may write there too, so raw pointers
            // alone refer to it. A part of `rest` may lie in such memory itself.
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

    /// Lets the receiver see the sent records. There is no bell: the receiver polls.
    #[inline]
    pub fn publish(&mut self) {
        if self.is_open() {
            let _ = self.ring.outgoing(&mut self.state).publish();
        }
    }

    /// The receiver's position, until it has received everything published. If the position does
    /// not change, the receiver is stuck. Ends the session if the receiver breaks the rules.
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
    /// The last offered session, or 0.
    offered: u64,
    /// Whether the sender is in that session.
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

    /// Offers a session to the sender's life `peer`. `number` is random, and not 0. Nothing arrives
    /// until the sender has accepted it.
    pub fn offer(&mut self, number: u64, own: u64, peer: u64) {
        self.words.session(&self.ring.words).offer(number, own, peer);
        (self.offered, self.is_open) = (number, false);
    }

    /// Checks whether the sender has accepted the offer, or has left the session; in the latter
    /// case this end waits for another offer.
    pub fn attend(&mut self) {
        let is_in = self.words.session(&self.ring.words).is_taken_up(self.offered);
        match (self.is_open, self.offered != 0 && is_in) {
            (false, true) => (self.state, self.is_open) = (ConsumerState::default(), true),
            (true, false) => self.end(),
            (true, true) | (false, false) => {}
        }
    }

    /// Receives nothing more until the caller offers another session.
    pub fn end(&mut self) {
        (self.offered, self.is_open) = (0, false);
    }

    /// Whether records can arrive.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether there is a record.
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
