//! `posix_spawn`, `system` and `popen`: the programs that a program starts are on its node, too.

use core::ffi::{c_char, c_int, c_void};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{FILE, pid_t};

use super::exec::{Strings, hand_over_all, prepare, wants};
use crate::next;

/// The descriptors that each set of file actions copies, by the address of the set. Only libc knows
/// the contents of a set.
static COPIED: Mutex<Option<HashMap<usize, Vec<c_int>>>> = Mutex::new(None);

fn copied() -> MutexGuard<'static, Option<HashMap<usize, Vec<c_int>>>> {
    COPIED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forget(actions: *const c_void) {
    if wants()
        && let Some(copied) = &mut *copied()
    {
        copied.remove(&actions.addr());
    }
}

/// The descriptors that a program gets by file actions, although they would not survive `exec`.
fn given_by(actions: *const c_void) -> Vec<c_int> {
    let copied = copied();
    let given = copied.as_ref().and_then(|copied| copied.get(&actions.addr()));
    given.cloned().unwrap_or_default()
}

/// `posix_spawn_file_actions_init(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn posix_spawn_file_actions_init(actions: *mut c_void) -> c_int {
    forget(actions);
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { next::posix_spawn_file_actions_init(actions) }
}

/// `posix_spawn_file_actions_destroy(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int {
    forget(actions);
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { next::posix_spawn_file_actions_destroy(actions) }
}

/// `posix_spawn_file_actions_adddup2(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn posix_spawn_file_actions_adddup2(
    actions: *mut c_void,
    from: c_int,
    to: c_int,
) -> c_int {
    if wants() {
        let mut copied = copied();
        let copied = copied.get_or_insert_default();
        copied.entry(actions.addr()).or_default().push(from);
    }
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { next::posix_spawn_file_actions_adddup2(actions, from, to) }
}

/// `system(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn system(command: *const c_char) -> c_int {
    prepare_shell();
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { next::system(command) }
}

/// `popen(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    prepare_shell();
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { next::popen(command, mode) }
}

/// Prepares for a shell, which gets this process's environment and the descriptors that survive
/// `exec`.
fn prepare_shell() {
    if wants() {
        // SAFETY: the path is a C string literal, which lives as long as the library.
        unsafe { hand_over_all(c"/bin/sh".as_ptr()) };
    }
}

macro_rules! spawn {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        $(
            $(#[doc = $doc])+
            ///
            /// # Safety
            ///
            /// The INTERCEPT contract of [`entry`](crate::entry).
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name(
                child: *mut pid_t,
                path: *const c_char,
                actions: *const c_void,
                attributes: *const c_void,
                arguments: Strings,
                environment: Strings,
            ) -> c_int {
                if !wants() {
                    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
                    return unsafe { next::$name(child, path, actions, attributes, arguments, environment) };
                }
                // SAFETY: INTERCEPT contract: the path or name, and the environment, are valid
                // until this call returns.
                let environment = unsafe { prepare(path, &given_by(actions), environment) };
                // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
                // `environment` is a list of C strings that lives until the call returns.
                unsafe { next::$name(child, path, actions, attributes, arguments, environment.as_ptr()) }
            }
        )+
    };
}

spawn! {
    /// `posix_spawn(3)`.
    posix_spawn,
    /// `posix_spawnp(3)`.
    posix_spawnp,
}
