//! Receiving: checks what the peer says, copies, and tells it that there is room.

use std::io::IoSliceMut;

use super::End;
use crate::direct::journal::Step;
use crate::direct::lines::{Offence, StreamState};
use crate::direct::lock::{Reentered, ThreadNumber, lock, unlock_and_fence};
use crate::direct::recording::ControlFlag;

/// Why nothing was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// There are no bytes until the peer sends.
    #[error("the peer has to send first")]
    Empty,
    /// The peer has reset the connection, and all bytes before that were received.
    #[error("the peer has reset the connection")]
    Reset,
    /// The peer has broken a rule; the connection was reset.
    #[error(transparent)]
    Offence(#[from] Offence),
    /// A signal handler has interrupted a call of the same thread.
    #[error(transparent)]
    Reentered(#[from] Reentered),
}

/// The fate of the bytes that are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Take {
    /// The bytes are removed from the stream.
    Remove,
    /// The next call receives the bytes again: MSG_PEEK.
    Peek,
}

impl End<'_> {
    /// Receives bytes, at most up to position `until`, and tells the peer that there is room.
    /// Returns 0 if the peer's stream has ended, or there is no room for a byte.
    ///
    /// # Errors
    ///
    /// If nothing was received and the stream goes on, or was reset.
    pub fn receive(
        &self,
        thread: ThreadNumber,
        into: &mut [IoSliceMut<'_>],
        take: Take,
        until: u64,
    ) -> Result<usize, ReceiveError> {
        let journal = self.bank.journal();
        let begun = journal.begin(thread, self.bank.place(self.id.number), Step::Receive);
        let received = self.receive_under_lock(thread, into, take, until);
        if let Ok((len, r)) = received
            && len > 0
            && take == Take::Remove
            && let Some(due) = self.incoming.due(r)
        {
            self.bank.post(due.audience, self.id.number);
            self.incoming.told(due);
        }
        journal.end(thread, begun);
        match received {
            Ok((len, _)) => Ok(len),
            Err(ReceiveError::Offence(offence)) => {
                self.reset(thread)?;
                Err(offence.into())
            }
            Err(error) => Err(error),
        }
    }

    #[inline]
    fn receive_under_lock(
        &self,
        thread: ThreadNumber,
        into: &mut [IoSliceMut<'_>],
        take: Take,
        until: u64,
    ) -> Result<(usize, u64), ReceiveError> {
        let word = &self.own.reader.lock;
        lock(word, thread)?;
        let received = self.read(thread, into, take, until);
        unlock_and_fence(word);
        received
    }

    #[inline]
    fn read(
        &self,
        thread: ThreadNumber,
        into: &mut [IoSliceMut<'_>],
        take: Take,
        until: u64,
    ) -> Result<(usize, u64), ReceiveError> {
        let is_live = self.out.is_live();
        let available = loop {
            let available = self.incoming.available(is_live)?.ok_or(ReceiveError::Empty)?;
            if available.len() > 0 {
                break available;
            }
            match self.incoming.end(available.r)? {
                // The end was stored after bytes that were not seen yet.
                None if self.incoming.available(is_live)? == Some(available) => {
                    return Err(Offence::End.into());
                }
                None => {}
                Some(StreamState::Open) => return Err(ReceiveError::Empty),
                Some(StreamState::Fin(_)) => {
                    self.record_peer_end(thread, ControlFlag::End, available.r);
                    return Ok((0, available.r));
                }
                Some(StreamState::Reset(_)) => {
                    self.record_peer_end(thread, ControlFlag::Reset, available.r);
                    return Err(ReceiveError::Reset);
                }
            }
        };
        let end = available.w.min(until.max(available.r));
        let mut position = available.r;
        for part in into.iter_mut() {
            let len = (end - position).min(part.len() as u64) as usize;
            self.theirs.read(&available, position, &mut part[..len]);
            position += len as u64;
        }
        if take == Take::Remove && position != available.r {
            if let Some(recorder) = self.recorder() {
                self.record_received((recorder, thread), into, (available.r, position));
            }
            self.incoming.release(position);
        }
        Ok(((position - available.r) as usize, position))
    }
}
