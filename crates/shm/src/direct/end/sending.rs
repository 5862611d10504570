//! Sending: copies, publishes, tells the peer, and takes larger rings.

use core::sync::atomic::Ordering::Relaxed;
use std::io::IoSlice;

use super::End;
use crate::direct::bank::Class;
use crate::direct::journal::Step;
use crate::direct::lines::{Offence, Room, StreamState};
use crate::direct::lock::{Reentered, ThreadNumber, lock, unlock_and_fence};
use crate::monotonic_ns;

/// Largest class that a stream grows to at once.
const QUICK_CLASS: Class = Class::K256;
/// A writer that has found no room for so long gets a larger ring than that.
const PATIENCE_NS: u64 = 1_000_000;

/// Why nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There is no room until the peer reads.
    #[error("the peer has to read first")]
    Full,
    /// This end has ended its stream.
    #[error("the stream was shut down for writing")]
    Shut,
    /// The peer has closed its end, or reset the connection.
    #[error("the peer has closed the connection")]
    Closed,
    /// The peer has broken a rule; the connection was reset.
    #[error(transparent)]
    Offence(#[from] Offence),
    /// A signal handler has interrupted a call of the same thread.
    #[error(transparent)]
    Reentered(#[from] Reentered),
}

/// How many of the bytes a call sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Amount {
    /// As many bytes as there is room for.
    Some,
    /// All bytes or none, if they fill a quarter of the ring at most.
    Whole,
}

impl End<'_> {
    /// Sends bytes, as many of them as there is room for, and tells the peer.
    ///
    /// # Errors
    ///
    /// If nothing was sent.
    pub fn send(&self, thread: ThreadNumber, parts: &[IoSlice<'_>]) -> Result<usize, SendError> {
        self.send_amount(thread, parts, Amount::Some)
    }

    /// Sends bytes and tells the peer.
    ///
    /// # Errors
    ///
    /// If nothing was sent.
    #[inline]
    pub fn send_amount(
        &self,
        thread: ThreadNumber,
        parts: &[IoSlice<'_>],
        amount: Amount,
    ) -> Result<usize, SendError> {
        let journal = self.bank.journal();
        let begun = journal.begin(thread, self.bank.place(self.id.number), Step::Send);
        let sent = self.send_under_lock(thread, parts, amount);
        if let Ok((_, w, is_full)) = sent
            && let Some(due) = self.out.due(w, is_full)
        {
            self.bank.post(due.audience, self.id.number);
            self.out.told(due);
        }
        journal.end(thread, begun);
        match sent {
            Ok((len, ..)) => Ok(len),
            Err(SendError::Offence(offence)) => {
                self.reset(thread)?;
                Err(offence.into())
            }
            Err(error) => Err(error),
        }
    }

    /// Bytes sent, the position after them, and whether there is no room behind it. The lock was
    /// given back, and the fence is made.
    #[inline]
    fn send_under_lock(
        &self,
        thread: ThreadNumber,
        parts: &[IoSlice<'_>],
        amount: Amount,
    ) -> Result<(usize, u64, bool), SendError> {
        let word = &self.own.writer.lock;
        lock(word, thread)?;
        let sent = self.write(thread, parts, amount);
        unlock_and_fence(word);
        sent
    }

    #[inline]
    fn write(
        &self,
        thread: ThreadNumber,
        parts: &[IoSlice<'_>],
        amount: Amount,
    ) -> Result<(usize, u64, bool), SendError> {
        if self.is_peer_closed() {
            return Err(SendError::Closed);
        }
        match self.out.state() {
            StreamState::Open => {}
            StreamState::Fin(_) => return Err(SendError::Shut),
            StreamState::Reset(_) => return Err(SendError::Closed),
        }
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        let mut room = self.out.room();
        if room.free() < wanted as u64 {
            room = self.out.reload()?;
            let is_record = amount == Amount::Whole && wanted as u64 <= room.layout.class.bytes() / 4;
            if is_record && (1..wanted as u64).contains(&room.free()) {
                return Err(SendError::Full);
            }
        }
        let recorder = self.recorder().map(|recorder| (recorder, thread));
        let (start, mut w) = (room.w, room.w);
        let mut recorded = start;
        'parts: for part in parts {
            let mut rest: &[u8] = part;
            while !rest.is_empty() {
                let free = room.free() - (w - room.w);
                if free == 0 {
                    if let Some(recorder) = recorder {
                        self.record_sent(recorder, parts, start, (recorded, w));
                        recorded = w;
                    }
                    match self.more_room(room, w, start + wanted as u64)? {
                        Some(more) => room = more,
                        None => break 'parts,
                    }
                    continue;
                }
                let len = (rest.len() as u64).min(free) as usize;
                // SAFETY: our half is mapped for writing, and this thread has the write lock.
                unsafe { self.ours.write(room.layout.class, w, &rest[..len]) };
                w += len as u64;
                rest = &rest[len..];
            }
        }
        if w == start && wanted != 0 {
            return Err(SendError::Full);
        }
        if let Some(recorder) = recorder {
            self.record_sent(recorder, parts, start, (recorded, w));
        }
        self.out.publish(w);
        Ok(((w - start) as usize, w, room.free() == w - room.w))
    }

    /// More room behind `w`, up to which bytes were copied of those before `end`: the reader may have read, or a
    /// larger ring is taken. `None` if there is none.
    #[cold]
    fn more_room(&self, before: Room, w: u64, end: u64) -> Result<Option<Room>, Offence> {
        if w != before.w {
            self.out.publish(w);
        }
        let room = self.out.reload()?;
        if room.free() > 0 {
            self.own.writer.full_since.store(0, Relaxed);
            return Ok(Some(room));
        }
        let Some(largest) = self.larger_class(room, end - w) else {
            return Ok(None);
        };
        // The payload bound may have room for a smaller one only.
        let smaller = Class::ALL.into_iter().rev().filter(|&class| class <= largest);
        let mut larger = smaller.take_while(|&class| class > room.layout.class);
        let Some(class) = larger.find(|&class| self.charge(class)) else {
            return Ok(None);
        };
        self.own.writer.full_since.store(0, Relaxed);
        self.out.change_class(class);
        Ok(Some(self.out.room()))
    }

    /// Counts a ring of the class as this end's memory. Returns `false` if the payload bound has no
    /// room for it.
    fn charge(&self, class: Class) -> bool {
        let bit = 1 << class as u64;
        let charged = &self.own.writer.charged;
        let held = charged.load(Relaxed);
        if held & bit != 0 {
            return true;
        }
        let has_room = self.bank.journal().charge(class.bytes(), self.bank.payload_bound);
        if has_room {
            charged.store(held | bit, Relaxed);
        }
        has_room
    }

    /// The largest class to continue in, if the present one is what leaves no room.
    ///
    /// The next change has to wait until the peer has read what lies in the present ring. A peer may
    /// not read for long: a program may write much before it reads, or accepts, at the other end
    /// itself. So the first larger ring holds all `missing` bytes of the call, and no less than a
    /// stream is given without patience.
    fn larger_class(&self, room: Room, missing: u64) -> Option<Class> {
        let limit = self.out.class_limit(self.bank().class_limit);
        let next = room
            .layout
            .class
            .larger()
            .filter(|&class| class <= limit && room.wants_larger())?;
        if next <= QUICK_CLASS {
            let holds_all = |class: &Class| *class >= QUICK_CLASS && class.bytes() >= missing;
            let first = Class::ALL.into_iter().find(holds_all);
            return Some(limit.min(first.unwrap_or(Class::M4)));
        }
        let since = &self.own.writer.full_since;
        let now_ns = monotonic_ns();
        match since.load(Relaxed) {
            0 => {
                since.store(now_ns, Relaxed);
                None
            }
            since_ns => (now_ns.saturating_sub(since_ns) >= PATIENCE_NS).then_some(next),
        }
    }
}
