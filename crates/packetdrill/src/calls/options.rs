//! A descriptor's end, and its options.

use super::{answer, done, input, node, output};
use crate::abi::User;
use core::ffi::{c_int, c_ulong, c_void};
use libc::socklen_t;
use toehold_posix::errno::Errno;

pub(super) unsafe extern "C" fn fcntl(user: User, fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: INTERFACE contract: `user` is valid until this call returns.
    let node = unsafe { node(user) };
    answer(node.call(|state| state.fcntl(fd, command, argument)))
}

pub(super) unsafe extern "C" fn ioctl(user: User, fd: c_int, request: c_ulong, value: *mut c_int) -> c_int {
    // SAFETY: INTERFACE contract: `user` is valid until this call returns.
    let node = unsafe { node(user) };
    let outcome = node.call(|state| state.ioctl(fd, request));
    answer(outcome.map(|number| {
        // SAFETY: INTERFACE contract: the requests that succeed take an int at `value`, which is
        // valid until this call returns.
        unsafe { value.write(number) };
        0
    }))
}

pub(super) unsafe extern "C" fn close(user: User, fd: c_int) -> c_int {
    // SAFETY: INTERFACE contract: `user` is valid until this call returns.
    let node = unsafe { node(user) };
    done(node.call(|state| state.close(fd)))
}

pub(super) unsafe extern "C" fn shutdown(user: User, fd: c_int, how: c_int) -> c_int {
    // SAFETY: INTERFACE contract: `user` is valid until this call returns.
    let node = unsafe { node(user) };
    done(node.call(|state| state.shutdown(fd, how)))
}

pub(super) unsafe extern "C" fn getsockopt(
    user: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let outcome = (|| {
        // SAFETY: INTERFACE contract: `user` and `len` are valid until this call returns.
        let (node, len) = unsafe { (node(user), len.as_mut().ok_or(Errno::FAULT)?) };
        let bytes = node.call(|state| state.option(fd, level, name))?;
        // SAFETY: INTERFACE contract: `value` is valid until this call returns.
        let room = unsafe { output(value, *len as usize) }?;
        let used = bytes.len().min(room.len());
        room[..used].copy_from_slice(&bytes[..used]);
        *len = used as socklen_t;
        Ok(())
    })();
    done(outcome)
}

pub(super) unsafe extern "C" fn setsockopt(
    user: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: INTERFACE contract: `user` and `value` are valid until this call returns.
    let (node, value) = unsafe { (node(user), input(value, len as usize)) };
    done(value.and_then(|value| node.call(|state| state.set_option(fd, level, name, value))))
}
