//! TCP sockets of the program: what they are from `socket` to `close`.
//!
//! Every one begins as a socket of the kernel's, which says what is wrong with a call in
//! the kernel's words, and has the port that the program asks for. `connect` and `listen` show
//! who will have it.

mod dissolve;
mod fresh;
mod history;
mod listener;
mod options;
mod relayed;
mod stream;

pub(crate) use fresh::Fresh;
use history::History;
pub(crate) use listener::Listener;
pub(crate) use options::Value;
pub(crate) use relayed::Relayed;
pub(crate) use stream::Stream;

use core::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::io::FdFlags;
use toehold_posix::errno::{Errno, Outcome};

use crate::file::{File, Kind};
use crate::table;

/// An IPv4 address that a program writes as an IPv6 one is an IPv4 address.
pub(crate) fn plain(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => SocketAddr::new(ip.into(), address.port()),
            None => address,
        },
        IpAddr::V4(_) => address,
    }
}

/// Gives a connection the lowest free number.
pub(crate) fn install(mut stream: Stream, close_on_exec: bool) -> Outcome<c_int> {
    let Some(descriptor) = stream.lend() else {
        return Err(Errno::BADF);
    };
    let copied = match close_on_exec {
        true => rustix::io::fcntl_dupfd_cloexec(&descriptor, 0),
        false => dup(&descriptor),
    };
    match copied {
        Ok(number) => {
            let number = std::os::fd::IntoRawFd::into_raw_fd(number);
            table::put(number, Arc::new(File::new(Kind::Stream(stream))));
            drop_own(descriptor);
            Ok(number)
        }
        Err(errno) => {
            stream.take_back(descriptor);
            Err(Errno(errno.raw_os_error()))
        }
    }
}

/// Puts a connection in the place of a file, at all of its numbers.
pub(crate) fn replace(file: &File, number: c_int, mut stream: Stream) -> Outcome<Arc<File>> {
    let Some(descriptor) = stream.lend() else {
        return Err(Errno::BADF);
    };
    let numbers = match file.numbers().count() {
        1 => vec![number],
        _ => table::numbers_of(file),
    };
    let file = Arc::new(File::new(Kind::Stream(stream)));
    for number in numbers {
        let flags = rustix::io::fcntl_getfd(table::borrow(&number)).unwrap_or(FdFlags::empty());
        let mut target = std::mem::ManuallyDrop::new(table::adopt(number));
        let placed = match flags.contains(FdFlags::CLOEXEC) {
            true => rustix::io::dup3(&descriptor, &mut target, rustix::io::DupFlags::CLOEXEC),
            false => rustix::io::dup2(&descriptor, &mut target),
        };
        if placed.is_ok() {
            table::put(number, Arc::clone(&file));
        }
    }
    drop_own(descriptor);
    Ok(file)
}

/// `dup(2)`: the copy survives `exec`.
fn dup(descriptor: &OwnedFd) -> Result<OwnedFd, rustix::io::Errno> {
    rustix::io::dup(descriptor)
}

/// Closes a descriptor of the library's.
pub(crate) fn drop_own(descriptor: OwnedFd) {
    table::disown(descriptor.as_raw_fd());
    drop(descriptor);
}
