//! Connections and listeners that the program has by `exec` from the former program of this process, or from
//! its parent. Their descriptors look like any other sockets.
//!
//! A connection's descriptor says which one it is; the engine knows. A listener's descriptor is the kernel's;
//! another descriptor beside it stands for the node's. The former program has left in the environment which
//! two belong together.

use core::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketType, sockopt};
use toehold_socket::{Node, TcpListener, TcpStream};

use crate::file::{File, Kind};
use crate::socket::{InheritedListener, Listener, Relayed, Stream, UnconnectedSocket};
use crate::usage::{Counter, count};
use crate::{node, table};

/// The variable that says which of the kernel's listeners has which of the node's beside it:
/// `5:2003,7:2004`.
pub(crate) const LISTENERS: &str = "TOEHOLD_LISTENERS";

/// The numbers of all descriptors of this process.
pub(crate) fn open_numbers() -> Vec<c_int> {
    let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    listed
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// Looks through the program's descriptors.
pub(crate) fn find() {
    let numbers = open_numbers();
    let pairs = std::env::var(LISTENERS).unwrap_or_default();
    for (number, beside) in pairs.split(',').filter_map(pair) {
        adopt_listener(number, beside);
    }
    for number in numbers {
        look_at(number);
    }
}

/// Looks at a descriptor that this process has got from another one.
pub(crate) fn look_at(number: c_int) {
    // Every program has some that are no sockets.
    if table::has(number) || sockopt::socket_domain(table::borrow(&number)).is_err() {
        return;
    }
    // Another program has made it, which was not on the node, or has given it away.
    if may_be_connection(number) {
        adopt_connection(number);
    } else if let Some(found) = InheritedListener::at(number) {
        table::put(number, Arc::new(File::new(Kind::Found(found))));
    } else if let Some(fresh) = UnconnectedSocket::at(number) {
        table::put(number, Arc::new(File::new(Kind::Fresh(fresh))));
    }
}

fn pair(text: &str) -> Option<(c_int, c_int)> {
    let (number, beside) = text.split_once(':')?;
    Some((number.parse().ok()?, beside.parse().ok()?))
}

/// Whether a descriptor may be a connection's: one end of a pair of nameless Unix sockets.
fn may_be_connection(number: c_int) -> bool {
    let descriptor = table::borrow(&number);
    sockopt::socket_domain(descriptor) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(descriptor) == Ok(SocketType::STREAM)
        && rustix::net::getsockname(descriptor).is_ok_and(|name| name.addr_len() <= 2)
}

/// Makes a connection of a descriptor, if it is one.
fn adopt_connection(number: c_int) -> Option<()> {
    let node: &Node = &*node::get()?;
    let copied = node::copy(number)?;
    let Ok(mut inner) = TcpStream::from_fd(node, copied) else {
        let ends = node.relayed(node::copy(number)?).ok()??;
        let relayed = File::new(Kind::Relayed(Relayed::new(ends, None)));
        table::put(number, Arc::new(relayed));
        return Some(());
    };
    drop(inner.lend_descriptor());
    let stream = Stream::adopted(inner);
    stream.note_shared();
    table::put(number, Arc::new(File::new(Kind::Stream(stream))));
    count(Counter::Inherited, 1);
    Some(())
}

fn adopt_listener(number: c_int, beside: c_int) -> Option<()> {
    let node = node::get()?;
    let copied = node::copy(beside)?;
    drop(table::adopt(beside));
    table::own(copied.as_raw_fd());
    let inner = TcpListener::from_fd(&node, copied).ok()?;
    let listener = Listener::inherited(inner, InheritedListener::domain_of(number), number);
    table::put(number, Arc::new(File::new(Kind::Listener(listener))));
    count(Counter::Inherited, 1);
    Some(())
}
