//! Bitmaps for audiences of more than four waiters.

use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use super::audience::WaiterNumber;
use super::waiters::Waiters;

/// Takes a bitmap of the node that no end uses, with no waiter in it. `None` if all are used.
pub(super) fn claim(waiters: &Waiters) -> Option<u16> {
    for (index, word) in waiters.journal().audience_words().iter().enumerate() {
        let mut found = word.load(Relaxed);
        while found != u64::MAX {
            let bit = found.trailing_ones();
            match word.compare_exchange(found, found | 1 << bit, AcqRel, Relaxed) {
                Ok(_) => {
                    let bitmap = (index * 64) as u16 + bit as u16;
                    let words = &waiters.directory().audience_line(bitmap).words;
                    words.iter().for_each(|word| word.store(0, Relaxed));
                    return Some(bitmap);
                }
                Err(other) => found = other,
            }
        }
    }
    None
}

/// Gives a bitmap back that no audience names any more. A peer may look there still: it rings
/// waiters for nothing.
pub(super) fn release(waiters: &Waiters, bitmap: u16) {
    let words = waiters.journal().audience_words();
    if let Some(word) = words.get(usize::from(bitmap) / 64) {
        word.fetch_and(!(1 << (bitmap % 64)), Release);
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
