//! Room on the stack. Attaching to a node takes more of it than the threads of some programs have. It also
//! takes more than the stacks between which other programs switch.

use std::cell::Cell;

use crate::inside::{Inside, contained};
use crate::sleep::Blocked;

/// Attaching takes less than this, in a build without optimisation, too.
const NEEDED: usize = 512 << 10;

/// Does something that needs much room: in a thread that has it, if this one may not. `None` if that
/// comes to nothing, or panics.
pub(crate) fn with_room<T: Send>(act: impl FnOnce() -> Option<T> + Send) -> Option<T> {
    if has_room() {
        return apart(act);
    }
    let mut act = Some(act);
    match on_thread(|| act.take().and_then(apart)) {
        Some(done) => done,
        // Without a thread it is tried here.
        None => act.and_then(apart),
    }
}

/// Does it in a frame of its own. The caller only chooses the place, and has no room for it.
#[inline(never)]
fn apart<T>(act: impl FnOnce() -> Option<T>) -> Option<T> {
    contained(|| Ok(act())).ok().flatten()
}

/// Runs `act` on a thread of its own. Returns `None` if there is no thread to be had.
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
        /// The address and length of the thread's stack; empty if it is not known.
        static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    }
    let here = core::ptr::from_ref(&NEEDED.to_ne_bytes()).addr();
    let stack = match STACK.get() {
        (_, 0) => own_stack().unwrap_or_default(),
        known => known,
    };
    STACK.set(stack);
    is_enough(here, stack)
}

/// Whether there is enough below an address, of a stack that begins at `lowest`. An address that
/// is elsewhere is on a stack that the program has made, of which nothing is known.
fn is_enough(here: usize, (lowest, size): (usize, usize)) -> bool {
    let left = here.checked_sub(lowest);
    left.is_some_and(|left| (NEEDED..size).contains(&left))
}

/// The lowest address of this thread's stack, and how many bytes it has.
fn own_stack() -> Option<(usize, usize)> {
    let mut attributes = core::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: `attributes` is a local, to which libc writes during this call alone.
    if unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) } != 0 {
        return None;
    }
    let (mut lowest, mut size) = (core::ptr::null_mut(), 0);
    // SAFETY: libc has initialised `attributes` above; they are destroyed once, after the last use.
    let found = unsafe {
        let found = libc::pthread_attr_getstack(attributes.as_ptr(), &mut lowest, &mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        found
    };
    (found == 0).then(|| (lowest.addr(), size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_elsewhere_is_on_a_stack_of_the_programs() {
        let stack = (1 << 30, 8 << 20);
        assert!(is_enough((1 << 30) + NEEDED, stack) && is_enough((1 << 30) + (8 << 20) - 1, stack));
        for elsewhere in [
            0,
            (1 << 30) - 1,
            (1 << 30) + NEEDED - 1,
            (1 << 30) + (8 << 20),
            usize::MAX,
        ] {
            assert!(!is_enough(elsewhere, stack), "{elsewhere:x}");
        }
        assert!(!is_enough(1 << 30, (0, 0)), "nothing is known");
    }

    #[test]
    fn what_needs_room_has_it_on_every_stack() {
        for size in [64 << 10, 4 << 20] {
            let small = std::thread::Builder::new().stack_size(size);
            let thread = small.spawn(|| {
                let room = has_room();
                let sum = with_room(|| {
                    let much = std::hint::black_box([1u8; NEEDED / 2]);
                    Some(much.iter().map(|&one| usize::from(one)).sum::<usize>())
                });
                (room, sum)
            });
            let (room, sum) = thread.unwrap().join().unwrap();
            assert_eq!((room, sum), (size > NEEDED, Some(NEEDED / 2)));
        }
    }
}
