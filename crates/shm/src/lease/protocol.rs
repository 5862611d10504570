//! The lease's word: its holder, its waiters, and the protocol of sleeping and waking.
//!
//! The state is one word, so that all threads agree on the order of its changes, and no fences are
//! needed. A thread that goes to sleep has set a bit in the very word that the kernel compares; the
//! releasing thread finds the bit there. Taking the lease is an acquire operation, releasing it a
//! release operation. Each holder therefore sees the writes of the one before.
//!
//! A process can be killed between any two steps:
//!
//! - *While it holds the lease*: [`Side::seize`] takes it over.
//! - *While it wants the lease, or sleeps*: the two bits are hints. The next thread that takes the
//!   lease clears [`WANTED`], the next that releases it clears [`SLEEPERS`]. Threads that still
//!   want it, or sleep again, set the bits again.
//! - *After it released the lease, before it woke a sleeper; or after it was woken, before it took
//!   the lease*: a wake-up is lost. [`Side::seize`] and [`Side::close`] wake all threads, and a
//!   sleeper checks by itself after a slice of time.
//!
//! A thread may want work done under the lease without waiting for it. It leaves a request
//! elsewhere and sets [`REQUESTED`] in the word, unless the lease is free:
//! [`Side::take_or_request`]. The holder cannot release a word with that bit. It has to clear the
//! bit and serve the requests first: [`Side::release_unless_requested`]. So no request is lost, and
//! this needs no fence either.
//!
//! Other programs of the node may have overwritten the word. Only the bits named here count. Every
//! loop repeats only if another thread has changed the word in the meantime. A wrong holder can be
//! seized.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::Revoked;
use crate::futex::{ALL, Futex, Waited};

/// No thread holds the lease, wants it, or sleeps.
const FREE: u32 = 0;
/// The bits of the holder's number; 0 if there is none.
pub(super) const HOLDER: u32 = 0x7fff;
/// The holder's process was stopped, and runs only to release the lease: it stops itself after
/// that.
pub(super) const STOPS: u32 = 1 << 26;
/// A request was left for the holder.
const REQUESTED: u32 = 1 << 27;
/// The lease is closed: no thread gets it any more.
const CLOSED: u32 = 1 << 28;
/// Free, but only for threads that have slept for it: [`Side::give_way`].
pub(super) const HANDED: u32 = 1 << 29;
/// A thread spins for the lease.
const WANTED: u32 = 1 << 30;
/// A thread sleeps until the lease is released, unless it was already woken.
pub(super) const SLEEPERS: u32 = 1 << 31;

/// Attempts of a thread before it sleeps for the lease: a few microseconds. A thread that gave way
/// checks as often before it wants the lease back.
#[cfg(not(loom))]
const TRIES: u32 = 64;
#[cfg(loom)]
const TRIES: u32 = 1;

/// How often a thread that wants the lease then yields its processor and tries again. The holder
/// may wait for just this processor, and a sleep would cost it a system call for the wake-up.
/// (`pgbench -S`, 8 clients on two processors: a tenth more.)
#[cfg(not(loom))]
const YIELDS: u32 = 4;
#[cfg(loom)]
const YIELDS: u32 = 0;

/// A yield that takes this long shows a thread that does not yield, and gets a whole slice of time
/// from each that does. Sleeping is then better: a woken thread runs before others.
#[cfg(not(loom))]
const SELFISH_NS: u64 = 500_000;

/// Waits without yields after one that took so long.
#[cfg(not(loom))]
const REFUSED: u32 = 1 << 10;

/// A thread that has slept this long in vain asks the engine to check the holder, whose process may
/// be stopped ([`Futex::plead`]). A running holder releases the lease within microseconds, unless
/// it lacks a processor.
#[cfg(not(loom))]
const PLEA_NS: u64 = 3_000_000;

/// How often a sleeper checks by itself, in case a process died with the wake-up that it should
/// have passed on.
#[cfg(not(loom))]
const SLICE_NS: u64 = 20_000_000;

/// The operations of one process on the lease.
#[derive(Debug)]
pub(crate) struct Side<'a, F> {
    pub(crate) futex: &'a F,
    /// The number of this process: 1 to [`HOLDER`] − 1.
    pub(crate) me: u32,
}

impl<F: Futex> Side<'_, F> {
    #[inline]
    pub(crate) fn try_acquire(&self) -> bool {
        let word = self.futex.word();
        let taken = word.compare_exchange(FREE, self.me, Acquire, Relaxed);
        taken.is_ok() || self.take(Right::Newcomer) == Ok(true)
    }

    /// Waits for the lease. Calls `goes_on` after every sleep, with its result. Returns `false` if
    /// `goes_on` returned `false`.
    #[inline]
    pub(crate) fn acquire(&self, goes_on: impl FnMut(Waited) -> bool) -> Result<bool, Revoked> {
        let word = self.futex.word();
        match word.compare_exchange(FREE, self.me, Acquire, Relaxed) {
            Ok(_) => Ok(true),
            Err(_) => self.acquire_contended(Right::Newcomer, goes_on),
        }
    }

    #[cold]
    fn acquire_contended(
        &self,
        mut right: Right,
        mut goes_on: impl FnMut(Waited) -> bool,
    ) -> Result<bool, Revoked> {
        let mut is_first = true;
        loop {
            for tried in 0..TRIES + YIELDS {
                if self.take(right)? {
                    return Ok(true);
                }
                self.want();
                if tried < TRIES {
                    spin_loop();
                } else if !offer() {
                    break;
                }
            }
            let Some(word) = self.announce_sleep(right) else {
                continue;
            };
            let waited = self.futex.wait(word, slice(is_first));
            is_first = false;
            if waited != Waited::Different {
                right = Right::Sleeper;
            }
            if waited == Waited::TimedOut {
                self.futex.plead();
            }
            if !goes_on(waited) {
                return self.give_up(right);
            }
        }
    }

    /// The last attempt of a thread that stops waiting. It was perhaps woken in place of other
    /// threads that still sleep: those then need their bit, or the lease.
    fn give_up(&self, right: Right) -> Result<bool, Revoked> {
        let taken = self.take(right)?;
        if !taken && right == Right::Sleeper {
            let found = self.futex.word().fetch_or(SLEEPERS, Relaxed);
            if found & HOLDER == 0 {
                self.futex.wake(1);
            }
        }
        Ok(taken)
    }

    /// Takes the lease if it is free.
    pub(super) fn take(&self, right: Right) -> Result<bool, Revoked> {
        let word = self.futex.word();
        let mut found = word.load(Relaxed);
        loop {
            if is_closed(found) {
                return Err(Revoked);
            }
            if !is_free(found, right) {
                return Ok(false);
            }
            // A thread that has slept was perhaps woken in place of threads that still sleep. If
            // their bit was cleared on its behalf, the bit would be missing now.
            let sleepers = if right == Right::Sleeper {
                SLEEPERS
            } else {
                found & SLEEPERS
            };
            let taken = self.me | sleepers | (found & REQUESTED);
            match word.compare_exchange(found, taken, Acquire, Relaxed) {
                Ok(_) => return Ok(true),
                Err(other) => found = other,
            }
        }
    }

    /// Tells the holder that this thread wants the lease.
    pub(super) fn want(&self) {
        let word = self.futex.word();
        if word.load(Relaxed) & (WANTED | SLEEPERS) == 0 {
            word.fetch_or(WANTED, Relaxed);
        }
    }

    /// Tells the holder that this thread has to be woken. Returns the word to sleep on, or `None`
    /// if the thread should try again.
    pub(super) fn announce_sleep(&self, right: Right) -> Option<u32> {
        let word = self.futex.word();
        let found = word.load(Relaxed);
        if is_closed(found) || is_free(found, right) {
            return None;
        }
        let asleep = found | SLEEPERS;
        let announced = found == asleep || word.compare_exchange(found, asleep, Relaxed, Relaxed).is_ok();
        announced.then_some(asleep)
    }

    /// Releases the lease. An error: it was not this process's any more, or the lease is closed.
    #[inline]
    pub(crate) fn release(&self) -> Result<(), Revoked> {
        let word = self.futex.word();
        match word.compare_exchange(self.me, FREE, Release, Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => self.release_contended().map(drop),
        }
    }

    /// Returns the word before.
    #[cold]
    fn release_contended(&self) -> Result<u32, Revoked> {
        let found = self.let_go(FREE)?;
        if found & SLEEPERS != 0 {
            self.futex.wake(1);
        }
        self.stop_if_asked(found);
        if is_closed(found) { Err(Revoked) } else { Ok(found) }
    }

    /// Takes the lease if it is free, and otherwise tells the holder of a request that was left
    /// before. Returns `true` if it was taken.
    #[inline]
    pub(crate) fn take_or_request(&self) -> Result<bool, Revoked> {
        let word = self.futex.word();
        if word.compare_exchange(FREE, self.me, Acquire, Relaxed).is_ok() {
            return Ok(true);
        }
        loop {
            if self.take(Right::Newcomer)? {
                return Ok(true);
            }
            let found = word.load(Relaxed);
            let unfree = !is_closed(found) && !is_free(found, Right::Newcomer);
            // The order of the two operations is that of the request and the word that announces
            // it.
            if unfree
                && word
                    .compare_exchange(found, found | REQUESTED, Release, Relaxed)
                    .is_ok()
            {
                return Ok(false);
            }
        }
    }

    /// Releases the lease, unless there is a request. Then this process still holds the lease, and
    /// has to serve the request before the next call. Returns `true` if it was released.
    #[inline]
    pub(crate) fn release_unless_requested(&self) -> Result<bool, Revoked> {
        let word = self.futex.word();
        match word.compare_exchange(self.me, FREE, Release, Relaxed) {
            Ok(_) => Ok(true),
            Err(found) => self.release_if_served(found),
        }
    }

    #[cold]
    fn release_if_served(&self, mut found: u32) -> Result<bool, Revoked> {
        let word = self.futex.word();
        while found & HOLDER == self.me {
            let requested = found & REQUESTED != 0 && !is_closed(found);
            let next = if requested {
                found & !REQUESTED
            } else {
                found & CLOSED
            };
            match word.compare_exchange(found, next, AcqRel, Relaxed) {
                Ok(_) if requested => return Ok(false),
                Ok(_) if found & SLEEPERS != 0 => self.futex.wake(1),
                Ok(_) => 0,
                Err(other) => {
                    found = other;
                    continue;
                }
            };
            self.stop_if_asked(found);
            return if is_closed(found) { Err(Revoked) } else { Ok(true) };
        }
        Err(Revoked)
    }

    /// Whether there is a request for this holder to serve now.
    #[inline]
    pub(super) fn take_requested(&self) -> bool {
        let word = self.futex.word();
        word.load(Relaxed) & REQUESTED != 0 && word.fetch_and(!REQUESTED, Acquire) & REQUESTED != 0
    }

    /// Releases the lease and returns whether there is a request, which the caller has to serve all
    /// the same.
    #[inline]
    pub(crate) fn release_heeding(&self) -> Result<bool, Revoked> {
        let word = self.futex.word();
        match word.compare_exchange(self.me, FREE, Release, Relaxed) {
            Ok(_) => Ok(false),
            Err(_) => self.release_contended().map(|found| found & REQUESTED != 0),
        }
    }

    /// Makes the lease free, or `handed` if a thread sleeps for it, which the caller has to wake.
    /// Returns the word before. An error: this process did not hold the lease any more.
    pub(super) fn let_go(&self, handed: u32) -> Result<u32, Revoked> {
        let word = self.futex.word();
        let mut found = word.load(Relaxed);
        while found & HOLDER == self.me {
            // The thread that gives way comes back, or another one comes first, and serves the
            // request.
            let kept = if handed == FREE {
                CLOSED
            } else {
                CLOSED | REQUESTED
            };
            let kept = found & kept;
            let handed = if found & SLEEPERS != 0 { handed } else { FREE };
            match word.compare_exchange(found, kept | handed, Release, Relaxed) {
                Ok(_) => return Ok(found),
                Err(other) => found = other,
            }
        }
        Err(Revoked)
    }

    /// Lets a waiting thread have the lease, and takes it back after that. A sleeping thread comes
    /// first. While it wakes up, neither this thread nor newcomers can overtake it, until they have
    /// slept themselves.
    #[cold]
    pub(crate) fn give_way(&self, goes_on: impl FnMut(Waited) -> bool) -> Result<bool, Revoked> {
        let found = self.let_go(HANDED)?;
        let mut right = Right::Newcomer;
        if found & SLEEPERS == 0 {
            for _ in 0..TRIES {
                if self.futex.word().load(Relaxed) & HOLDER != 0 {
                    break;
                }
                spin_loop();
            }
        } else if self.futex.wake(1) == 0 {
            // No thread slept: the bit was left by a dead thread, or by one that did not sleep
            // after all and tries again now.
            right = Right::Giver;
        }
        self.stop_if_asked(found);
        self.acquire_contended(right, goes_on)
    }

    /// Takes the lease from a dead process. Returns `false` if it did not hold the lease. In either
    /// case, no thread waits any longer for a wake-up that the process owed.
    ///
    /// The process's end, which the kernel has reported, orders its writes before this.
    #[cold]
    pub(crate) fn seize(&self, dead: u32) -> bool {
        let word = self.futex.word();
        let mut found = word.load(Relaxed);
        let mut seized = false;
        while dead != 0 && dead != self.me && found & HOLDER == dead && !seized {
            let mine = (found & (CLOSED | WANTED | SLEEPERS | REQUESTED)) | self.me;
            match word.compare_exchange(found, mine, AcqRel, Relaxed) {
                Ok(_) => seized = true,
                Err(other) => found = other,
            }
        }
        if !seized {
            // The lease may have been handed to the dead process. If not, the thread that was woken
            // for it has to compete with others once.
            word.fetch_and(!HANDED, Relaxed);
        }
        self.futex.wake(ALL);
        seized
    }

    /// Makes the process that holds the lease stop once it has released it. `false`: another
    /// process holds the lease.
    #[cold]
    pub(crate) fn ask_to_stop(&self, holder: u32) -> bool {
        let word = self.futex.word();
        let mut found = word.load(Relaxed);
        while holder != 0 && found & HOLDER == holder {
            match word.compare_exchange(found, found | STOPS, AcqRel, Relaxed) {
                Ok(_) => return true,
                Err(other) => found = other,
            }
        }
        false
    }

    /// Stops this process if `found`, the word before the release, asks for that.
    #[inline]
    fn stop_if_asked(&self, found: u32) {
        if found & STOPS != 0 {
            self.futex.halt(self.me);
        }
    }

    /// Closes the lease: no thread gets it any more. A thread that releases it after this gets an
    /// error from [`Side::release`]. All earlier work under the lease is visible to this thread
    /// afterwards, for instance that a thread went to rest.
    #[cold]
    pub(crate) fn close(&self) {
        self.futex.word().fetch_or(CLOSED, AcqRel);
        self.futex.wake(ALL);
    }
}

/// Which states of the word a thread may take the lease from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    /// The lease if it is free.
    Newcomer,
    /// A free lease, or one that was handed over. This thread handed it over, and no other thread
    /// came.
    Giver,
    /// A free lease, or one that was handed over. This thread has slept for it.
    Sleeper,
}

#[inline]
pub(super) fn is_wanted(word: u32) -> bool {
    word & (WANTED | SLEEPERS | REQUESTED | STOPS) != 0
}

#[inline]
pub(super) fn is_closed(word: u32) -> bool {
    word & CLOSED != 0
}

#[inline]
fn is_free(word: u32, right: Right) -> bool {
    word & HOLDER == 0 && (word & HANDED == 0 || right != Right::Newcomer)
}

/// Yields the processor, unless earlier yields did not pay. Returns whether it yielded.
#[cfg(not(loom))]
fn offer() -> bool {
    use core::sync::atomic::AtomicU32;

    /// The number of yields still to skip. Only a hint.
    static LEFT: AtomicU32 = AtomicU32::new(0);

    let left = LEFT.load(Relaxed);
    if left > 0 {
        LEFT.store(left - 1, Relaxed);
        return false;
    }
    let before = crate::futex::now_ns();
    std::thread::yield_now();
    let pays = crate::futex::now_ns() - before < SELFISH_NS;
    if !pays {
        LEFT.store(REFUSED, Relaxed);
    }
    pays
}

#[cfg(loom)]
fn offer() -> bool {
    false
}

#[cfg(not(loom))]
fn slice(is_first: bool) -> Option<u64> {
    let ns = if is_first { PLEA_NS } else { SLICE_NS };
    Some(crate::futex::now_ns() + ns)
}

#[cfg(loom)]
fn slice(_: bool) -> Option<u64> {
    None
}

#[cfg(not(loom))]
use core::hint::spin_loop;
#[cfg(loom)]
use loom::thread::yield_now as spin_loop;
