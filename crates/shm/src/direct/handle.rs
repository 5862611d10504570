//! A bank, as one of its two sides uses it.

use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::accept_queue::{self, ConnectionId, OfferError};
use super::audience::{Audience, WaiterNumber};
use super::bank::{Class, QUEUE_LEN, WAITER_WORDS};
use super::byte_ring::ByteRing;
use super::directory::{Found, PeerDirectory};
use super::end::End;
use super::ends::Ends;
use super::half::{Half, PeerHalf};
use super::journal::{Journal, Place, Side};
use super::lock::{Reentered, ThreadNumber, full_fence};
use super::memory::MemoryError;
use super::record::{ListenerId, Record};
use super::recording::SegmentRecorder;
use super::signals::Signals;
use super::waiter;
use super::waiters::{Waiters, has_bits, is_on_descriptor};

/// Waiters that one post tells beyond those of the audience: outer instances of instances.
const OUTER_LEVELS: usize = 4;

/// All memories of a bank, as one side of it has them mapped.
pub struct Bank {
    /// The node's own number of the bank, for its journal.
    pub number: u32,
    /// The side of this node.
    pub side: Side,
    /// The half that this side writes.
    pub half: Half,
    /// The half that the peer writes.
    pub peer: PeerHalf,
    /// Locks of this side.
    pub ends: Ends,
    /// Signals to this side.
    pub signals: Signals,
    /// Signals to the other side.
    pub peer_signals: Signals,
    /// This node's waiters.
    pub waiters: Waiters,
    /// The peer's waiters and listeners.
    pub peer_directory: PeerDirectory,
    /// The largest rings that this side maps of the peer's: 16 KiB for another user's node that
    /// has used up what is granted to it.
    pub class_limit: Class,
    /// Bytes of rings that this node may have in use.
    pub payload_bound: u64,
    /// Rings a waiter of the other node that sleeps on a descriptor.
    pub ring_descriptor: Box<dyn Fn(WaiterNumber) + Send + Sync>,
    /// Puts what the connections carry into a capture.
    pub recorder: Option<Box<dyn SegmentRecorder>>,
}

/// The record and the window with which an end begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beginning {
    /// The end's record of its connection.
    pub record: Record,
    /// Bytes that the peer may write beyond those read: SO_RCVBUF and SO_SNDBUF, 4 MiB at most.
    pub window: u64,
}

impl Bank {
    /// The journal of this node's threads.
    #[inline]
    pub fn journal(&self) -> &Journal {
        self.waiters.journal()
    }

    #[inline]
    pub(super) fn place(&self, number: u16) -> Place {
        Place {
            bank: self.number,
            number,
            side: self.side,
        }
    }

    /// This side's end of a connection. Maps its rings if they are not mapped yet.
    ///
    /// # Errors
    ///
    /// If this process has too few addresses, or the program has closed a descriptor.
    ///
    /// # Panics
    ///
    /// If there is no such number.
    #[inline]
    pub fn end(&self, connection: ConnectionId) -> Result<End<'_>, MemoryError> {
        let ours = self.half.bytes(connection.number)?;
        let theirs = self.peer.bytes(connection.number)?;
        // SAFETY: the rings are mapped as long as the halves, which `self` keeps, and no
        // reference to them is ever made.
        let rings = unsafe { (ByteRing::new(ours), ByteRing::new(theirs)) };
        Ok(End::new(self, connection, rings.0, rings.1))
    }

    /// Makes this side's end of a connection: its lines first, then its record. The number is
    /// one that this side has [reserved](Ends::reserve), or [taken](Bank::take) from a queue.
    ///
    /// # Errors
    ///
    /// If the rings cannot be mapped, or the node's payload memory is used up.
    pub fn begin(
        &self,
        thread: ThreadNumber,
        number: u16,
        beginning: &Beginning,
    ) -> Result<End<'_>, BeginError> {
        let connection = ConnectionId {
            number,
            generation: beginning.record.generation,
        };
        let end = self.end(connection)?;
        end.begin(thread, beginning)?;
        Ok(end)
    }

    /// Gives the pages of a number back at which this side has no connection. Small rings keep
    /// theirs from one connection to the next, and a peer that reads them makes pages, too. For the
    /// engine, now and then. Returns `false` if there is a connection.
    ///
    /// # Errors
    ///
    /// If the rings cannot be mapped.
    pub fn trim(&self, thread: ThreadNumber, number: u16) -> Result<bool, BeginError> {
        let generation = 0;
        Ok(self.end(ConnectionId { number, generation })?.trim(thread)?)
    }

    /// Offers a connection that this side has begun to a listener that was found, and tells
    /// its waiters. After that the connection is open, and may be taken at any time.
    ///
    /// # Errors
    ///
    /// If it waits nowhere: the caller frees the number, and may try TCP. If the listener was
    /// closed meanwhile, the connection may have been taken: then the caller resets it.
    pub fn offer(&self, connection: ConnectionId, found: &Found) -> Result<(), ConnectError> {
        let listener = found.listener;
        let queue = self
            .peer_signals
            .queue(listener.number)
            .ok_or(ConnectError::Listener)?;
        // As the kernel, which lets one more wait than the backlog says.
        let most = u64::from(found.listing.backlog) + 1;
        queue.offer(connection, most)?;
        full_fence();
        if !self.peer_directory.is_current(found) {
            return Err(ConnectError::Closed);
        }
        self.tell_listener(listener.number);
        Ok(())
    }

    /// Connections that wait in this bank for a listener of the peer.
    pub fn pending(&self, listener: ListenerId) -> u64 {
        let queue = self.peer_signals.queue(listener.number);
        queue.map_or(0, |queue| queue.pending())
    }

    /// Tells the waiters of a listener that there is a connection. It tells all that sleep without
    /// exclusivity, and one that sleeps exclusively and was not told yet.
    pub fn tell_listener(&self, listener: u16) {
        let Some(watch) = self.peer_directory.watch_line(listener) else {
            return;
        };
        let tell = |waiter: WaiterNumber| {
            self.peer_signals.ready(waiter).set_listener(listener);
            full_fence();
            self.ring(waiter)
        };
        for_each_waiter(&watch.all, |waiter| {
            tell(waiter);
            false
        });
        for_each_waiter(&watch.exclusive, tell);
    }

    /// Takes the next connection that waits for a listener of this node, for process `process`.
    /// Its record may name an earlier listener of the number, and any addresses. The caller checks
    /// them. It refuses what is wrong, since the other side waits for an answer.
    pub fn take(&self, listener: ListenerId, process: u16) -> Option<(ConnectionId, Record)> {
        let mut record = None;
        let queue = self.signals.queue(listener.number)?;
        self.ends.note_user(process);
        let taken = queue.take(|connection| {
            record = self.peer.record(connection.number, connection.generation);
            record.is_some() && self.claim(connection, process)
        })?;
        Some((taken, record?))
    }

    fn claim(&self, connection: ConnectionId, process: u16) -> bool {
        let taker = &self.ends.end(connection.number).state.taker;
        accept_queue::claim(taker, connection.generation, process)
    }

    /// Whether a connection that waits in a listener's queue is for that listener: its record names
    /// it, or this node has [moved](Bank::move_waiting) it there.
    pub fn is_for(&self, connection: ConnectionId, record: &Record, listener: ListenerId) -> bool {
        record.listener == Some(listener) || self.moved_to(connection) == Some(listener)
    }

    /// The listener to whose queue this node has moved a connection.
    fn moved_to(&self, connection: ConnectionId) -> Option<ListenerId> {
        let state = &self.ends.end(connection.number).state;
        let moved = state.moved.load(Acquire);
        let generation = state.moved_to.load(Acquire);
        let is_moved = moved as u32 == connection.generation && state.moved.load(Acquire) == moved;
        is_moved.then_some(ListenerId {
            number: (moved >> 32) as u16,
            generation,
        })
    }

    /// Moves the first connection that waits for a closed listener of this node to the end of the
    /// queue of another one. Returns `None` if none waits. Returns the connection with `false` if
    /// the other queue has no room. Then process `process` has claimed it, and has to refuse it. For
    /// the engine, one thread at a time.
    pub fn move_waiting(&self, closed: u16, heir: ListenerId, process: u16) -> Option<(ConnectionId, bool)> {
        let to = self.signals.queue(heir.number)?;
        let queue = self.signals.queue(closed)?;
        // It stays unclaimed, for a process that accepts from the other listener.
        let connection = queue.take(|connection| !self.is_claimed(connection))?;
        let state = &self.ends.end(connection.number).state;
        state.moved.store(0, Release);
        state.moved_to.store(heir.generation, Release);
        let moved = u64::from(heir.number) << 32 | u64::from(connection.generation);
        state.moved.store(moved, Release);
        if to.offer(connection, QUEUE_LEN as u64).is_ok() {
            return Some((connection, true));
        }
        self.claim(connection, process).then_some((connection, false))
    }

    fn is_claimed(&self, connection: ConnectionId) -> bool {
        let taker = &self.ends.end(connection.number).state.taker;
        accept_queue::is_claimed(taker.load(Acquire), connection.generation)
    }

    /// Takes the first connection of a queue if it waits for a listener that is closed. A process
    /// may have offered it after the queue was emptied. For the engine, which refuses it.
    pub fn take_stale(&self, listener: u16, process: u16) -> Option<ConnectionId> {
        let is_stale = |connection: ConnectionId| {
            let record = self.peer.record(connection.number, connection.generation);
            !record.is_some_and(|record| self.is_awaited(connection, &record))
        };
        let queue = self.signals.queue(listener)?;
        queue.take_first(is_stale, |connection| self.claim(connection, process))
    }

    /// Whether the listener is there that a peer's record names, or to which it was moved.
    fn is_awaited(&self, connection: ConnectionId, record: &Record) -> bool {
        let directory = self.waiters.directory();
        let mut listeners = record.listener.into_iter().chain(self.moved_to(connection));
        listeners.any(|listener| directory.lists(listener, record.remote))
    }

    /// Returns whether a connection waits for a listener of this node.
    pub fn has_waiting(&self, listener: ListenerId) -> bool {
        self.has_any_waiting(listener.number)
    }

    /// Returns whether a connection waits for a listener of that number, be it one that is closed.
    pub fn has_any_waiting(&self, listener: u16) -> bool {
        let queue = self.signals.queue(listener);
        queue.is_some_and(|queue| !queue.is_empty())
    }

    /// Connections that wait in this bank for a listener of this node.
    pub fn waiting(&self, listener: ListenerId) -> u64 {
        let queue = self.signals.queue(listener.number);
        queue.map_or(0, |queue| queue.pending())
    }

    /// Takes a connection from the queue of a listener that was closed, so that it can be
    /// refused: whatever listener its record names.
    pub fn take_any(&self, listener: u16, process: u16) -> Option<ConnectionId> {
        let queue = self.signals.queue(listener)?;
        queue.take(|connection| self.claim(connection, process))
    }

    /// Has a waiter of this node told of a listener's connections, while it sleeps.
    /// `exclusive`: of such waiters one is told of a connection.
    pub fn watch(&self, listener: u16, waiter: WaiterNumber, exclusive: bool) {
        watch(&self.waiters, listener, waiter, exclusive);
    }

    /// Ends what [`watch`](Bank::watch) has begun.
    pub fn unwatch(&self, listener: u16, waiter: WaiterNumber) {
        unwatch(&self.waiters, listener, waiter);
    }

    /// Tells an audience of the peer's that a connection has something.
    pub(super) fn post(&self, audience: Audience, number: u16) {
        let mut count = 0;
        let set = |waiter: WaiterNumber| {
            if has_bits(self.peer_directory.waiter_line(waiter)) {
                self.peer_signals.ready(waiter).set(number);
            }
        };
        audience.waiters().for_each(|waiter| {
            set(waiter);
            count += 1;
        });
        let bitmap = audience
            .bitmap()
            .map(|bitmap| self.peer_directory.audience_line(bitmap));
        if let Some(bitmap) = bitmap {
            for_each_waiter(&bitmap.words, |waiter| {
                set(waiter);
                count += 1;
                false
            });
        }
        if count == 0 {
            return;
        }
        full_fence();
        audience
            .waiters()
            .for_each(|waiter| self.ring_with_outer(waiter, OUTER_LEVELS));
        if let Some(bitmap) = bitmap {
            for_each_waiter(&bitmap.words, |waiter| {
                self.ring_with_outer(waiter, OUTER_LEVELS);
                false
            });
        }
    }

    /// Has waiters of this node look at one of this side's ends.
    pub(super) fn rouse(&self, audience: Audience, number: u16) {
        let rouse = |waiter: WaiterNumber| {
            if self.waiters.has_bits(waiter) {
                self.signals.ready(waiter).set(number);
            }
            self.ring_own(waiter);
        };
        audience.waiters().for_each(rouse);
        if let Some(bitmap) = audience.bitmap() {
            let line = self.waiters.directory().audience_line(bitmap);
            for_each_waiter(&line.words, |waiter| {
                rouse(waiter);
                false
            });
        }
    }

    /// Rings a waiter of this node that may sleep on the signals of this bank alone. After what
    /// there is to see was stored.
    pub fn ring_own(&self, waiter: WaiterNumber) {
        self.waiters.ring(waiter);
        if self.waiters.is_asleep(waiter) {
            waiter::ring_bell(&self.signals.bell_line(waiter).bell);
        }
    }

    /// Rings a waiter of the peer's, and those that wait for it. Of each at most four name it,
    /// so that a peer's nonsense costs 341 looks.
    fn ring_with_outer(&self, waiter: WaiterNumber, levels: usize) {
        self.ring(waiter);
        let outer = self.peer_directory.waiter_line(waiter).outer.load(Acquire);
        if outer != 0 && levels > 0 {
            let outer = Audience::from_word(outer);
            outer
                .waiters()
                .for_each(|outer| self.ring_with_outer(outer, levels - 1));
        }
    }

    /// Rings a waiter of the peer's, if a thread sleeps there that was not rung for.
    fn ring(&self, waiter: WaiterNumber) -> bool {
        let line = self.peer_directory.waiter_line(waiter);
        let bell = self.peer_signals.bell_line(waiter);
        waiter::ring(&line.sleep, &bell.told, || {
            waiter::ring_bell(&bell.bell);
            if is_on_descriptor(line) {
                (self.ring_descriptor)(waiter);
            }
        })
    }
}

impl fmt::Debug for Bank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bank")
            .field("number", &self.number)
            .field("side", &self.side)
            .finish_non_exhaustive()
    }
}

/// Why an end could not be begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// The rings cannot be mapped.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The rings of the node take as much memory as they may.
    #[error("the node's payload memory is used up")]
    Payload,
    /// A signal handler has interrupted a call of the same thread.
    #[error(transparent)]
    Reentered(#[from] Reentered),
}

/// Why a connection was not offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// There can be no such listener.
    #[error("the listener has a number that no listener has")]
    Listener,
    /// The connection waits nowhere.
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// The listener was closed. The connection may have been taken, or will be refused.
    #[error("the listener was closed")]
    Closed,
}

/// Has a waiter told of the connections of one of the node's listeners, in every bank.
pub fn watch(waiters: &Waiters, listener: u16, waiter: WaiterNumber, exclusive: bool) {
    let Some(watch) = waiters.directory().watch_line(listener) else {
        return;
    };
    let words = if exclusive { &watch.exclusive } else { &watch.all };
    let (index, bit) = (usize::from(waiter.get()) / 64, waiter.get() % 64);
    words[index].fetch_or(1 << bit, AcqRel);
    super::lock::fence_after_exchange();
}

/// Ends what [`watch`] has begun.
pub fn unwatch(waiters: &Waiters, listener: u16, waiter: WaiterNumber) {
    let Some(watch) = waiters.directory().watch_line(listener) else {
        return;
    };
    let (index, bit) = (usize::from(waiter.get()) / 64, waiter.get() % 64);
    for words in [&watch.all, &watch.exclusive] {
        if words[index].load(Relaxed) & 1 << bit != 0 {
            words[index].fetch_and(!(1 << bit), AcqRel);
        }
    }
}

/// Calls `each` for the waiters of a bitmap until it returns `true`.
pub(super) fn for_each_waiter(
    words: &[crate::futex::AtomicU64; WAITER_WORDS],
    mut each: impl FnMut(WaiterNumber) -> bool,
) {
    for (index, word) in words.iter().enumerate() {
        let mut bits = word.load(Acquire);
        while bits != 0 {
            let number = (index * 64) as u16 + bits.trailing_zeros() as u16;
            bits &= bits - 1;
            if WaiterNumber::new(number).is_some_and(&mut each) {
                return;
            }
        }
    }
}
