//! Slots in which threads rest until they are notified, across processes.
//!
//! Every waiter of the node has a slot with its own word. The word says whether and where the
//! thread rests, and whether it was notified. The lease prevents lost wake-ups: callers hold it for
//! all calls but [`Parking::park`] and [`Parking::wake`].
//!
//! A process may be killed between marking a waiter and waking it. So the mark keeps visible where
//! the waiter rests, and [`Parking::rouse`] wakes it again.

#[cfg(not(loom))]
mod slots;

#[cfg(not(loom))]
pub use slots::Parking;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::futex::{Futex, Waited};

/// Where a thread rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Rest {
    /// On its slot's word: [`Parking::park`](crate::Parking::park).
    Parked = 1,
    /// On descriptors: the notifier has to ring a doorbell as well.
    Seated = 2,
    /// On descriptors, and on the common bell of all such threads, which none of them silences. The
    /// notifier has to ring that bell as well.
    Polled = 3,
}

impl Rest {
    fn of(word: u32) -> Option<Rest> {
        match word & !NOTIFIED {
            PARKED => Some(Rest::Parked),
            SEATED => Some(Rest::Seated),
            POLLED => Some(Rest::Polled),
            _ => None,
        }
    }
}

const AWAKE: u32 = 0;
const PARKED: u32 = Rest::Parked as u32;
const SEATED: u32 = Rest::Seated as u32;
const POLLED: u32 = Rest::Polled as u32;
/// Added to the value of [`Rest`] once the thread is notified.
const NOTIFIED: u32 = 4;

fn begin(futex: &impl Futex, rest: Rest) {
    // Other threads read it with the lease, which orders it.
    futex.word().store(rest as u32, Relaxed);
}

fn is_resting(futex: &impl Futex) -> bool {
    matches!(futex.word().load(Relaxed), PARKED | SEATED | POLLED)
}

/// Earlier writes are visible to the thread that wakes up, even before it has the lease.
fn mark(futex: &impl Futex) -> Option<Rest> {
    let found = futex.word().load(Relaxed);
    let rest = Rest::of(found).filter(|_| found & NOTIFIED == 0)?;
    let marked = futex
        .word()
        .compare_exchange(found, found | NOTIFIED, Release, Relaxed);
    marked.is_ok().then_some(rest)
}

/// Wakes the thread after it was marked. If another thread rests in the slot by then, it checks in
/// vain.
fn wake(futex: &impl Futex) {
    futex.wake(1);
}

fn rouse(futex: &impl Futex) -> Option<Rest> {
    mark(futex);
    let rest = Rest::of(futex.word().load(Relaxed))?;
    if rest == Rest::Parked {
        wake(futex);
    }
    Some(rest)
}

fn park(futex: &impl Futex, until_ns: Option<u64>) {
    while futex.word().load(Acquire) == PARKED {
        // A signal ends the sleep, too: the caller may have to handle it.
        if futex.wait(PARKED, until_ns) != Waited::Different {
            return;
        }
    }
}

fn end(futex: &impl Futex) -> bool {
    futex.word().swap(AWAKE, Acquire) & NOTIFIED != 0
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
