//! Threads that are cancelled (`pthreads(7)`) in a call that waits, which ends, and the thread with it.
//!
//! libc unwinds the stack of a thread out of the system call that it is in. In the middle of this library
//! that would leave locks locked, so threads that are inside are not cancelled. Instead they leave, and pass
//! a point at which libc may cancel them. A thread that cancels a sleeping one wakes it up, by the signal
//! that libc has for that; so sleeping threads are known.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicPtr};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::{pid_t, pthread_t};

use crate::inside::is_in_call;
use crate::next;

/// The signal by which glibc cancels threads.
const SIGCANCEL: c_int = 32;

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, former: *mut c_int) -> c_int;
}

unsafe extern "C-unwind" {
    /// Unwinds the stack of a thread that is cancelled.
    fn pthread_testcancel();
}

/// Whether this program has ever cancelled a thread.
static USED: AtomicBool = AtomicBool::new(false);

/// A thread that has slept in a call.
struct Sleeper {
    thread: pthread_t,
    number: pid_t,
    /// The thread is to leave the library, since it may have been cancelled.
    asked: AtomicBool,
}

/// Threads that were cancelled before they were known, at most. What is forgotten is none that
/// sleeps here any time soon.
const UNKNOWN: usize = 64;

/// The threads that are known, and those that were not when they were cancelled.
#[derive(Default)]
struct Sleepers {
    known: Vec<Arc<Sleeper>>,
    unknown: VecDeque<pthread_t>,
}

/// The sleepers of this process; null until the first use.
static SLEEPERS: AtomicPtr<Mutex<Sleepers>> = AtomicPtr::new(core::ptr::null_mut());

fn sleepers() -> MutexGuard<'static, Sleepers> {
    let mut list = SLEEPERS.load(Acquire);
    if list.is_null() {
        let made = Box::into_raw(Box::<Mutex<Sleepers>>::default());
        list = match SLEEPERS.compare_exchange(list, made, AcqRel, Acquire) {
            Ok(_) => made,
            Err(others) => {
                // SAFETY: `made` comes from `Box::into_raw` above and was not published, so no other thread
                // has it.
                drop(unsafe { Box::from_raw(made) });
                others
            }
        };
    }
    // SAFETY: `list` comes from `Box::into_raw`, is published once, and is never freed.
    let list = unsafe { &*list };
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This thread, until it ends.
struct Own(Arc<Sleeper>);

impl Drop for Own {
    fn drop(&mut self) {
        let known = &mut sleepers().known;
        known.retain(|sleeper| !Arc::ptr_eq(sleeper, &self.0));
    }
}

thread_local! {
    static OWN: Cell<Option<Own>> = const { Cell::new(None) };
    /// The flag of `OWN`, as long as that has it.
    static ASKED: Cell<*const AtomicBool> = const { Cell::new(core::ptr::null()) };
    /// The program's own setting of cancellation, while the thread is inside.
    static FORMER: Cell<Option<c_int>> = const { Cell::new(None) };
    /// Whether the call does not go on after it has been left.
    static DEAF: Cell<bool> = const { Cell::new(false) };
}

/// Makes this thread known from now on. It learns at once of a cancellation from before.
pub(crate) fn be_known() {
    if ASKED.get().is_null() {
        let number = rustix::thread::gettid().as_raw_nonzero().get();
        // SAFETY: `pthread_self` takes no pointer and returns the calling thread.
        let thread = unsafe { libc::pthread_self() };
        let mut sleepers = sleepers();
        let before = sleepers.unknown.iter().position(|unknown| *unknown == thread);
        let was_cancelled = before.is_some_and(|at| sleepers.unknown.remove(at).is_some());
        let sleeper = Arc::new(Sleeper {
            thread,
            number,
            asked: AtomicBool::new(was_cancelled),
        });
        sleepers.known.push(Arc::clone(&sleeper));
        ASKED.set(&raw const sleeper.asked);
        OWN.set(Some(Own(sleeper)));
    }
}

/// Whether this thread is to leave, since it may have been cancelled.
#[inline]
pub(crate) fn is_asked() -> bool {
    // SAFETY: `ASKED` points into the `Arc` of this thread's `OWN`, which is dropped only when the
    // thread ends.
    let asked = unsafe { ASKED.get().as_ref() };
    asked.is_some_and(|asked| asked.load(Relaxed)) && !DEAF.get()
}

/// Whether this thread is to leave, since it may have been cancelled. Clears the request.
pub(crate) fn take_asked() -> bool {
    let is_asked = is_asked();
    // SAFETY: `ASKED` points into the `Arc` of this thread's `OWN`, which is dropped only when the
    // thread ends.
    if let (true, Some(asked)) = (is_asked, unsafe { ASKED.get().as_ref() }) {
        asked.store(false, Relaxed);
    }
    is_asked
}

/// Ends this thread if it has been cancelled. Nothing that has to be dropped is on its stack.
#[inline]
pub(crate) fn point() {
    if USED.load(Relaxed) {
        // SAFETY: the unwinding passes only frames in which nothing has to be dropped, as the
        // caller guarantees.
        unsafe { pthread_testcancel() };
    }
}

/// Shields this thread, which goes inside, from cancellation.
#[inline]
pub(crate) fn enter() {
    if USED.load(Relaxed) {
        shield();
    }
}

/// Ends the shielding of this thread, which leaves.
#[inline]
pub(crate) fn leave() {
    if let Some(former) = FORMER.take() {
        // SAFETY: `former` is a state that libc has returned before. With null it writes no former
        // state.
        unsafe { pthread_setcancelstate(former, core::ptr::null_mut()) };
    }
}

/// Ends the shielding that a child may have left that has borrowed this thread's memory and has
/// ended inside.
pub(crate) fn reclaimed() {
    if !is_in_call() {
        leave();
    }
}

#[cold]
fn shield() {
    if FORMER.get().is_none() {
        let mut former = 0;
        // SAFETY: `former` is a local integer, to which libc writes during this call alone.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut former) };
        FORMER.set(Some(former));
    }
}

/// Shields a thread on its way that slept inside when the program first cancelled one.
pub(crate) fn awake() {
    enter();
}

/// Keeps the thread in its call, which is not left in the middle.
pub(crate) struct Deaf(bool);

impl Deaf {
    pub(crate) fn new() -> Deaf {
        Deaf(DEAF.replace(true))
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        DEAF.set(self.0);
    }
}

/// `pthread_cancel(3)`.
pub(crate) fn cancel(thread: pthread_t) -> c_int {
    USED.store(true, Relaxed);
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let done = unsafe { next::pthread_cancel(thread) };
    if done != 0 {
        return done;
    }
    let mut sleepers = sleepers();
    if let Some(sleeper) = sleepers.known.iter().find(|sleeper| sleeper.thread == thread) {
        sleeper.asked.store(true, Relaxed);
        // Until the list is free, the thread is there.
        wake(sleeper.number);
        return 0;
    }
    if sleepers.unknown.len() == UNKNOWN {
        sleepers.unknown.pop_front();
    }
    sleepers.unknown.push_back(thread);
    0
}

/// Ends the system call that a thread sleeps in. libc's handler notes that the thread is
/// cancelled, and leaves it alone, since that system call is none of libc's.
fn wake(thread: pid_t) {
    // What the kernel has of an action: its handler comes first.
    let mut action = [0_usize; 4];
    let room = &raw mut action as *mut c_void as i64;
    // SAFETY: there is room for the action; a signal that has a handler ends nothing.
    unsafe {
        let asked = next::syscall(libc::SYS_rt_sigaction, SIGCANCEL.into(), 0, room, 8, 0, 0);
        if asked == 0 && action[0] != libc::SIG_DFL && action[0] != libc::SIG_IGN {
            let process = libc::getpid().into();
            next::syscall(
                libc::SYS_tgkill,
                process,
                thread.into(),
                SIGCANCEL.into(),
                0,
                0,
                0,
            );
        }
    }
}

/// Forgets the list of the parent's threads in a forked child, which has one thread. Another thread
/// may have had the list locked, so it is left to itself.
pub(crate) fn forked() {
    SLEEPERS.store(core::ptr::null_mut(), Relaxed);
    if let Some(own) = OWN.take() {
        std::mem::forget(own);
        ASKED.set(core::ptr::null());
    }
}
