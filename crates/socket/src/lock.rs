//! The lock around a shard.
//!
//! A thread that spins for frames holds it all the time, because taking it for
//! every look would cost more than the look. So whoever wants the lock says so,
//! and a spinner asks between two looks whether somebody does.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

/// Tries before a thread that wants the lock goes to sleep, and looks of one
/// that gave way before it wants the lock back: a few microseconds.
const TRIES: u32 = 64;

#[derive(Debug)]
pub(crate) struct Lock<T> {
    mutex: Mutex<T>,
    /// Threads that want the lock and do not have it.
    wanting: AtomicU32,
}

pub(crate) type Guard<'a, T> = MutexGuard<'a, T>;

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            mutex: Mutex::new(value),
            wanting: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        match self.mutex.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        }
    }

    #[cold]
    fn lock_contended(&self) -> Guard<'_, T> {
        self.wanting.fetch_add(1, Relaxed);
        let mut tries = 0..TRIES;
        let guard = loop {
            if let Some(guard) = self.mutex.try_lock() {
                break guard;
            }
            if tries.next().is_none() {
                break self.mutex.lock();
            }
            spin_loop();
        };
        self.wanting.fetch_sub(1, Relaxed);
        guard
    }

    /// Whether the holder should let somebody else have the lock.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanting.load(Relaxed) != 0
    }

    /// Lets those who want the lock have it, before this thread takes it back.
    #[cold]
    pub(crate) fn give_way(&self, guard: &mut Guard<'_, T>) {
        // Fair: one that sleeps in the queue gets the lock handed over, and
        // cannot be overtaken by this thread.
        MutexGuard::unlocked_fair(guard, || {
            for _ in 0..TRIES {
                if !self.is_wanted() {
                    break;
                }
                spin_loop();
            }
            self.wanting.fetch_add(1, Relaxed);
        });
        self.wanting.fetch_sub(1, Relaxed);
    }

    /// Does something without the lock.
    pub(crate) fn unlocked(&self, guard: &mut Guard<'_, T>, work: impl FnOnce()) {
        MutexGuard::unlocked(guard, || {
            work();
            self.wanting.fetch_add(1, Relaxed);
        });
        self.wanting.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_spinner_does_not_starve_others() {
        let lock = Arc::new(Lock::new(0_u64));
        let stop = Arc::new(AtomicBool::new(false));
        let spinner = std::thread::spawn({
            let (lock, stop) = (lock.clone(), stop.clone());
            move || {
                let mut guard = lock.lock();
                while !stop.load(Ordering::Relaxed) {
                    if lock.is_wanted() {
                        lock.give_way(&mut guard);
                    }
                    *guard += 1;
                }
            }
        });
        // The spinner has the lock, and holds it whenever nobody wants it.
        while *lock.lock() == 0 {}
        let others: Vec<_> = (0..3)
            .map(|_| {
                let lock = lock.clone();
                std::thread::spawn(move || (0..1000).for_each(|_| *lock.lock() += 1))
            })
            .collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        spinner.join().unwrap();
        assert!(!lock.is_wanted());
        assert!(*lock.lock() >= 3000);
    }
}
