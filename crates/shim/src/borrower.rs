//! Children that borrow their parent's memory: those of `vfork(2)`, and of `clone(2)` with CLONE_VM and CLONE_VFORK.
//!
//! Such a child runs in the memory of its parent, thread-local storage included. The parent's thread waits
//! until the child has become another program or has ended. Other threads of the parent go on. Only
//! descriptors are the child's own. What it does with its descriptors must not change the
//! [table](crate::table), which is the parent's. So the changes are kept here, beside the table, until the
//! parent's thread goes on.
//!
//! Most calls of a child go on to the kernel as they are ([`is_inside`](crate::inside::is_inside)). The library sees
//! those that read, write, close and copy descriptors, and those that become another program.

use core::any::Any;
use core::cell::Cell;
use core::ffi::{c_int, c_long};
use core::mem::ManuallyDrop;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use libc::pid_t;
use toehold_shm::{Slot, Used};

use crate::answer::set_errno;
use crate::file::File;
use crate::{cancel, dispatch, inside, signals};

/// Children of one thread that borrow memory of each other at once, at most. A child beyond has memory of its own, as
/// the standard allows.
const DEPTH: usize = 8;

/// How many threads of this process wait for a child that borrows their memory.
static BORROWERS: AtomicU32 = AtomicU32::new(0);

/// The owner that a child has given a number.
#[derive(Clone, Copy)]
pub(crate) enum Number {
    /// The number is the kernel's.
    Kernel,
    /// The number is the library's own.
    Own,
    File(&'static Slot<File>),
}

/// One child.
struct Borrower {
    /// The numbers that the child has changed.
    numbers: Vec<(c_int, Number)>,
    /// The values that the child has made for the program that it becomes; the parent drops them.
    left: Vec<Box<dyn Any>>,
    /// How this thread was before the child borrowed its memory.
    inside: u32,
    pending: u64,
}

/// The loans of a thread's memory.
struct Loans {
    depth: Cell<usize>,
    borrowers: [Cell<Option<Borrower>>; DEPTH],
}

thread_local! {
    // Nothing is left to be dropped when a thread ends: all that was lent has come back by then.
    static LOANS: ManuallyDrop<Loans> = const {
        ManuallyDrop::new(Loans { depth: Cell::new(0), borrowers: [const { Cell::new(None) }; DEPTH] })
    };
}

/// Whether the caller is a child that borrows this process's memory (`vfork`). Cheap as long as
/// there is none.
#[inline]
pub(crate) fn is_borrower() -> bool {
    BORROWERS.load(Relaxed) != 0 && inside::is_borrower()
}

/// Calls `with` with the youngest child's changes.
fn with_last<T>(with: impl FnOnce(&mut Borrower) -> T) -> Option<T> {
    LOANS.with(|loans| {
        let place = loans.borrowers.get(loans.depth.get().checked_sub(1)?)?;
        // A child that ends in the middle takes it along.
        let mut borrower = place.take()?;
        let done = with(&mut borrower);
        place.set(Some(borrower));
        Some(done)
    })
}

/// The child's change of a number; `None` if the number is as the table says.
#[cold]
pub(crate) fn number(number: c_int) -> Option<Number> {
    with_last(|borrower| {
        let changed = borrower.numbers.iter().find(|(changed, _)| *changed == number);
        changed.map(|(_, what)| *what)
    })
    .flatten()
}

/// The file of a number that a child has changed.
pub(crate) fn file(slot: &'static Slot<File>) -> Option<Used<'static, File>> {
    slot.get()
}

/// The numbers that a child has changed.
#[cold]
pub(crate) fn numbers() -> Vec<c_int> {
    let numbers = with_last(|borrower| borrower.numbers.iter().map(|(number, _)| *number).collect());
    numbers.unwrap_or_default()
}

/// Notes a child's change of a number.
#[cold]
pub(crate) fn change(number: c_int, what: Change) {
    let what = match what {
        Change::Kernel => Number::Kernel,
        Change::Own => Number::Own,
        Change::File(file) => {
            let slot = take_slot();
            slot.replace(Some(file));
            Number::File(slot)
        }
    };
    let former = with_last(|borrower| {
        let changed = borrower
            .numbers
            .iter_mut()
            .find(|(changed, _)| *changed == number);
        match changed {
            Some((_, former)) => Some(core::mem::replace(former, what)),
            None => {
                borrower.numbers.push((number, what));
                None
            }
        }
    });
    if let Some(Some(Number::File(slot))) = former {
        give_slot(slot);
    }
}

/// The new owner of a number.
pub(crate) enum Change {
    Kernel,
    Own,
    File(std::sync::Arc<File>),
}

/// Places for files of children's numbers, which are used again.
static SLOTS: Mutex<Vec<&'static Slot<File>>> = Mutex::new(Vec::new());

fn take_slot() -> &'static Slot<File> {
    let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
    slots.pop().unwrap_or_else(|| Box::leak(Box::new(Slot::new())))
}

fn give_slot(slot: &'static Slot<File>) {
    drop(slot.replace(None));
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
}

/// Leaves something to the parent, before the caller becomes another program. The parent drops what
/// the caller would leave behind in the parent's memory. Of a process with memory of its own
/// nothing is left then.
pub(crate) fn leave_behind(left: impl Any) {
    if is_borrower() {
        with_last(|borrower| borrower.left.push(Box::new(left)));
    }
}

/// Lends this thread's memory, before it makes such a child. Returns `false` if it cannot.
pub(crate) extern "C" fn lend() -> bool {
    if !inside::has_storage() {
        return true;
    }
    LOANS.with(|loans| {
        let depth = loans.depth.get();
        let Some(place) = loans.borrowers.get(depth) else {
            return false;
        };
        // A child of a child begins with what that one has.
        let numbers = with_last(|outer| outer.numbers.clone()).unwrap_or_default();
        let copied = numbers.into_iter().map(|(number, what)| match what {
            Number::File(slot) => {
                let copy = take_slot();
                copy.replace(slot.get().map(|file| file.share()));
                (number, Number::File(copy))
            }
            what => (number, what),
        });
        place.set(Some(Borrower {
            numbers: copied.collect(),
            left: Vec::new(),
            inside: inside::lend(),
            pending: signals::pending(),
        }));
        loans.depth.set(depth + 1);
        BORROWERS.fetch_add(1, Relaxed);
        true
    })
}

/// Begins such a child. Called in it first of all.
pub(crate) extern "C" fn borrow() {
    if inside::has_storage() {
        dispatch::join();
    }
}

/// Lets the parent's thread go on, or ends a child that could not be made. Returns the result of
/// the call that made it.
pub(crate) extern "C" fn reclaim(child: c_long) -> pid_t {
    if inside::has_storage() {
        LOANS.with(|loans| {
            let depth = loans.depth.get().saturating_sub(1);
            BORROWERS.fetch_sub(1, Relaxed);
            loans.depth.set(depth);
            let borrower = loans.borrowers.get(depth).and_then(Cell::take);
            if let Some(borrower) = borrower {
                signals::forget_pending(borrower.pending);
                inside::reclaim(borrower.inside);
                for (_, what) in borrower.numbers {
                    if let Number::File(slot) = what {
                        give_slot(slot);
                    }
                }
            } else {
                inside::reclaim(0);
            }
        });
        cancel::reclaimed();
    }
    if child < 0 {
        set_errno(-child as c_int);
        return -1;
    }
    child as pid_t
}
