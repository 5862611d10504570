//! `rt_sigaction(2)`: handlers that the program installs past libc are the library's to call, too.

use core::ffi::{c_int, c_ulong};

use libc::{SIG_DFL, size_t};

use crate::memory::{is_readable, is_writable};
use crate::signals::{action, install};

/// An action as the kernel has it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Action {
    handler: usize,
    flags: c_ulong,
    restorer: usize,
    mask: u64,
}

/// `rt_sigaction(2)`. Returns `None` if the kernel has to report what is wrong.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
pub(crate) unsafe fn install_by_number(
    signal: c_int,
    new: *const Action,
    old: *mut Action,
    size: size_t,
) -> Option<c_int> {
    let is_there =
        is_readable(new, usize::from(!new.is_null())) && is_writable(old, usize::from(!old.is_null()));
    if size != size_of::<u64>() || !is_there {
        return None;
    }
    // SAFETY: `new` is null or was checked above to be readable. INTERCEPT contract: it is valid
    // for this call.
    let new = unsafe { new.as_ref() }.map(|new| {
        let mut action = action(new.handler);
        action.sa_flags = new.flags as c_int;
        // SAFETY: `sa_mask` is a local set of at least 8 bytes, of which the kernel knows the first
        // word alone.
        unsafe { (&raw mut action.sa_mask).cast::<u64>().write(new.mask) };
        action
    });
    let given = new.as_ref().map_or(core::ptr::null(), |new| &raw const *new);
    let mut replaced = action(SIG_DFL);
    // SAFETY: `given` is null or points to the local `new`, and `replaced` is a local; both live
    // until the call returns.
    let done = unsafe { install(signal, given, &mut replaced) };
    if done == 0 && !old.is_null() {
        // SAFETY: there is room, and the first word of a set is what the kernel knows.
        unsafe {
            old.write(Action {
                handler: replaced.sa_sigaction,
                flags: replaced.sa_flags as c_ulong,
                restorer: replaced
                    .sa_restorer
                    .map_or(0, |restorer| restorer as *const () as usize),
                mask: (&raw const replaced.sa_mask).cast::<u64>().read(),
            });
        }
    }
    Some(done)
}
