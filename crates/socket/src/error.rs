//! Errors as programs know them: `std::io::Error` with the system's number.

use std::io;

use rustix::io::Errno;
use toehold_node::{Gone, HolderError};
use toehold_stack::SocketError;

/// The error number that the kernel would have returned.
fn errno(error: SocketError) -> Errno {
    match error {
        SocketError::WouldBlock | SocketError::Taken => Errno::AGAIN,
        SocketError::NotConnected => Errno::NOTCONN,
        SocketError::ConnectionRefused => Errno::CONNREFUSED,
        SocketError::ConnectionReset => Errno::CONNRESET,
        SocketError::TimedOut => Errno::TIMEDOUT,
        SocketError::HostUnreachable => Errno::HOSTUNREACH,
        SocketError::NetworkUnreachable => Errno::NETUNREACH,
        SocketError::BrokenPipe => Errno::PIPE,
        SocketError::AddressInUse => Errno::ADDRINUSE,
        SocketError::AddressNotAvailable => Errno::ADDRNOTAVAIL,
        SocketError::OutOfMemory => Errno::NOBUFS,
        SocketError::InvalidInput => Errno::INVAL,
        SocketError::AlreadyConnected => Errno::ISCONN,
        SocketError::InProgress => Errno::INPROGRESS,
        SocketError::ConnectionAborted => Errno::CONNABORTED,
        SocketError::NotFound => Errno::BADF,
        SocketError::Protocol => Errno::PROTO,
        SocketError::Prohibited => Errno::ACCESS,
        SocketError::HostDown => Errno::HOSTDOWN,
        SocketError::NotOnNetwork => Errno::NONET,
        SocketError::ProtocolNotAvailable => Errno::NOPROTOOPT,
        SocketError::NotSupported => Errno::OPNOTSUPP,
    }
}

pub(crate) fn from_socket(error: SocketError) -> io::Error {
    errno(error).into()
}

/// The error of a node that is gone, with all its connections.
pub(crate) fn gone(_: Gone) -> io::Error {
    Errno::NETDOWN.into()
}

/// The error of a node that belongs to the process which this one was forked from.
#[cold]
pub(crate) fn parents() -> io::Error {
    io::Error::new(
        io::ErrorKind::NetworkDown,
        "this node belongs to the parent process; attach to a node of an engine, or make one after the fork",
    )
}

pub(crate) fn from_holder(error: HolderError) -> io::Error {
    match error {
        HolderError::Gone(error) => gone(error),
        HolderError::System(errno) | HolderError::Port(errno) => errno.into(),
        HolderError::Foreign => invalid("the descriptor is no such socket of this node"),
        HolderError::Private => io::Error::new(
            io::ErrorKind::Unsupported,
            "sockets of a node that only this process uses have no descriptors; attach to one of an engine",
        ),
    }
}

/// EAGAIN: the error of a call without anything to do, and of one whose timeout has passed.
pub(crate) fn would_block() -> io::Error {
    Errno::AGAIN.into()
}

pub(crate) fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "connection timed out")
}

pub(crate) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
