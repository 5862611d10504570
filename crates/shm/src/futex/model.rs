//! The kernel's guarantees about futexes, for loom.

use loom::sync::atomic::Ordering::Relaxed;
use loom::sync::{Condvar, Mutex};

use super::{AtomicU32, Futex, Waited};

/// A futex without timeouts: loom reports a thread that is not woken as a deadlock.
pub(crate) struct ModelFutex {
    word: AtomicU32,
    asleep: Mutex<usize>,
    bell: Condvar,
}

impl ModelFutex {
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
            asleep: Mutex::new(0),
            bell: Condvar::new(),
        }
    }
}

impl Futex for ModelFutex {
    fn word(&self) -> &AtomicU32 {
        &self.word
    }

    fn wait(&self, expected: u32, _until_ns: Option<u64>) -> Waited {
        let mut asleep = self.asleep.lock().unwrap();
        if self.word.load(Relaxed) != expected {
            return Waited::Different;
        }
        *asleep += 1;
        // loom wakes only threads that were notified.
        drop(self.bell.wait(asleep).unwrap());
        Waited::Slept
    }

    fn wake(&self, threads: u32) -> usize {
        let mut asleep = self.asleep.lock().unwrap();
        let woken = (*asleep).min(threads as usize);
        *asleep -= woken;
        (0..woken).for_each(|_| self.bell.notify_one());
        woken
    }
}
