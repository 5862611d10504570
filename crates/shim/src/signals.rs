//! Signals, and the calls that they come into.
//!
//! The program's handlers run as if the library were the kernel. They never run in the middle of the library.
//! They run at once when a call waits, which then ends with EINTR or goes on, as the handler was installed.
//!
//! So in the kernel's place of each handler there is one of the library's. If the thread is inside, that
//! handler blocks the signal. It sends the signal to the thread once more, with all that the kernel says
//! about it. The signal comes again when the thread has left the library.
//!
//! The library, and not the kernel, takes away a handler that is for one signal only, once it runs. The
//! kernel blocks the signal of every handler; the library undoes that for handlers that may be interrupted by
//! their own signal.
//!
//! A signal that ends the process by itself would do so in the middle of the node's stack. The stack is lost
//! then for all programs of the node. So there is one of the library's handlers in its place, too, which lets
//! the threads leave first. Signals that a thread causes itself, as by an access to no memory, are not
//! touched.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::Relaxed};

use libc::{
    SA_NODEFER, SA_RESETHAND, SA_RESTART, SA_SIGINFO, SIG_DFL, SIG_IGN, sigaction, siginfo_t, sigset_t,
    ucontext_t,
};

use crate::inside::{is_in_call, is_inside};
use crate::{cancel, dispatch, faults, next, node, start};

/// The program's action for a signal.
pub(crate) struct Installed {
    handler: AtomicUsize,
    flags: AtomicI32,
    /// Whether the handler may be interrupted by its own signal.
    nests: AtomicBool,
}

impl Installed {
    pub(crate) fn store(&self, action: &sigaction) {
        self.handler.store(action.sa_sigaction, Relaxed);
        self.flags.store(action.sa_flags, Relaxed);
    }

    /// The handler of a signal that has come, which is for one signal only.
    pub(crate) fn take(&self) -> usize {
        self.handler.swap(SIG_DFL, Relaxed)
    }

    pub(crate) fn action(&self) -> sigaction {
        let mut action = action(self.handler.load(Relaxed));
        action.sa_flags = self.flags.load(Relaxed);
        action
    }
}

const SIGNALS: usize = 65;
pub(crate) static INSTALLED: [Installed; SIGNALS] = [const {
    Installed {
        handler: AtomicUsize::new(0),
        flags: AtomicI32::new(0),
        nests: AtomicBool::new(false),
    }
}; SIGNALS];

/// Whether signals that end the process are handled.
static GUARDED: AtomicBool = AtomicBool::new(false);

/// The signals that end a process, if the program does nothing about it, and that other processes
/// or the system send.
const ENDING: [c_int; 15] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGABRT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGSTKFLT,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
];

thread_local! {
    /// Signals that wait for this thread to leave the library, a bit each.
    static PENDING: Cell<u64> = const { Cell::new(0) };
    /// Whether one of those since the present call began wants it to end.
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

/// Whether a signal waits for this thread to leave the library.
#[inline]
pub(crate) fn has_come() -> bool {
    PENDING.with(|pending| pending.get() != 0)
}

/// The signals that are pending, a bit each.
pub(crate) fn pending() -> u64 {
    PENDING.get()
}

/// Forgets signals that a child has noted that has borrowed this thread's memory.
pub(crate) fn forget_pending(former: u64) {
    PENDING.set(former);
}

/// Whether this thread is to leave the library, for a signal or since it may be cancelled.
#[inline]
pub(crate) fn is_pending() -> bool {
    has_come() || cancel::is_asked()
}

/// Runs the program's handlers of the signals that came meanwhile.
#[cold]
pub(crate) fn deliver() {
    unblock(PENDING.with(|pending| pending.replace(0)));
}

/// Unblocks signals, a bit each.
fn unblock(signals: u64) {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the set is made empty, and then has some of the signals in it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in (1..SIGNALS).filter(|signal| signals >> (signal - 1) & 1 != 0) {
            libc::sigaddset(set.as_mut_ptr(), signal as c_int);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), core::ptr::null_mut());
    }
}

/// Begins a call that may wait.
pub(crate) fn begin() {
    ENDS.with(|ends| ends.set(false));
}

/// Whether a call that a signal came into goes on: all handlers were installed so.
pub(crate) fn restarts() -> bool {
    ENDS.with(|ends| !ends.get())
}

/// Signals that the thread causes itself, or that no handler can catch.
fn is_left_alone(signal: c_int) -> bool {
    let alone = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGSYS,
        libc::SIGKILL,
        libc::SIGSTOP,
    ];
    alone.contains(&signal) || !(1..SIGNALS as c_int).contains(&signal)
}

/// Handles a signal in the place of each of the program's handlers.
pub(crate) extern "C" fn stand_in(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(installed) = INSTALLED.get(signal as usize) else {
        return;
    };
    let flags = installed.flags.load(Relaxed);
    if flags & SA_RESTART == 0 {
        ENDS.with(|ends| ends.set(true));
    }
    let ends = installed.handler.load(Relaxed) == SIG_DFL;
    if ends && !node::is_busy() {
        // Wherever this thread waits, also for what it would get only after that.
        return end(signal);
    }
    if is_in_call() && postpone(signal, info, context.cast()) {
        return;
    }
    let handler = match flags & SA_RESETHAND {
        0 => installed.handler.load(Relaxed),
        _ => taken(signal, installed),
    };
    match handler {
        SIG_DFL => return end(signal),
        SIG_IGN => return,
        _ => {}
    }
    let nests = installed.nests.load(Relaxed).then_some(signal);
    // A thread that makes calls with that one blocked would be ended.
    let calls = dispatch::is_on().then_some(libc::SIGSYS);
    let open = nests.into_iter().chain(calls);
    let open = open.fold(0, |open, signal| open | 1 << (signal - 1));
    if open != 0 {
        unblock(open);
    }
    // SAFETY: the program has installed a function of the type that `flags` says, which it keeps
    // while it is installed.
    unsafe {
        if flags & SA_SIGINFO != 0 {
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = core::mem::transmute(handler);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(c_int) = core::mem::transmute(handler);
            handler(signal);
        }
        if dispatch::is_on() {
            // Whatever the handler has had to say about what is blocked from now on.
            libc::sigdelset(&raw mut (*context.cast::<ucontext_t>()).uc_sigmask, libc::SIGSYS);
        }
    }
}

/// Takes a handler that is for one signal, which is this one, unless it has come to another thread
/// just before. A later signal has its default effect.
fn taken(signal: c_int, installed: &Installed) -> usize {
    let handler = installed.handler.swap(SIG_DFL, Relaxed);
    if handler != SIG_DFL && !is_guarded(signal) {
        let default = action(SIG_DFL);
        // SAFETY: the action is a local, which libc reads during this call alone. With null it
        // writes none.
        unsafe { next::sigaction(signal, &default, core::ptr::null_mut()) };
    }
    handler
}

/// Does what a signal does that the program does nothing about, when no thread is in the middle
/// of the node's stack.
fn end(signal: c_int) {
    node::leave();
    let default = action(SIG_DFL);
    // SAFETY: the action is a local, which libc reads during this call alone. With null it writes
    // none.
    unsafe { next::sigaction(signal, &default, core::ptr::null_mut()) };
    // SAFETY: the call takes a number alone. The signal is blocked, as in every handler.
    unsafe { libc::raise(signal) };
    unblock(1 << (signal - 1));
    // This is the first process of a namespace, which only others can end.
    node::stay();
    guard_from(signal);
}

/// Has a signal come to this thread once more, whose handler runs, when that returns.
pub(crate) fn raise_again(signal: c_int) {
    // SAFETY: the call takes numbers alone, and no pointer.
    unsafe { libc::raise(signal) };
}

/// Keeps signals from ending the process in the middle of the node's stack, from now on.
pub(crate) fn guard() {
    if !GUARDED.swap(true, Relaxed) && !start::has_renounced() {
        ENDING.into_iter().for_each(guard_from);
        faults::guard();
    }
}

fn is_guarded(signal: c_int) -> bool {
    GUARDED.load(Relaxed) && ENDING.contains(&signal)
}

/// Handles a signal that has no handler and is not ignored.
fn guard_from(signal: c_int) {
    let mut present = action(SIG_DFL);
    // SAFETY: `present` is a local action, to which libc writes during this call alone. With null
    // it installs none.
    let known = unsafe { next::sigaction(signal, core::ptr::null(), &mut present) } == 0;
    if known && present.sa_sigaction == SIG_DFL {
        INSTALLED[signal as usize].handler.store(SIG_DFL, Relaxed);
        INSTALLED[signal as usize].flags.store(0, Relaxed);
        let guarding = guarding();
        // SAFETY: the action is a local, which libc reads during this call alone. With null it
        // writes none.
        unsafe { next::sigaction(signal, &guarding, core::ptr::null_mut()) };
    }
}

/// The action of a signal that ends the process. Calls of the program's that it comes into do not
/// matter any more.
fn guarding() -> sigaction {
    let mut guarding = action(stand_in as *const () as usize);
    guarding.sa_flags = SA_SIGINFO | SA_RESTART;
    // SAFETY: the mask is a set of signals in an action that is borrowed for this call.
    unsafe { libc::sigfillset(&mut guarding.sa_mask) };
    guarding
}

/// An action with no flags, that blocks nothing.
pub(crate) fn action(handler: usize) -> sigaction {
    // SAFETY: all zeroes is an action, with no flags, an empty mask and no function to return by.
    let mut action: sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler;
    action
}

/// Blocks the signal from the moment that the handler returns, and sends it again.
fn postpone(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) -> bool {
    // SAFETY: the call takes numbers, and `info`, which the kernel has given this handler and
    // copies during the call.
    let sent = unsafe {
        let (process, thread) = (libc::getpid(), libc::gettid());
        next::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            process.into(),
            thread.into(),
            signal.into(),
            info as i64,
            0,
            0,
        )
    };
    if sent != 0 {
        return false;
    }
    // SAFETY: `context` is this handler's, whose mask the kernel puts into force when the handler
    // returns.
    unsafe { libc::sigaddset(&raw mut (*context).uc_sigmask, signal) };
    PENDING.with(|pending| pending.set(pending.get() | 1 << (signal - 1)));
    toehold_node::direct::end_own_sleep();
    true
}

/// `sigaction(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
pub(crate) unsafe fn install(signal: c_int, new: *const sigaction, old: *mut sigaction) -> c_int {
    if faults::handles(signal) && !is_inside() {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        return unsafe { faults::install(signal, new, old) };
    }
    let is_dispatched = signal == libc::SIGSYS && dispatch::has_signal();
    if !is_dispatched && (!start::is_wanted() || is_left_alone(signal) || is_inside()) {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        return unsafe { next::sigaction(signal, new, old) };
    }
    let installed = &INSTALLED[signal as usize];
    if is_dispatched {
        // SAFETY: INTERCEPT contract: `new` and `old` are null, or point to actions that are valid
        // until this call returns.
        unsafe {
            if !old.is_null() {
                old.write(installed.action());
            }
            if let Some(new) = new.as_ref() {
                installed.store(new);
            }
        }
        return 0;
    }
    let before = (installed.handler.load(Relaxed), installed.flags.load(Relaxed));
    // SAFETY: INTERCEPT contract: `new` is null, or points to an action that is valid until this
    // call returns.
    let action = unsafe { new.as_ref() }.map(|new| {
        let mut action = *new;
        if new.sa_sigaction == SIG_DFL && is_guarded(signal) {
            installed.handler.store(SIG_DFL, Relaxed);
            installed.flags.store(new.sa_flags, Relaxed);
            action = guarding();
        } else if new.sa_sigaction != SIG_DFL && new.sa_sigaction != SIG_IGN {
            installed.store(new);
            // SAFETY: the mask is a set of signals in an action that is borrowed for this call.
            let is_blocked = unsafe { libc::sigismember(&new.sa_mask, signal) } == 1;
            let nests = new.sa_flags & SA_NODEFER != 0 && !is_blocked;
            installed.nests.store(nests, Relaxed);
            action.sa_sigaction = stand_in as *const () as usize;
            action.sa_flags = action.sa_flags & !(SA_RESETHAND | SA_NODEFER) | SA_SIGINFO;
        }
        action
    });
    let action = action
        .as_ref()
        .map_or(core::ptr::null(), |action| &raw const *action);
    let mut replaced = MaybeUninit::<sigaction>::zeroed();
    // SAFETY: the action is null or borrowed, and `replaced` is a local. libc uses both during this
    // call alone.
    let done = unsafe { next::sigaction(signal, action, replaced.as_mut_ptr()) };
    if done != 0 {
        return done;
    }
    // SAFETY: `replaced` was zeroed, which is an action, or the kernel has written another one to
    // it.
    let mut replaced = unsafe { replaced.assume_init() };
    if replaced.sa_sigaction == stand_in as *const () as usize {
        replaced.sa_sigaction = before.0;
        replaced.sa_flags = before.1;
    }
    if !old.is_null() {
        // SAFETY: INTERCEPT contract: `old` has room for an action until this call returns.
        unsafe { old.write(replaced) };
    }
    0
}

/// Installs a handler of the library's for the signal by which calls are dispatched, and remembers
/// the program's.
#[cfg(target_arch = "x86_64")]
pub(crate) fn handle_calls(trap: extern "C" fn(c_int, *mut siginfo_t, *mut c_void)) {
    let (mut own, mut former) = (action(trap as *const () as usize), action(SIG_DFL));
    own.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
    // SAFETY: `own` and `former` are local actions, which libc uses during this call alone. `trap`
    // is never unloaded.
    unsafe { next::sigaction(libc::SIGSYS, &own, &mut former) };
    INSTALLED[libc::SIGSYS as usize].store(&former);
}

/// Takes the library's handler of dispatched calls away again.
#[cfg(target_arch = "x86_64")]
pub(crate) fn leave_calls() {
    let former = INSTALLED[libc::SIGSYS as usize].action();
    // SAFETY: `former` is a local action, which libc reads during this call alone. With null it
    // writes none.
    unsafe { next::sigaction(libc::SIGSYS, &former, core::ptr::null_mut()) };
}

/// Lets the signal through by which calls are dispatched.
#[cfg(target_arch = "x86_64")]
pub(crate) fn unblock_calls() {
    unblock(1 << (libc::SIGSYS - 1));
}

/// Installs a handler with some flags, and nothing blocked meanwhile; gives the former one.
pub(crate) fn install_simply(signal: c_int, handler: usize, flags: c_int) -> usize {
    let (mut new, mut old) = (action(handler), action(SIG_DFL));
    new.sa_flags = flags;
    // SAFETY: `new` and `old` are local actions, which `install` uses during this call alone.
    match unsafe { install(signal, &new, &mut old) } {
        0 => old.sa_sigaction,
        _ => libc::SIG_ERR,
    }
}

/// Sets or clears a flag of the action that is installed for a signal.
pub(crate) fn set_flag(signal: c_int, flag: c_int, on: bool) -> c_int {
    let mut action = action(SIG_DFL);
    // SAFETY: `action` is a local, to which `install` writes during this call alone. Null installs
    // nothing.
    if unsafe { install(signal, core::ptr::null(), &mut action) } != 0 {
        return -1;
    }
    action.sa_flags = if on {
        action.sa_flags | flag
    } else {
        action.sa_flags & !flag
    };
    // SAFETY: `action` is a local, which `install` reads during this call alone. With null it
    // writes nothing.
    unsafe { install(signal, &action, core::ptr::null_mut()) }
}

/// The thread's signals are masked as `ppoll(2)` and its like ask for, until this is dropped.
pub(crate) struct Masked(Option<sigset_t>);

impl Masked {
    pub(crate) fn with(mask: Option<&sigset_t>) -> Masked {
        let Some(mask) = mask else { return Masked(None) };
        let mut before = MaybeUninit::uninit();
        // SAFETY: `mask` is borrowed, and `before` is a local, to which libc writes during this
        // call alone.
        let done = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, before.as_mut_ptr()) };
        // SAFETY: libc has returned 0, so it has written the former mask to `before`.
        Masked((done == 0).then(|| unsafe { before.assume_init() }))
    }

    /// Ends the call with what it has found. What only its own mask lets through stays blocked.
    pub(crate) fn succeed(&self) {
        let Some(before) = &self.0 else { return };
        // SAFETY: `before` is a set of signals that the kernel has written, borrowed for this call.
        let is_blocked = |signal: &c_int| unsafe { libc::sigismember(before, *signal) } == 1;
        let blocked = (1..SIGNALS as c_int).filter(is_blocked);
        let blocked = blocked.fold(0, |blocked, signal| blocked | 1 << (signal - 1));
        PENDING.with(|pending| pending.set(pending.get() & !blocked));
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: `before` is a set of signals that the kernel has written, borrowed for this
            // call.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, core::ptr::null_mut()) };
        }
    }
}
