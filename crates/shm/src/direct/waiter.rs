//! Waiters: how they sleep, and how they are rung.
//!
//! A waiter that is about to sleep remembers its bell words, begins a new sleep generation, fences,
//! and looks once more. A ringer has stored what there is and fenced; then it loads the generation.
//! It changes the bell word, wakes, and only then notes that this generation was told. So a ringer
//! that is stopped in between keeps no other one from ringing.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::lock::fence_after_exchange;
use crate::futex::{AtomicU64, Futex};

/// Threads asleep, in a sleep word. All threads of a node can sleep on one waiter.
const SLEEPERS: u64 = (1 << 14) - 1;
const NEXT: u64 = SLEEPERS + 1;

/// Whether a thread sleeps on the waiter of this sleep word.
#[inline]
pub(super) fn is_asleep(word: u64) -> bool {
    word & SLEEPERS != 0
}

/// One thread more sleeps. It has loaded its bell words before, and looks at everything after.
#[inline]
pub(super) fn begin_sleep(sleep: &AtomicU64) {
    sleep.fetch_add(NEXT + 1, AcqRel);
    fence_after_exchange();
}

/// One thread less sleeps. It looks at everything after.
#[inline]
pub(super) fn end_sleep(sleep: &AtomicU64) {
    sleep.fetch_add(NEXT - 1, AcqRel);
    fence_after_exchange();
}

/// The end of a sleep whose thread has died.
pub(super) fn end_dead_sleep(sleep: &AtomicU64) {
    let _ = sleep.fetch_update(AcqRel, Relaxed, |word| {
        is_asleep(word).then(|| word.wrapping_add(NEXT - 1))
    });
}

/// The end of all sleeps of a waiter that is given out anew.
pub(super) fn end_all_sleeps(sleep: &AtomicU64) {
    let _ = sleep.fetch_update(AcqRel, Relaxed, |word| {
        is_asleep(word).then_some((word & !SLEEPERS).wrapping_add(NEXT))
    });
}

/// Rings a waiter, if a thread sleeps there that was not rung for. After a fence that follows
/// what there is to see. Returns whether it has rung.
#[inline]
pub(super) fn ring(sleep: &AtomicU64, told: &AtomicU64, wake: impl FnOnce()) -> bool {
    let generation = sleep.load(Acquire);
    if !is_asleep(generation) || told.load(Acquire) == generation {
        return false;
    }
    wake();
    told.store(generation, Release);
    true
}

/// Changes a bell word and wakes a thread that sleeps on it.
pub(super) fn ring_bell(bell: &impl Futex) {
    bell.word().fetch_add(1, Release);
    bell.wake(1);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    #[test]
    fn waiter_awake_or_told_is_not_rung() {
        let (sleep, told, bell) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU32::new(0));
        let ring = || ring(&sleep, &told, || ring_bell(&bell));
        assert!(!ring());
        begin_sleep(&sleep);
        assert!(ring() && !ring());
        begin_sleep(&sleep);
        assert!(ring(), "another thread sleeps");
        end_sleep(&sleep);
        assert!(ring(), "one of them sleeps still");
        end_sleep(&sleep);
        assert!(!ring());
        assert_eq!(bell.load(Relaxed), 3);
    }

    #[test]
    fn sleep_of_a_dead_thread_ends_once() {
        let sleep = AtomicU64::new(0);
        begin_sleep(&sleep);
        end_dead_sleep(&sleep);
        let after = sleep.load(Relaxed);
        assert!(!is_asleep(after));
        end_dead_sleep(&sleep);
        assert_eq!(sleep.load(Relaxed), after);
        (0..3).for_each(|_| begin_sleep(&sleep));
        let asleep = sleep.load(Relaxed);
        end_all_sleeps(&sleep);
        assert!(!is_asleep(sleep.load(Relaxed)) && sleep.load(Relaxed) > asleep);
    }
}
