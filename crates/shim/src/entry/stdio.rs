//! Streams of stdio on connections: libc's own functions would go past the library.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{FILE, size_t, ssize_t};

use crate::borrower::is_borrower;
use crate::file::Kind;
use crate::inside::{Inside, is_inside};
use crate::{next, table};

/// The place of the descriptor's number in glibc's structure, on 64-bit machines.
const NUMBER_AT: usize = 112;

/// The place of the pointer to bytes that have not been written yet.
const PENDING_AT: usize = 32;

/// The place of the pointer to the state for wide characters.
const WIDE_AT: usize = 160;

/// The flag in the first word of a stream that keeps nothing.
const UNBUFFERED: c_int = 2;

unsafe extern "C" fn cookie_read(cookie: *mut c_void, buffer: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: libc passes `buffer` with room for `len` bytes, and reads it only after this call.
    unsafe { super::receive::read(cookie as usize as c_int, buffer.cast(), len) }
}

unsafe extern "C" fn cookie_write(cookie: *mut c_void, buffer: *const c_char, len: size_t) -> ssize_t {
    // SAFETY: libc passes `buffer` with `len` bytes until this call returns. A failed write counts
    // as no bytes here.
    unsafe { super::send::write(cookie as usize as c_int, buffer.cast(), len) }.max(0)
}

unsafe extern "C" fn cookie_close(cookie: *mut c_void) -> c_int {
    // SAFETY: the call takes numbers alone, and no pointer.
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
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    // A socket may become a connection that is none yet.
    let is_socket = table::get(fd).is_some_and(|file| matches!(file.kind, Kind::Stream(_) | Kind::Fresh(_)));
    if !is_socket || is_inside() {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
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

/// Takes over the program's standard streams of which the numbers are connections by now.
pub(crate) fn take_all_standard() {
    if !is_inside() {
        (0..3).for_each(take_standard);
    }
}

/// Takes over the program's standard stream of a number, if that is a connection's.
pub(crate) fn take_standard(number: c_int) {
    // libc's variables are its parent's, whose numbers they are about.
    if is_borrower() {
        return;
    }
    // SAFETY: `stdin`, `stdout` and `stderr` are libc's variables, which a program may change at
    // any time by itself.
    unsafe {
        match number {
            0 => replace(&raw mut stdin, number, c"r"),
            1 => replace(&raw mut stdout, number, c"w"),
            2 => replace(&raw mut stderr, number, c"w"),
            _ => {}
        }
    }
}

unsafe extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
    fn __fpending(stream: *mut FILE) -> size_t;
    fn __fpurge(stream: *mut FILE);
    fn __flbf(stream: *mut FILE) -> c_int;
}

/// The streams in the place of the first three.
static STANDARD: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 3];

/// # Safety
///
/// `variable` is one of libc's variables, which no other code uses meanwhile.
unsafe fn replace(variable: *mut *mut FILE, number: c_int, mode: &CStr) {
    let own = &STANDARD[number as usize];
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let former = unsafe { variable.read() };
    let is_connection = table::get(number).is_some_and(|file| file.stream().is_some());
    if !is_connection || former.is_null() || own.load(Relaxed) == former {
        return;
    }
    // SAFETY: the mode is a C string, borrowed for this call. libc copies what it needs.
    let stream = unsafe { fdopen(number, mode.as_ptr()) };
    if !stream.is_null() {
        // SAFETY: both are streams of libc's, and no other code uses them yet, or any more.
        unsafe { succeed(stream, former) };
        own.store(stream, Relaxed);
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        unsafe { variable.write(stream) };
    }
}

/// Buffers as a former stream does, and has what that one has not written yet.
///
/// # Safety
///
/// Both are streams of libc's, which no other code uses.
unsafe fn succeed(stream: *mut FILE, former: *mut FILE) {
    // SAFETY: `former` is a structure of libc's that begins with its flags, and that no other code
    // uses during this call.
    let flags = unsafe { former.cast::<c_int>().read() };
    // SAFETY: `former` is an open stream of libc's that no other code uses during this call.
    let mode = match unsafe { __flbf(former) } {
        0 if flags & UNBUFFERED != 0 => libc::_IONBF,
        0 => libc::_IOFBF,
        _ => libc::_IOLBF,
    };
    // SAFETY: what is pending lies at the stream's pointer, and is written to one that is empty.
    unsafe {
        libc::setvbuf(stream, core::ptr::null_mut(), mode, 0);
        let pending = __fpending(former);
        if pending > 0 {
            let at = former.cast::<u8>().add(PENDING_AT).cast::<*const c_void>().read();
            libc::fwrite(at, 1, pending, stream);
            __fpurge(former);
        }
    }
}

/// `fclose(3)`. Of other sockets libc closes the number in its own way.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    // SAFETY: INTERCEPT contract: `stream` is an open stream of the program's until it is closed
    // below.
    let number = unsafe { libc::fileno(stream) };
    let is_stream = table::get(number).is_some_and(|file| file.stream().is_some());
    if is_stream || !table::has(number) || is_inside() {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        return unsafe { next::fclose(stream) };
    }
    let _inside = Inside::enter();
    let _file = super::descriptors::forget(number);
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { next::fclose(stream) }
}

/// `freopen(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { reopened(stream, || next::freopen(path, mode, stream)) }
}

/// `freopen(3)` of programs with large files.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { reopened(stream, || next::freopen64(path, mode, stream)) }
}

/// Has libc open a stream again. What its number was ends, whether libc can do so or not.
///
/// # Safety
///
/// The stream is one of the program's.
unsafe fn reopened(stream: *mut FILE, reopen: impl FnOnce() -> *mut FILE) -> *mut FILE {
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let number = unsafe { libc::fileno(stream) };
    if !table::has(number) || is_inside() {
        return reopen();
    }
    // What cannot be written is lost, as there.
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    unsafe { libc::fflush(stream) };
    let _inside = Inside::enter();
    // SAFETY: `stream` is an open stream of libc's, as the caller guarantees, and its number is
    // still a socket.
    unsafe { make_plain(stream, number) };
    let _file = super::descriptors::forget(number);
    for own in &STANDARD {
        let _ = own.compare_exchange(stream, core::ptr::null_mut(), Relaxed, Relaxed);
    }
    reopen()
}

/// Makes one of the streams above one that libc can open again. libc expects state for wide characters, which
/// such a stream lacks. The state of another stream, which is never closed, takes its place.
///
/// # Safety
///
/// `stream` is a stream of libc's, of an open number.
unsafe fn make_plain(stream: *mut FILE, number: c_int) {
    const NONE: usize = usize::MAX;
    let wide = |stream: *mut FILE| stream.cast::<u8>().wrapping_add(WIDE_AT).cast::<*mut c_void>();
    // SAFETY: `stream` is a structure of libc's with a pointer at that place. No other code uses it
    // during this call.
    if unsafe { wide(stream).read() }.addr() != NONE {
        return;
    }
    // SAFETY: the mode is a C string, borrowed for this call. libc copies what it needs.
    let other = unsafe { next::fdopen(number, c"r".as_ptr()) };
    let instead = match other.is_null() {
        true => core::ptr::null_mut(),
        // SAFETY: as above, and the stream has no fd any more, so no other code reads or closes it.
        false => unsafe {
            other.cast::<u8>().add(NUMBER_AT).cast::<c_int>().write(-1);
            wide(other).read()
        },
    };
    // SAFETY: `stream` is a structure of libc's with a pointer at that place. No other code uses it
    // during this call.
    unsafe { wide(stream).write(instead) };
}
