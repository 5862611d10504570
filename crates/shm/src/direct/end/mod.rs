//! One end of a direct connection: how it begins and ends.

mod noted;
mod receiving;
mod sending;
mod upkeep;
mod waiting;

pub use noted::Noted;
pub use receiving::{ReceiveError, Take};
pub use sending::{Amount, SendError};
pub use waiting::{ArmError, Look, Wish};

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::accept_queue::ConnectionId;
use super::bank::{Class, EndLines};
use super::bitmaps;
use super::byte_ring::ByteRing;
use super::handle::{Bank, BeginError, Beginning};
use super::journal::Step;
use super::lines::{Arming, Incoming, MOST_WINDOW, Outgoing, PeerLines, StreamState};
use super::lock::{Reentered, ThreadNumber, full_fence, lock, unlock_and_fence};
use super::recording::ControlFlag;

/// An end of a connection, as a process uses it for one call.
#[derive(Debug, Clone, Copy)]
pub struct End<'a> {
    bank: &'a Bank,
    id: ConnectionId,
    own: &'a EndLines,
    out: Outgoing<'a>,
    incoming: Incoming<'a>,
    arming: Arming<'a>,
    ours: ByteRing,
    theirs: ByteRing,
}

impl<'a> End<'a> {
    #[inline]
    pub(super) fn new(bank: &'a Bank, id: ConnectionId, ours: ByteRing, theirs: ByteRing) -> End<'a> {
        let ConnectionId { number, generation } = id;
        let own = bank.ends.end(number);
        let peer = PeerLines {
            write: bank.peer.write_line(number),
            read: bank.peer.read_line(number),
            arm: bank.peer.arm_line(number),
            record: bank.peer.record_line(number),
        };
        End {
            bank,
            id,
            own,
            out: Outgoing {
                own: &own.writer,
                write: bank.half.write_line(number),
                peer,
                generation,
            },
            incoming: Incoming {
                own: &own.reader,
                read: bank.half.read_line(number),
                peer,
            },
            arming: Arming {
                arm: bank.half.arm_line(number),
            },
            ours,
            theirs,
        }
    }

    /// The connection.
    #[inline]
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Makes the lines those of a new connection. A connection that the number stood for before
    /// is over, but its memory may not have been given back yet.
    pub(super) fn begin(&self, thread: ThreadNumber, beginning: &Beginning) -> Result<(), BeginError> {
        self.with_writer(thread, Step::Open, || {
            self.bank.release_rings(self.id.number);
            // A waiter may have joined after the close of the connection before.
            self.release_audience(thread)?;
            let journal = self.bank.journal();
            // While rings take less than half of what they may, a connection begins with 16 KiB.
            let bound = self.bank.payload_bound;
            let first = [(Class::K16, bound / 2), (Class::K4, bound)];
            let first = first
                .into_iter()
                .find(|(class, most)| journal.charge(class.bytes(), *most));
            let (class, _) = first.ok_or(BeginError::Payload)?;
            self.own.writer.charged.store(1 << class as u64, Relaxed);
            self.out.begin(class);
            self.incoming.begin(
                beginning.window.min(MOST_WINDOW),
                self.bank.class_limit,
                Class::K16,
            );
            self.arming.begin();
            let state = &self.own.state;
            let zeroed = [
                &state.shut,
                &state.error,
                &state.urgent_taken,
                &state.owner_told,
                &state.read_limit,
                &state.user_timeout_ms,
                &state.recorded,
            ];
            zeroed.iter().for_each(|word| word.store(0, Relaxed));
            self.bank.half.set_record(self.id.number, &beginning.record);
            state.generation.store(self.id.generation.into(), Release);
            Ok(())
        })?
    }

    /// Does something with the write lock. What follows it is fenced.
    fn with_writer<R>(
        &self,
        thread: ThreadNumber,
        step: Step,
        change: impl FnOnce() -> R,
    ) -> Result<R, Reentered> {
        let journal = self.bank.journal();
        let begun = journal.begin(thread, self.bank.place(self.id.number), step);
        let word = &self.own.writer.lock;
        let changed = lock(word, thread).map(|()| {
            let changed = change();
            unlock_and_fence(word);
            changed
        });
        journal.end(thread, begun);
        changed
    }

    #[inline]
    fn is_peer_closed(&self) -> bool {
        let closed = self.out.peer.arm.closed.load(Acquire);
        closed == u64::from(self.id.generation)
    }

    /// Ends this end's stream after the bytes sent so far. Harmless if it has ended.
    ///
    /// # Errors
    ///
    /// If a signal handler has interrupted a call of the same thread.
    pub fn shut_write(&self, thread: ThreadNumber) -> Result<(), Reentered> {
        self.end_stream(thread, StreamState::Fin, |state| state == StreamState::Open)
    }

    /// Resets the connection. The peer receives the bytes sent so far, and then the reset.
    ///
    /// # Errors
    ///
    /// If a signal handler has interrupted a call of the same thread.
    pub fn reset(&self, thread: ThreadNumber) -> Result<(), Reentered> {
        self.end_stream(thread, StreamState::Reset, |state| {
            !matches!(state, StreamState::Reset(_))
        })
    }

    fn end_stream(
        &self,
        thread: ThreadNumber,
        end: impl FnOnce(u64) -> StreamState,
        may: impl FnOnce(StreamState) -> bool,
    ) -> Result<(), Reentered> {
        self.telling(thread, Step::Close, || {
            self.with_writer(thread, Step::Close, || {
                if may(self.out.state()) {
                    self.set_state(thread, end(self.out.room().w));
                }
            })
        })
    }

    /// Ends the stream, or resets it. The caller has the write lock.
    fn set_state(&self, thread: ThreadNumber, state: StreamState) {
        match state {
            StreamState::Open => {}
            StreamState::Fin(at) => self.record_end(thread, ControlFlag::End, at),
            StreamState::Reset(at) => self.record_end(thread, ControlFlag::Reset, at),
        }
        self.out.set_state(state);
    }

    /// Does something of which the peer is told in any case. The journal has it until
    /// the peer was told.
    fn telling<R>(&self, thread: ThreadNumber, step: Step, change: impl FnOnce() -> R) -> R {
        let journal = self.bank.journal();
        let begun = journal.begin(thread, self.bank.place(self.id.number), step);
        let changed = change();
        full_fence();
        self.tell_always();
        journal.end(thread, begun);
        changed
    }

    /// Tells the peer of a change that is no position, in any case. After a fence.
    pub(super) fn tell_always(&self) {
        if let Some(due) = self.out.due_always() {
            self.bank.post(due.audience, self.id.number);
        }
    }

    /// Says that bytes up to `position` are urgent, and tells the peer.
    ///
    /// # Errors
    ///
    /// If a signal handler has interrupted a call of the same thread.
    pub fn set_urgent(&self, thread: ThreadNumber, position: u64) -> Result<(), Reentered> {
        self.telling(thread, Step::Send, || {
            self.with_writer(thread, Step::Send, || {
                self.out.write.urgent.store(position, Release);
            })
        })
    }

    /// Changes how much the peer may write beyond what was read, and tells it.
    pub fn set_window(&self, thread: ThreadNumber, window: u64) {
        self.telling(thread, Step::Receive, || {
            self.incoming.read.window.store(window.min(MOST_WINDOW), Release);
        });
    }

    /// Bytes sent since the connection began.
    pub fn sent(&self) -> u64 {
        self.out.write.w.load(Acquire)
    }

    /// Bytes received since the connection began.
    pub fn received(&self) -> u64 {
        self.incoming.read.r.load(Acquire)
    }

    /// Bytes sent that the peer has not read.
    pub fn unread_by_peer(&self) -> u64 {
        self.sent().saturating_sub(self.read_by_peer())
    }

    /// Closes the end for its last holder: with a reset if bytes were not received, or `abort`.
    /// The rings are gone for this side when [`is_over`](End::is_over) says so.
    ///
    /// # Errors
    ///
    /// If a signal handler has interrupted a call of the same thread.
    pub fn close(&self, thread: ThreadNumber, abort: bool) -> Result<(), Reentered> {
        self.telling(thread, Step::Close, || {
            match abort || self.look().readable > 0 {
                true => self.reset(thread)?,
                false => self.shut_write(thread)?,
            }
            self.release_audience(thread)?;
            let closed = &self.arming.arm.closed;
            closed.store(self.id.generation.into(), Release);
            Ok(())
        })
    }

    fn release_audience(&self, thread: ThreadNumber) -> Result<(), Reentered> {
        if self.arming.audience().bitmap().is_none() {
            return Ok(());
        }
        let word = &self.own.state.arm_lock;
        lock(word, thread)?;
        bitmaps::take_back(&self.bank.waiters, thread, &self.arming);
        unlock_and_fence(word);
        Ok(())
    }

    /// Whether both sides have closed the connection: its number and memory are free.
    pub fn is_over(&self) -> bool {
        let closed = self.arming.arm.closed.load(Acquire);
        closed == u64::from(self.id.generation) && self.is_peer_closed()
    }

    /// Gives the memory of this side's rings back and forgets the connection, if it
    /// [is over](End::is_over). The opening side then [frees](super::Ends::free) the number.
    /// Returns `false` if it is not over, or was released before.
    ///
    /// # Errors
    ///
    /// If a signal handler has interrupted a call of the same thread.
    pub fn release(&self, thread: ThreadNumber) -> Result<bool, Reentered> {
        self.release_if(thread, || self.is_over())
    }

    /// Gives the memory of this side's rings back and forgets the connection, if the peer's node
    /// has ended and this side has closed the connection. Such a peer closes nothing any more.
    /// Returns `false` if this side has not closed it, or it was released before.
    ///
    /// # Errors
    ///
    /// If a signal handler has interrupted a call of the same thread.
    pub fn release_without_peer(&self, thread: ThreadNumber) -> Result<bool, Reentered> {
        self.release_if(thread, || self.bank.has_closed(self.id))
    }

    fn release_if(&self, thread: ThreadNumber, is_over: impl FnOnce() -> bool) -> Result<bool, Reentered> {
        self.with_writer(thread, Step::Close, || {
            let generation = self.own.state.generation.load(Relaxed);
            let is_ours = generation == self.id.generation.into() && is_over();
            if is_ours {
                self.bank.release_rings(self.id.number);
                self.own.state.generation.store(0, Release);
            }
            is_ours
        })
    }

    pub(super) fn trim(&self, thread: ThreadNumber) -> Result<bool, Reentered> {
        self.with_writer(thread, Step::Close, || {
            let is_free = self.own.state.generation.load(Relaxed) == 0;
            is_free && self.bank.half.release_pages(self.id.number)
        })
    }

    pub(super) fn bank(&self) -> &'a Bank {
        self.bank
    }

    /// Bytes that the peer says it has read.
    pub(super) fn read_by_peer(&self) -> u64 {
        self.reader_position(self.out.is_live())
    }

    pub(super) fn own(&self) -> &'a EndLines {
        self.own
    }

    pub(super) fn arming(&self) -> Arming<'a> {
        self.arming
    }
}
