//! Listeners that this process has from another one, which has not said which of the node's are
//! beside them.
//!
//! As long as this process does not wait for one, it is the kernel's alone. A shell may have one only because
//! no program has closed it. With a listener of the node's beside it, connections would come there that no
//! process takes.

use core::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::{AddressFamily, SocketType, sockopt};

use super::{Listener, Mode, UnconnectedSocket};
use crate::file::{File, Kind};
use crate::inside::Inside;
use crate::table;

/// An inherited listener of the kernel's.
pub(crate) struct InheritedListener {
    /// The settings that this process has made.
    pub(crate) fresh: UnconnectedSocket,
    pub(crate) mode: Mode,
}

impl InheritedListener {
    /// The inherited listener that a number is, if it is a listener's.
    pub(crate) fn at(number: c_int) -> Option<InheritedListener> {
        is_listener(number).then(|| InheritedListener {
            fresh: UnconnectedSocket::found(number),
            mode: Mode::found(number),
        })
    }

    pub(crate) fn domain_of(number: c_int) -> c_int {
        match sockopt::socket_domain(table::borrow(&number)) {
            Ok(AddressFamily::INET6) => libc::AF_INET6,
            _ => libc::AF_INET,
        }
    }

    /// Called before this process waits for an fd that may be an inherited listener. Such a one becomes a
    /// listener of the node's, too, or is none of the library's affairs. Returns whether it is a listener of
    /// the node's.
    pub(crate) fn listen(number: c_int) -> bool {
        let is_found = |file: &File| matches!(file.kind, Kind::Found(_));
        table::get(number).is_some_and(|file| is_found(&file)) && listen(number)
    }
}

#[cold]
fn listen(number: c_int) -> bool {
    static ALONE: Mutex<()> = Mutex::new(());
    /// The backlog; only the kernel knows the one that the other process has asked for.
    const BACKLOG: c_int = 4096;
    let _inside = Inside::enter();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(file) = table::get(number) else {
        return false;
    };
    let Kind::Found(InheritedListener { fresh, mode }) = &file.kind else {
        // Another thread has done so.
        return matches!(file.kind, Kind::Listener(_));
    };
    let listener = is_listener(number)
        .then(|| Listener::beside(fresh, number, BACKLOG))
        .flatten();
    let made = listener.map(|mut listener| {
        listener.mode = mode.copy();
        Arc::new(File::new(Kind::Listener(listener)))
    });
    for number in table::numbers_of(&file) {
        match &made {
            Some(made) => table::put(number, Arc::clone(made)),
            None => drop(table::take(number)),
        }
    }
    made.is_some()
}

fn is_listener(number: c_int) -> bool {
    let descriptor = table::borrow(&number);
    let family = sockopt::socket_domain(descriptor);
    [Ok(AddressFamily::INET), Ok(AddressFamily::INET6)].contains(&family)
        && sockopt::socket_type(descriptor) == Ok(SocketType::STREAM)
        && sockopt::socket_acceptconn(descriptor) == Ok(true)
}
