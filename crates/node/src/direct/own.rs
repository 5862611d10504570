//! What the calling thread has in a node's direct connections: its line of the journal, and the
//! waiter on which it sleeps.
//!
//! A thread gets both when it first needs them, and gives them back when it ends. A forked child
//! has copies of its parent's, which it neither uses nor gives back.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use toehold_shm::Process;
use toehold_shm::direct::{ThreadNumber, WaiterKind, WaiterNumber, Waiters};

use super::Direct;

/// Tells the parts in nodes that this process has, or ever had, from one another.
#[derive(Debug)]
pub(super) struct PartId(u64);

impl PartId {
    pub(super) fn new() -> Arc<PartId> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(PartId(NEXT.fetch_add(1, Relaxed)))
    }
}

/// What a thread has in one node.
struct ThreadSlot {
    part: Weak<PartId>,
    id: u64,
    /// The process of the thread. The numbers are that process's.
    process: u32,
    waiters: Waiters,
    thread: ThreadNumber,
    waiter: Option<WaiterNumber>,
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        LATEST.set((0, 0));
        if this_process() != self.process {
            return;
        }
        if let Some(waiter) = self.waiter {
            self.waiters.free(waiter);
        }
        self.waiters.journal().free(self.thread);
    }
}

thread_local! {
    /// The part that the thread used last, and the thread's number there.
    static LATEST: Cell<(u64, u16)> = const { Cell::new((0, 0)) };
    static SLOTS: RefCell<Vec<ThreadSlot>> = const { RefCell::new(Vec::new()) };
}

fn this_process() -> u32 {
    Process::this().map_or(0, Process::number)
}

impl Direct {
    /// The calling thread's number in the node. `None`: the node has no number left, or the
    /// thread is about to end.
    #[inline]
    pub fn thread(&self) -> Option<ThreadNumber> {
        let (part, number) = LATEST.get();
        match part == self.part.0 {
            true => ThreadNumber::new(number),
            false => self.find_thread(),
        }
    }

    #[cold]
    fn find_thread(&self) -> Option<ThreadNumber> {
        let thread = self.with_slot(|slot| Some(slot.thread))?;
        LATEST.set((self.part.0, thread.get()));
        Some(thread)
    }

    /// The waiter of the calling thread for calls on one source. `None`: the node has none left.
    pub(super) fn waiter(&self) -> Option<WaiterNumber> {
        self.with_slot(|slot| {
            if slot.waiter.is_none() {
                slot.waiter = self.waiters().claim(self.process, WaiterKind::Thread);
            }
            slot.waiter
        })
    }

    fn with_slot<T>(&self, act: impl FnOnce(&mut ThreadSlot) -> Option<T>) -> Option<T> {
        let act = |slots: &RefCell<Vec<ThreadSlot>>| {
            let mut slots = slots.try_borrow_mut().ok()?;
            if let Some(slot) = slots.iter_mut().find(|slot| slot.id == self.part.0) {
                return act(slot);
            }
            slots.retain(|slot| slot.part.strong_count() > 0);
            slots.push(ThreadSlot {
                part: Arc::downgrade(&self.part),
                id: self.part.0,
                process: this_process(),
                waiters: self.waiters().clone(),
                thread: self.journal().claim(self.process)?,
                waiter: None,
            });
            act(slots.last_mut()?)
        };
        SLOTS.try_with(act).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use crate::direct::tests::{attach, start};

    #[test]
    fn thread_gives_its_numbers_back_when_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let _engine = start(path, "node", true);
        let node = attach(path, "node");
        let direct = node.shards().unwrap().direct().unwrap();
        let claim = || {
            let own = (direct.thread().unwrap(), direct.waiter().unwrap());
            assert_eq!(direct.thread(), Some(own.0));
            own
        };
        let [first, second] = [(); 2].map(|()| {
            let own = std::thread::scope(|scope| scope.spawn(claim).join().unwrap());
            assert_eq!(direct.waiters().process(own.1), None);
            own
        });
        assert_eq!(first, second);
    }
}
