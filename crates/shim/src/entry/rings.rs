//! Rings of io_uring(7). With one, a program would call the kernel past this library, and wait at descriptors
//! that nothing ever comes to. So there are no rings, as with a kernel that was built without them. A program
//! that asks for one has another way, since many kernels forbid them. `toehold run --io-uring allow` leaves
//! them to the program.
//!
//! liburing makes its system calls by instructions of its own. So its functions that make a ring are stood in for;
//! they return an error's number below zero.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libc::size_t;
use toehold_node::run::{ALLOW, IO_URING};
use toehold_node::why::Reason;

use crate::inside::{Inside, is_inside};
use crate::usage::{Counter, count};
use crate::{next, node, relay, start};

static ALLOWED: AtomicBool = AtomicBool::new(false);

/// Reads from the environment whether the launcher allows them, before the program may clear it.
pub(crate) fn hear() {
    let said = std::env::var_os(IO_URING);
    ALLOWED.store(said.is_some_and(|said| said == ALLOW), Relaxed);
}

/// Whether the program gets none. That is counted; of a program that gets one, the engine is told once.
pub(super) fn is_refused() -> bool {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !start::is_wanted() || is_inside() {
        return false;
    }
    let refused = !ALLOWED.load(Relaxed);
    if refused {
        count(Counter::IoUring, 1);
    } else if !TOLD.swap(true, Relaxed) {
        let _inside = Inside::enter();
        node::tell(&relay::own_name(), Reason::IoUring);
    }
    refused
}

macro_rules! makers {
    ($($(#[doc = $doc:literal])+ $name:ident($($argument:ident: $kind:ty),*);)+) => {
        $(
            $(#[doc = $doc])+
            ///
            /// # Safety
            ///
            /// The INTERCEPT contract of [`entry`](crate::entry).
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                match is_refused() {
                    true => -libc::ENOSYS,
                    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
                    false => unsafe { next::$name($($argument),*) },
                }
            }
        )+
    };
}

makers! {
    /// `io_uring_queue_init(3)`.
    io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint);
    /// `io_uring_queue_init_params(3)`.
    io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void);
    /// `io_uring_queue_init_try_nosqarr`, which liburing has for itself and its tests.
    io_uring_queue_init_try_nosqarr(entries: c_uint, ring: *mut c_void, parameters: *mut c_void);
    /// `io_uring_queue_init_mem(3)`.
    io_uring_queue_init_mem(
        entries: c_uint,
        ring: *mut c_void,
        parameters: *mut c_void,
        memory: *mut c_void,
        len: size_t
    );
    /// `io_uring_setup(2)`, as liburing has it.
    io_uring_setup(entries: c_uint, parameters: *mut c_void);
}

/// `io_uring_get_probe(3)`, which makes a ring to ask for the kernel's operations. Null stands for
/// none.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn io_uring_get_probe() -> *mut c_void {
    match is_refused() {
        true => core::ptr::null_mut(),
        // SAFETY: `io_uring_get_probe` takes no argument, and returns null or memory that the
        // caller frees.
        false => unsafe { next::io_uring_get_probe() },
    }
}
