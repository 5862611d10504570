//! The handler of the signal that comes in the place of a call.

use core::ffi::{c_int, c_long, c_void};

use libc::{REG_R8, REG_R9, REG_R10, REG_RAX, REG_RDI, REG_RDX, REG_RIP, REG_RSI, siginfo_t, ucontext_t};

use super::{stubs, threads};
use crate::answer::{errno, set_errno};
use crate::entry::serve;
use crate::inside::is_inside;
use crate::memory::{is_readable, is_writable};
use crate::{next, signals, start};

/// `SYS_USER_DISPATCH` in `si_code`.
const DISPATCHED: c_int = 2;

/// Bytes of the kernel's sets of signals.
const SET: c_long = 8;

/// Handles the signal.
pub(super) extern "C" fn trap(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes `info` and `context` of this signal on the handler's stack. They
    // are valid until the handler returns, and no other code refers to them.
    let (told, context) = unsafe { (&*info, &mut *context.cast::<ucontext_t>()) };
    if threads::is_told(told) {
        return threads::answer();
    }
    if told.si_code != DISPATCHED {
        return signals::stand_in(signal, info, (&raw mut *context).cast());
    }
    let registers = &context.uc_mcontext.gregs;
    let number = registers[REG_RAX as usize];
    let arguments = [REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9].map(|at| registers[at as usize]);
    let is_own = is_inside() || !start::is_wanted();
    let before = errno();
    let result = match number {
        _ if is_own => None,
        // The return from a handler restores the context's mask.
        libc::SYS_rt_sigprocmask => mask(&mut context.uc_sigmask, arguments),
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        _ => unsafe { serve(number, arguments) }
            .map(|done| if done == -1 { -c_long::from(errno()) } else { done }),
    };
    set_errno(before);
    let registers = &mut context.uc_mcontext.gregs;
    match result {
        Some(result) => registers[REG_RAX as usize] = result,
        None if number == libc::SYS_rt_sigreturn => registers[REG_RIP as usize] = stubs::last() as i64,
        None => match stubs::of(registers[REG_RIP as usize] as usize) {
            Some(stub) => registers[REG_RIP as usize] = stub as i64,
            // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
            None => registers[REG_RAX as usize] = unsafe { make(number, arguments) },
        },
    }
}

/// Makes a call from here, except for a call that would make a thread or a process here: that fails
/// with EAGAIN.
unsafe fn make(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> c_long {
    if matches!(number, libc::SYS_clone | libc::SYS_clone3 | libc::SYS_vfork) {
        return -c_long::from(libc::EAGAIN);
    }
    let before = errno();
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let done = unsafe { next::syscall(number, a, b, c, d, e, f) };
    let failed = -c_long::from(errno());
    set_errno(before);
    if done == -1 { failed } else { done }
}

/// `rt_sigprocmask(2)` of the mask that a thread goes on with.
fn mask(present: &mut libc::sigset_t, [how, new, old, size, ..]: [c_long; 6]) -> Option<c_long> {
    let present = (&raw mut *present).cast::<u64>();
    let (new, old) = (new as *const u64, old as *mut u64);
    if size != SET || !is_readable(new, usize::from(!new.is_null())) {
        // The kernel says what is wrong.
        return None;
    }
    if !old.is_null() && !is_writable(old, 1) {
        return None;
    }
    // SAFETY: `present` is borrowed. `new` and `old` were checked to have the first word, the one
    // that the kernel knows, and stay valid until the trapped call returns.
    unsafe {
        let before = present.read();
        if !new.is_null() {
            let own = 1 << (libc::SIGSYS - 1);
            let new = new.read_unaligned() & !own;
            let after = match how as c_int {
                libc::SIG_BLOCK => before | new,
                libc::SIG_UNBLOCK => before & !new,
                libc::SIG_SETMASK => new,
                _ => return None,
            };
            present.write(after);
        }
        if !old.is_null() {
            old.write_unaligned(before);
        }
    }
    Some(0)
}
