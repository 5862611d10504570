//! Whether a thread is in the middle of this library.
//!
//! The library's own calls, libc's functions among them, come back to the functions that stand in
//! for libc's, which have to stand aside then. A handler of a signal must not run in the middle,
//! either. It could call what the thread is in already, and wait for itself.

use core::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use toehold_posix::errno::{Errno, Outcome};

use crate::{cancel, signals};

/// The bit of a thread whose memory a child borrows, see [`borrower`](crate::borrower). The child is inside for as long
/// as it does, but for the few calls that ask [`is_in_call`].
const LENT: u32 = 1 << 31;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Lets a child borrow this thread's memory from now on. Returns how the thread was before.
pub(crate) fn lend() -> u32 {
    // The child is in no call, even if its parent has been made in one.
    DEPTH.replace(LENT)
}

/// Takes back that a child borrows the caller's memory.
pub(crate) fn reclaim(former: u32) {
    DEPTH.set(former);
}

/// Whether the caller is a child that borrows its parent's memory.
#[cold]
pub(crate) fn is_borrower() -> bool {
    has_storage() && DEPTH.get() & LENT != 0
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
            depth.get() & !LENT == 0
        });
        if left {
            cancel::leave();
            if signals::has_come() {
                signals::deliver();
            }
        }
    }
}

/// Does something inside of the library: no panic gets out of it into the program. Each is a bug, or comes
/// of nonsense that a program has written to the node's memory; the thread finds the node gone.
///
/// Not for calls that libc may cancel in the middle, which unwinds the stack as
/// well.
#[inline]
pub(crate) fn contained<T>(act: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(Err(Errno::NETDOWN))
}

/// Panics say nothing on the program's standard error.
pub(crate) fn be_silent_in_panics() {
    std::panic::set_hook(Box::new(|_| ()));
}

/// Whether this thread has entered the library once, and not by what the library calls itself.
#[inline]
pub(crate) fn is_outermost() -> bool {
    DEPTH.with(Cell::get) & !LENT == 1
}

/// Whether this thread is in the library, as [`is_inside`], but that a child that borrows its parent's memory is not
/// for that alone.
#[inline]
pub(crate) fn is_in_call() -> bool {
    !has_storage() || depth_of_calls() > 0
}

#[inline(never)]
fn depth_of_calls() -> u32 {
    DEPTH.with(Cell::get) & !LENT
}

/// Whether this thread is in the library, or must not enter it for want of storage of its own.
#[inline]
pub(crate) fn is_inside() -> bool {
    !has_storage() || has_entered()
}

/// Whether the thread has entered. Not to be inlined: the compiler would look for the storage's
/// address before it is known that there is any.
#[inline(never)]
fn has_entered() -> bool {
    DEPTH.with(Cell::get) > 0
}

/// Whether this thread has thread-local storage of libc's. A child of `clone` with CLONE_SETTLS may
/// have memory of zeroes in its place, as one of those has that begin Chromium's sandbox.
#[inline]
pub(crate) fn has_storage() -> bool {
    let first: usize;
    // SAFETY: the thread pointer is that of such memory. Its first word is that memory's own
    // address (System V ABI, x86-64), or leads to where each library's part is (AAPCS64).
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov {}, fs:[0]", out(reg) first, options(pure, readonly, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "mrs {0}, tpidr_el0",
            "ldr {0}, [{0}]",
            out(reg) first,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    first != 0
}
