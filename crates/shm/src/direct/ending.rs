//! Connections that come to nothing: those that were never offered, and those that are refused.
//!
//! None of this needs the rings, so that a process without addresses for them can do it.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::accept_queue::{ConnectionId, OfferError};
use super::bank::{Class, QUEUE_LEN};
use super::handle::Bank;
use super::journal::Step;
use super::lines::{Arming, Incoming, Outgoing, PeerLines, StreamState};
use super::lock::{Reentered, ThreadNumber, full_fence, lock, unlock_and_fence};
use super::record::Record;

impl Bank {
    /// Forgets a connection that this side has reserved, may have begun, and has never offered, and
    /// frees its number. Returns `false` if the number is another process's by now.
    ///
    /// # Errors
    ///
    /// If a signal handler has interrupted a call of the same thread.
    pub fn abandon(
        &self,
        thread: ThreadNumber,
        connection: ConnectionId,
        process: u16,
    ) -> Result<bool, Reentered> {
        let number = connection.number;
        let is_its = self.under_write_lock(thread, number, Step::Close, || {
            let is_its = self.ends.is_owned_by(connection, process);
            if is_its {
                self.release_rings(number);
                self.ends.end(number).state.generation.store(0, Release);
            }
            is_its
        })?;
        Ok(is_its && self.ends.free(connection))
    }

    /// Refuses a connection that this side has taken from a queue: makes an end without rings, which
    /// is reset and closed. `record` is what this side says of it.
    ///
    /// # Errors
    ///
    /// If a signal handler has interrupted a call of the same thread.
    pub fn refuse(&self, thread: ThreadNumber, number: u16, record: &Record) -> Result<(), Reentered> {
        let journal = self.journal();
        let begun = journal.begin(thread, self.place(number), Step::Close);
        let out = self.outgoing(number, record.generation);
        let refused = self.under_write_lock(thread, number, Step::Close, || {
            self.release_rings(number);
            let own = self.ends.end(number);
            out.begin(Class::K4);
            out.set_state(StreamState::Reset(0));
            let incoming = Incoming {
                own: &own.reader,
                read: self.half.read_line(number),
                peer: out.peer,
            };
            incoming.begin(0, self.class_limit, Class::K16);
            let arm = self.half.arm_line(number);
            Arming { arm }.begin();
            for word in [&own.state.shut, &own.state.error] {
                word.store(0, Relaxed);
            }
            self.half.set_record(number, record);
            own.state.generation.store(record.generation.into(), Release);
            arm.closed.store(record.generation.into(), Release);
        });
        full_fence();
        if let Some(due) = out.due_always() {
            self.post(due.audience, number);
        }
        journal.end(thread, begun);
        refused
    }

    fn outgoing(&self, number: u16, generation: u32) -> Outgoing<'_> {
        let peer = PeerLines {
            write: self.peer.write_line(number),
            read: self.peer.read_line(number),
            arm: self.peer.arm_line(number),
            record: self.peer.record_line(number),
        };
        Outgoing {
            own: &self.ends.end(number).writer,
            write: self.half.write_line(number),
            peer,
            generation,
        }
    }

    fn under_write_lock<R>(
        &self,
        thread: ThreadNumber,
        number: u16,
        step: Step,
        change: impl FnOnce() -> R,
    ) -> Result<R, Reentered> {
        let begun = self.journal().begin(thread, self.place(number), step);
        let word = &self.ends.end(number).writer.lock;
        let changed = lock(word, thread).map(|()| {
            let changed = change();
            unlock_and_fence(word);
            changed
        });
        self.journal().end(thread, begun);
        changed
    }

    /// Gives the memory of a number's rings back at which this side has no connection: a process may
    /// have died that had begun one.
    ///
    /// # Errors
    ///
    /// If a signal handler has interrupted a call of the same thread.
    pub fn discard(&self, thread: ThreadNumber, number: u16) -> Result<(), Reentered> {
        self.under_write_lock(thread, number, Step::Close, || {
            if self.ends.generation(number) == 0 {
                self.release_rings(number);
            }
        })
    }

    /// Gives the memory of a number's rings back. The caller has the write lock. Small rings keep
    /// their pages for the next connection of the number, see [`Bank::trim`].
    pub(super) fn release_rings(&self, number: u16) {
        let charged = self.ends.end(number).writer.charged.swap(0, Relaxed);
        if charged >> (Class::K16 as u64 + 1) != 0 {
            self.half.release_pages(number);
        }
        self.journal().discharge(charged_bytes(charged));
    }

    /// Offers a connection once more to the listener that its record names, whether that is still
    /// listed or not. For the engine, after the death of the process that was offering it. The other
    /// node accepts or refuses it, and ignores a second offer.
    ///
    /// # Errors
    ///
    /// If the queue is full: the caller tries again later.
    pub fn offer_again(&self, connection: ConnectionId) -> Result<(), OfferError> {
        let record = self.half.record(connection.number, connection.generation);
        let listener = record.and_then(|record| record.listener);
        let number = listener.ok_or(OfferError::Disorder)?.number;
        let queue = self.peer_signals.queue(number).ok_or(OfferError::Disorder)?;
        queue.offer(connection, QUEUE_LEN as u64)?;
        full_fence();
        self.tell_listener(number);
        Ok(())
    }

    /// Whether the other side has accepted or refused a connection.
    pub fn is_answered(&self, connection: ConnectionId) -> bool {
        let record = self.peer.record_line(connection.number);
        record.generation.load(Acquire) == u64::from(connection.generation)
    }

    /// Whether this side has closed its end of a connection.
    pub fn has_closed(&self, connection: ConnectionId) -> bool {
        let arm = self.half.arm_line(connection.number);
        arm.closed.load(Acquire) == u64::from(connection.generation)
    }
}

/// Bytes of the rings whose classes have a bit.
pub(super) fn charged_bytes(charged: u64) -> u64 {
    let classes = Class::ALL.into_iter();
    classes
        .filter(|&class| charged & 1 << class as u64 != 0)
        .map(Class::bytes)
        .sum()
}
