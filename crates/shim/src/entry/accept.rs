//! `accept` and `accept4`.

use core::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{sockaddr, sockaddr_storage, socklen_t};
use toehold_posix::address::{self, Passed};
use toehold_posix::errno::{Errno, Outcome};

use super::names::room_for_name;
use super::waiting;
use crate::answer::{answer, errno, outcome};
use crate::file::{File, Kind};
use crate::inside::is_outermost;
use crate::socket::{Forwarded, ForwardedPeers, InheritedListener, Mode, Place, Relayed, plain};
use crate::usage::{Counter, count};
use crate::{next, signals, table, wait};

/// `accept(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { accept_by(Way::Plain, fd, from, len) }
}

/// `accept4(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn accept4(
    fd: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { accept_by(Way::Flags(flags), fd, from, len) }
}

/// The call of the two that the program makes. A filter of system calls may know that one and no
/// other.
#[derive(Clone, Copy)]
enum Way {
    Plain,
    Flags(c_int),
}

impl Way {
    fn flags(self) -> c_int {
        match self {
            Way::Plain => 0,
            Way::Flags(flags) => flags,
        }
    }

    /// Calls libc's function.
    ///
    /// # Safety
    ///
    /// The INTERCEPT contract of [`entry`](crate::entry), for the pointers of `accept4(2)`.
    unsafe fn next(self, fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int {
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        unsafe {
            match self {
                Way::Plain => next::accept(fd, from, len),
                Way::Flags(flags) => next::accept4(fd, from, len, flags),
            }
        }
    }
}

/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the pointers of `accept4(2)`.
unsafe fn accept_by(way: Way, fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int {
    signals::begin();
    let mut patience = Patience::default();
    loop {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        match waiting(|| unsafe { accept_from(way, fd, (from, len), &mut patience) }) {
            Ok(Some(number)) => {
                super::stdio::take_standard(number);
                return number;
            }
            // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this
            // call.
            Ok(None) => match unsafe { way.next(fd, from, len) } {
                -1 if errno() == libc::EAGAIN && Mode::is_of_another(fd) => {
                    if let Err(errno) = wait_for_kernels(fd, &mut patience) {
                        return answer(Err(errno));
                    }
                }
                accepted => return accepted,
            },
            // Nor does a call whose time is limited go on after a signal (signal(7)).
            Err(Errno::INTR) if signals::restarts() && !patience.is_limited() => {}
            Err(errno) => return answer(Err(errno)),
        }
    }
}

/// The time that a call waits for a connection, which it asks for when it first has to wait
/// (SO_RCVTIMEO of the listener).
#[derive(Default)]
struct Patience {
    /// The deadline, once it was asked for. `Some(None)` means as long as it takes.
    deadline: Option<Option<Instant>>,
}

impl Patience {
    /// How much of the socket's time is left.
    ///
    /// # Errors
    ///
    /// EAGAIN if no time is left.
    #[cold]
    fn left(&mut self, fd: c_int) -> Outcome<Option<Duration>> {
        let deadline = *self.deadline.get_or_insert_with(|| {
            let timeout = rustix::net::sockopt::Timeout::Recv;
            let span = rustix::net::sockopt::socket_timeout(table::borrow(&fd), timeout);
            span.ok().flatten().map(|span| Instant::now() + span)
        });
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match left {
            Some(Duration::ZERO) => Err(Errno::AGAIN),
            left => Ok(left),
        }
    }

    fn is_limited(&self) -> bool {
        self.deadline.flatten().is_some()
    }
}

/// Waits until the kernel has a connection for a listener, or no time is left.
#[cold]
fn wait_for_kernels(fd: c_int, patience: &mut Patience) -> Outcome<()> {
    let mut state = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let left = patience.left(fd)?;
    let millis = left.map_or(-1, |left| {
        left.as_micros().div_ceil(1000).try_into().unwrap_or(c_int::MAX)
    });
    // SAFETY: `state` is one local `pollfd`, which only the kernel writes to during this call.
    match outcome(unsafe { next::poll(&mut state, 1, millis) }) {
        Err(Errno::INTR) if signals::restarts() && !patience.is_limited() => Ok(()),
        waited => waited.map(drop),
    }
}

/// Accepts from a listener of the node's. Returns `None` if the descriptor is none.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the pointers of `accept4(2)`.
unsafe fn accept_from(
    way: Way,
    fd: c_int,
    (from, len): (*mut sockaddr, *mut socklen_t),
    patience: &mut Patience,
) -> Outcome<Option<c_int>> {
    let Some(file) = table::get(fd).filter(|_| is_outermost()) else {
        return Ok(None);
    };
    let listener = match &file.kind {
        Kind::Listener(listener) => listener,
        Kind::Forwarded(Forwarded { domain, behind, .. }) => {
            // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
            return unsafe { accept_behind(*behind, *domain, way, fd, (from, len)) }.map(Some);
        }
        Kind::Found(_) => {
            InheritedListener::listen(fd);
            // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
            return unsafe { accept_from(way, fd, (from, len), patience) };
        }
        Kind::Stream(_) => return Err(Errno::INVAL),
        _ => return Ok(None),
    };
    let flags = way.flags();
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Err(Errno::INVAL);
    }
    let room = match from.is_null() {
        true => Ok(()),
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        false => unsafe { room_for_name(from, len) },
    };
    loop {
        // A node that is gone leaves the kernel's.
        let has_some = listener.has_some();
        if has_some == Err(Errno::NETDOWN) && listener.again(fd).is_some() {
            // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
            return unsafe { accept_from(way, fd, (from, len), patience) };
        }
        if has_some == Ok(true) {
            // Before the connection is taken: without a number it stays where it is.
            let place = Place::like(fd)?;
            if let Ok((stream, peer)) = listener.accept() {
                listener.note_taken(fd);
                room?;
                stream.set_nonblocking(flags & libc::SOCK_NONBLOCK != 0);
                let number = place.fill(stream, flags & libc::SOCK_CLOEXEC != 0)?;
                // SAFETY: INTERCEPT contract: `from` has room of `*len` bytes until this call
                // returns.
                unsafe { address::write(peer, listener.domain, from, len) };
                count(Counter::Accepted, 1);
                return Ok(Some(number));
            }
        }
        let accepted = listener.take_kernels(fd, || match listener.behind {
            // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
            Some(behind) => unsafe { accept_behind(behind, listener.domain, way, fd, (from, len)) },
            // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
            None => outcome(unsafe { way.next(fd, from, len) }),
        });
        if accepted != Err(Errno::AGAIN) || !listener.mode.waits(fd) {
            count(Counter::AcceptedByKernel, accepted.is_ok().into());
            return accepted.map(Some);
        }
        // A call without a free fd waits for no connection.
        drop(Place::like(fd)?);
        let left = patience.left(fd)?;
        match wait::until_acceptable(listener, fd, left) {
            Err(Errno::NETDOWN) => wait::without_node(&[(fd, libc::POLLIN)], left)?,
            waited => waited?,
        }
    }
}

/// Accepts one of the kernel's connections, of which some are the node's. One that comes from the
/// engine is a connection of the node's, and says so.
///
/// # Errors
///
/// The errors of the kernel's `accept4(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the pointers of `accept4(2)`.
unsafe fn accept_behind(
    behind: ForwardedPeers,
    domain: c_int,
    way: Way,
    fd: c_int,
    (from, len): (*mut sockaddr, *mut socklen_t),
) -> Outcome<c_int> {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    if !from.is_null() && unsafe { room_for_name(from, len) }.is_err() {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call. The kernel
        // reports which of them is wrong.
        return outcome(unsafe { way.next(fd, from, len) });
    }
    let mut name = [0; size_of::<sockaddr_storage>()];
    let mut length = name.len() as socklen_t;
    // SAFETY: `name` is a local buffer of `length` bytes, to which the kernel writes during this
    // call alone.
    let number = outcome(unsafe { way.next(fd, name.as_mut_ptr().cast(), &mut length) })?;
    let name = &name[..name.len().min(length as usize)];
    // SAFETY: `name` is a local slice that the kernel has filled with an address.
    let behind = match unsafe { address::read(name.as_ptr().cast(), name.len() as socklen_t) } {
        Ok(Passed::Inet(peer)) => behind.connection(plain(peer)),
        _ => None,
    };
    match behind.as_ref().map(Relayed::peer) {
        // SAFETY: INTERCEPT contract: `from` has room of `*len` bytes until this call returns.
        Some(Ok(peer)) => unsafe { address::write(peer, domain, from, len) },
        // The kernel knows more of its own, as the interface that one has come by.
        // SAFETY: INTERCEPT contract: `from` has room of `*len` bytes until this call returns.
        _ => unsafe { address::write_bytes(name, from, len) },
    }
    if let Some(relayed) = behind {
        table::put(number, Arc::new(File::new(Kind::Relayed(relayed))));
    }
    Ok(number)
}
