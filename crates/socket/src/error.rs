//! Errors as programs know them: `std::io::Error` with the system's number.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use toehold_link::mq::{InvalidName, JoinError};
use toehold_shm::{OutOfMemory, RegionError};
use toehold_stack::SocketError;

/// What the kernel would have said.
fn errno(error: SocketError) -> Errno {
    match error {
        SocketError::WouldBlock => Errno::AGAIN,
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
    }
}

pub(crate) fn from_socket(error: SocketError) -> io::Error {
    errno(error).into()
}

/// EAGAIN: what a call without anything to do says, and one whose timeout has passed.
pub(crate) fn would_block() -> io::Error {
    Errno::AGAIN.into()
}

pub(crate) fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "connection timed out")
}

pub(crate) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Why a node could not be made.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The name is no name of a node.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The length of an address's prefix is out of range.
    #[error("an address has no prefix of {0} bits")]
    Prefix(u8),
    /// A bound of the configuration is out of range.
    #[error("{what} cannot be {value}; choose {range}")]
    Bound {
        /// Which.
        what: &'static str,
        /// What it was.
        value: u64,
        /// What it may be.
        range: &'static str,
    },
    /// The fabric does not let the node in.
    #[error("cannot join the fabric: {0}")]
    Join(#[from] JoinError),
    /// There is no memory for the node.
    #[error("no memory for the node: {0}; lower its bounds of connections and payload memory")]
    Region(#[from] RegionError),
    /// The memory is too small for the stack.
    #[error("the node's memory: {0}")]
    Carve(#[from] OutOfMemory),
    /// The capture cannot be written.
    #[error("cannot write the capture to {path}: {source}")]
    Capture {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system has no descriptor left.
    #[error("cannot make the node's descriptors: {0} (see `ulimit -n`)")]
    Descriptors(io::Error),
    /// Calls on sockets come from any thread, and drive the link.
    #[error(
        "the link can be driven only by the thread that made it; sockets need one that any thread can drive"
    )]
    SingleThread,
    /// The system refuses a thread.
    #[error("cannot start the node's thread: {0} (see `ulimit -u`)")]
    Thread(io::Error),
    /// No random numbers for the node's secrets.
    #[error("cannot get random numbers: {0}")]
    Random(Errno),
}

impl From<NodeError> for io::Error {
    fn from(error: NodeError) -> Self {
        let kind = match &error {
            NodeError::Name(_) | NodeError::Prefix(_) | NodeError::Bound { .. } => {
                io::ErrorKind::InvalidInput
            }
            NodeError::Region(_) | NodeError::Carve(_) => io::ErrorKind::OutOfMemory,
            NodeError::Capture { source, .. }
            | NodeError::Descriptors(source)
            | NodeError::Thread(source) => source.kind(),
            NodeError::Random(errno) => errno.kind(),
            NodeError::SingleThread => io::ErrorKind::Unsupported,
            NodeError::Join(_) => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
