//! Readiness in the words of `epoll(7)` and `poll(2)`, which use the same bits.

use core::ffi::c_int;

use toehold_socket::{Event, Interest};

/// The interest of events.
pub(crate) fn interest(events: u32) -> Interest {
    let bits = [
        (libc::EPOLLIN | libc::EPOLLRDNORM, Interest::READABLE),
        (libc::EPOLLOUT | libc::EPOLLWRNORM, Interest::WRITABLE),
        (libc::EPOLLPRI, Interest::PRIORITY),
        (libc::EPOLLRDHUP, Interest::READ_CLOSED),
        (libc::EPOLLET, Interest::EDGE),
        (libc::EPOLLONESHOT, Interest::ONE_SHOT),
        (libc::EPOLLEXCLUSIVE, Interest::EXCLUSIVE),
    ];
    let asked = bits.iter().filter(|(bits, _)| events & *bits as u32 != 0);
    asked.fold(Interest::none(), |interest, (_, one)| interest | *one)
}

/// Other names of the usual events.
const SYNONYMS: c_int = libc::EPOLLRDNORM | libc::EPOLLWRNORM;

/// Whether the program wants to be told by one of the other names.
pub(crate) fn has_synonyms(events: u32) -> bool {
    events & SYNONYMS as u32 != 0
}

/// The usual events: none of the other names.
pub(crate) const USUAL: u32 = !SYNONYMS as u32;

/// The events that have happened, by the names that were asked for.
pub(crate) fn told(event: &Event, asked: u32) -> u32 {
    let mask = asked.cast_signed();
    let bits = [
        (event.is_readable(), mask & (libc::EPOLLIN | libc::EPOLLRDNORM)),
        (event.is_writable(), mask & (libc::EPOLLOUT | libc::EPOLLWRNORM)),
        (event.is_priority(), mask & libc::EPOLLPRI),
        (event.is_read_closed(), libc::EPOLLRDHUP),
        (event.is_write_closed(), libc::EPOLLHUP),
        (event.is_error(), libc::EPOLLERR),
    ];
    let told = bits.iter().filter(|(is_told, _)| *is_told);
    told.fold(0, |events, (_, bits)| events | *bits as u32)
}
