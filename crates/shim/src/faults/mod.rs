//! Checks whether the bytes that a program sends or wants to receive can be accessed. The kernel
//! says EFAULT where the library would end the program by a signal.
//!
//! A question to the kernel would cost each call a system call. So the library touches each page, by one
//! instruction for reading and one for writing. If one of these two faults, the signal's handler ends the
//! touching there. Any other fault is the program's own. It goes to the handler that the program has
//! installed, or ends the program.

use core::arch::global_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libc::{
    REG_RIP, SA_ONSTACK, SA_RESETHAND, SA_SIGINFO, SIG_DFL, SIG_IGN, sigaction, siginfo_t, ucontext_t,
};

use crate::signals::{INSTALLED, action};
use crate::{next, signals};

/// The signals of a fault.
const FAULTS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The flag of an action with a way back, which libc sets and does not name.
const SA_RESTORER: c_int = 0x0400_0000;

/// Whether the library handles them.
static HANDLED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// Reads a byte at `at`, and one of each page from there to `end`. Gives the first address that it could not
    /// read, or `end`.
    fn toehold_touch_to_read(at: *const u8, end: *const u8) -> *const u8;
    /// Writes nothing new to a byte at `at`, and to one of each page from there to `end`. Gives the first
    /// address that it could not write to, or `end`.
    fn toehold_touch_to_write(at: *mut u8, end: *mut u8) -> *mut u8;
    fn toehold_touches_read();
    fn toehold_touches_write();
    fn toehold_touch_failed();
}

// A page is 4 KiB on this architecture. `rax` is the address that is touched, and what is returned.
global_asm!(
    ".pushsection .text.toehold_touch, \"ax\", @progbits",
    ".hidden toehold_touch_to_read",
    ".globl toehold_touch_to_read",
    ".type toehold_touch_to_read, @function",
    "toehold_touch_to_read:",
    "mov rax, rdi",
    ".hidden toehold_touches_read",
    ".globl toehold_touches_read",
    "toehold_touches_read:",
    "movzx ecx, byte ptr [rax]",
    "and rax, -4096",
    "add rax, 4096",
    "cmp rax, rsi",
    "jb toehold_touches_read",
    "mov rax, rsi",
    "ret",
    ".size toehold_touch_to_read, . - toehold_touch_to_read",
    ".hidden toehold_touch_to_write",
    ".globl toehold_touch_to_write",
    ".type toehold_touch_to_write, @function",
    "toehold_touch_to_write:",
    "mov rax, rdi",
    ".hidden toehold_touches_write",
    ".globl toehold_touches_write",
    "toehold_touches_write:",
    "lock or byte ptr [rax], 0",
    "and rax, -4096",
    "add rax, 4096",
    "cmp rax, rsi",
    "jb toehold_touches_write",
    "mov rax, rsi",
    ".hidden toehold_touch_failed",
    ".globl toehold_touch_failed",
    "toehold_touch_failed:",
    "ret",
    ".size toehold_touch_to_write, . - toehold_touch_to_write",
    ".popsection",
);

/// How many of `len` bytes can be read, from the first on.
#[inline]
pub(crate) fn readable(at: *const u8, len: usize) -> usize {
    if len == 0 || !HANDLED.load(Relaxed) {
        return len;
    }
    // SAFETY: a read changes nothing, and one of what is not there ends the touching.
    let end = unsafe { toehold_touch_to_read(at, at.wrapping_add(len)) };
    end.addr() - at.addr()
}

/// How many of `len` bytes can be written, from the first on.
#[inline]
pub(crate) fn writable(at: *mut u8, len: usize) -> usize {
    if len == 0 || !HANDLED.load(Relaxed) {
        return len;
    }
    // SAFETY: the program has said that the bytes are to be written; none is changed, in one step that other
    // threads cannot come into. What is not there ends the touching.
    let end = unsafe { toehold_touch_to_write(at, at.wrapping_add(len)) };
    end.addr() - at.addr()
}

/// Has the library handle the signals of a fault from now on.
pub(crate) fn guard() {
    if HANDLED.load(Relaxed) {
        return;
    }
    for signal in FAULTS {
        let mut present = action(SIG_DFL);
        // SAFETY: `present` is a local action, to which libc writes during this call alone. With
        // null it installs none.
        if unsafe { next::sigaction(signal, core::ptr::null(), &mut present) } != 0 {
            return;
        }
        INSTALLED[signal as usize].store(&present);
        let own = beside(&present);
        // SAFETY: the action is a local, which libc reads during this call alone. With null it
        // writes none.
        unsafe { next::sigaction(signal, &own, core::ptr::null_mut()) };
    }
    HANDLED.store(true, Relaxed);
}

/// Whether the library handles a signal as one of a fault.
pub(crate) fn handles(signal: c_int) -> bool {
    FAULTS.contains(&signal) && HANDLED.load(Relaxed)
}

/// The library's action in the place of the program's.
fn beside(programs: &sigaction) -> sigaction {
    let mut own = *programs;
    own.sa_sigaction = fault as *const () as usize;
    own.sa_flags = own.sa_flags & !SA_RESETHAND | SA_SIGINFO;
    if [SIG_DFL, SIG_IGN].contains(&programs.sa_sigaction) {
        // The program's stack may be at its end.
        own.sa_flags |= SA_ONSTACK;
    }
    own
}

/// `sigaction(2)` of a signal that the library handles as one of a fault.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
pub(crate) unsafe fn install(signal: c_int, new: *const sigaction, old: *mut sigaction) -> c_int {
    let installed = &INSTALLED[signal as usize];
    let before = installed.action();
    // SAFETY: INTERCEPT contract: `new` is null, or points to an action that is valid until this
    // call returns.
    let own = unsafe { new.as_ref() }.map(|new| {
        installed.store(new);
        beside(new)
    });
    let own = own.as_ref().map_or(core::ptr::null(), |own| &raw const *own);
    let mut replaced = action(SIG_DFL);
    // SAFETY: the action is null or borrowed, and `replaced` is a local. libc uses both during this
    // call alone.
    let done = unsafe { next::sigaction(signal, own, &mut replaced) };
    if done == 0 && !old.is_null() {
        if replaced.sa_sigaction == fault as *const () as usize {
            replaced.sa_sigaction = before.sa_sigaction;
            // As the kernel says it of every action that libc has installed.
            replaced.sa_flags = before.sa_flags | replaced.sa_flags & SA_RESTORER;
        }
        // SAFETY: INTERCEPT contract: `old` has room for an action until this call returns.
        unsafe { old.write(replaced) };
    }
    done
}

/// Handles a fault.
extern "C" fn fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes `info` and `context` of this signal on the handler's stack. They
    // are valid until the handler returns, and no other code refers to them.
    let (told, registers) = unsafe {
        let context = context.cast::<ucontext_t>();
        (&*info, &mut (*context).uc_mcontext.gregs)
    };
    let touches = [
        toehold_touches_read as *const (),
        toehold_touches_write as *const (),
    ];
    let at = registers[REG_RIP as usize] as usize;
    if touches.iter().any(|touch| touch.addr() == at) {
        registers[REG_RIP as usize] = toehold_touch_failed as *const () as i64;
        return;
    }
    let installed = &INSTALLED[signal as usize];
    let flags = installed.action().sa_flags;
    let handler = match flags & SA_RESETHAND {
        0 => installed.action().sa_sigaction,
        _ => installed.take(),
    };
    // Another process or thread has sent it.
    let is_sent = told.si_code <= 0;
    match handler {
        SIG_IGN if is_sent => {}
        SIG_DFL | SIG_IGN => end(signal, is_sent),
        // SAFETY: the program has installed a function of the type that `flags` says, which it
        // keeps while it is installed.
        _ => unsafe {
            if flags & SA_SIGINFO != 0 {
                let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                    core::mem::transmute(handler);
                handler(signal, info, context);
            } else {
                let handler: extern "C" fn(c_int) = core::mem::transmute(handler);
                handler(signal);
            }
        },
    }
}

/// Has the kernel end the process, which is about to fault once more at the same place.
fn end(signal: c_int, is_sent: bool) {
    let default = action(SIG_DFL);
    // SAFETY: the action is a local, which libc reads during this call alone. With null it writes
    // none.
    unsafe { next::sigaction(signal, &default, core::ptr::null_mut()) };
    if is_sent {
        signals::raise_again(signal);
    }
}

#[cfg(test)]
mod tests {
    use core::ptr::null_mut;

    use super::*;

    const PAGE: usize = 4096;

    fn map(rights: c_int) -> *mut u8 {
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses the address of a new mapping, so no memory in use changes.
        let mapped = unsafe { libc::mmap(null_mut(), 4 * PAGE, rights, how, -1, 0) };
        assert_ne!(mapped, libc::MAP_FAILED);
        mapped.cast()
    }

    #[test]
    fn memory_that_is_not_there_ends_the_touching() {
        guard();
        let (both, constant) = (map(libc::PROT_READ | libc::PROT_WRITE), map(libc::PROT_READ));
        let nothing = map(libc::PROT_NONE);
        // SAFETY: `both` is this test's own writable mapping of four pages, which lasts until the
        // process ends.
        unsafe { both.add(2 * PAGE).sub(1).write(7) };
        assert_eq!(readable(both, 4 * PAGE), 4 * PAGE);
        assert_eq!(writable(both, 4 * PAGE), 4 * PAGE);
        assert_eq!((readable(constant, PAGE), writable(constant, PAGE)), (PAGE, 0));
        assert_eq!((readable(nothing, 9), writable(nothing, 9)), (0, 0));
        assert_eq!((readable(nothing, 0), writable(nothing, 0)), (0, 0));
        // SAFETY: the page is of this test's own mapping; what follows uses it as an address alone.
        let taken = unsafe { libc::mprotect(both.add(2 * PAGE).cast(), PAGE, libc::PROT_NONE) };
        assert_eq!(taken, 0);
        let last = both.wrapping_add(2 * PAGE - 1);
        assert_eq!((readable(last, PAGE), writable(last, PAGE)), (1, 1));
        assert_eq!((readable(last, 1), writable(last, 1)), (1, 1));
        assert_eq!(readable(both.wrapping_add(PAGE), 3 * PAGE), PAGE);
        // SAFETY: `last` points to the second page of this test's own mapping, which is still
        // readable here.
        assert_eq!(unsafe { last.read() }, 7);
    }
}
