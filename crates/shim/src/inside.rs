//! Whether a thread is in the middle of this library.
//!
//! What the library calls itself, libc's functions among it, comes back to the functions
//! that stand in for libc's, which have to stand aside then. And a handler of a signal must
//! not run in the middle: it could call what the thread is in already, and wait for itself.

use core::cell::Cell;

use crate::{cancel, signals};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// This thread is in the library until this is dropped.
pub(crate) struct Inside(());

impl Inside {
    /// Enters the library.
    #[inline]
    pub(crate) fn enter() -> Inside {
        DEPTH.with(|depth| depth.set(depth.get() + 1));
        cancel::enter();
        Inside(())
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        let left = DEPTH.with(|depth| {
            depth.set(depth.get() - 1);
            depth.get() == 0
        });
        if left {
            cancel::leave();
            if signals::has_come() {
                signals::deliver();
            }
        }
    }
}

/// Whether this thread has entered the library once, and not by what the library calls itself.
#[inline]
pub(crate) fn is_outermost() -> bool {
    DEPTH.with(Cell::get) == 1
}

/// Whether this thread is in the library.
#[inline]
pub(crate) fn is_inside() -> bool {
    DEPTH.with(Cell::get) > 0
}
