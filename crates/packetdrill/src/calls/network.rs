//! The network and the clock, as the scripts have them; pipes.

use super::{count, done, input, node, output};
use crate::abi::User;
use crate::node::State;
use crate::sockets::{Direction, patience_of};
use crate::splice;
use core::ffi::{c_int, c_longlong, c_uint, c_void};
use core::time::Duration;
use libc::{loff_t, size_t, ssize_t, timeval, timezone, useconds_t};
use toehold_posix::errno::Errno;

pub(super) unsafe extern "C" fn netdev_send(user: User, packet: *const c_void, len: size_t) -> c_int {
    // SAFETY: INTERFACE contract: `user` and `packet` are valid until this call returns.
    let (node, packet) = unsafe { (node(user), input(packet, len)) };
    done(packet.map(|packet| node.inject(packet)))
}

pub(super) unsafe extern "C" fn netdev_receive(
    user: User,
    into: *mut c_void,
    len: *mut size_t,
    time_us: *mut c_longlong,
) -> c_int {
    // SAFETY: INTERFACE contract: `user`, `into` and `len` are valid until this call returns.
    // packetdrill never passes null for `len`.
    let (node, into) = unsafe { (node(user), output(into, *len)) };
    let Ok(into) = into else {
        return done(Err(Errno::FAULT));
    };
    // No packet at all is an empty one: packetdrill would ask again for ever if
    // it were an error, but nothing can come any more.
    let (packet, sent_at) = node.sniff().unwrap_or_else(|| {
        eprintln!("toehold: a packet is expected, but the stack has nothing to send and no timer that might");
        (Vec::new(), node.time_us())
    });
    let used = packet.len().min(into.len());
    into[..used].copy_from_slice(&packet[..used]);
    // SAFETY: INTERFACE contract: `len` and `time_us` are valid until this call returns.
    // packetdrill never passes null for them.
    unsafe {
        len.write(used);
        time_us.write(sent_at as c_longlong);
    }
    0
}

pub(super) unsafe extern "C" fn usleep(user: User, micros: useconds_t) -> c_int {
    // SAFETY: INTERFACE contract: `user` is valid until this call returns.
    unsafe { node(user) }.pass(Duration::from_micros(micros.into()));
    0
}

pub(super) unsafe extern "C" fn gettimeofday(user: User, time: *mut timeval, _zone: *mut timezone) -> c_int {
    // SAFETY: INTERFACE contract: `user` and `time` are valid until this call returns.
    let (node, time) = unsafe { (node(user), time.as_mut()) };
    let Some(time) = time else {
        return done(Err(Errno::FAULT));
    };
    let now = node.time_us();
    time.tv_sec = (now / 1_000_000) as libc::time_t;
    time.tv_usec = (now % 1_000_000) as libc::suseconds_t;
    0
}

pub(super) unsafe extern "C" fn pipe(_user: User, ends: *mut c_int) -> c_int {
    done(splice::pipe().map(|pair| {
        // SAFETY: INTERFACE contract: `ends` has room for two descriptors until this call returns.
        unsafe { ends.cast::<[c_int; 2]>().write(pair) };
    }))
}

pub(super) unsafe extern "C" fn splice(
    user: User,
    from: c_int,
    _from_offset: *mut loff_t,
    to: c_int,
    _to_offset: *mut loff_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: INTERFACE contract: `user` is valid until this call returns.
    let node = unsafe { node(user) };
    let dont_wait = flags & libc::SPLICE_F_NONBLOCK != 0;
    let patience = |state: &mut State| {
        let socket = if state.descriptors.contains(from) {
            from
        } else {
            to
        };
        let flags = if dont_wait { libc::MSG_DONTWAIT } else { 0 };
        patience_of(&mut state.descriptors, socket, Direction::Receive, flags)
    };
    count(node.call_waiting(patience, |state| state.splice(from, to, len)))
}
