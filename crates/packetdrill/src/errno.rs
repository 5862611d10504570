//! What the stack's answers are called by Linux.

use toehold_stack::SocketError;

/// A value of `errno`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const AGAIN: Self = Self(libc::EAGAIN);
    pub(crate) const ALREADY: Self = Self(libc::EALREADY);
    pub(crate) const BADF: Self = Self(libc::EBADF);
    pub(crate) const EXIST: Self = Self(libc::EEXIST);
    pub(crate) const FAULT: Self = Self(libc::EFAULT);
    pub(crate) const INPROGRESS: Self = Self(libc::EINPROGRESS);
    pub(crate) const INTR: Self = Self(libc::EINTR);
    pub(crate) const INVAL: Self = Self(libc::EINVAL);
    pub(crate) const ISCONN: Self = Self(libc::EISCONN);
    pub(crate) const NOENT: Self = Self(libc::ENOENT);
    pub(crate) const NOPROTOOPT: Self = Self(libc::ENOPROTOOPT);
    pub(crate) const NOTCONN: Self = Self(libc::ENOTCONN);
    pub(crate) const NOTSOCK: Self = Self(libc::ENOTSOCK);
    pub(crate) const NOTTY: Self = Self(libc::ENOTTY);
    pub(crate) const OPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    pub(crate) const PIPE: Self = Self(libc::EPIPE);
}

impl From<SocketError> for Errno {
    fn from(error: SocketError) -> Self {
        Self(match error {
            // Before the handshake is done a program that reads or writes waits,
            // or is told that it would.
            SocketError::WouldBlock | SocketError::InProgress | SocketError::Taken => libc::EAGAIN,
            SocketError::NotConnected => libc::ENOTCONN,
            SocketError::ConnectionRefused => libc::ECONNREFUSED,
            SocketError::ConnectionReset => libc::ECONNRESET,
            SocketError::TimedOut => libc::ETIMEDOUT,
            SocketError::HostUnreachable => libc::EHOSTUNREACH,
            SocketError::NetworkUnreachable => libc::ENETUNREACH,
            SocketError::BrokenPipe => libc::EPIPE,
            SocketError::AddressInUse => libc::EADDRINUSE,
            SocketError::AddressNotAvailable => libc::EADDRNOTAVAIL,
            SocketError::OutOfMemory => libc::ENOBUFS,
            SocketError::InvalidInput => libc::EINVAL,
            SocketError::AlreadyConnected => libc::EISCONN,
            SocketError::ConnectionAborted => libc::ECONNABORTED,
            SocketError::NotFound => libc::EBADF,
            SocketError::Protocol => libc::EPROTO,
            SocketError::Prohibited => libc::EACCES,
        })
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// The outcome of a call.
pub(crate) type Outcome<T> = Result<T, Errno>;
