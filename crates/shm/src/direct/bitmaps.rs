//! Bitmaps for audiences of more than four waiters.
//!
//! A bitmap has an owner word: 0 if it is free, and [`KEPT`] while an audience names it. While a
//! thread takes it or gives it back, the word is the thread's number. So the engine knows which
//! bitmap a dead thread was changing.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::audience::{Audience, WaiterNumber};
use super::bank::AUDIENCES;
use super::lines::Arming;
use super::lock::ThreadNumber;
use super::waiters::Waiters;
use crate::futex::AtomicU32;

/// No thread has this number.
const KEPT: u32 = u32::MAX;

fn owner(waiters: &Waiters, bitmap: u16) -> &AtomicU32 {
    &waiters.journal().bitmap_owners()[usize::from(bitmap) % AUDIENCES]
}

/// Lets an audience have a bitmap of the node that no other has, with these waiters in it. Returns
/// `false` if all bitmaps are used. The caller has the end's arm lock.
pub(super) fn give(
    waiters: &Waiters,
    thread: ThreadNumber,
    arming: &Arming<'_>,
    members: impl Iterator<Item = WaiterNumber>,
) -> bool {
    let mine = u32::from(thread.get());
    let free = (0..AUDIENCES as u16).find(|&bitmap| {
        let owner = owner(waiters, bitmap);
        owner.load(Relaxed) == 0 && owner.compare_exchange(0, mine, AcqRel, Relaxed).is_ok()
    });
    let Some(bitmap) = free else {
        return false;
    };
    let words = &waiters.directory().audience_line(bitmap).words;
    words.iter().for_each(|word| word.store(0, Relaxed));
    members.for_each(|member| set(waiters, bitmap, member));
    arming.set_audience(Audience::in_bitmap(bitmap));
    owner(waiters, bitmap).store(KEPT, Release);
    true
}

/// Takes the bitmap of an audience, if it has one: from now on no waiter is told. A peer may look
/// there still: it rings waiters for nothing. The caller has the end's arm lock.
pub(super) fn take_back(waiters: &Waiters, thread: ThreadNumber, arming: &Arming<'_>) {
    if let Some(bitmap) = arming.audience().bitmap() {
        owner(waiters, bitmap).store(thread.get().into(), Relaxed);
        arming.set_audience(Audience::NONE);
        owner(waiters, bitmap).store(0, Release);
    }
}

/// Lets an audience keep the bitmap that it names, though a dead thread had begun to give or take
/// it. The caller has the end's arm lock.
pub(super) fn keep_of_dead(waiters: &Waiters, dead: ThreadNumber, arming: &Arming<'_>) {
    if let Some(bitmap) = arming.audience().bitmap() {
        let owner = owner(waiters, bitmap);
        let _ = owner.compare_exchange(dead.get().into(), KEPT, AcqRel, Relaxed);
    }
}

/// Frees the bitmaps that a dead thread had in its hands and that no audience names. After
/// [`keep_of_dead`] of each end at which the thread was.
pub(super) fn free_of_dead(waiters: &Waiters, dead: ThreadNumber) {
    for owner in waiters.journal().bitmap_owners() {
        let _ = owner.compare_exchange(dead.get().into(), 0, AcqRel, Acquire);
    }
}

/// Puts a waiter into a bitmap.
pub(super) fn set(waiters: &Waiters, bitmap: u16, waiter: WaiterNumber) {
    let words = &waiters.directory().audience_line(bitmap).words;
    let number = usize::from(waiter.get());
    words[number / 64].fetch_or(1 << (number % 64), AcqRel);
}

/// Takes a waiter out of a bitmap.
pub(super) fn clear(waiters: &Waiters, bitmap: u16, waiter: WaiterNumber) {
    let words = &waiters.directory().audience_line(bitmap).words;
    let number = usize::from(waiter.get());
    words[number / 64].fetch_and(!(1 << (number % 64)), AcqRel);
}
