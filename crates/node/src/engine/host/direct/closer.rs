//! The engine's thread that closes ends of direct connections.
//!
//! To close an end takes its locks, which a process may have that is stopped, or has died and is not
//! known to be dead yet. So no other thread of the engine closes ends, least of all the one that
//! takes locks from the dead.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use toehold_shm::direct::{Beginning, ConnectionId, Record, ThreadNumber};

use super::Banks;
use crate::direct::{Bank, Closing, close, free_if_over};

/// Closed ends that are looked at in one go.
const REAPS: usize = 256;

/// When to look again at ends whose other sides are still to be closed.
const AGAIN: Duration = Duration::from_millis(50);

/// Bytes that the other side of a connection may write that is refused: it is reset at once.
const WINDOW: u64 = 4096;

/// What is to be done with an end.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) bank: Arc<Bank>,
    pub(super) connection: ConnectionId,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// Its last holder is gone.
    Close,
    Reset,
    /// This side's end was not made: it is made, and reset.
    Refuse,
    /// It was closed: only its other side is awaited.
    Await,
}

#[derive(Debug, Default)]
struct Queue {
    tasks: VecDeque<Task>,
    is_over: bool,
}

#[derive(Debug)]
pub(super) struct Closer {
    /// The line of the journal of the thread that closes.
    thread: ThreadNumber,
    queue: Mutex<Queue>,
    changed: Condvar,
    closing: Closing,
}

impl Closer {
    pub(super) fn new(thread: ThreadNumber) -> Closer {
        Closer {
            thread,
            queue: Mutex::default(),
            changed: Condvar::new(),
            closing: Closing::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, task: Task) {
        self.lock().tasks.push_back(task);
        self.changed.notify_one();
    }

    /// The next task; `None` after a while without one. The error is the end.
    fn next(&self) -> Result<Option<Task>, ()> {
        let mut queue = self.lock();
        loop {
            if queue.is_over {
                return Err(());
            }
            if let Some(task) = queue.tasks.pop_front() {
                return Ok(Some(task));
            }
            queue = match self.closing.len() {
                0 => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                _ => {
                    let waited = self.changed.wait_timeout(queue, AGAIN);
                    let (queue, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
                    if timed_out.timed_out() {
                        return Ok(None);
                    }
                    queue
                }
            };
        }
    }
}

impl Banks {
    /// Closes what is to be closed, until the end of this life of the node.
    pub(in crate::engine::host) fn run_closer(&self) {
        while let Ok(task) = self.closer.next() {
            match task {
                Some(task) => self.carry_out(task),
                None => self.closer.closing.reap(self.closer.thread, &self.ports, REAPS),
            }
        }
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
            What::Await => {}
        }
        // The other side of a bank whose peer has gone closes nothing any more.
        let is_there = self.table.is_there(bank.slot(), bank.generation());
        if is_there && !free_if_over(thread, &bank, connection, &self.ports) {
            self.closer.closing.push(&bank, connection);
        }
    }

    fn refuse(&self, bank: &Arc<Bank>, connection: ConnectionId) {
        let Some(theirs) = bank.peer.record(connection.number, connection.generation) else {
            return;
        };
        let record = Record {
            local: theirs.remote,
            remote: theirs.local,
            listener: None,
            ..theirs
        };
        let beginning = Beginning {
            record,
            window: WINDOW,
        };
        let thread = self.closer.thread;
        if bank.begin(thread, connection.number, &beginning).is_ok() {
            close(thread, bank, connection, true);
        }
    }
}
