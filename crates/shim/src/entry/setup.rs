//! `socket`, `bind`, `listen`, `connect` and `shutdown`.

use core::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use libc::{sockaddr, socklen_t};
use toehold_posix::address::Passed;
use toehold_posix::errno::{Errno, Outcome};

use super::names::{check_family, read_address};
use super::on_stream;
use crate::answer::{answer, errno, outcome};
use crate::file::{File, Kind};
use crate::inside::{Inside, is_inside};
use crate::node::{self, Route};
use crate::socket::{InheritedListener, Listener, Mode, Pace, Stream, UnconnectedSocket, plain};
use crate::usage::{Counter, count};
use crate::{cancel, inherited, next, relay, signals, start, table};

/// Sockets of SMC, which go on as TCP where the peer has no such thing. libc does not name them.
const AF_SMC: c_int = 43;

/// `socket(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the call takes numbers alone, and no pointer.
    let number = unsafe { next::socket(domain, kind, protocol) };
    let is_ip = domain == libc::AF_INET || domain == libc::AF_INET6;
    let is_stream = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) == libc::SOCK_STREAM;
    if number >= 0 && (is_ip || domain == AF_SMC) && !is_inside() && start::is_wanted() {
        let _inside = Inside::enter();
        match is_ip && is_stream && UnconnectedSocket::is_carried(protocol) {
            true => {
                let fresh = UnconnectedSocket::new(domain, protocol);
                table::put(number, Arc::new(File::new(Kind::Fresh(fresh))));
            }
            false => count(Counter::NotStream, 1),
        }
    }
    number
}

/// `bind(2)`. The kernel knows which socket has which port, those of the node's own address included.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn bind(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    let Some(file) = table::get(fd).filter(|_| !is_inside()) else {
        if start::is_wanted() && !is_inside() {
            // SAFETY: INTERCEPT contract: `to` has `len` bytes until this call returns.
            unsafe { let_bind(fd, to, len) };
        }
        // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
        return unsafe { next::bind(fd, to, len) };
    };
    let _inside = Inside::enter();
    if let Kind::Fresh(fresh) = &file.kind {
        // SAFETY: INTERCEPT contract: `to` has `len` bytes until this call returns.
        let at = unsafe { let_bind(fd, to, len) };
        // The kernel says first what else is wrong: another family, or that the socket is bound.
        // SAFETY: `let_bind` has read an address at `to`, so it has a family. INTERCEPT contract:
        // it is valid until this call returns.
        let suits =
            at.filter(|_| !fresh.is_bound() && c_int::from(unsafe { (*to).sa_family }) == fresh.domain);
        if suits.is_some_and(|at| fresh.is_port_taken(fd, at)) {
            return answer(Err(Errno::ADDRINUSE));
        }
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        let bound = unsafe { next::bind(fd, to, len) };
        if bound == 0 {
            fresh.note_bound(at.is_some_and(|at| at.port() == 0));
        }
        return bound;
    }
    match file.stream() {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        Some(stream) => answer(unsafe { bind_again(stream, to, len) }),
        // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
        None => unsafe { next::bind(fd, to, len) },
    }
}

/// Has the kernel bind a socket to an address of the node's, which may not be one of its own. Where that is.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the address of `bind(2)`.
unsafe fn let_bind(fd: c_int, to: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let Ok(Passed::Inet(at)) = (unsafe { read_address(to, len) }) else {
        return None;
    };
    let at = plain(at);
    if node::has(at.ip()) {
        let _inside = Inside::enter();
        let _ = rustix::net::sockopt::set_ip_freebind(table::borrow(&fd), true);
    }
    Some(at)
}

/// `bindresvport(3)`, which binds by a call of libc's own.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn bindresvport(fd: c_int, at: *mut libc::sockaddr_in) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let bound = unsafe { next::bindresvport(fd, at) };
    if bound == 0
        && !is_inside()
        && let Some(file) = table::get(fd)
        && let Kind::Fresh(fresh) = &file.kind
    {
        fresh.note_bound(false);
    }
    bound
}

/// The kernel's error for a socket that has a port already: a wrong address comes first.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the address of `bind(2)`.
#[cold]
unsafe fn bind_again(stream: &Stream, to: *const sockaddr, len: socklen_t) -> Outcome<c_int> {
    let like = stream.kernels_like()?;
    // SAFETY: INTERCEPT contract: `to` has `len` bytes until this call returns.
    if let Ok(Passed::Inet(at)) = unsafe { read_address(to, len) }
        && node::has(plain(at).ip())
    {
        let _ = rustix::net::sockopt::set_ip_freebind(&like, true);
    }
    // A listening socket is bound.
    rustix::net::listen(&like, 0).map_err(|errno| Errno(errno.raw_os_error()))?;
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    outcome(unsafe { next::bind(like.as_raw_fd(), to, len) })
}

/// `listen(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let Some(file) = table::get(fd).filter(|_| !is_inside()) else {
        // SAFETY: the call takes numbers alone, and no pointer.
        let listens = unsafe { next::listen(fd, backlog) };
        if listens == 0 && start::is_wanted() && !is_inside() {
            let _inside = Inside::enter();
            // Another program has made the socket, or this one, past the library.
            inherited::look_at(fd);
            InheritedListener::listen(fd);
        }
        return listens;
    };
    if file.stream().is_some() {
        return answer(Err(Errno::INVAL));
    }
    // SAFETY: the call takes numbers alone, and no pointer.
    let listens = unsafe { next::listen(fd, backlog) };
    if listens != 0 {
        return listens;
    }
    let _inside = Inside::enter();
    match &file.kind {
        Kind::Listener(listener) => listener.set_backlog(backlog),
        // A program that calls `listen` will wait for connections, too.
        Kind::Found(_) => {
            InheritedListener::listen(fd);
        }
        Kind::Fresh(fresh) => {
            let wants_signals = Mode::wants_signals(fd);
            if let Some(listener) = Listener::beside(fresh, fd, backlog) {
                if fresh.is_shared() && !wants_signals {
                    listener.mode.share(fd);
                }
                let made = Arc::new(File::new(Kind::Listener(listener)));
                for number in table::numbers_of(&file) {
                    table::put(number, Arc::clone(&made));
                }
                crate::epoll::moved(&file, &made);
                if wants_signals {
                    relay::to_kernel(fd);
                }
            }
        }
        _ => {}
    }
    0
}

/// `connect(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    match unsafe { connect_on_node(fd, to, len, Pace::Waits) } {
        Some(outcome) => answer(outcome),
        // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
        None => unsafe { connect_in_kernel(fd, to, len) },
    }
}

/// Begins to connect the socket for a call that sends with MSG_FASTOPEN, whose first bytes leave
/// with the SYN if the server's cookie is known. Returns `None` if the kernel does it.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the address of `connect(2)`.
pub(super) unsafe fn connect_to_send(
    fd: c_int,
    (to, len): (*const sockaddr, socklen_t),
    flags: c_int,
) -> Option<Outcome<c_int>> {
    let is_carried = |file: &File| matches!(file.kind, Kind::Fresh(_) | Kind::Stream(_));
    let file = table::get(fd).filter(|file| is_carried(file) && !is_inside())?;
    // SAFETY: INTERCEPT contract: `to` has `len` bytes until this call returns.
    if let Ok(Passed::Unspecified) = unsafe { read_address(to, len) } {
        return Some(Err(Errno(libc::EOPNOTSUPP)));
    }
    if !has_fast_open() {
        return Some(Err(Errno(libc::EOPNOTSUPP)));
    }
    if file.stream().is_some_and(Stream::is_deferred) {
        return Some(Ok(0));
    }
    let pace = match &file.kind {
        Kind::Fresh(_) => Pace::WithData,
        _ if flags & libc::MSG_DONTWAIT != 0 => Pace::AtOnce,
        _ => Pace::Waits,
    };
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { connect_on_node(fd, to, len, pace) }
}

/// Whether the system lets its programs open connections with data (`tcp_fastopen` in tcp(7)).
fn has_fast_open() -> bool {
    /// The bit for clients.
    const CLIENTS: u32 = 1;
    let said = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_fastopen");
    let bits = said.ok().and_then(|said| said.trim().parse::<u32>().ok());
    // Where nothing is said, what Linux begins with.
    bits.is_none_or(|bits| bits & CLIENTS != 0)
}

/// Whether the time is limited that a call waits to be connected. Such a one does not go on after
/// a signal (signal(7)).
fn has_limit(fd: c_int) -> bool {
    let file = table::get(fd);
    let limit = file
        .as_ref()
        .and_then(|file| file.stream()?.inner.write_timeout().ok()?);
    limit.is_some()
}

/// Leaves the connecting to the kernel, which goes on with an attempt as long as the program has
/// not been told what became of it.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the address of `connect(2)`.
unsafe fn connect_in_kernel(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let done = unsafe { next::connect(fd, to, len) };
    if let Some(file) = table::get(fd).filter(|_| !is_inside())
        && let Kind::Fresh(fresh) = &file.kind
    {
        let goes_on = [libc::EINPROGRESS, libc::EALREADY, libc::EINTR].contains(&errno());
        fresh.note_attempt(done < 0 && goes_on);
    }
    done
}

/// Connects the socket on the node. Returns `None` if the connection is the kernel's.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the address of `connect(2)`.
unsafe fn connect_on_node(
    fd: c_int,
    to: *const sockaddr,
    len: socklen_t,
    pace: Pace,
) -> Option<Outcome<c_int>> {
    signals::begin();
    loop {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        let outcome = unsafe { connect_once(fd, (to, len), pace) };
        if matches!(outcome, Some(Err(_))) {
            give_up(fd);
        }
        match outcome {
            Some(Err(Errno::INTR)) if signals::restarts() && !has_limit(fd) => {}
            Some(outcome) => {
                // The socket may be what the program writes to by one of its streams.
                super::stdio::take_all_standard();
                return Some(outcome);
            }
            None => return None,
        }
    }
}

/// Makes a stream that has failed to connect, as the program knows, a socket like a new one.
#[cold]
fn give_up(fd: c_int) {
    let _inside = Inside::enter();
    if let Some(file) = table::get(fd)
        && let Some(stream) = file.stream().filter(|stream| stream.has_failed())
    {
        // Otherwise that is done before it is connected once more.
        let _ = stream.dissolve(&file, fd, false);
    }
}

/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the address of `connect(2)`.
unsafe fn connect_once(
    fd: c_int,
    (to, len): (*const sockaddr, socklen_t),
    pace: Pace,
) -> Option<Outcome<c_int>> {
    let file = table::get(fd).filter(|_| !is_inside())?;
    let _inside = Inside::enter();
    // SAFETY: INTERCEPT contract: `to` has `len` bytes until this call returns.
    let to = match unsafe { read_address(to, len) } {
        Ok(Passed::Inet(to)) => match &file.kind {
            Kind::Fresh(fresh) if check_family(fresh.domain, to, len).is_err() => return None,
            // To that family the kernel does not connect it.
            Kind::Fresh(_) if plain(to) != to && UnconnectedSocket::is_only_ipv6(fd) => {
                return None;
            }
            Kind::Stream(stream) => check_family(stream.domain, to, len).map(|()| plain(to)),
            _ => Ok(plain(to)),
        },
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        Ok(Passed::Unspecified) => return unsafe { disconnect(&file, fd, (to, len)) },
        Err(_) if file.stream().is_none() => return None,
        Err(Errno::FAULT) => return Some(Err(Errno::FAULT)),
        Err(errno) if !has_family(len) => return Some(Err(errno)),
        Err(errno) => Err(errno),
    };
    match (&file.kind, to) {
        (Kind::Fresh(fresh), _) if fresh.is_attempted() => None,
        (Kind::Fresh(fresh), Ok(to)) => connect_fresh(fresh, (&file, fd), to, pace),
        // Of one that is connected, it does not matter where to.
        (Kind::Stream(stream), to) => match stream.connect_again(pace == Pace::AtOnce) {
            Ok(true) => match to {
                Ok(to) => connect_anew(stream, (&file, fd), to, pace),
                Err(errno) => Some(Err(errno)),
            },
            Ok(false) => Some(Ok(0)),
            Err(errno) => Some(Err(errno)),
        },
        _ => None,
    }
}

/// Whether an address of that length is looked at any further.
fn has_family(len: socklen_t) -> bool {
    (size_of::<libc::sa_family_t>()..=size_of::<libc::sockaddr_storage>()).contains(&(len as usize))
}

/// Dissolves the connection of a socket, as `connect` to no address does.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the address of `connect(2)`.
unsafe fn disconnect(
    file: &File,
    fd: c_int,
    (to, len): (*const sockaddr, socklen_t),
) -> Option<Outcome<c_int>> {
    match &file.kind {
        Kind::Stream(stream) => Some(stream.dissolve(file, fd, stream.is_reset_by_end()).map(|_| 0)),
        Kind::Listener(listener) => {
            // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
            let done = outcome(unsafe { next::connect(fd, to, len) });
            if done.is_ok() {
                listener.end(file, fd);
            }
            Some(done)
        }
        _ => None,
    }
}

/// Connects again after a first attempt failed. The node or the kernel may have the connection this time.
fn connect_anew(
    stream: &Stream,
    (file, fd): (&File, c_int),
    to: SocketAddr,
    pace: Pace,
) -> Option<Outcome<c_int>> {
    let file = match stream.dissolve(file, fd, false) {
        Ok(file) => file,
        Err(errno) => return Some(Err(errno)),
    };
    match &file.kind {
        Kind::Fresh(fresh) => connect_fresh(fresh, (&file, fd), to, pace),
        _ => None,
    }
}

fn connect_fresh(
    fresh: &UnconnectedSocket,
    (file, fd): (&File, c_int),
    to: SocketAddr,
    pace: Pace,
) -> Option<Outcome<c_int>> {
    let counter = match (fresh.may_leave(fd), node::route(to)) {
        (true, Route::Node) => Counter::Connected,
        (true, Route::Kernel) => Counter::NotFabric,
        (true, Route::Beside) => Counter::NoNode,
        (true, Route::Lost) => {
            count(Counter::NoNode, 1);
            return Some(Err(Errno::NETDOWN));
        }
        (false, _) if fresh.is_for_kernel() => Counter::Option,
        (false, _) => Counter::State,
    };
    if counter != Counter::Connected {
        count(counter, 1);
        return None;
    }
    // The program's own descriptor is there already, and the call is not left in the middle.
    let _deaf = cancel::Deaf::new();
    match fresh.connect(file, fd, to, pace) {
        // The engine was killed, as was found out while this waited.
        Err(Errno::NETDOWN) if node::is_there() => connect_lost(fd, to, pace),
        // The library finds no room for one of its own.
        Err(Errno::MFILE | Errno::NFILE) if node::is_kernels_too(to) => {
            count(Counter::NoNode, 1);
            None
        }
        connected => {
            count(Counter::Connected, 1);
            Some(connected)
        }
    }
}

/// Connects a stream anew whose attempt has begun in a life of the node's that is over.
#[cold]
fn connect_lost(fd: c_int, to: SocketAddr, pace: Pace) -> Option<Outcome<c_int>> {
    let file = table::get(fd)?;
    match file.stream() {
        Some(stream) => connect_anew(stream, (&file, fd), to, pace),
        None => Some(Err(Errno::NETDOWN)),
    }
}

/// Ends an attempt to connect, if there is one.
fn shut_attempt(fd: c_int, how: c_int) -> Option<c_int> {
    if is_inside() || !table::has(fd) || !(0..=2).contains(&how) {
        return None;
    }
    let _inside = Inside::enter();
    let file = table::get(fd)?;
    let stream = file.stream()?;
    let is_given_up = stream.is_connecting();
    is_given_up.then(|| answer(stream.dissolve(&file, fd, true).map(|_| 0)))
}

/// `shutdown(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if let Some(given_up) = shut_attempt(fd, how) {
        return given_up;
    }
    if let Some(shut) = on_stream(fd, |stream| stream.shutdown(how)) {
        return shut;
    }
    // SAFETY: the call takes numbers alone, and no pointer.
    let shut = unsafe { next::shutdown(fd, how) };
    let file = table::get(fd).filter(|_| !is_inside());
    match file.as_ref().map(|file| (file, &file.kind)) {
        // A listener that takes no more does not listen.
        Some((file, Kind::Listener(listener))) if shut == 0 && how != libc::SHUT_WR => {
            let _inside = Inside::enter();
            listener.end(file, fd);
        }
        Some((_, Kind::Fresh(fresh))) if shut < 0 && errno() == libc::ENOTCONN => fresh.note_shut(),
        _ => {}
    }
    shut
}
