//! Sleeps that a signal handler of the sleeping thread can end.
//!
//! A thread that sleeps on a futex word is not woken by a signal whose handler was installed
//! with SA_RESTART. And a signal that comes just before the sleep would be missed. So the
//! handler changes the word.

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr;

use super::waiter::ring_bell;
use crate::futex::AtomicU32;

thread_local! {
    /// The word that this thread sleeps on, or is about to.
    static WORD: Cell<*mut u32> = const { Cell::new(ptr::null_mut()) };
}

/// A sleep that signal handlers of the thread can end, until this is dropped.
#[derive(Debug)]
#[must_use = "the sleep is interruptible until this is dropped"]
pub struct Interruptible<'a>(PhantomData<(&'a AtomicU32, *const ())>);

impl<'a> Interruptible<'a> {
    pub(super) fn new(word: Option<&'a AtomicU32>) -> Interruptible<'a> {
        WORD.set(word.map_or(ptr::null_mut(), AtomicU32::as_ptr));
        Interruptible(PhantomData)
    }
}

impl Drop for Interruptible<'_> {
    fn drop(&mut self) {
        WORD.set(ptr::null_mut());
    }
}

/// Ends the sleep that a signal has interrupted, or that its thread is about to begin: the next
/// wait returns at once. For the signal's handler, in the same thread. Async-signal-safe.
pub fn end_own_sleep() {
    let word = WORD.get();
    if !word.is_null() {
        // SAFETY: the address is that of a word that `Interruptible` borrows, which is dropped by
        // the same thread, after this handler has returned.
        ring_bell(unsafe { AtomicU32::from_ptr(word) });
    }
}
