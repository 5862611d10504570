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
use crate::answer::{answer, errno, outcome, set_errno};
use crate::file::{File, Kind};
use crate::inside::{Inside, is_inside};
use crate::node::{self, Route};
use crate::socket::{Found, Fresh, Listener, Mode, Stream, plain};
use crate::usage::{Counter, count};
use crate::{cancel, inherited, next, relay, signals, start, table};

/// `socket(2)`.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: plain numbers.
    let number = unsafe { next::socket(domain, kind, protocol) };
    let is_ip = domain == libc::AF_INET || domain == libc::AF_INET6;
    let is_stream = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) == libc::SOCK_STREAM;
    let is_tcp = protocol == 0 || protocol == libc::IPPROTO_TCP;
    if number >= 0 && is_ip && !is_inside() && start::is_wanted() {
        let _inside = Inside::enter();
        match is_stream && is_tcp {
            true => table::put(number, Arc::new(File::new(Kind::Fresh(Fresh::new(domain))))),
            false => count(Counter::NotStream, 1),
        }
    }
    number
}

/// `bind(2)`. The kernel knows who has which port, those of the node's own address included.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn bind(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    let Some(file) = table::get(fd).filter(|_| !is_inside()) else {
        // SAFETY: what is not ours is as it was.
        return unsafe { next::bind(fd, to, len) };
    };
    let _inside = Inside::enter();
    if let Kind::Fresh(fresh) = &file.kind {
        // SAFETY: the program passes an address of that length.
        let at = match unsafe { read_address(to, len) } {
            Ok(Passed::Inet(at)) => Some(plain(at)),
            _ => None,
        };
        if at.is_some_and(|at| node::has(at.ip())) {
            // The kernel beside may not have the address.
            let _ = rustix::net::sockopt::set_ip_freebind(table::borrow(&fd), true);
        }
        // SAFETY: as the program passed it.
        let bound = unsafe { next::bind(fd, to, len) };
        if bound == 0 {
            fresh.note_bound(at.is_some_and(|at| at.port() == 0));
        }
        return bound;
    }
    match file.stream() {
        // SAFETY: as the program passed it.
        Some(stream) => answer(unsafe { bind_again(stream, to, len) }),
        // SAFETY: what is not ours is as it was.
        None => unsafe { next::bind(fd, to, len) },
    }
}

/// What the kernel says of a socket that has a port already: what is wrong with the address comes first.
///
/// # Safety
///
/// As for `bind`.
#[cold]
unsafe fn bind_again(stream: &Stream, to: *const sockaddr, len: socklen_t) -> Outcome<c_int> {
    let like = stream.kernels_like()?;
    // SAFETY: the program passes an address of that length.
    if let Ok(Passed::Inet(at)) = unsafe { read_address(to, len) }
        && node::has(plain(at).ip())
    {
        let _ = rustix::net::sockopt::set_ip_freebind(&like, true);
    }
    // Who listens is bound.
    rustix::net::listen(&like, 0).map_err(|errno| Errno(errno.raw_os_error()))?;
    // SAFETY: as the program passed it.
    outcome(unsafe { next::bind(like.as_raw_fd(), to, len) })
}

/// `listen(2)`.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let Some(file) = table::get(fd).filter(|_| !is_inside()) else {
        // SAFETY: plain numbers.
        let listens = unsafe { next::listen(fd, backlog) };
        if listens == 0 && start::is_wanted() && !is_inside() {
            let _inside = Inside::enter();
            // Another program has made the socket, or this one, past the library.
            inherited::look_at(fd);
            Found::listen(fd);
        }
        return listens;
    };
    if file.stream().is_some() {
        return answer(Err(Errno::INVAL));
    }
    // SAFETY: plain numbers.
    let listens = unsafe { next::listen(fd, backlog) };
    if listens != 0 {
        return listens;
    }
    let _inside = Inside::enter();
    match &file.kind {
        Kind::Listener(listener) => listener.set_backlog(backlog),
        // Who says so will wait for connections, too.
        Kind::Found(_) => {
            Found::listen(fd);
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
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    signals::begin();
    loop {
        // SAFETY: as there.
        match unsafe { connect_on_node(fd, to, len) } {
            Some(Err(Errno::INTR)) if signals::restarts() && !has_limit(fd) => {}
            Some(outcome) => {
                // The socket may be what the program writes to by one of its streams.
                super::stdio::take_all_standard();
                return answer(outcome);
            }
            // SAFETY: what is not ours is as it was.
            None => return unsafe { connect_in_kernel(fd, to, len) },
        }
    }
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

/// What the kernel does, which goes on with an attempt as long as the program has not been told
/// what became of it.
///
/// # Safety
///
/// As for `connect`.
unsafe fn connect_in_kernel(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: as there.
    let done = unsafe { next::connect(fd, to, len) };
    if let Some(file) = table::get(fd).filter(|_| !is_inside())
        && let Kind::Fresh(fresh) = &file.kind
    {
        let goes_on = [libc::EINPROGRESS, libc::EALREADY, libc::EINTR].contains(&errno());
        fresh.note_attempt(done < 0 && goes_on);
    }
    done
}

/// Whether a call that sends has connected the socket on the node.
///
/// # Safety
///
/// As for `connect`.
pub(super) unsafe fn connects_on_node(fd: c_int, to: *const sockaddr, len: socklen_t) -> bool {
    let before = errno();
    // SAFETY: as there.
    let outcome = unsafe { connect_on_node(fd, to, len) };
    set_errno(before);
    matches!(outcome, Some(Ok(_) | Err(Errno::INPROGRESS)))
}

/// `None`: the connection is the kernel's.
///
/// # Safety
///
/// As for `connect`.
unsafe fn connect_on_node(fd: c_int, to: *const sockaddr, len: socklen_t) -> Option<Outcome<c_int>> {
    // SAFETY: as there.
    let outcome = unsafe { connect_once(fd, to, len) };
    if matches!(outcome, Some(Err(_))) {
        give_up(fd);
    }
    outcome
}

/// What has failed to connect, of which the program knows, is a socket like a new one.
#[cold]
fn give_up(fd: c_int) {
    let _inside = Inside::enter();
    if let Some(file) = table::get(fd)
        && let Some(stream) = file.stream().filter(|stream| stream.has_failed())
    {
        // Otherwise that is done before it is connected once more.
        let _ = stream.dissolve(&file, fd);
    }
}

/// # Safety
///
/// As for `connect`.
unsafe fn connect_once(fd: c_int, to: *const sockaddr, len: socklen_t) -> Option<Outcome<c_int>> {
    let file = table::get(fd).filter(|_| !is_inside())?;
    let _inside = Inside::enter();
    // SAFETY: the program passes an address of that length.
    let to = match unsafe { read_address(to, len) } {
        Ok(Passed::Inet(to)) => match &file.kind {
            Kind::Fresh(fresh) if check_family(fresh.domain, to, len).is_err() => return None,
            // To that family the kernel does not connect it.
            Kind::Fresh(_) if plain(to) != to && Fresh::is_only_ipv6(fd) => return None,
            Kind::Stream(stream) => check_family(stream.domain, to, len).map(|()| plain(to)),
            _ => Ok(plain(to)),
        },
        // SAFETY: as the program passed it.
        Ok(Passed::Unspecified) => return unsafe { disconnect(&file, fd, (to, len)) },
        Err(_) if file.stream().is_none() => return None,
        Err(Errno::FAULT) => return Some(Err(Errno::FAULT)),
        Err(errno) if !has_family(len) => return Some(Err(errno)),
        Err(errno) => Err(errno),
    };
    match (&file.kind, to) {
        (Kind::Fresh(fresh), _) if fresh.is_attempted() => None,
        (Kind::Fresh(fresh), Ok(to)) => connect_fresh(fresh, &file, fd, to),
        // Of one that is connected, it does not matter where to.
        (Kind::Stream(stream), to) => match stream.connect_again() {
            Ok(true) => match to {
                Ok(to) => connect_anew(stream, &file, fd, to),
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

/// `connect` to no address dissolves what there is.
///
/// # Safety
///
/// As for `connect`.
unsafe fn disconnect(
    file: &File,
    fd: c_int,
    (to, len): (*const sockaddr, socklen_t),
) -> Option<Outcome<c_int>> {
    match &file.kind {
        Kind::Stream(stream) => Some(stream.dissolve(file, fd).map(|_| 0)),
        Kind::Listener(listener) => {
            // SAFETY: as the program passed it.
            let done = outcome(unsafe { next::connect(fd, to, len) });
            if done.is_ok() {
                listener.end(file, fd);
            }
            Some(done)
        }
        _ => None,
    }
}

/// Connects what a first attempt has failed of: who will have it is to be seen once more.
fn connect_anew(stream: &Stream, file: &File, fd: c_int, to: SocketAddr) -> Option<Outcome<c_int>> {
    let file = match stream.dissolve(file, fd) {
        Ok(file) => file,
        Err(errno) => return Some(Err(errno)),
    };
    match &file.kind {
        Kind::Fresh(fresh) => connect_fresh(fresh, &file, fd, to),
        _ => None,
    }
}

fn connect_fresh(fresh: &Fresh, file: &File, fd: c_int, to: SocketAddr) -> Option<Outcome<c_int>> {
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
    match fresh.connect(file, fd, to) {
        // The engine was killed, as was found out while this waited.
        Err(Errno::NETDOWN) if node::is_there() => connect_lost(fd, to),
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

/// Connects once more what has begun in a life of the node's that is over.
#[cold]
fn connect_lost(fd: c_int, to: SocketAddr) -> Option<Outcome<c_int>> {
    let file = table::get(fd)?;
    match file.stream() {
        Some(stream) => connect_anew(stream, &file, fd, to),
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
    is_given_up.then(|| answer(stream.dissolve(&file, fd).map(|_| 0)))
}

/// `shutdown(2)`.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if let Some(given_up) = shut_attempt(fd, how) {
        return given_up;
    }
    if let Some(shut) = on_stream(fd, |stream| stream.shutdown(how)) {
        return shut;
    }
    // SAFETY: plain numbers.
    let shut = unsafe { next::shutdown(fd, how) };
    let file = table::get(fd).filter(|_| !is_inside());
    match file.as_ref().map(|file| (file, &file.kind)) {
        // Who takes no more, does not listen.
        Some((file, Kind::Listener(listener))) if shut == 0 && how != libc::SHUT_WR => {
            let _inside = Inside::enter();
            listener.end(file, fd);
        }
        Some((_, Kind::Fresh(fresh))) if shut < 0 && errno() == libc::ENOTCONN => fresh.note_shut(),
        _ => {}
    }
    shut
}
