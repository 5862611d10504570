//! Signals to one side of a bank: ready bits, bells and accept queues.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::accept_queue::AcceptQueue;
use super::audience::WaiterNumber;
use super::bank::{
    BELL_LINES, BellLine, Kind, LISTENERS, QUEUE_LEN, QUEUE_LINES, QUEUE_SLOTS, QueueLine, READY_LINES,
    ReadyLine, SIGNALS_LEN, WAITERS,
};
use super::handle::for_each_waiter;
use super::memory::{Memory, MemoryError};
use super::ready_set::ReadySet;
use super::waiter;
use super::waiters::Waiters;
use crate::Access;
use crate::futex::AtomicU64;

/// Memory that both nodes of a bank write, in which one of them is told where to look.
///
/// Each bit in it is a hint: a wrong bit costs a look, a missing one a wait of that pair's
/// connections. The node that is told makes it. A clone is of the same mapping.
#[derive(Debug, Clone)]
pub struct Signals {
    memory: Arc<Memory>,
}

impl Signals {
    /// Makes memory in which nothing was signalled. `name` shows up in `/proc/PID/maps`.
    ///
    /// # Errors
    ///
    /// If the kernel makes no memory file, or this process has too few addresses.
    pub fn create(name: &str, incarnation: u64) -> Result<Signals, MemoryError> {
        let len = SIGNALS_LEN as u64;
        Memory::create(name, Kind::Signals, len, SIGNALS_LEN, incarnation).map(Signals::over)
    }

    /// Maps signals that another process has made, of this node or of the peer's. Only memory
    /// is accepted that can never shrink and has the length of signals.
    ///
    /// # Errors
    ///
    /// If the descriptor is of something else, or this process has too few addresses.
    pub fn open(fd: OwnedFd) -> Result<Signals, MemoryError> {
        let len = SIGNALS_LEN as u64;
        Memory::open(fd, Kind::Signals, len, SIGNALS_LEN, Access::ReadWrite).map(Signals::over)
    }

    fn over(memory: Memory) -> Signals {
        Signals {
            memory: Arc::new(memory),
        }
    }

    /// The descriptor, for processes of both nodes.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// The random number that tells this memory from any other. The peer can change it.
    pub fn incarnation(&self) -> u64 {
        self.memory.incarnation()
    }

    #[inline]
    pub(super) fn bell_line(&self, waiter: WaiterNumber) -> &BellLine {
        self.memory.line(BELL_LINES, waiter.get().into(), WAITERS)
    }

    #[inline]
    pub(super) fn ready(&self, waiter: WaiterNumber) -> ReadySet<'_> {
        let line: &ReadyLine = self.memory.line(READY_LINES, waiter.get().into(), WAITERS);
        ReadySet {
            summary: &line.summary,
            listeners: &line.listeners,
            words: &line.words,
        }
    }

    /// The queue of a listener; `None` if there can be no such listener.
    pub(super) fn queue(&self, listener: u16) -> Option<AcceptQueue<'_>> {
        let listener = usize::from(listener);
        if listener >= LISTENERS {
            return None;
        }
        let line: &QueueLine = self.memory.line(QUEUE_LINES, listener, LISTENERS);
        let slots: &[AtomicU64; QUEUE_LEN] = self.memory.line(QUEUE_SLOTS, listener, LISTENERS);
        Some(AcceptQueue {
            slots,
            head: &line.head,
            tail: &line.tail,
        })
    }

    /// Returns whether a look at the waiter's sources in this bank is worth it.
    #[inline]
    pub fn is_empty(&self, waiter: WaiterNumber) -> bool {
        self.ready(waiter).is_empty()
    }

    /// Takes the ready bits of a waiter of this node: `each` gets the number of every connection
    /// that has to be looked at. Returns the listeners to look at: bit `n` stands for those whose
    /// number modulo 64 is `n`. To be called while [collecting](super::Waiters::collecting).
    pub fn collect(&self, waiter: WaiterNumber, each: impl FnMut(u16)) -> u64 {
        let ready = self.ready(waiter);
        ready.collect(each);
        ready.collect_listeners()
    }

    /// Tells this node's own waiters that a listener has a connection which is in no queue of a
    /// bank. All are told that sleep without exclusivity, and one that sleeps exclusively. Their bits are set in these signals, which a waiter of listeners has to watch.
    pub fn tell_listener(&self, waiters: &Waiters, listener: u16) {
        let Some(watch) = waiters.directory().watch_line(listener) else {
            return;
        };
        let tell = |waiter: WaiterNumber| {
            self.ready(waiter).set_listener(listener);
            let rung = waiters.ring(waiter);
            if waiters.is_asleep(waiter) {
                // It may sleep on the bell of these signals alone.
                waiter::ring_bell(&self.bell_line(waiter).bell);
            }
            rung
        };
        for_each_waiter(&watch.all, |waiter| {
            tell(waiter);
            false
        });
        for_each_waiter(&watch.exclusive, tell);
    }

    /// Sets every bit of a waiter, so that all its sources in this bank are looked at. A process
    /// that has died may have taken some.
    pub fn set_all(&self, waiter: WaiterNumber) {
        self.ready(waiter).set_all();
    }
}
