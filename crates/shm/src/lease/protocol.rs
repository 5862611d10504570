//! The lease's word: who holds it, who wants it, and when to sleep and to wake.
//!
//! All there is to know stands in one word, so that all threads agree on the order
//! of its changes, and no fences are needed: whoever goes to sleep has put the bit
//! that says so into the very word that the kernel compares, and whoever lets go
//! finds it there. Taking the lease is an acquire, letting go a release, so one
//! holder finds what the one before it wrote.
//!
//! Any process can be killed between any two steps:
//!
//! - *While it holds the lease*: [`Side::seize`] takes it over.
//! - *While it wants the lease, or sleeps*: the two bits that say so are hints. The
//!   next one to take the lease drops [`WANTED`], the next to let go [`SLEEPERS`];
//!   those who still want it, or sleep again, set them again.
//! - *After it let go, before it woke a sleeper; or after it was woken, before it
//!   took the lease*: a wake-up is lost. [`Side::seize`] and [`Side::close`] wake
//!   everybody, and a sleeper looks by itself after a slice of time.
//!
//! A thread that wants something done with the lease, but does not want to wait for it,
//! leaves a request elsewhere and puts [`REQUESTED`] into the word, if it does not find
//! it free: [`Side::take_or_request`]. The holder can only let go of a word that has not
//! the bit, after having taken it out and served what was left:
//! [`Side::release_unless_requested`]. So no request is overlooked, and nobody needs a
//! fence for that either.
//!
//! The word can hold anything: other programs of the node could have scribbled over
//! it. Only the bits named here are looked at, every loop goes on only if somebody
//! else has changed the word in the meantime, and a wrong holder can be seized.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::Revoked;
use crate::futex::{ALL, Futex, Waited};

/// Nobody holds the lease, wants it, or sleeps.
const FREE: u32 = 0;
/// The bits of the holder's number; 0 if there is none.
pub(super) const HOLDER: u32 = 0x7fff;
/// The holder's process was stopped, and goes on only to let go: it stops itself after that.
pub(super) const STOPS: u32 = 1 << 26;
/// A request was left for the holder.
const REQUESTED: u32 = 1 << 27;
/// Nobody gets the lease any more.
const CLOSED: u32 = 1 << 28;
/// Free, but only for those who have slept for it: [`Side::give_way`].
pub(super) const HANDED: u32 = 1 << 29;
/// Somebody looks again and again whether it is free.
const WANTED: u32 = 1 << 30;
/// Somebody sleeps until it is let go, unless one was woken already.
pub(super) const SLEEPERS: u32 = 1 << 31;

/// Looks of a thread that wants the lease before it goes to sleep, and looks of
/// one that gave way before it wants the lease back: a few microseconds.
#[cfg(not(loom))]
const TRIES: u32 = 64;
#[cfg(loom)]
const TRIES: u32 = 1;

/// How often a thread that wants the lease lets others have its processor after that, and looks
/// again: whoever has the lease may wait for just this processor, and a sleep would cost it a
/// system call for the wake-up, too. (`pgbench -S`, 8 clients on two processors: a tenth more.)
#[cfg(not(loom))]
const YIELDS: u32 = 4;
#[cfg(loom)]
const YIELDS: u32 = 0;

/// It took so long at least if somebody has it who does not give way, and gets a whole slice of
/// time from each who does. Then it is better to sleep: whoever is woken is let in before others.
#[cfg(not(loom))]
const SELFISH_NS: u64 = 500_000;

/// Waits without such offers after one that took so long.
#[cfg(not(loom))]
const REFUSED: u32 = 1 << 10;

/// A thread that has slept for so long in vain asks the engine to look at the holder, whose process may
/// be stopped ([`Futex::plead`]). The holder lets go within microseconds unless it lacks a processor.
#[cfg(not(loom))]
const PLEA_NS: u64 = 3_000_000;

/// A sleeper looks by itself as often as this, in case somebody died with the
/// wake-up it should have passed on.
#[cfg(not(loom))]
const SLICE_NS: u64 = 20_000_000;

/// What one process does with the lease.
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

    /// Waits for the lease. Asks `goes_on` after every sleep, with what that came to. False: it said no.
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

    /// The last try of one that does not wait any longer. It was perhaps woken in
    /// place of others that still sleep: then they need their bit, or the lease.
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
            // One that has slept was perhaps woken in place of others that still do,
            // and had the bit been dropped on its behalf, it would be missing now.
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

    /// Tells the holder.
    pub(super) fn want(&self) {
        let word = self.futex.word();
        if word.load(Relaxed) & (WANTED | SLEEPERS) == 0 {
            word.fetch_or(WANTED, Relaxed);
        }
    }

    /// Tells the holder that this thread has to be woken. The word to sleep on;
    /// `None`: the thread should look again.
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

    /// Lets the lease go. An error says that it was not this process's any more, or
    /// that nobody gets it again.
    #[inline]
    pub(crate) fn release(&self) -> Result<(), Revoked> {
        let word = self.futex.word();
        match word.compare_exchange(self.me, FREE, Release, Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => self.release_contended().map(drop),
        }
    }

    /// The word before.
    #[cold]
    fn release_contended(&self) -> Result<u32, Revoked> {
        let found = self.let_go(FREE)?;
        if found & SLEEPERS != 0 {
            self.futex.wake(1);
        }
        self.stop_if_asked(found);
        if is_closed(found) { Err(Revoked) } else { Ok(found) }
    }

    /// Takes the lease if it is free, and otherwise tells the holder of a request that
    /// was left before. True: it was taken.
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
            // The order of the two is that of what was left and the word that tells of it.
            if unfree
                && word
                    .compare_exchange(found, found | REQUESTED, Release, Relaxed)
                    .is_ok()
            {
                return Ok(false);
            }
        }
    }

    /// Lets the lease go, unless a request was left: then it is still this process's, and
    /// the request to be served before this is called again. True: it was let go.
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

    /// Whether a request was left, which is to be served now.
    #[inline]
    pub(super) fn take_requested(&self) -> bool {
        let word = self.futex.word();
        word.load(Relaxed) & REQUESTED != 0 && word.fetch_and(!REQUESTED, Acquire) & REQUESTED != 0
    }

    /// Lets the lease go and tells whether a request was left, which is to be served all
    /// the same.
    #[inline]
    pub(crate) fn release_heeding(&self) -> Result<bool, Revoked> {
        let word = self.futex.word();
        match word.compare_exchange(self.me, FREE, Release, Relaxed) {
            Ok(_) => Ok(false),
            Err(_) => self.release_contended().map(|found| found & REQUESTED != 0),
        }
    }

    /// Makes the lease free, or `handed` if somebody sleeps for it, who has to be woken
    /// then. The word before; an error says that the lease was not this process's any
    /// more.
    pub(super) fn let_go(&self, handed: u32) -> Result<u32, Revoked> {
        let word = self.futex.word();
        let mut found = word.load(Relaxed);
        while found & HOLDER == self.me {
            // Whoever gives way comes back, or another one comes first, and serves it.
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

    /// Lets somebody who wants the lease have it, and takes it back after that. One
    /// that sleeps comes first, and cannot be overtaken while it wakes up, by this
    /// thread or by newcomers: not until they have slept themselves.
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
            // Nobody slept: the bit was left over from one that died, or that did not
            // go to sleep after all and looks again right now.
            right = Right::Giver;
        }
        self.stop_if_asked(found);
        self.acquire_contended(right, goes_on)
    }

    /// Takes the lease from a process that is dead. False: it did not hold it. In
    /// either case, nobody waits for anything any more that the process did not do.
    ///
    /// What the dead process wrote is ordered before by its end, which the kernel has
    /// reported.
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
            // It may have been handed to the dead process. If not, the one woken for
            // it has to compete with others for once.
            word.fetch_and(!HANDED, Relaxed);
        }
        self.futex.wake(ALL);
        seized
    }

    /// Has the process that holds the lease stop once it has let go. `false`: another one holds it.
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

    /// Stops this process if the word, as it was before this process let go, says so.
    #[inline]
    fn stop_if_asked(&self, found: u32) {
        if found & STOPS != 0 {
            self.futex.halt(self.me);
        }
    }

    /// Nobody gets the lease any more. Whoever lets go of it after this learns of it
    /// from [`Side::release`], and whatever was done with the lease before is visible
    /// to this thread after it: one that went to rest, for instance.
    #[cold]
    pub(crate) fn close(&self) {
        self.futex.word().fetch_or(CLOSED, AcqRel);
        self.futex.wake(ALL);
    }
}

/// What a thread may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    /// The lease if it is free.
    Newcomer,
    /// Also one that was handed over: it was this thread who did, and nobody came.
    Giver,
    /// Also one that was handed over: this thread has slept for it.
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

/// Lets others have the processor, if there is nobody who keeps it. Whether that paid.
#[cfg(not(loom))]
fn offer() -> bool {
    use core::sync::atomic::AtomicU32;

    /// Offers that are not made. Only a hint.
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
