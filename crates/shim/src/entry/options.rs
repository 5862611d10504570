//! `getsockopt` and `setsockopt`.

use core::ffi::{c_int, c_void};

use libc::socklen_t;
use toehold_posix::errno::{Errno, Outcome};

use crate::answer::answer;
use crate::file::Kind;
use crate::inside::{Inside, is_inside};
use crate::socket::{Stream, Value};
use crate::{next, table};

/// Bytes of an option's value that are looked at, at most.
const LONGEST: usize = 256;

/// `setsockopt(2)`.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let Some(file) = table::get(fd).filter(|_| !is_inside()) else {
        // SAFETY: what is not ours is as it was.
        return unsafe { next::setsockopt(fd, level, name, value, len) };
    };
    let _inside = Inside::enter();
    let bytes = if value.is_null() {
        &[]
    } else {
        // SAFETY: the program passes a value of that length.
        unsafe { core::slice::from_raw_parts(value.cast::<u8>(), (len as usize).min(LONGEST)) }
    };
    if let Kind::Stream(stream) = &file.kind {
        if value.is_null() && len > 0 {
            return answer(Err(Errno::FAULT));
        }
        if let Some(outcome) = stream.set_option(level, name, bytes) {
            return answer(outcome);
        }
    }
    // SAFETY: as the program passed it.
    let set = unsafe { next::setsockopt(fd, level, name, value, len) };
    if set == 0 {
        match &file.kind {
            Kind::Fresh(fresh) => fresh.note_option(level, name, bytes),
            Kind::Listener(listener) => listener.note_option(level, name, bytes),
            Kind::Stream(_) | Kind::Epoll(_) => {}
        }
    }
    set
}

/// `getsockopt(2)`.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let file = table::get(fd).filter(|_| !is_inside());
    if let Some(stream) = file.as_ref().and_then(|file| file.stream()) {
        let _inside = Inside::enter();
        // SAFETY: the program passes room of that length.
        if let Some(outcome) = unsafe { get(stream, (level, name), value, len) } {
            return answer(outcome);
        }
    }
    // SAFETY: what is not ours is as it was.
    unsafe { next::getsockopt(fd, level, name, value, len) }
}

/// `None`: the option is one of the descriptor's.
///
/// # Safety
///
/// `value` and `len` are null, or `len` is readable and writable and `value` writable for as
/// many bytes as it says.
unsafe fn get(
    stream: &Stream,
    (level, name): (c_int, c_int),
    value: *mut c_void,
    len: *mut socklen_t,
) -> Option<Outcome<c_int>> {
    if value.is_null() || len.is_null() {
        return Some(Err(Errno::FAULT));
    }
    // SAFETY: the caller says so.
    let Ok(room) = usize::try_from(unsafe { len.read() } as i32) else {
        return Some(Err(Errno::INVAL));
    };
    match stream.option(level, name) {
        Ok(Value::Descriptor) => None,
        Ok(Value::Bytes(bytes)) => {
            let used = bytes.len().min(room);
            // SAFETY: there is room for so many.
            unsafe {
                value.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), used);
                len.write(used as socklen_t);
            }
            Some(Ok(0))
        }
        Err(errno) => Some(Err(errno)),
    }
}
