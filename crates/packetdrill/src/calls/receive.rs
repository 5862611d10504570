//! Receiving.

use super::{count, node, output};
use crate::abi::User;
use crate::node::{Node, State};
use crate::sockets::{Direction, patience_of};
use core::ffi::{c_int, c_void};
use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use toehold_posix::errno::{Errno, Outcome};
use toehold_posix::{address, extended_error, message};
use toehold_stack::NetworkReport;

/// Control message that says how much is left to read.
const TCP_CM_INQ: c_int = 36;

fn receive_into(node: &Node, fd: c_int, into: &mut [u8], flags: c_int) -> Outcome<usize> {
    let patience = |state: &mut State| patience_of(&mut state.descriptors, fd, Direction::Receive, flags);
    let all = flags & libc::MSG_WAITALL != 0 && flags & libc::MSG_PEEK == 0;
    let mut filled = 0;
    let outcome = node.call_waiting(patience, |state| {
        let received = state.receive(fd, &mut into[filled..], flags)?;
        filled += received;
        if all && received > 0 && filled < into.len() {
            Err(Errno::AGAIN)
        } else {
            Ok(())
        }
    });
    if filled > 0 {
        Ok(filled)
    } else {
        outcome.map(|()| 0)
    }
}

pub(super) unsafe extern "C" fn read(user: User, fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: INTERFACE contract: `user` and `into` are valid until this call returns.
    unsafe { recv(user, fd, into, len, 0) }
}

pub(super) unsafe extern "C" fn readv(user: User, fd: c_int, parts: *const iovec, number: c_int) -> ssize_t {
    let outcome = (|| {
        let number = usize::try_from(number).map_err(|_| Errno::INVAL)?;
        // SAFETY: INTERFACE contract: `user` and `parts` are valid until this call returns.
        let (node, parts) = unsafe { (node(user), message::parts(parts, number)?) };
        let mut bytes = vec![0; message::room(parts)?];
        let received = receive_into(node, fd, &mut bytes, 0)?;
        // SAFETY: INTERFACE contract: `parts` is valid until this call returns.
        unsafe { message::scatter(&bytes[..received], parts) };
        Ok(received)
    })();
    count(outcome)
}

pub(super) unsafe extern "C" fn recv(
    user: User,
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: INTERFACE contract: `user` and `into` are valid until this call returns.
    let (node, into) = unsafe { (node(user), output(into, len)) };
    count(into.and_then(|into| receive_into(node, fd, into, flags)))
}

pub(super) unsafe extern "C" fn recvfrom(
    user: User,
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
    _from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: INTERFACE contract: the arguments are valid until this call returns. A stream does
    // not report a sender.
    unsafe {
        let received = recv(user, fd, into, len, flags);
        if received >= 0 && !from_len.is_null() {
            from_len.write(0);
        }
        received
    }
}

pub(super) unsafe extern "C" fn recvmsg(user: User, fd: c_int, into: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: INTERFACE contract: `user` and `into` are valid until this call returns.
    let (node, Some(into)) = (unsafe { (node(user), into.as_mut()) }) else {
        return count(Err(Errno::FAULT));
    };
    // SAFETY: INTERFACE contract: `into` is valid until this call returns.
    count(unsafe { receive_message(node, fd, into, flags) })
}

/// # Safety
///
/// The message's parts and areas are valid for their lengths.
unsafe fn receive_message(node: &Node, fd: c_int, into: &mut msghdr, flags: c_int) -> Outcome<usize> {
    if flags & libc::MSG_ERRQUEUE != 0 {
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        return unsafe { receive_report(node, fd, into) };
    }
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let parts = unsafe { message::parts(into.msg_iov, into.msg_iovlen) }?;
    let mut bytes = vec![0; message::room(parts)?];
    let received = receive_into(node, fd, &mut bytes, flags)?;
    into.msg_flags = 0;
    into.msg_namelen = 0;
    let unread = node.call(|state| state.unread(fd))?;
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    unsafe {
        message::scatter(&bytes[..received], parts);
        match unread {
            Some(unread) => message::put_control(into, libc::IPPROTO_TCP, TCP_CM_INQ, &unread.to_ne_bytes()),
            None => into.msg_controllen = 0,
        }
    }
    Ok(received)
}

/// # Safety
///
/// The message's control area is valid for its length.
unsafe fn receive_report(node: &Node, fd: c_int, into: &mut msghdr) -> Outcome<usize> {
    if let Some((report, domain)) = node.call(|state| state.take_report(fd))? {
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        return unsafe { receive_network_report(&report, domain, into) };
    }
    let (report, domain) = node.call(|state| {
        state.update_completions(fd)?;
        let socket = state.descriptors.socket(fd)?;
        let report = socket.completions.take().ok_or(Errno::AGAIN)?;
        Ok((report, socket.domain))
    })?;
    into.msg_flags = libc::MSG_ERRQUEUE;
    into.msg_namelen = 0;
    let (level, kind) = match domain {
        libc::AF_INET => (libc::SOL_IP, libc::IP_RECVERR),
        _ => (libc::SOL_IPV6, libc::IPV6_RECVERR),
    };
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    unsafe {
        message::put_control(
            into,
            level,
            kind,
            &crate::zerocopy::extended_error(report, domain),
        )
    };
    Ok(0)
}

/// # Safety
///
/// The message's parts and areas are valid for their lengths.
unsafe fn receive_network_report(report: &NetworkReport, domain: c_int, into: &mut msghdr) -> Outcome<usize> {
    let name = extended_error::name(report, domain);
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    unsafe {
        let parts = message::parts(into.msg_iov, into.msg_iovlen)?;
        let taken = report.quoted.len().min(message::room(parts)?);
        message::scatter(&report.quoted[..taken], parts);
        into.msg_flags = libc::MSG_ERRQUEUE;
        address::write_bytes(&name, into.msg_name.cast(), &raw mut into.msg_namelen);
        message::put_controls(into, &[extended_error::control(report, domain)]);
        Ok(taken)
    }
}
