//! packetdrill's functions: from C's arguments to the node's calls and back.
//!
//! This module decides only what the form of the interface demands.
//!
//! # The INTERFACE contract
//!
//! packetdrill calls these functions through the table that [`table`] has filled. `user` is the
//! node of that table, and `free` has not taken it back; it stays valid until the call returns.
//! Each pointer is null, or valid for reads and writes of the length that comes with it, until the
//! call returns. A message's parts, name and control area are valid in the same way. No other code
//! uses that memory meanwhile, except for the node, which threads share. No function keeps a
//! pointer after it has returned.

mod network;
mod options;
mod receive;
mod send;
mod wait;

use crate::abi::{Interface, User};
use crate::node::{Node, State};
use crate::sockets::{Direction, patience_of};
use core::ffi::{c_int, c_void};
use libc::{sockaddr, socklen_t, ssize_t};
use toehold_posix::address;
use toehold_posix::errno::{Errno, Outcome};

/// The table for a node, which becomes the table's.
pub(crate) fn table(node: Box<Node>) -> Interface {
    Interface {
        userdata: Box::into_raw(node).cast(),
        free,
        socket,
        bind,
        listen,
        accept,
        connect,
        read: receive::read,
        readv: receive::readv,
        recv: receive::recv,
        recvfrom: receive::recvfrom,
        recvmsg: receive::recvmsg,
        write: send::write,
        writev: send::writev,
        send: send::send,
        sendto: send::sendto,
        sendmsg: send::sendmsg,
        fcntl: options::fcntl,
        ioctl: options::ioctl,
        close: options::close,
        shutdown: options::shutdown,
        getsockopt: options::getsockopt,
        setsockopt: options::setsockopt,
        poll: wait::poll,
        netdev_send: network::netdev_send,
        netdev_receive: network::netdev_receive,
        usleep: network::usleep,
        gettimeofday: network::gettimeofday,
        epoll_create: wait::epoll_create,
        epoll_ctl: wait::epoll_ctl,
        epoll_wait: wait::epoll_wait,
        pipe: network::pipe,
        splice: network::splice,
    }
}

/// A result as C has it: −1 and `errno` for an error.
trait Answer {
    const FAILED: Self;
}

impl Answer for c_int {
    const FAILED: Self = -1;
}

impl Answer for ssize_t {
    const FAILED: Self = -1;
}

fn answer<T: Answer>(outcome: Outcome<T>) -> T {
    outcome.unwrap_or_else(|Errno(number)| {
        // SAFETY: the address is that of this thread's `errno`.
        unsafe { *libc::__errno_location() = number };
        T::FAILED
    })
}

fn count(outcome: Outcome<usize>) -> ssize_t {
    answer(outcome.map(|number| number as ssize_t))
}

fn done(outcome: Outcome<()>) -> c_int {
    answer(outcome.map(|()| 0))
}

/// The node behind `userdata`.
///
/// # Safety
///
/// `user` comes from [`table`] and has not been freed.
unsafe fn node<'a>(user: User) -> &'a Node {
    // SAFETY: `user` comes from `table` and is not freed yet, as the caller guarantees. Threads
    // share the node behind it, and nothing borrows it mutably.
    unsafe { &*user.cast::<Node>() }
}

/// Bytes a program passes.
///
/// # Safety
///
/// `bytes` is null or readable for `len` bytes.
unsafe fn input<'a>(bytes: *const c_void, len: usize) -> Outcome<&'a [u8]> {
    match (bytes.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno::FAULT),
        // SAFETY: `bytes` is not null, so it is readable for `len` bytes for as long as the caller
        // uses them, as this function's `# Safety` section demands.
        (false, _) => Ok(unsafe { core::slice::from_raw_parts(bytes.cast(), len) }),
    }
}

/// Room a program passes.
///
/// # Safety
///
/// `bytes` is null or writable for `len` bytes that nothing else refers to.
unsafe fn output<'a>(bytes: *mut c_void, len: usize) -> Outcome<&'a mut [u8]> {
    match (bytes.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Errno::FAULT),
        // SAFETY: `bytes` is not null, so it is writable for `len` bytes for as long as the caller
        // uses them, as this function's `# Safety` section demands.
        (false, _) => Ok(unsafe { core::slice::from_raw_parts_mut(bytes.cast(), len) }),
    }
}

unsafe extern "C" fn free(user: User) {
    // SAFETY: the node was boxed by `table`, and this is the last call.
    drop(unsafe { Box::from_raw(user.cast::<Node>()) });
}

unsafe extern "C" fn socket(user: User, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: INTERFACE contract: `user` is valid until this call returns.
    let node = unsafe { node(user) };
    answer(node.call(|state| state.socket(domain, kind, protocol)))
}

unsafe extern "C" fn bind(user: User, fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: INTERFACE contract: `user` and `to` are valid until this call returns.
    let (node, to) = unsafe { (node(user), address::read(to, len)) };
    done(to.and_then(|to| node.call(|state| state.bind(fd, to))))
}

unsafe extern "C" fn listen(user: User, fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: INTERFACE contract: `user` is valid until this call returns.
    let node = unsafe { node(user) };
    done(node.call(|state| state.listen(fd, backlog)))
}

unsafe extern "C" fn accept(user: User, fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: INTERFACE contract: `user` is valid until this call returns.
    let node = unsafe { node(user) };
    let patience = |state: &mut State| patience_of(&mut state.descriptors, fd, Direction::Receive, 0);
    let outcome = node.call_waiting(patience, |state| state.accept(fd));
    answer(outcome.map(|(accepted, peer, domain)| {
        // SAFETY: INTERFACE contract: `from` and `len` are valid until this call returns.
        unsafe { address::write(peer, domain, from, len) };
        accepted
    }))
}

unsafe extern "C" fn connect(user: User, fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: INTERFACE contract: `user` and `to` are valid until this call returns.
    let (node, to) = unsafe { (node(user), address::read(to, len)) };
    let begun = to.and_then(|to| node.call(|state| state.begin_connect(fd, to)));
    let patience = |state: &mut State| patience_of(&mut state.descriptors, fd, Direction::Send, 0);
    done(begun.and_then(|()| node.call_waiting(patience, |state| state.connected(fd))))
}
