//! Limits of a process's memory (`RLIMIT_AS`). The node's memory is mapped beside the program's own. So the
//! kernel is told a higher limit than the program sets, and the program is told its own.

use core::ffi::{c_int, c_uint};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use libc::{RLIM_INFINITY, pid_t, rlimit, rlimit64};

use crate::memory::{is_readable, is_writable};
use crate::{next, start};

/// Bytes of addresses for the node's memory and that of its peers. They are counted once for this process,
/// and once for each process that it descends from by fork.
const BESIDE: u64 = 4 << 30;

/// Limits of memory, the soft one and the hard one, in bytes; RLIM_INFINITY: none.
struct Limits([AtomicU64; 2]);

impl Limits {
    const fn none() -> Limits {
        Limits([const { AtomicU64::new(RLIM_INFINITY) }; 2])
    }

    fn get(&self) -> [u64; 2] {
        self.0.each_ref().map(|limit| limit.load(Relaxed))
    }

    fn set(&self, limits: [u64; 2]) {
        for (own, limit) in self.0.iter().zip(limits) {
            own.store(limit, Relaxed);
        }
    }
}

/// The limits that the program has set last.
static ASKED: Limits = Limits::none();
/// The limits that the kernel was told then.
static TOLD: Limits = Limits::none();

/// Whether a limit is about the memory of this process.
fn is_of_memory(process: pid_t, resource: c_uint) -> bool {
    let is_own = process == 0 || u32::try_from(process).is_ok_and(|process| process == std::process::id());
    resource == libc::RLIMIT_AS && is_own && start::is_wanted()
}

/// The limits that the program has asked for, from those that the kernel has.
fn shown(limits: [u64; 2]) -> [u64; 2] {
    match limits == TOLD.get() {
        true => ASKED.get(),
        false => limits,
    }
}

/// Sets the limits and returns the former ones in `old`.
fn set(asked: [u64; 2], old: &mut rlimit64) -> c_int {
    let change = |new: [u64; 2], old: &mut rlimit64| {
        let new = rlimit64 {
            rlim_cur: new[0],
            rlim_max: new[1],
        };
        // SAFETY: `new` is a local and `old` is borrowed mutably; both are limits that live until
        // the call returns.
        unsafe { next::prlimit64(0, libc::RLIMIT_AS, &raw const new, old) }
    };
    let raised = asked.map(|limit| limit.saturating_add(BESIDE));
    // SAFETY: `old` is a limit that is borrowed mutably until the call returns. The kernel sets no
    // limit with null.
    let known = unsafe { next::prlimit64(0, libc::RLIMIT_AS, null(), old) } == 0;
    // A process that may not raise the hard limit leaves it.
    let hard = if known { old.rlim_max } else { RLIM_INFINITY };
    let left = raised.map(|limit| limit.min(hard));
    for told in [raised, left] {
        // More than is allowed is for the kernel to refuse.
        if asked[0] <= asked[1] && asked[1] <= told[1] && change(told, old) == 0 {
            ASKED.set(asked);
            TOLD.set(told);
            return 0;
        }
    }
    change(asked, old)
}

/// `prlimit64(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn prlimit64(
    process: pid_t,
    resource: c_uint,
    new: *const rlimit64,
    old: *mut rlimit64,
) -> c_int {
    let is_sound = || (new.is_null() || is_readable(new, 1)) && (old.is_null() || is_writable(old, 1));
    if !is_of_memory(process, resource) || !is_sound() {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        return unsafe { next::prlimit64(process, resource, new, old) };
    }
    let former = shown_of_kernel();
    let mut before = rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: INTERCEPT contract: the program's arguments, valid for this call.
    let done = match unsafe { new.as_ref() } {
        Some(new) => set([new.rlim_cur, new.rlim_max], &mut before),
        None => 0,
    };
    // SAFETY: INTERCEPT contract: the program's arguments, valid for this call.
    if let (0, Some(former), Some(old)) = (done, former, unsafe { old.as_mut() }) {
        [old.rlim_cur, old.rlim_max] = former;
    }
    done
}

/// The present limits as the program is told them.
fn shown_of_kernel() -> Option<[u64; 2]> {
    let mut present = rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `present` is a local limit, to which the kernel writes during this call alone.
    let asked = unsafe { next::prlimit64(0, libc::RLIMIT_AS, null(), &raw mut present) };
    (asked == 0).then(|| shown([present.rlim_cur, present.rlim_max]))
}

macro_rules! by_prlimit64 {
    ($($(#[doc = $doc:literal])+ fn $name:ident($($argument:ident: $kind:ty),*) = ($($passed:expr),*);)+) => {
        $(
            $(#[doc = $doc])+
            ///
            /// # Safety
            ///
            /// The INTERCEPT contract of [`entry`](crate::entry).
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call. The
                // structures have the same layout.
                unsafe { prlimit64($($passed),*) }
            }
        )+
    };
}

// As libc does it, so that a filter that lets the program's calls through lets these.
by_prlimit64! {
    /// `prlimit(2)`.
    fn prlimit(process: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit)
        = (process, resource, new.cast(), old.cast());
    /// `setrlimit(2)`.
    fn setrlimit(resource: c_uint, new: *const rlimit) = (0, resource, new.cast(), null_mut());
    /// `setrlimit64(2)`.
    fn setrlimit64(resource: c_uint, new: *const rlimit64) = (0, resource, new, null_mut());
    /// `getrlimit(2)`.
    fn getrlimit(resource: c_uint, old: *mut rlimit) = (0, resource, null(), old.cast());
    /// `getrlimit64(2)`.
    fn getrlimit64(resource: c_uint, old: *mut rlimit64) = (0, resource, null(), old);
}
