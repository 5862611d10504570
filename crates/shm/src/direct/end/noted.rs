//! Notes of a node about an end of its own: no peer sees any of them.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::End;
use crate::direct::lines::StreamState;
use crate::direct::lock::{Reentered, ThreadNumber, full_fence, lock, unlock_and_fence};

/// Something that has happened to an end once and for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Noted {
    /// The program reads no more (SHUT_RD).
    ReadShut = 0,
    /// The peer's reset, or its death, was noticed: the pending error was set.
    ResetSeen = 1,
    /// Bytes were sent after the peer had closed its end. They are lost.
    SentInVain = 2,
    /// The program was told that the peer's stream has ended.
    EndSeen = 3,
}

impl Noted {
    fn bit(self) -> u64 {
        1 << self as u8
    }
}

impl End<'_> {
    /// Notes something. Returns `true` if it was not noted before.
    pub fn note(&self, noted: Noted) -> bool {
        self.own.state.shut.fetch_or(noted.bit(), AcqRel) & noted.bit() == 0
    }

    /// Returns whether something was noted.
    #[inline]
    pub fn has_noted(&self, noted: Noted) -> bool {
        self.own.state.shut.load(Acquire) & noted.bit() != 0
    }

    /// Lets the peer send nothing more: this end is shut both ways.
    pub fn limit_peer(&self) {
        let position = self.received() + self.look().readable;
        let limit = &self.own.state.read_limit;
        let _ = limit.compare_exchange(0, position + 1, AcqRel, Relaxed);
    }

    /// Whether the peer has sent bytes since it may send nothing more.
    #[inline]
    pub fn is_beyond_limit(&self) -> bool {
        match self.own.state.read_limit.load(Acquire) {
            0 => false,
            limit => self.received() + self.look().readable >= limit,
        }
    }

    /// Keeps an error that a later call returns once: an errno.
    pub fn set_error(&self, errno: u32) {
        self.own.state.error.store(errno.into(), Release);
    }

    /// The error that is kept; 0 if there is none.
    #[inline]
    pub fn error(&self) -> u32 {
        self.own.state.error.load(Acquire) as u32
    }

    /// Takes the error that was kept; 0 if there is none.
    #[inline]
    pub fn take_error(&self) -> u32 {
        match self.own.state.error.load(Relaxed) {
            0 => 0,
            _ => self.own.state.error.swap(0, AcqRel) as u32,
        }
    }

    /// Whether this end has ended its own stream, or was reset by its node.
    #[inline]
    pub fn is_write_shut(&self) -> bool {
        self.out.state() != StreamState::Open
    }

    /// Whether the peer has reset the connection.
    #[inline]
    pub fn is_reset_by_peer(&self) -> bool {
        let state = self.out.peer.write.state.load(Acquire);
        let is_reset = matches!(StreamState::from_word(state), Some(StreamState::Reset(_)));
        is_reset && self.out.is_live()
    }

    /// Position after the peer's last urgent byte; 0 if there was none.
    #[inline]
    pub fn urgent(&self) -> u64 {
        match self.out.is_live() {
            true => self.out.peer.write.urgent.load(Acquire),
            false => 0,
        }
    }

    /// Position after the urgent byte that was taken last; 0 if none was.
    pub fn urgent_taken(&self) -> u64 {
        self.own.state.urgent_taken.load(Acquire)
    }

    /// Notes that the urgent byte before `position` was taken. Returns `false` if it was before.
    pub fn take_urgent(&self, position: u64) -> bool {
        self.own.state.urgent_taken.fetch_max(position, AcqRel) < position
    }

    /// Whether the program's owner of the end (F_SETOWN) is still to be signalled about the urgent byte
    /// before `position`. A call that is about to read past that byte waits for it.
    pub fn awaits_owner(&self, position: u64) -> bool {
        let told = self.own.state.owner_told.load(Acquire);
        told != 0 && told <= position
    }

    /// Notes that the owner was signalled about urgent bytes before `position`. From the first time on
    /// the end has an owner.
    pub fn note_owner_told(&self, position: u64) {
        self.own.state.owner_told.store(position + 1, Release);
    }

    /// Copies the byte at `position`, which stays in the stream. Returns `None` if the peer has not
    /// sent it yet, it was received before, or the peer has broken a rule.
    ///
    /// # Errors
    ///
    /// If a signal handler has interrupted a call of the same thread.
    pub fn byte_at(&self, thread: ThreadNumber, position: u64) -> Result<Option<u8>, Reentered> {
        let word = &self.own.reader.lock;
        lock(word, thread)?;
        let available = self.incoming.available(self.out.is_live());
        let mut byte = None;
        if let Ok(Some(available)) = available
            && (available.r..available.w).contains(&position)
        {
            let mut copy = [0];
            self.theirs.read(&available, position, &mut copy);
            byte = Some(copy[0]);
        }
        unlock_and_fence(word);
        Ok(byte)
    }

    /// Has this side's own waiters look at the end again: this node has changed it.
    pub fn rouse(&self) {
        full_fence();
        let audience = self.arming.audience();
        self.bank.rouse(audience, self.id.number);
    }
}
