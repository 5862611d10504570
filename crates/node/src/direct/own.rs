//! The calling thread's part of a node's direct connections: its line of the journal, and the
//! waiter on which it sleeps.
//!
//! A thread gets both when it first needs them, and gives them back when it ends. A forked child
//! has copies of its parent's, which it neither uses nor gives back.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use toehold_shm::Process;
use toehold_shm::direct::{ThreadNumber, WaiterKind, WaiterNumber, Waiters};

use super::Direct;

/// One process's part in a node, as its threads know it.
#[derive(Debug)]
pub(super) struct Part {
    /// Tells it from other parts that the process has, or had.
    id: u64,
    /// The process that has these numbers.
    process: u32,
    waiters: Waiters,
    /// The numbers of threads that have not ended yet.
    claimed: Mutex<Vec<Claimed>>,
}

/// The numbers of a thread in a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claimed {
    thread: ThreadNumber,
    waiter: Option<WaiterNumber>,
}

impl Part {
    pub(super) fn new(waiters: Waiters) -> Arc<Part> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Part {
            id: NEXT.fetch_add(1, Relaxed),
            process: this_process(),
            waiters,
            claimed: Mutex::default(),
        })
    }

    fn claimed(&self) -> MutexGuard<'_, Vec<Claimed>> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self, claimed: Claimed) {
        if this_process() != self.process {
            return;
        }
        if let Some(waiter) = claimed.waiter {
            self.waiters.free(waiter);
        }
        self.waiters.journal().free(claimed.thread);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        for claimed in std::mem::take(&mut *self.claimed()) {
            self.free(claimed);
        }
    }
}

/// A thread's part of one node. It keeps none of the node's descriptors, since the end of a thread
/// is no place to close them.
struct ThreadSlot {
    part: Weak<Part>,
    id: u64,
    claimed: Claimed,
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        LATEST.set((0, 0));
        if let Some(part) = self.part.upgrade() {
            part.claimed()
                .retain(|claimed| claimed.thread != self.claimed.thread);
            part.free(self.claimed);
        }
    }
}

thread_local! {
    /// The part that the thread used last, and the thread's number there.
    static LATEST: Cell<(u64, u16)> = const { Cell::new((0, 0)) };
    static SLOTS: RefCell<Vec<ThreadSlot>> = const { RefCell::new(Vec::new()) };
}

/// The slots of threads that make calls after the end of their thread-local values, by thread.
/// Handlers of `exit` do, which write what the program has buffered. They stay until the thread is
/// gone.
static LATE: Mutex<BTreeMap<u32, Vec<ThreadSlot>>> = Mutex::new(BTreeMap::new());

fn this_process() -> u32 {
    Process::this().map_or(0, Process::number)
}

impl Direct {
    /// The calling thread's number in the node. Returns `None` if the node has no number left, or a
    /// signal handler has interrupted the thread while it asked for one.
    #[inline]
    pub fn thread(&self) -> Option<ThreadNumber> {
        let (part, number) = LATEST.get();
        match part == self.part.id {
            true => ThreadNumber::new(number),
            false => self.find_thread(),
        }
    }

    #[cold]
    fn find_thread(&self) -> Option<ThreadNumber> {
        let thread = self.with_slot(|slot| Some(slot.claimed.thread))?;
        LATEST.set((self.part.id, thread.get()));
        Some(thread)
    }

    /// The waiter of the calling thread for calls on one source. Returns `None` if the node has
    /// none left.
    pub(super) fn waiter(&self) -> Option<WaiterNumber> {
        self.with_slot(|slot| {
            if slot.claimed.waiter.is_none() {
                let waiter = self.waiters().claim(self.process, WaiterKind::Thread);
                if let Ok(mut all) = self.part.claimed.try_lock() {
                    let own = all.iter_mut().filter(|claimed| **claimed == slot.claimed);
                    own.for_each(|claimed| claimed.waiter = waiter);
                }
                slot.claimed.waiter = waiter;
            }
            slot.claimed.waiter
        })
    }

    fn with_slot<T>(&self, act: impl FnOnce(&mut ThreadSlot) -> Option<T>) -> Option<T> {
        let mut act = Some(act);
        let mut act_in = |slots: &mut Vec<ThreadSlot>| act.take().and_then(|act| self.act_in(slots, act));
        let found = SLOTS.try_with(|slots| act_in(&mut *slots.try_borrow_mut().ok()?));
        found.unwrap_or_else(|_| {
            let mut late = LATE.try_lock().ok()?;
            let ended: Vec<u32> = late.keys().copied().filter(|thread| has_ended(*thread)).collect();
            for thread in ended {
                late.remove(&thread);
            }
            act_in(late.entry(this_thread()).or_default())
        })
    }

    /// Does something with the calling thread's slot for this node, which is made if there is none.
    fn act_in<T>(
        &self,
        slots: &mut Vec<ThreadSlot>,
        act: impl FnOnce(&mut ThreadSlot) -> Option<T>,
    ) -> Option<T> {
        if let Some(slot) = slots.iter_mut().find(|slot| slot.id == self.part.id) {
            return act(slot);
        }
        slots.retain(|slot| slot.part.strong_count() > 0);
        let claimed = Claimed {
            thread: self.journal().claim(self.process)?,
            waiter: None,
        };
        // A signal handler may have interrupted this thread there: then the thread's end frees them.
        if let Ok(mut all) = self.part.claimed.try_lock() {
            all.push(claimed);
        }
        slots.push(ThreadSlot {
            part: Arc::downgrade(&self.part),
            id: self.part.id,
            claimed,
        });
        act(slots.last_mut()?)
    }
}

fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_pid().unsigned_abs()
}

/// Whether a thread of this process has ended. `false` if the system does not say.
fn has_ended(thread: u32) -> bool {
    let is_there = |thread: u32| Path::new(&format!("/proc/self/task/{thread}")).exists();
    is_there(this_thread()) && !is_there(thread)
}
