//! `aio(7)`: libc's own threads read and write, by calls that do not come by ours; after
//! `io_submit(2)` the kernel does so itself. A connection that is used so is the kernel's from then on.

use core::ffi::{c_int, c_long};

use libc::{aiocb, sigevent};

use crate::inside::{Inside, is_inside};
use crate::memory::is_readable;
use crate::{next, relay, table};

/// # Safety
///
/// `request` is null or points to a request.
unsafe fn hand_over(request: *const aiocb) {
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    if let Some(request) = unsafe { request.as_ref() } {
        hand_over_number(request.aio_fildes);
    }
}

fn hand_over_number(number: c_int) {
    if !table::is_kernels(number) && !is_inside() {
        let _inside = Inside::enter();
        relay::to_kernel(number);
    }
}

/// The beginning of a request to the kernel (`struct iocb`).
#[repr(C)]
pub(super) struct Request {
    _data: u64,
    _key_and_flags: [u32; 2],
    _operation: u16,
    _priority: i16,
    number: c_int,
}

/// Prepares requests that `io_submit(2)` is about to pass to the kernel.
///
/// # Safety
///
/// `list` is null or points to so many requests.
pub(super) unsafe fn before_submit(number: c_long, list: *const *const Request) {
    for at in 0..usize::try_from(number).unwrap_or(0) {
        let place = list.wrapping_add(at);
        if !is_readable(place, 1) {
            return;
        }
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        if let Ok(request) = unsafe { super::passed(place.read()) } {
            hand_over_number(request.number);
        }
    }
}

macro_rules! requests {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        $(
            $(#[doc = $doc])+
            ///
            /// # Safety
            ///
            /// The INTERCEPT contract of [`entry`](crate::entry).
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name(request: *mut aiocb) -> c_int {
                // SAFETY: INTERCEPT contract: the program passes a request, valid for this call.
                unsafe { hand_over(request) };
                // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
                unsafe { next::$name(request) }
            }
        )+
    };
}

requests! {
    /// `aio_read(3)`.
    aio_read,
    /// `aio_read64(3)`.
    aio_read64,
    /// `aio_write(3)`.
    aio_write,
    /// `aio_write64(3)`.
    aio_write64,
}

macro_rules! lists {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        $(
            $(#[doc = $doc])+
            ///
            /// # Safety
            ///
            /// The INTERCEPT contract of [`entry`](crate::entry).
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name(
                mode: c_int,
                list: *const *mut aiocb,
                number: c_int,
                event: *mut sigevent,
            ) -> c_int {
                for at in 0..number.max(0) as usize {
                    // SAFETY: INTERCEPT contract: `list` points to so many requests, or nulls in
                    // their places, until this call returns.
                    unsafe { hand_over(list.add(at).read()) };
                }
                // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
                unsafe { next::$name(mode, list, number, event) }
            }
        )+
    };
}

lists! {
    /// `lio_listio(3)`.
    lio_listio,
    /// `lio_listio64(3)`.
    lio_listio64,
}
