//! Waiting for readiness.

use super::{answer, done, node};
use crate::abi::User;
use crate::node::{Patience, State};
use core::ffi::c_int;
use core::time::Duration;
use libc::{epoll_event, nfds_t, pollfd};
use toehold_posix::errno::{Errno, Outcome};

pub(super) unsafe extern "C" fn poll(user: User, fds: *mut pollfd, number: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: INTERFACE contract: `user` and `fds` are valid until this call returns.
    let (node, fds) = unsafe {
        let fds: &mut [pollfd] = if number == 0 {
            &mut []
        } else {
            core::slice::from_raw_parts_mut(fds, number as usize)
        };
        (node(user), fds)
    };
    let outcome = node.call_waiting(
        |_| Ok(milliseconds(timeout)),
        |state| {
            let mut ready = 0;
            for entry in fds.iter_mut() {
                let always = libc::POLLERR | libc::POLLHUP;
                entry.revents = match state.poll_bits(entry.fd) {
                    _ if entry.fd < 0 => 0,
                    Ok(bits) => bits & (entry.events | always),
                    Err(_) => libc::POLLNVAL,
                };
                ready += c_int::from(entry.revents != 0);
            }
            if ready == 0 { Err(Errno::AGAIN) } else { Ok(ready) }
        },
    );
    answer(none_if_over(outcome))
}

/// A poll that ends with its time has found nothing, which is no error.
fn none_if_over(outcome: Outcome<c_int>) -> Outcome<c_int> {
    if outcome == Err(Errno::AGAIN) {
        Ok(0)
    } else {
        outcome
    }
}

fn milliseconds(timeout: c_int) -> Patience {
    match u64::try_from(timeout) {
        Ok(0) => Patience::None,
        Ok(timeout) => Patience::For(Duration::from_millis(timeout)),
        Err(_) => Patience::Endless,
    }
}

pub(super) unsafe extern "C" fn epoll_create(user: User, size: c_int) -> c_int {
    // SAFETY: INTERFACE contract: `user` is valid until this call returns.
    let node = unsafe { node(user) };
    if size <= 0 {
        return done(Err(Errno::INVAL));
    }
    answer(node.call(State::epoll_create))
}

pub(super) unsafe extern "C" fn epoll_ctl(
    user: User,
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: INTERFACE contract: `user` and `event` are valid until this call returns. Removal
    // needs no event.
    let (node, event) = unsafe {
        let event = if event.is_null() {
            None
        } else {
            Some(event.read_unaligned())
        };
        (node(user), event)
    };
    if event.is_none() && operation != libc::EPOLL_CTL_DEL {
        return done(Err(Errno::FAULT));
    }
    let (events, data) = event.map_or((0, 0), |event| (event.events, event.u64));
    done(node.call(|state| {
        if !state.descriptors.contains(fd) {
            return Err(Errno::BADF);
        }
        state.descriptors.epoll(set)?.control(operation, fd, events, data)
    }))
}

pub(super) unsafe extern "C" fn epoll_wait(
    user: User,
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: INTERFACE contract: `user` is valid until this call returns.
    let node = unsafe { node(user) };
    let Some(most) = usize::try_from(most).ok().filter(|most| *most > 0) else {
        return done(Err(Errno::INVAL));
    };
    let outcome = node.call_waiting(
        |_| Ok(milliseconds(timeout)),
        |state| state.epoll_ready(set, most),
    );
    let outcome = outcome.map(|ready| {
        for (place, ready) in ready.iter().enumerate() {
            let event = epoll_event {
                events: ready.events,
                u64: ready.data,
            };
            // SAFETY: there is room for `most` events, and no more are ready.
            unsafe { events.add(place).write_unaligned(event) };
        }
        ready.len() as c_int
    });
    answer(none_if_over(outcome))
}
