//! Connections that are handed to the kernel while they last. They belong to programs that the library is not
//! loaded into, or that run as another user than the node. Others belong to processes behind a filter of
//! system calls, which the library would not get through. The engine carries their bytes from then on.

use core::ffi::c_int;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::net::sockopt::{Timeout, set_socket_oobinline, set_socket_timeout};
use toehold_node::run;
use toehold_node::why::Reason;

use crate::borrower::is_borrower;
use crate::file::{File, Kind};
use crate::socket::{Forwarded, InheritedListener, Listener, Relayed, Stream};
use crate::usage::{Counter, count};
use crate::{epoll, node, rights, start, table};

/// Hands over a connection.
fn begin(file: &File, number: c_int) {
    let Some(stream) = file.stream() else { return };
    if stream
        .inner
        .settings()
        .is_ok_and(|settings| settings.urgent_inline())
    {
        // The first byte that comes may be urgent.
        let _ = set_socket_oobinline(table::borrow(&number), true);
    }
    if stream.inner.relay().is_ok() {
        count(Counter::Relayed, 1);
        settle(file, number);
    }
}

/// Whether the program has told the kernel, past the library, that calls on a connection do not
/// wait. Then it waits for the descriptor in the same way, and the connection is the kernel's
/// from now on.
#[cold]
pub(crate) fn was_told_past(file: &File, number: c_int) -> bool {
    let flags = rustix::fs::fcntl_getfl(table::borrow(&number));
    let Some(stream) = file.stream() else { return false };
    if !flags.is_ok_and(|flags| flags.contains(OFlags::NONBLOCK)) {
        return false;
    }
    stream.set_nonblocking(true);
    begin(file, number);
    table::get(number).is_none_or(|file| file.stream().is_none())
}

/// Hands a connection or listener to the kernel. The program wants a signal when something happens to it
/// (O_ASYNC). Or libc is to read and write it beside the program (`aio(7)`). The kernel does so for its own
/// sockets alone.
#[cold]
pub(crate) fn to_kernel(number: c_int) {
    InheritedListener::listen(number);
    let Some(file) = table::get(number) else { return };
    match &file.kind {
        Kind::Listener(listener) => drop(forward(&file, listener, number)),
        _ => begin(&file, number),
    }
}

/// Leaves a listener to the kernel. The engine connects the peers of the node's listener to it. Returns
/// whether it can.
fn forward(file: &File, listener: &Listener, number: c_int) -> bool {
    let Some(forwarded) = Forwarded::of(listener, number) else {
        return false;
    };
    let made = Arc::new(File::new(Kind::Forwarded(forwarded)));
    for number in table::numbers_of(file) {
        table::put(number, Arc::clone(&made));
    }
    if !is_borrower() {
        epoll::moved(file, &made);
    }
    true
}

/// Whether a connection of the table's is the kernel's by now, after a call has found it without an owner. If
/// so, the table knows afterwards.
#[cold]
pub(crate) fn settle(file: &File, number: c_int) -> bool {
    let Some(stream) = file.stream() else { return false };
    let Ok(Some(ends)) = stream.inner.relayed() else {
        return false;
    };
    if stream.is_to_be_prepared() {
        prepare(stream, number);
    }
    let made = Relayed::new(ends, Some(stream.domain));
    let made = Arc::new(File::new(Kind::Relayed(made)));
    for number in table::numbers_of(file) {
        table::put(number, Arc::clone(&made));
    }
    // The parent of a child that borrows its memory finds out by itself, by its own numbers.
    if !is_borrower() {
        epoll::moved(file, &made);
    }
    true
}

/// Sets on the kernel's socket the options that the program has set of the connection.
fn prepare(stream: &Stream, number: c_int) {
    let socket = table::borrow(&number);
    if let Ok(mut flags) = rustix::fs::fcntl_getfl(socket) {
        flags.set(OFlags::NONBLOCK, stream.is_nonblocking());
        let _ = rustix::fs::fcntl_setfl(socket, flags);
    }
    let spans = [
        (Timeout::Recv, stream.inner.read_timeout()),
        (Timeout::Send, stream.inner.write_timeout()),
    ];
    for (which, span) in spans {
        let span: Option<Duration> = span.unwrap_or_default();
        let _ = set_socket_timeout(socket, which, span);
    }
}

/// Prepares what another program is about to have of the node's, which may not be able to use the
/// node. `given` is what it gets besides what survives `exec`. `is_within_reach` says whether the
/// library will be loaded into it.
pub(crate) fn before_exec(given: &[c_int], is_within_reach: bool) {
    let concerned = |number: &c_int| {
        let file = table::get(*number);
        let is_nodes = file.is_some_and(|file| file.is_nodes() || file.listener_mode().is_some());
        is_nodes && (given.contains(number) || rights::survives(*number))
    };
    let numbers: Vec<c_int> = table::used().into_iter().filter(concerned).collect();
    let reaches_node = is_within_reach && !numbers.is_empty() && node::can_be_reached();
    for number in numbers {
        let Some(file) = table::get(number) else { continue };
        match file.listener_mode() {
            Some(mode) if reaches_node => mode.share(number),
            // It has the kernel's alone.
            Some(mode) => mode.restore(number),
            None if reaches_node => {}
            None => begin(&file, number),
        }
    }
}

/// The reason why the library will not be loaded into a program, or is of no use to it, as its file
/// tells. `PATH` is looked through even where the call does not: a path has a slash, and the rest
/// is in the present directory.
pub(crate) fn obstacle(program: &OsStr) -> Option<Reason> {
    let found = run::find_program(program).unwrap_or_else(|_| program.into());
    run::obstacle(&found).map(|(_, reason)| reason)
}

/// This process's name for itself.
pub(crate) fn own_name() -> String {
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    name.trim_end().to_owned()
}

/// Leaves everything to the kernel before this process loses the right to most system calls. From
/// now on it is a program like any other, and what it has is the kernel's.
pub(crate) fn for_good() {
    if !start::is_wanted() {
        return;
    }
    node::hold();
    node::tell(&own_name(), Reason::Filter);
    for number in table::used() {
        InheritedListener::listen(number);
        if let Some(file) = table::get(number) {
            begin(&file, number);
        }
    }
    for number in table::used() {
        let Some(file) = table::get(number) else { continue };
        if let Kind::Listener(listener) = &file.kind
            && forward(&file, listener, number)
        {
            continue;
        }
        if let Kind::Epoll(instance) = &file.kind {
            instance.let_go();
        }
        let stays = matches!(file.kind, Kind::Forwarded(_) | Kind::Relayed(_) | Kind::Stream(_));
        drop(file);
        if !stays {
            // A listener goes on with the kernel's connections.
            drop(table::take(number));
        }
    }
    node::be_silent();
    start::renounce();
}
