//! Readiness in the words of `epoll(7)` and `poll(2)`, which use the same bits.

use toehold_socket::{Event, Interest};

/// What is watched for.
pub(crate) fn interest(events: u32) -> Interest {
    let bits = [
        (libc::EPOLLIN | libc::EPOLLRDNORM, Interest::READABLE),
        (libc::EPOLLOUT | libc::EPOLLWRNORM, Interest::WRITABLE),
        (libc::EPOLLPRI | libc::EPOLLRDBAND, Interest::PRIORITY),
        (libc::EPOLLRDHUP, Interest::READ_CLOSED),
        (libc::EPOLLET, Interest::EDGE),
        (libc::EPOLLONESHOT, Interest::ONE_SHOT),
        (libc::EPOLLEXCLUSIVE, Interest::EXCLUSIVE),
    ];
    let asked = bits.iter().filter(|(bits, _)| events & *bits as u32 != 0);
    asked.fold(Interest::none(), |interest, (_, one)| interest | *one)
}

/// What has happened.
pub(crate) fn told(event: &Event) -> u32 {
    let bits = [
        (event.is_readable(), libc::EPOLLIN | libc::EPOLLRDNORM),
        (event.is_writable(), libc::EPOLLOUT | libc::EPOLLWRNORM),
        (event.is_priority(), libc::EPOLLPRI),
        (event.is_read_closed(), libc::EPOLLRDHUP),
        (event.is_write_closed(), libc::EPOLLHUP),
        (event.is_error(), libc::EPOLLERR),
    ];
    let told = bits.iter().filter(|(is_told, _)| *is_told);
    told.fold(0, |events, (_, bits)| events | *bits as u32)
}
