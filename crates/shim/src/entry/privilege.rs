//! Calls that take rights away from a process, for good: another user, another root, a filter of
//! system calls. Afterwards the process may not be able to reach its node, so it does so before.

use core::ffi::{CStr, c_char, c_int, c_ulong};

use libc::{gid_t, size_t, uid_t};

use crate::inside::{Inside, is_inside};
use crate::{dispatch, next, node, process, relay};

/// Prepares for a call that changes the process's rights.
pub(super) fn prepare() {
    if !is_inside() {
        let _inside = Inside::enter();
        node::hold();
    }
}

/// PR_SET_SECCOMP with this sets no filter, but leaves four system calls.
const STRICT: c_ulong = libc::SECCOMP_MODE_STRICT as c_ulong;

/// Prepares for a filter of system calls that is about to be set.
pub(super) fn before_filter() {
    if !is_inside() {
        let _inside = Inside::enter();
        relay::for_good();
        dispatch::stop();
    }
}

macro_rules! prepared {
    ($($(#[doc = $doc:literal])+ fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)+) => {
        $(
            $(#[doc = $doc])+
            ///
            /// # Safety
            ///
            /// The INTERCEPT contract of [`entry`](crate::entry).
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
                prepare();
                // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
                unsafe { next::$name($($argument),*) }
            }
        )+
    };
}

prepared! {
    /// `setuid(2)`.
    fn setuid(user: uid_t) -> c_int;
    /// `seteuid(2)`.
    fn seteuid(user: uid_t) -> c_int;
    /// `setreuid(2)`.
    fn setreuid(real: uid_t, effective: uid_t) -> c_int;
    /// `setresuid(2)`.
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int;
    /// `setgid(2)`.
    fn setgid(group: gid_t) -> c_int;
    /// `setgroups(2)`.
    fn setgroups(number: size_t, groups: *const gid_t) -> c_int;
    /// `setns(2)`.
    fn setns(fd: c_int, kind: c_int) -> c_int;
}

/// `unshare(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    before_unshare(flags);
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { next::unshare(flags) }
}

/// Called before `unshare(2)`.
pub(super) fn before_unshare(flags: c_int) {
    prepare();
    if flags & libc::CLONE_FILES != 0 {
        super::descriptors::before_parting();
    }
}

/// `chroot(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn chroot(path: *const c_char) -> c_int {
    if !process::is_own() {
        // Chromium's sandbox is begun so.
        // SAFETY: INTERCEPT contract: the program passes a path, valid for this call.
        let path = unsafe { CStr::from_ptr(path) };
        return rustix::process::chroot(path).map_or(-1, |()| 0);
    }
    prepare();
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { next::chroot(path) }
}

/// Prepares for `prctl(2)`, which is about to be called.
pub(super) fn before_prctl(option: c_int, second: c_ulong, third: c_ulong) {
    // Programs find out what the kernel can do by a filter that is none.
    if option == libc::PR_SET_SECCOMP && (second == STRICT || third != 0) {
        before_filter();
    }
}

/// `prctl(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn prctl(
    option: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    before_prctl(option, second, third);
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { next::prctl(option, second, third, fourth, fifth) }
}
