//! What the stack's answers are called by Linux.

use toehold_stack::SocketError;

/// A value of `errno`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

macro_rules! numbers {
    ($($name:ident = $number:ident,)+) => {
        impl Errno {
            $(#[doc = stringify!($number)] pub const $name: Self = Self(libc::$number);)+
        }
    };
}

numbers! {
    ACCESS = EACCES,
    AFNOSUPPORT = EAFNOSUPPORT,
    AGAIN = EAGAIN,
    ALREADY = EALREADY,
    BADF = EBADF,
    DESTADDRREQ = EDESTADDRREQ,
    EXIST = EEXIST,
    FAULT = EFAULT,
    INPROGRESS = EINPROGRESS,
    INTR = EINTR,
    INVAL = EINVAL,
    ISCONN = EISCONN,
    MFILE = EMFILE,
    NAMETOOLONG = ENAMETOOLONG,
    NETDOWN = ENETDOWN,
    NOENT = ENOENT,
    NOMEM = ENOMEM,
    NOPROTOOPT = ENOPROTOOPT,
    NOSYS = ENOSYS,
    NOTCONN = ENOTCONN,
    NOTSOCK = ENOTSOCK,
    NOTTY = ENOTTY,
    OPNOTSUPP = EOPNOTSUPP,
    PERM = EPERM,
    PIPE = EPIPE,
    SPIPE = ESPIPE,
    TIMEDOUT = ETIMEDOUT,
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
pub type Outcome<T> = Result<T, Errno>;
