//! Upkeep by the engine of an end that a program has: it waits for no lock, so that a stopped
//! process delays nothing.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::End;
use crate::direct::bank::Class;
use crate::direct::ending::charged_bytes;
use crate::direct::lines::StreamState;
use crate::direct::lock::{ThreadNumber, full_fence, try_lock, unlock_and_fence};

/// Largest ring that an idle connection keeps.
const IDLE_CLASS: Class = Class::K16;

/// ETIMEDOUT.
const TIMED_OUT: u32 = 110;

impl End<'_> {
    /// Does something with the write lock, if that is free and the connection still this one.
    fn try_with_writer(&self, thread: ThreadNumber, change: impl FnOnce() -> bool) -> bool {
        let word = &self.own.writer.lock;
        if !try_lock(word, thread) {
            return false;
        }
        let generation = self.own.state.generation.load(Relaxed);
        let changed = generation == self.id.generation.into() && change();
        unlock_and_fence(word);
        changed
    }

    /// The class of the ring that this end writes to.
    pub fn class(&self) -> Class {
        self.out.room().layout.class
    }

    /// Continues in a small ring, and gives the memory of larger ones back, if the peer has read all
    /// bytes. Returns whether it has.
    pub fn shrink(&self, thread: ThreadNumber) -> bool {
        self.try_with_writer(thread, || {
            // A peer that breaks a rule is reset by the next writer.
            let Ok(room) = self.out.reload() else {
                return false;
            };
            let is_idle = room.is_read() && self.out.state() == StreamState::Open;
            if !is_idle || room.layout.class <= IDLE_CLASS {
                return false;
            }
            let (charged, bit) = (&self.own.writer.charged, 1 << IDLE_CLASS as u64);
            let (held, journal) = (charged.load(Relaxed), self.bank.journal());
            if held & bit == 0 && !journal.charge(IDLE_CLASS.bytes(), self.bank.payload_bound) {
                return false;
            }
            self.out.change_class(IDLE_CLASS);
            charged.store(bit, Relaxed);
            journal.discharge(charged_bytes(held & !bit));
            self.bank.half.release_larger(self.id.number, IDLE_CLASS);
            true
        })
    }

    /// Gives the memory of rings back that this end does not use: a peer that reads them makes pages.
    /// Returns whether it could.
    pub fn trim_unused(&self, thread: ThreadNumber) -> bool {
        self.try_with_writer(thread, || {
            let charged = self.own.writer.charged.load(Relaxed);
            let unused = |class| charged >> class as u64 & 1 == 0;
            self.bank.half.release_between(self.id.number, unused)
        })
    }

    /// Says how long a writer may wait for room in vain, in milliseconds: TCP_USER_TIMEOUT. 0: for any
    /// time.
    pub fn set_user_timeout(&self, timeout_ms: u32) {
        let word = &self.own.state.user_timeout_ms;
        word.store(timeout_ms.into(), Release);
    }

    /// How long a writer may wait for room in vain, in milliseconds; 0 for any time.
    pub fn user_timeout(&self) -> u32 {
        self.own.state.user_timeout_ms.load(Acquire) as u32
    }

    /// The peer's read position if there is no room for a byte behind it.
    pub fn blocked_at(&self) -> Option<u64> {
        let look = self.look();
        let is_blocked = look.room == 0 && !look.is_peer_closed && self.out.state() == StreamState::Open;
        is_blocked.then(|| self.reader_position(self.out.is_live()))
    }

    /// Ends the connection with ETIMEDOUT at this end, and a reset at the peer's. Returns `false` if
    /// another thread has the write lock.
    pub fn time_out(&self, thread: ThreadNumber) -> bool {
        let ended = self.try_with_writer(thread, || {
            self.set_error(TIMED_OUT);
            self.set_state(thread, StreamState::Reset(self.out.room().w));
            true
        });
        if ended {
            full_fence();
            self.tell_always();
            self.bank.tell_own(self);
        }
        ended
    }

    /// The largest class that this end lets the peer write to.
    pub fn granted_class(&self) -> Class {
        let limit = self.incoming.read.class_limit.load(Relaxed);
        Class::from_number(limit).unwrap_or(Class::K4)
    }

    /// Lets the peer write to the next larger class, if it fills the present one. Returns whether it
    /// does: the caller has seen that there is memory for what the peer may have it read.
    pub fn grant_larger(&self) -> bool {
        let class = self.granted_class();
        let is_full = self.look().readable >= class.bytes();
        let larger = class.larger().filter(|_| is_full);
        if let Some(larger) = larger {
            let limit = &self.incoming.read.class_limit;
            limit.store(larger as u64, Release);
        }
        larger.is_some()
    }
}
