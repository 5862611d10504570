//! Descriptors that a program gives to another process, over a Unix socket or by `exec`.

use core::ffi::c_int;
use std::ffi::CString;

use libc::msghdr;

use crate::file::{File, Kind};
use crate::inside::Inside;
use crate::memory::is_readable;
use crate::{inherited, node, table};

/// Notes that connections are in a message, if there are any.
///
/// # Safety
///
/// The message is one that a program passes to `sendmsg`.
pub(crate) unsafe fn note(message: &msghdr) {
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    for number in unsafe { numbers(message) } {
        let Some(file) = table::get(number) else { continue };
        share(&file, number);
        give(&file);
        if let Kind::Listener(listener) = &file.kind {
            let _inside = Inside::enter();
            listener.give(number);
        }
    }
}

/// Prepares a listener, or a socket that may become one, for another process that will have it.
fn share(file: &File, number: c_int) {
    match &file.kind {
        Kind::Listener(listener) => listener.mode.share(number),
        Kind::Fresh(fresh) => fresh.note_shared(),
        _ => {}
    }
}

/// Makes connections of those that were in a message.
///
/// # Safety
///
/// The message is one that `recvmsg` has filled in.
pub(crate) unsafe fn received(message: &msghdr) {
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let numbers = unsafe { numbers(message) };
    if !numbers.is_empty() {
        let _inside = Inside::enter();
        numbers.into_iter().for_each(inherited::look_at);
    }
}

/// The descriptors in a message.
///
/// # Safety
///
/// Its control messages are as it says.
unsafe fn numbers(message: &msghdr) -> Vec<c_int> {
    let mut numbers = Vec::new();
    let control = message.msg_control.cast::<u8>();
    if control.is_null() || !is_readable(control, message.msg_controllen) {
        return numbers;
    }
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: `header` is null, or points to a header in the control area of `message`, which is
    // borrowed for this call.
    while let Some(control) = unsafe { header.as_ref() } {
        if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: `CMSG_LEN` only calculates, and takes no pointer.
            let head = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = control.cmsg_len.saturating_sub(head) / size_of::<c_int>();
            // SAFETY: `count` numbers follow the header in the control area of `message`, which is
            // borrowed for this call.
            let number = |index| unsafe {
                libc::CMSG_DATA(control)
                    .cast::<c_int>()
                    .add(index)
                    .read_unaligned()
            };
            numbers.extend((0..count).map(number));
        }
        // SAFETY: `control` is a header in the control area of `message`, which is borrowed for
        // this call.
        header = unsafe { libc::CMSG_NXTHDR(message, control) };
    }
    numbers
}

/// Gives another program all connections that are not closed on `exec`, and the descriptors `given`
/// besides.
pub(crate) fn give_all(given: &[c_int]) {
    for number in table::used() {
        let is_given = || given.contains(&number) || survives(number);
        if let Some(file) = table::get(number).filter(|_| is_given()) {
            give(&file);
            if let Kind::Fresh(fresh) = &file.kind {
                fresh.note_shared();
            }
        }
    }
}

/// Prepares all listeners for a child, which will have them.
pub(crate) fn before_fork() {
    for number in table::used() {
        if let Some(file) = table::get(number) {
            share(&file, number);
        }
    }
}

/// The variable of the environment by which another program finds its listeners, if it
/// inherits any.
pub(crate) fn listeners() -> Option<CString> {
    let inherited = table::used().into_iter().filter(|&number| survives(number));
    let listeners = inherited.filter_map(|number| {
        let file = table::get(number)?;
        matches!(file.kind, Kind::Listener(_)).then_some((number, file))
    });
    let listeners: Vec<_> = listeners.collect();
    // A program that could not take the node's listener from the list would keep it open for ever.
    if listeners.is_empty() || !node::can_be_reached() {
        return None;
    }
    let pairs = listeners.iter().filter_map(|(number, file)| {
        let Kind::Listener(listener) = &file.kind else {
            return None;
        };
        Some(format!("{number}:{}", listener.pass_on()?))
    });
    let pairs: Vec<String> = pairs.collect();
    let variable = format!("{}={}", inherited::LISTENERS, pairs.join(","));
    CString::new(variable).ok().filter(|_| !pairs.is_empty())
}

/// Whether a descriptor survives `exec`.
pub(crate) fn survives(number: c_int) -> bool {
    let flags = rustix::io::fcntl_getfd(table::borrow(&number));
    flags.is_ok_and(|flags| !flags.contains(rustix::io::FdFlags::CLOEXEC))
}

/// Prepares a file for another process that will have it.
fn give(file: &File) {
    if let Some(stream) = file.stream() {
        stream.note_shared();
    }
}
