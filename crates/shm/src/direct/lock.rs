//! Locks of an end: for writers, for readers, and for those that arm.
//!
//! A lock is held for one copy, never across a wait. Its word names the thread that has it, so
//! that the engine can take it from a dead one.

use core::num::NonZeroU16;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::bank::THREADS;
use crate::futex::{ALL, AtomicU32, Futex, fence};

/// Number of a thread in its node's [`Journal`](super::Journal): what it stores in the locks
/// that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadNumber(NonZeroU16);

impl ThreadNumber {
    /// The thread of that number; `None` if there can be none.
    pub fn new(number: u16) -> Option<ThreadNumber> {
        let number = NonZeroU16::new(number)?;
        (usize::from(number.get()) < THREADS).then_some(ThreadNumber(number))
    }

    /// The number, from 1 on.
    #[inline]
    pub fn get(self) -> u16 {
        self.0.get()
    }
}

/// The thread has the lock already: a signal handler has interrupted its own call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the thread is in a call on the same connection already")]
pub struct Reentered;

/// Set while threads may sleep until the lock is free.
const CONTENDED: u32 = 1 << 31;

/// Makes what this thread has just changed by a read-modify-write operation precede its later
/// loads, for every thread that does the same.
///
/// On x86-64 the operation itself is such a fence, and the compiler alone has to be kept from
/// reordering. On AArch64 without LSE it is a loop whose store a later load may pass.
#[inline]
pub(super) fn fence_after_exchange() {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    fence(core::sync::atomic::Ordering::SeqCst);
}

/// A fence between a plain store and a later load, against one that does the same.
#[inline]
pub(super) fn full_fence() {
    fence(core::sync::atomic::Ordering::SeqCst);
}

/// Takes a lock that is free.
#[inline]
pub(super) fn try_lock(word: &AtomicU32, thread: ThreadNumber) -> bool {
    word.compare_exchange(0, thread.get().into(), Acquire, Relaxed)
        .is_ok()
}

/// Takes a lock, and sleeps while another thread has it.
#[inline]
pub(super) fn lock(futex: &impl Futex, thread: ThreadNumber) -> Result<(), Reentered> {
    if try_lock(futex.word(), thread) {
        return Ok(());
    }
    lock_contended(futex, thread)
}

#[cold]
fn lock_contended(futex: &impl Futex, thread: ThreadNumber) -> Result<(), Reentered> {
    let word = futex.word();
    let mut mine = u32::from(thread.get());
    loop {
        let found = match word.compare_exchange(0, mine, Acquire, Relaxed) {
            Ok(_) => return Ok(()),
            Err(found) => found,
        };
        if found & !CONTENDED == thread.get().into() {
            return Err(Reentered);
        }
        let marked = found | CONTENDED;
        let is_marked = found == marked || word.compare_exchange(found, marked, Relaxed, Relaxed).is_ok();
        if is_marked {
            futex.wait(marked, None);
            // Others may sleep still: the next unlocking has to wake one.
            mine |= CONTENDED;
        }
    }
}

/// Gives a lock back, and fences: what was stored under it precedes what this thread loads next.
#[inline]
pub(super) fn unlock_and_fence(futex: &impl Futex) {
    let before = futex.word().swap(0, AcqRel);
    fence_after_exchange();
    if before & CONTENDED != 0 {
        futex.wake(1);
    }
}

/// Takes a lock from a thread that is dead. Returns `false` if that one did not have it.
///
/// A thread that was woken may have died before it took the lock. So those that sleep are all
/// woken, whether the lock was the dead thread's or not.
pub(super) fn take_from_dead(futex: &impl Futex, dead: ThreadNumber, thread: ThreadNumber) -> bool {
    let word = futex.word();
    let dead = u32::from(dead.get());
    let taken = [dead, dead | CONTENDED].into_iter().any(|found| {
        let mine = u32::from(thread.get()) | CONTENDED;
        word.compare_exchange(found, mine, Acquire, Relaxed).is_ok()
    });
    if !taken {
        futex.wake(ALL);
    }
    taken
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn thread(number: u16) -> ThreadNumber {
        ThreadNumber::new(number).unwrap()
    }

    #[test]
    fn thread_number_out_of_range_is_none() {
        assert_eq!(ThreadNumber::new(0), None);
        assert_eq!(ThreadNumber::new(THREADS as u16), None);
        assert_eq!(thread(THREADS as u16 - 1).get(), THREADS as u16 - 1);
    }

    #[test]
    fn lock_taken_again_by_its_thread_is_refused() {
        let word = AtomicU32::new(0);
        lock(&word, thread(3)).unwrap();
        assert_eq!(lock(&word, thread(3)), Err(Reentered));
        assert!(!try_lock(&word, thread(4)));
        unlock_and_fence(&word);
        assert!(try_lock(&word, thread(4)));
    }

    #[test]
    fn lock_of_a_dead_thread_is_taken_from_that_one_alone() {
        let word = AtomicU32::new(0);
        lock(&word, thread(3)).unwrap();
        assert!(!take_from_dead(&word, thread(4), thread(5)));
        assert!(take_from_dead(&word, thread(3), thread(5)));
        unlock_and_fence(&word);
        assert_eq!(word.load(Relaxed), 0);
    }

    #[test]
    fn lock_lets_one_thread_at_a_time_pass() {
        const ROUNDS: u64 = if cfg!(miri) { 50 } else { 50_000 };
        let word = AtomicU32::new(0);
        let counter = core::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 1..=3 {
                let (word, counter) = (&word, &counter);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        lock(word, thread(number)).unwrap();
                        let value = counter.load(Relaxed);
                        counter.store(value + 1, Relaxed);
                        unlock_and_fence(word);
                    }
                });
            }
        });
        assert_eq!(counter.load(Relaxed), 3 * ROUNDS);
    }
}
