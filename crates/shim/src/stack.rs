//! Room on the stack. Attaching to a node takes more of it than the threads of some programs
//! have, and more than there is on the stacks that others switch between.

use std::cell::Cell;

use crate::inside::Inside;
use crate::sleep::Blocked;

/// What attaching takes is less than this, in a build without optimisation, too.
const NEEDED: usize = 512 << 10;

/// Does something that needs much room: in a thread that has it, if this one may not.
pub(crate) fn with_room<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    if has_room() {
        return act();
    }
    let mut act = Some(act);
    let done = on_thread(|| act.take().map(|act| act()));
    // Without a thread it is tried here.
    done.flatten().unwrap_or_else(|| match act {
        Some(act) => act(),
        None => unreachable!("it was done, or was not begun"),
    })
}

/// `None`: there is no thread to be had.
fn on_thread<T: Send>(act: impl FnOnce() -> T + Send) -> Option<T> {
    // The program's signals are for its own threads: the new one begins with this one's mask.
    let blocked = Blocked::all();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(2 * NEEDED);
        let running = thread.spawn_scoped(scope, || {
            let _inside = Inside::enter();
            act()
        });
        drop(blocked);
        running.ok()?.join().ok()
    })
}

/// Whether this thread is surely on its own stack, with enough left of it.
fn has_room() -> bool {
    thread_local! {
        /// The lowest address of the thread's stack; 0: it is not known.
        static LOWEST: Cell<usize> = const { Cell::new(0) };
    }
    let here = core::ptr::from_ref(&NEEDED.to_ne_bytes()).addr();
    let lowest = match LOWEST.get() {
        0 => lowest(),
        known => Some(known),
    };
    LOWEST.set(lowest.unwrap_or_default());
    // Nobody has more left of a stack than its thread may have in all.
    lowest.is_some_and(|lowest| here.checked_sub(lowest).is_some_and(|left| left >= NEEDED))
}

/// The lowest address of this thread's stack.
fn lowest() -> Option<usize> {
    let mut attributes = core::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: there is room for what it says.
    if unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) } != 0 {
        return None;
    }
    let (mut lowest, mut size) = (core::ptr::null_mut(), 0);
    // SAFETY: they were made, and are let go of.
    let found = unsafe {
        let found = libc::pthread_attr_getstack(attributes.as_ptr(), &mut lowest, &mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        found
    };
    (found == 0).then(|| lowest.addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_room_has_it_on_every_stack() {
        for size in [64 << 10, 4 << 20] {
            let small = std::thread::Builder::new().stack_size(size);
            let thread = small.spawn(|| {
                let room = has_room();
                let sum = with_room(|| {
                    let much = std::hint::black_box([1u8; NEEDED / 2]);
                    much.iter().map(|&one| usize::from(one)).sum::<usize>()
                });
                (room, sum)
            });
            let (room, sum) = thread.unwrap().join().unwrap();
            assert_eq!((room, sum), (size > NEEDED, NEEDED / 2));
        }
    }
}
