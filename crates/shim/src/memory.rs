//! Checks whether memory that a program passes is there. The kernel would say EFAULT where the
//! library would be ended by a signal.
//!
//! The kernel is asked by system calls that do nothing but touch an address. They take a tenth of a
//! microsecond, so each thread remembers the pages that it has asked about last. Arguments that programs pass
//! again and again lie on their stacks. A program that unmaps such a page in between, and passes it
//! nevertheless, ends by the signal. The bytes that are sent and received, which lie anywhere, are not asked
//! about.

use core::cell::Cell;
use core::ffi::c_long;

use toehold_posix::memory::is_outside;

use crate::answer::{errno, set_errno};
use crate::{next, start};

/// The smallest size of pages that there is.
const PAGE: usize = 1 << 12;

/// Pages that a thread remembers.
const KNOWN: usize = 8;

/// Numbers of pages, the last one first. No program has the first page of all.
type Known = Cell<[usize; KNOWN]>;

thread_local! {
    static READABLE: Known = const { Cell::new([0; KNOWN]) };
    static WRITABLE: Known = const { Cell::new([0; KNOWN]) };
}

/// Whether so many values can be read.
#[inline]
pub(crate) fn is_readable<T>(at: *const T, count: usize) -> bool {
    READABLE.with(|known| has(known, at, count, can_read))
}

/// Whether so many values can be read and written.
#[inline]
pub(crate) fn is_writable<T>(at: *const T, count: usize) -> bool {
    WRITABLE.with(|known| has(known, at, count, can_write))
}

#[inline]
fn has<T>(known: &Known, at: *const T, count: usize, ask: fn(usize) -> bool) -> bool {
    let length = count.saturating_mul(size_of::<T>());
    if length == 0 {
        return true;
    }
    if is_outside(at, count) {
        return false;
    }
    let pages = at.addr() / PAGE..=(at.addr() + length - 1) / PAGE;
    pages
        .into_iter()
        .all(|page| known.get().contains(&page) || asked(known, page, ask))
}

#[cold]
fn asked(known: &Known, page: usize, ask: fn(usize) -> bool) -> bool {
    if start::has_renounced() {
        // The process may be ended for asking.
        return true;
    }
    let before = errno();
    let is_there = ask(page * PAGE);
    set_errno(before);
    if is_there {
        let mut pages = known.get();
        pages.rotate_right(1);
        pages[0] = page;
        known.set(pages);
    }
    is_there
}

/// Returns whether 8 bytes can be read. The system call reads them as a set of signals, and then
/// fails, since it is not told how to use the set.
fn can_read(at: usize) -> bool {
    const NOTHING: c_long = -1;
    // SAFETY: the kernel reads at `at` and writes nothing, since `NOTHING` is no way to change a
    // mask.
    unsafe { next::syscall(libc::SYS_rt_sigprocmask, NOTHING, at as c_long, 0, 8, 0, 0) };
    errno() != libc::EFAULT
}

/// Adds nothing to the first word of a page, at once. The system call also wakes the threads that wait for
/// another word, of which there are none.
fn can_write(at: usize) -> bool {
    static WORD: u32 = 0;
    const WAKE: c_long = (libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG) as c_long;
    const ADD_NOTHING: c_long = (libc::FUTEX_OP_ADD as c_long) << 28;
    let word = &raw const WORD as c_long;
    // SAFETY: `WORD` is a static. At `at` the kernel adds 0, which leaves the word as it is.
    let done = unsafe { next::syscall(libc::SYS_futex, word, WAKE, 0, 0, at as c_long, ADD_NOTHING) };
    done >= 0 || errno() != libc::EFAULT
}

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use super::*;

    fn map(rights: i32) -> *mut u8 {
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses the address of a new mapping, so no memory in use changes.
        let mapped = unsafe { libc::mmap(null_mut(), 2 * PAGE, rights, how, -1, 0) };
        assert_ne!(mapped, libc::MAP_FAILED);
        mapped.cast()
    }

    #[test]
    fn memory_is_what_the_kernel_says() {
        let both = map(libc::PROT_READ | libc::PROT_WRITE);
        let (constant, nothing) = (map(libc::PROT_READ), map(libc::PROT_NONE));
        for _ in 0..2 {
            assert!(is_readable(both, 2 * PAGE) && is_writable(both, 2 * PAGE));
            assert!(is_readable(constant, 2 * PAGE) && !is_writable(constant, 1));
            assert!(!is_readable(nothing, 1) && !is_writable(nothing, 1));
            assert!(is_readable(nothing, 0));
            assert!(!is_readable(both, usize::MAX));
        }
        // SAFETY: the second page is unmapped here alone, and no reference points into it.
        assert_eq!(unsafe { libc::munmap(both.add(PAGE).cast(), PAGE) }, 0);
        // SAFETY: the result lies in the first page of the mapping, which is never unmapped.
        let last = unsafe { both.add(PAGE - 8) };
        READABLE.with(|known| known.set([0; KNOWN]));
        assert!(is_readable(last, 8) && !is_readable(last, 9));
        // SAFETY: `last` points to the first page of this test's own mapping, which is never
        // unmapped.
        assert_eq!(unsafe { last.read() }, 0);
    }

    #[test]
    fn errno_stays_what_it_was() {
        set_errno(libc::ENOENT);
        assert!(!is_writable(map(libc::PROT_NONE), 1));
        assert_eq!(errno(), libc::ENOENT);
    }
}
