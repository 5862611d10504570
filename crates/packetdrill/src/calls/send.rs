//! Sending.

use super::{count, input, node};
use crate::abi::User;
use crate::node::{Node, State};
use crate::sockets::{Direction, patience_of};
use core::ffi::{c_int, c_void};
use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use toehold_posix::address::{self, Passed};
use toehold_posix::errno::{Errno, Outcome};
use toehold_posix::message;

/// Sends, and connects before if that is what the flags say.
fn send_to(node: &Node, fd: c_int, bytes: &[u8], flags: c_int, to: Option<Passed>) -> Outcome<usize> {
    if flags & libc::MSG_FASTOPEN != 0 {
        node.call(|state| state.open_to_send(fd, to.unwrap_or(Passed::Unspecified)))?;
    }
    send_from(node, fd, bytes, flags & !libc::MSG_FASTOPEN)
}

/// Sends the first bytes of a socket whose SYN has waited for them.
fn send_first(node: &Node, fd: c_int, bytes: &[u8], flags: c_int) -> Outcome<usize> {
    let patience = |state: &mut State| patience_of(&mut state.descriptors, fd, Direction::Send, flags);
    let sent = node.call(|state| state.send_first(fd, bytes, flags))?;
    match node.call_waiting(patience, |state| state.connected(fd)) {
        Ok(()) if sent < bytes.len() => send_from(node, fd, &bytes[sent..], flags).map(|more| sent + more),
        Ok(()) => Ok(sent),
        Err(Errno::AGAIN) if sent > 0 => Ok(sent),
        Err(Errno::AGAIN) => Err(Errno::INPROGRESS),
        Err(error) => Err(error),
    }
}

fn send_from(node: &Node, fd: c_int, bytes: &[u8], flags: c_int) -> Outcome<usize> {
    if node.call(|state| state.is_deferred(fd))? {
        return send_first(node, fd, bytes, flags);
    }
    let patience = |state: &mut State| patience_of(&mut state.descriptors, fd, Direction::Send, flags);
    let mut sent = 0;
    let outcome = node.call_waiting(patience, |state| {
        sent += state.send(fd, &bytes[sent..], flags)?;
        if sent < bytes.len() {
            Err(Errno::AGAIN)
        } else {
            Ok(())
        }
    });
    if sent > 0 && flags & libc::MSG_ZEROCOPY != 0 {
        node.call(|state| {
            let wanted = state.descriptors.socket(fd)?.completions.wanted;
            if wanted {
                state.sent_zerocopy(fd, sent)
            } else {
                Ok(())
            }
        })?;
    }
    if sent > 0 { Ok(sent) } else { outcome.map(|()| 0) }
}

pub(super) unsafe extern "C" fn write(user: User, fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: INTERFACE contract: `user` and `from` are valid until this call returns.
    unsafe { send(user, fd, from, len, 0) }
}

pub(super) unsafe extern "C" fn writev(user: User, fd: c_int, parts: *const iovec, number: c_int) -> ssize_t {
    let outcome = (|| {
        let number = usize::try_from(number).map_err(|_| Errno::INVAL)?;
        // SAFETY: INTERFACE contract: `user` and `parts` are valid until this call returns.
        let (node, bytes) = unsafe { (node(user), message::gather(message::parts(parts, number)?)?) };
        send_from(node, fd, &bytes, 0)
    })();
    count(outcome)
}

pub(super) unsafe extern "C" fn send(
    user: User,
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: INTERFACE contract: `user` and `from` are valid until this call returns.
    let (node, from) = unsafe { (node(user), input(from, len)) };
    count(from.and_then(|from| send_to(node, fd, from, flags, None)))
}

pub(super) unsafe extern "C" fn sendto(
    user: User,
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    // SAFETY: INTERFACE contract: `user`, `from` and `to` are valid until this call returns.
    let (node, from, to) = unsafe { (node(user), input(from, len), address::read(to, to_len)) };
    // A stream goes where it is connected to, whatever address is given.
    count(from.and_then(|from| send_to(node, fd, from, flags, to.ok())))
}

pub(super) unsafe extern "C" fn sendmsg(user: User, fd: c_int, from: *const msghdr, flags: c_int) -> ssize_t {
    let outcome = (|| {
        // SAFETY: INTERFACE contract: `user` and `from` are valid until this call returns.
        let (node, from) = unsafe { (node(user), from.as_ref().ok_or(Errno::FAULT)?) };
        // SAFETY: INTERFACE contract: `from.msg_iov` is valid until this call returns.
        let bytes = unsafe { message::gather(message::parts(from.msg_iov, from.msg_iovlen)?)? };
        // SAFETY: INTERFACE contract: `from.msg_name` is valid until this call returns.
        let to = unsafe { address::read(from.msg_name.cast(), from.msg_namelen) };
        send_to(node, fd, &bytes, flags, to.ok())
    })();
    count(outcome)
}
