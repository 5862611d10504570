//! The program's descriptors that are not, or not only, the kernel's.
//!
//! A *file* is what the kernel calls an open file description. `dup` gives it another fd. It ends with the
//! last of its fds and of the calls that use it. Every call looks here first, so that one byte for each fd
//! says whether there is a file.

use core::ffi::c_int;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicU8};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use toehold_shm::Slot;

use crate::borrower::{self, Change, Number, is_borrower};
use crate::dispatch;
use crate::file::File;
use crate::inside::Inside;

/// Descriptors from this number on are the kernel's alone.
const LIMIT: usize = 1 << 20;

/// The kinds of numbers.
mod kind {
    /// The kernel's.
    pub(super) const KERNEL: u8 = 0;
    /// A file of the table's.
    pub(super) const FILE: u8 = 1;
    /// The library's own, which the program does not know of.
    pub(super) const OWN: u8 = 2;
}

static KINDS: [AtomicU8; LIMIT] = [const { AtomicU8::new(kind::KERNEL) }; LIMIT];
/// The highest number that a file or something of the library's own has had.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);
/// The highest number that a file has had.
static HIGHEST_FILE: AtomicI32 = AtomicI32::new(-1);
static FILES: [Slot<File>; LIMIT] = [const { Slot::new() }; LIMIT];

/// A file, for the time of a call.
pub(crate) struct Used(ManuallyDrop<toehold_shm::Used<'static, File>>);

impl Drop for Used {
    /// Lets go of the file. This may be the last use of it, and the library does what its end
    /// needs.
    #[inline]
    fn drop(&mut self) {
        let _inside = Inside::enter();
        // SAFETY: `self` is being dropped, so its field is not used any more.
        unsafe { ManuallyDrop::drop(&mut self.0) }
    }
}

impl Deref for Used {
    type Target = File;

    #[inline]
    fn deref(&self) -> &File {
        &self.0
    }
}

impl Used {
    /// The file, for longer.
    pub(crate) fn share(&self) -> Arc<File> {
        self.0.share()
    }
}

#[inline]
fn index(number: c_int) -> Option<usize> {
    usize::try_from(number).ok().filter(|&index| index < LIMIT)
}

/// The kind of a number.
#[inline]
fn kind_of(number: c_int) -> u8 {
    if is_borrower()
        && let Some(changed) = borrower::number(number)
    {
        return match changed {
            Number::Kernel => kind::KERNEL,
            Number::Own => kind::OWN,
            Number::File(_) => kind::FILE,
        };
    }
    index(number).map_or(kind::KERNEL, |index| KINDS[index].load(Relaxed))
}

/// Whether a number may be a file's. Cheap.
#[inline]
pub(crate) fn has(number: c_int) -> bool {
    kind_of(number) == kind::FILE
}

/// Whether there is or was any file.
#[inline]
pub(crate) fn has_any() -> bool {
    HIGHEST_FILE.load(Relaxed) >= 0
}

/// The file of a number.
#[inline]
pub(crate) fn get(number: c_int) -> Option<Used> {
    if !has(number) {
        return None;
    }
    if is_borrower()
        && let Some(Number::File(slot)) = borrower::number(number)
    {
        return borrower::file(slot).map(|used| Used(ManuallyDrop::new(used)));
    }
    let used = FILES.get(number as usize)?.get();
    used.map(|used| Used(ManuallyDrop::new(used)))
}

/// Makes a number this file's, from now on.
pub(crate) fn put(number: c_int, file: Arc<File>) {
    // What the program does with its first file, it may do past libc.
    dispatch::look();
    let Some(index) = index(number) else { return };
    if is_borrower() {
        return borrower::change(number, Change::File(file));
    }
    HIGHEST.fetch_max(number, Relaxed);
    HIGHEST_FILE.fetch_max(number, Relaxed);
    file.numbers().add();
    if let Some(former) = FILES[index].replace(Some(file)) {
        former.numbers().remove();
    }
    KINDS[index].store(kind::FILE, Release);
}

/// Makes a number the kernel's alone, from now on. Returns the file that it was, and whether that
/// has no number any more.
pub(crate) fn take(number: c_int) -> Option<(Arc<File>, bool)> {
    let index = index(number)?;
    if is_borrower() {
        // The file has the number in the parent still.
        if has(number) {
            borrower::change(number, Change::Kernel);
        }
        return None;
    }
    // What is the library's own stays so.
    let taken = KINDS[index].compare_exchange(kind::FILE, kind::KERNEL, Acquire, Relaxed);
    taken.ok()?;
    let file = FILES[index].replace(None)?;
    let last = file.numbers().remove();
    Some((file, last))
}

/// Every number of a file.
pub(crate) fn numbers_of(file: &File) -> Vec<c_int> {
    let is_it = |number: &c_int| get(*number).is_some_and(|other| core::ptr::eq(&*other, file));
    used().into_iter().filter(is_it).collect()
}

/// Whether the number is neither a file's nor the library's own.
#[inline]
pub(crate) fn is_kernels(number: c_int) -> bool {
    kind_of(number) == kind::KERNEL
}

/// Every number that is not the kernel's alone, in order.
pub(crate) fn known() -> Vec<c_int> {
    up_to(HIGHEST.load(Relaxed), |number| !is_kernels(number))
}

/// Every number that is a file's at the moment.
pub(crate) fn used() -> Vec<c_int> {
    up_to(HIGHEST_FILE.load(Relaxed), has)
}

/// The numbers up to a highest one for which `is_such` holds, in order.
fn up_to(highest: c_int, is_such: impl Fn(c_int) -> bool) -> Vec<c_int> {
    let mut numbers: Vec<c_int> = (0..=highest).filter(|&number| is_such(number)).collect();
    if is_borrower() {
        let changed = borrower::numbers().into_iter();
        numbers.extend(changed.filter(|&number| number > highest && is_such(number)));
        numbers.sort_unstable();
    }
    numbers
}

/// Makes a number one of the library's own.
pub(crate) fn own(number: RawFd) {
    if let Some(index) = index(number) {
        if is_borrower() {
            return borrower::change(number, Change::Own);
        }
        HIGHEST.fetch_max(number, Relaxed);
        KINDS[index].store(kind::OWN, Relaxed);
    }
}

/// Whether the number is one of the library's own.
#[inline]
pub(crate) fn is_own(number: c_int) -> bool {
    kind_of(number) == kind::OWN
}

/// Notes that a number is not one of the library's own any more.
pub(crate) fn disown(number: c_int) {
    if let Some(index) = index(number) {
        if is_borrower() {
            return borrower::change(number, Change::Kernel);
        }
        let _ = KINDS[index].compare_exchange(kind::OWN, kind::KERNEL, Relaxed, Relaxed);
    }
}

/// The highest number, which is above the kernel's bound for all of them: nothing ever has it.
const NOBODYS: c_int = c_int::MAX;

/// A number of the program's, for a system call. Programs pass some below zero, too, which no
/// `BorrowedFd` may have.
pub(crate) fn borrow(number: &c_int) -> BorrowedFd<'_> {
    let number = if *number < 0 { NOBODYS } else { *number };
    // SAFETY: the kernel answers EBADF if nothing has it, or the program has closed it meanwhile.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Takes ownership of an fd that no other code closes.
pub(crate) fn adopt(number: c_int) -> OwnedFd {
    // SAFETY: `number` is a descriptor that the caller has just got from the kernel, and that no
    // other code closes.
    unsafe { OwnedFd::from_raw_fd(number) }
}
