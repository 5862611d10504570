//! Streams of stdio on connections: libc's own functions do not come by ours.

use core::ffi::{CStr, c_char, c_int, c_void};

use libc::{FILE, size_t, ssize_t};

use crate::inside::{Inside, is_inside};
use crate::{next, table};

/// Where in glibc's structure the descriptor's number is, on 64-bit machines.
const NUMBER_AT: usize = 112;

unsafe extern "C" fn cookie_read(cookie: *mut c_void, buffer: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: libc passes its buffer.
    unsafe { super::receive::read(cookie as usize as c_int, buffer.cast(), len) }
}

unsafe extern "C" fn cookie_write(cookie: *mut c_void, buffer: *const c_char, len: size_t) -> ssize_t {
    // SAFETY: libc passes its buffer. What failed is no bytes here.
    unsafe { super::send::write(cookie as usize as c_int, buffer.cast(), len) }.max(0)
}

unsafe extern "C" fn cookie_close(cookie: *mut c_void) -> c_int {
    // SAFETY: a plain number.
    unsafe { super::descriptors::close(cookie as usize as c_int) }
}

#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int>,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

/// `fdopen(3)`.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    let is_stream = table::get(fd).is_some_and(|file| file.stream().is_some());
    if !is_stream || is_inside() {
        // SAFETY: as the program passed it.
        return unsafe { next::fdopen(fd, mode) };
    }
    let functions = Functions {
        read: cookie_read,
        write: cookie_write,
        seek: None,
        close: cookie_close,
    };
    // SAFETY: the mode is the program's, the functions are of the types that libc expects.
    let stream = unsafe { fopencookie(fd as usize as *mut c_void, mode, functions) };
    if !stream.is_null() {
        // SAFETY: the structure is libc's and has the number there; `fileno` reads it.
        unsafe { stream.cast::<u8>().add(NUMBER_AT).cast::<c_int>().write(fd) };
    }
    stream
}

/// The program's standard streams, if its standard descriptors are connections.
pub(crate) fn take_standard(number: c_int) {
    // SAFETY: libc's variables, which programs may change as well; nobody else runs yet.
    unsafe {
        match number {
            0 => replace(&raw mut stdin, number, c"r"),
            1 => replace(&raw mut stdout, number, c"w"),
            2 => {
                replace(&raw mut stderr, number, c"w");
                libc::setvbuf(stderr, core::ptr::null_mut(), libc::_IONBF, 0);
            }
            _ => {}
        }
    }
}

unsafe extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

/// # Safety
///
/// It is one of libc's variables, which nobody uses meanwhile.
unsafe fn replace(variable: *mut *mut FILE, number: c_int, mode: &CStr) {
    // SAFETY: the mode is a C string.
    let stream = unsafe { fdopen(number, mode.as_ptr()) };
    if !stream.is_null() {
        // SAFETY: the caller says so.
        unsafe { variable.write(stream) };
    }
}

/// `fclose(3)`. Of other sockets libc closes the number in its own way.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    // SAFETY: the program passes one of its streams.
    let number = unsafe { libc::fileno(stream) };
    let is_stream = table::get(number).is_some_and(|file| file.stream().is_some());
    if !is_stream && table::has(number) && !is_inside() {
        let _inside = Inside::enter();
        super::descriptors::forget(number);
    }
    // SAFETY: as the program passed it.
    unsafe { next::fclose(stream) }
}
