//! How a thread rests while another one, or nobody, drives the shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::thread::futex;
use toehold_shm::Doorbell;
use toehold_stack::Instant;

use crate::clock;

/// Where a thread rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Rest {
    /// On its own word of memory: [`Parker::park`].
    Parked = 1,
    /// On the link's descriptor and the node's doorbell.
    Seated = 2,
}

const AWAKE: u32 = 0;
const NOTIFIED: u32 = 3;

/// One thread's resting place.
///
/// All calls but [`Parker::park`] are made with the shard's lock held, so that
/// nothing can happen between "I shall rest" and "wake whoever rests".
#[derive(Debug, Default)]
pub(crate) struct Parker {
    state: AtomicU32,
}

thread_local! {
    static CURRENT: Arc<Parker> = Arc::default();
}

impl Parker {
    /// The calling thread's. Not `std::thread::park`: the program may use that
    /// itself, and would miss its own wake-ups if some were taken here.
    pub(crate) fn current() -> Arc<Parker> {
        // A thread that is ending has lost its own already.
        CURRENT.try_with(Arc::clone).unwrap_or_default()
    }

    /// From now on a notification wakes the thread.
    pub(crate) fn begin(&self, rest: Rest) {
        self.state.store(rest as u32, Ordering::Relaxed);
    }

    /// Whether the thread rests and was not yet told to wake up.
    pub(crate) fn is_resting(&self) -> bool {
        !matches!(self.state.load(Ordering::Relaxed), AWAKE | NOTIFIED)
    }

    /// Wakes the thread if it rests. `bell` is that of its node.
    pub(crate) fn notify(&self, bell: &Doorbell) {
        if !self.is_resting() {
            return;
        }
        match self.state.swap(NOTIFIED, Ordering::Release) {
            state if state == Rest::Parked as u32 => {
                let _ = futex::wake(&self.state, futex::Flags::PRIVATE, 1);
            }
            _ => bell.ring(),
        }
    }

    /// Rests without the lock until notified, or until a point in time.
    pub(crate) fn park(&self, until: Option<Instant>) {
        let parked = Rest::Parked as u32;
        while self.state.load(Ordering::Acquire) == parked {
            let left = until.map(|until| until.since(clock::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return;
            }
            let timeout = left.map(clock::timespec);
            match futex::wait(&self.state, futex::Flags::PRIVATE, parked, timeout.as_ref()) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
                // There is no other error for a word of one's own memory; should
                // there be one all the same, looking again is right.
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    /// The thread is awake. Whether it was notified.
    pub(crate) fn end(&self) -> bool {
        self.state.swap(AWAKE, Ordering::Relaxed) == NOTIFIED
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn notified_before_or_after_going_to_rest() {
        let bell = Doorbell::new().unwrap();
        let parker = Parker::current();
        for early in [true, false].into_iter().cycle().take(200) {
            parker.begin(Rest::Parked);
            let other = std::thread::spawn({
                let (parker, bell) = (parker.clone(), bell.try_clone().unwrap());
                move || parker.notify(&bell)
            });
            if early {
                other.join().unwrap();
                parker.park(None);
            } else {
                parker.park(None);
                other.join().unwrap();
            }
            assert!(parker.end());
        }
        assert!(!bell.clear(), "nobody was seated");
    }

    #[test]
    fn rests_no_longer_than_until() {
        let parker = Parker::current();
        parker.begin(Rest::Parked);
        let before = clock::now();
        parker.park(Some(before + Duration::from_millis(20)));
        assert!(clock::now() - before >= Duration::from_millis(20));
        assert!(!parker.end());
    }

    #[test]
    fn who_does_not_rest_is_not_notified() {
        let bell = Doorbell::new().unwrap();
        let parker = Parker::default();
        parker.notify(&bell);
        assert!(!parker.end());
        parker.begin(Rest::Seated);
        parker.notify(&bell);
        parker.notify(&bell);
        assert!(!parker.is_resting());
        assert!(parker.end());
        assert!(bell.clear());
    }
}
