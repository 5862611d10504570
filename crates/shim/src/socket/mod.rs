//! TCP sockets of the program, from `socket` to `close`.
//!
//! Every one begins as a socket of the kernel's. The kernel's socket reports errors of calls in the kernel's
//! words, and has the port that the program asks for. `connect` and `listen` show whether the node or the
//! kernel has the socket.

mod behind;
mod dissolve;
mod early;
mod forwarded;
mod found;
mod fresh;
mod history;
mod listener;
mod mode;
mod options;
mod owner;
mod ports;
mod relayed;
mod stamps;
mod stream;

pub(crate) use behind::ForwardedPeers;
pub(crate) use early::scatter;
pub(crate) use forwarded::Forwarded;
pub(crate) use found::InheritedListener;
pub(crate) use fresh::{Pace, UnconnectedSocket};
use history::{History, Legacy};
pub(crate) use listener::Listener;
pub(crate) use mode::Mode;
pub(crate) use options::{Value, is_kernels_alone, is_refused};
pub(crate) use relayed::Relayed;
pub(crate) use stream::Stream;

use core::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use rustix::io::FdFlags;
use toehold_posix::errno::{Errno, Outcome};

use crate::file::{File, Kind};
use crate::table;

/// The address that a program means: an IPv4 address that it writes as an IPv6 one is an IPv4
/// address.
pub(crate) fn plain(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => SocketAddr::new(ip.into(), address.port()),
            None => address,
        },
        IpAddr::V4(_) => address,
    }
}

/// The lowest free number, for a connection that is about to be accepted.
pub(crate) struct Place(OwnedFd);

impl Place {
    /// A place that shows something else until it is filled.
    pub(crate) fn like(number: c_int) -> Outcome<Place> {
        let copied = rustix::io::fcntl_dupfd_cloexec(table::borrow(&number), 0);
        copied.map(Place).map_err(|errno| Errno(errno.raw_os_error()))
    }

    /// Makes the number the connection's, from now on.
    pub(crate) fn fill(mut self, mut stream: Stream, close_on_exec: bool) -> Outcome<c_int> {
        let Some(descriptor) = stream.lend() else {
            return Err(Errno::BADF);
        };
        if let Err(errno) = put_over(&descriptor, &mut self.0, close_on_exec) {
            stream.take_back(descriptor);
            return Err(Errno(errno.raw_os_error()));
        }
        let number = self.0.into_raw_fd();
        table::put(number, Arc::new(File::new(Kind::Stream(stream))));
        drop_own(descriptor);
        Ok(number)
    }
}

/// Makes a number a copy of a descriptor.
fn put_over(
    descriptor: &OwnedFd,
    number: &mut OwnedFd,
    close_on_exec: bool,
) -> Result<(), rustix::io::Errno> {
    match close_on_exec {
        true => rustix::io::dup3(descriptor, number, rustix::io::DupFlags::CLOEXEC),
        false => rustix::io::dup2(descriptor, number),
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
        if put_over(&descriptor, &mut target, flags.contains(FdFlags::CLOEXEC)).is_ok() {
            table::put(number, Arc::clone(&file));
        }
    }
    drop_own(descriptor);
    Ok(file)
}

/// Closes a descriptor of the library's.
pub(crate) fn drop_own(descriptor: OwnedFd) {
    table::disown(descriptor.as_raw_fd());
    drop(descriptor);
}
