//! The engine's thread that closes ends of direct connections.
//!
//! To close an end takes its locks. A process may have them that is stopped, or has died and is not
//! known to be dead yet. So no other thread of the engine closes ends, least of all the one that
//! takes locks from the dead.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU16};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use toehold_shm::direct::{ConnectionId, Record, ThreadNumber};

use super::super::connections::Closed;
use super::upkeep::Upkeep;
use super::{Banks, ENGINE};
use crate::direct::{Bank, Closing, close, free_if_over};

/// Closed ends that are looked at in one go.
const REAPS: usize = 256;

/// When to look again at ends whose other sides are still to be closed: at first, and after many
/// looks in vain.
const AGAIN: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// A request to the thread.
#[derive(Debug)]
pub(super) enum CloserRequest {
    Do(Task),
    /// Lets go of it once all that was asked for before is done.
    Release(Closed),
}

/// A task about an end.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) bank: Arc<Bank>,
    pub(super) connection: ConnectionId,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// The last holder of the connection is gone.
    Close,
    Reset,
    /// This side's end was not made: the connection is refused.
    Refuse,
    /// A process has died that had reserved the number, and has offered no connection.
    Abandon,
    /// A process has died that was offering the connection. It is offered again and closed. So the
    /// other side ends it, whether it has taken it or not.
    Settle,
}

#[derive(Debug, Default)]
struct Queue {
    requests: VecDeque<CloserRequest>,
    is_over: bool,
}

#[derive(Debug)]
pub(super) struct Closer {
    /// The line of the journal of the thread that closes.
    thread: ThreadNumber,
    queue: Mutex<Queue>,
    changed: Condvar,
    closing: Closing,
    /// Connections that are still to be offered, since their queues were full.
    unsettled: Mutex<Vec<(Arc<Bank>, ConnectionId)>>,
    /// Whether a process has died that may have charged memory without having noted that.
    pub(super) has_drifted: AtomicBool,
    /// No listener from this number on was ever closed.
    pub(super) listeners: AtomicU16,
}

impl Closer {
    pub(super) fn new(thread: ThreadNumber) -> Closer {
        Closer {
            thread,
            queue: Mutex::default(),
            changed: Condvar::new(),
            closing: Closing::default(),
            unsettled: Mutex::default(),
            has_drifted: AtomicBool::new(false),
            listeners: AtomicU16::new(0),
        }
    }

    fn unsettled(&self) -> MutexGuard<'_, Vec<(Arc<Bank>, ConnectionId)>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn awaits_nothing(&self) -> bool {
        self.closing.len() == 0 && self.unsettled().is_empty()
    }

    pub(super) fn push(&self, task: Task) {
        self.ask(CloserRequest::Do(task));
    }

    fn ask(&self, request: CloserRequest) {
        self.lock().requests.push_back(request);
        self.changed.notify_one();
    }

    /// The next request; `None` after a while without one. The error is the end.
    fn next(&self, again: Duration) -> Result<Option<CloserRequest>, ()> {
        let mut queue = self.lock();
        loop {
            if queue.is_over {
                return Err(());
            }
            if let Some(request) = queue.requests.pop_front() {
                return Ok(Some(request));
            }
            let timeout = if self.awaits_nothing() { AGAIN[1] } else { again };
            let waited = self.changed.wait_timeout(queue, timeout);
            let (changed, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
            if timed_out.timed_out() {
                return Ok(None);
            }
            queue = changed;
        }
    }
}

impl Banks {
    /// Closes ends that are to be closed, until this life of the node is over.
    pub(in crate::engine::host) fn run_closer(&self) {
        let mut again = AGAIN[0];
        let mut upkeep = Upkeep::default();
        let mut upkeep_at = Instant::now() + AGAIN[1];
        while let Ok(request) = self.closer.next(again) {
            if Instant::now() >= upkeep_at {
                self.keep_up(&mut upkeep);
                upkeep_at = Instant::now() + AGAIN[1];
            }
            match request {
                Some(CloserRequest::Release(closed)) => drop(closed),
                Some(CloserRequest::Do(task)) => {
                    self.carry_out(task);
                    again = AGAIN[0];
                }
                None => {
                    self.settle_all();
                    self.reap();
                    again = (2 * again).min(AGAIN[1]);
                }
            }
        }
    }

    /// Lets go of holders once the thread has closed what it was asked to close by now.
    pub(in crate::engine::host) fn release_when_closed(&self, closed: Closed) {
        self.closer.ask(CloserRequest::Release(closed));
    }

    pub(super) fn thread(&self) -> ThreadNumber {
        self.closer.thread
    }

    pub(super) fn free_if_over(&self, bank: &Bank, connection: ConnectionId) -> bool {
        let is_there = self.is_there(bank);
        free_if_over(self.thread(), bank, connection, &self.ports, is_there)
    }

    fn reap(&self) {
        let is_there = |bank: &Bank| self.is_there(bank);
        let thread = self.closer.thread;
        self.closer.closing.reap(thread, &self.ports, REAPS, is_there);
    }

    /// Whether the other side of a bank is there: otherwise it closes nothing any more.
    fn is_there(&self, bank: &Bank) -> bool {
        self.table.is_there(bank.slot(), bank.generation())
    }

    /// Ends [`Banks::run_closer`], unless it waits for a lock of a process.
    pub(in crate::engine::host) fn stop_closer(&self) {
        self.closer.lock().is_over = true;
        self.closer.changed.notify_all();
    }

    fn carry_out(&self, task: Task) {
        let Task {
            bank,
            connection,
            what,
        } = task;
        let thread = self.closer.thread;
        match what {
            What::Close => close(thread, &bank, connection, false),
            What::Reset => close(thread, &bank, connection, true),
            What::Refuse => self.refuse(&bank, connection),
            What::Abandon => {
                let _ = bank.abandon(thread, connection, ENGINE);
                return;
            }
            What::Settle => {
                if bank.offer_again(connection).is_err() {
                    self.closer.unsettled().push((Arc::clone(&bank), connection));
                }
                close(thread, &bank, connection, false);
            }
        }
        if !self.free_if_over(&bank, connection) {
            self.closer.closing.push(&bank, connection);
        }
    }

    /// Offers what could not be offered before. If the other side has answered, the first offer was
    /// made.
    fn settle_all(&self) {
        let mut unsettled = self.closer.unsettled();
        unsettled.retain(|(bank, connection)| {
            self.is_there(bank) && !bank.is_answered(*connection) && bank.offer_again(*connection).is_err()
        });
    }

    fn refuse(&self, bank: &Arc<Bank>, connection: ConnectionId) {
        let thread = self.closer.thread;
        let Some(theirs) = bank.peer.record(connection.number, connection.generation) else {
            // The other side waits for no answer. The process may have begun the end.
            let _ = bank.discard(thread, connection.number);
            return;
        };
        let record = Record {
            local: theirs.remote,
            remote: theirs.local,
            listener: None,
            ..theirs
        };
        // The closing thread runs no signal handler that could have interrupted it.
        let _ = bank.refuse(thread, connection.number, &record);
    }
}
