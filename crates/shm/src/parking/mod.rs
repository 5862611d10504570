//! Where threads rest until somebody notifies them, across processes.
//!
//! Every waiter of the node has a slot with a word of its own. That nothing is lost
//! between "I shall rest" and "wake whoever rests" is the lease's doing: all calls
//! but [`Parking::park`] and [`Parking::wake`] are made with it held. The word says whether and where the
//! thread rests, and whether it was told to wake up.
//!
//! A process may be killed between marking a waiter and waking it. So the mark leaves
//! visible where the waiter rests, and [`Parking::rouse`] wakes it again.

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
    /// On descriptors: whoever notifies it has to ring a doorbell as well.
    Seated = 2,
    /// On descriptors, and on the bell of all who rest so, which nobody silences: whoever
    /// notifies it has to ring that one as well.
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
/// Added to where the thread rests.
const NOTIFIED: u32 = 4;

fn begin(futex: &impl Futex, rest: Rest) {
    // Others find it with the lease, which orders it.
    futex.word().store(rest as u32, Relaxed);
}

fn is_resting(futex: &impl Futex) -> bool {
    matches!(futex.word().load(Relaxed), PARKED | SEATED | POLLED)
}

/// What has been written before is there for the thread that wakes up, even before
/// it has the lease.
fn mark(futex: &impl Futex) -> Option<Rest> {
    let found = futex.word().load(Relaxed);
    let rest = Rest::of(found).filter(|_| found & NOTIFIED == 0)?;
    let marked = futex
        .word()
        .compare_exchange(found, found | NOTIFIED, Release, Relaxed);
    marked.is_ok().then_some(rest)
}

/// After it was marked. Whoever has the slot by then, and rests, looks in vain.
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
        // A signal ends the sleep, too: the caller may have to see to that.
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
