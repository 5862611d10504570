//! Linux's error numbers for the stack's errors.

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
    ADDRINUSE = EADDRINUSE,
    ADDRNOTAVAIL = EADDRNOTAVAIL,
    AFNOSUPPORT = EAFNOSUPPORT,
    AGAIN = EAGAIN,
    ALREADY = EALREADY,
    BADF = EBADF,
    CONNRESET = ECONNRESET,
    DESTADDRREQ = EDESTADDRREQ,
    EXIST = EEXIST,
    FAULT = EFAULT,
    INPROGRESS = EINPROGRESS,
    INTR = EINTR,
    INVAL = EINVAL,
    ISCONN = EISCONN,
    MFILE = EMFILE,
    MSGSIZE = EMSGSIZE,
    NAMETOOLONG = ENAMETOOLONG,
    NETDOWN = ENETDOWN,
    NETUNREACH = ENETUNREACH,
    NFILE = ENFILE,
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
            // Before the handshake is done, reading and writing block, or fail with
            // `EAGAIN`.
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
            SocketError::HostDown => libc::EHOSTDOWN,
            SocketError::NotOnNetwork => libc::ENONET,
            SocketError::ProtocolNotAvailable => libc::ENOPROTOOPT,
            SocketError::NotSupported => libc::EOPNOTSUPP,
        })
    }
}

impl From<std::io::Error> for Errno {
    /// Returns the system's number, or the closest one for an error without a
    /// number.
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        if let Some(number) = error.raw_os_error() {
            return Self(number);
        }
        Self(match error.kind() {
            ErrorKind::WouldBlock => libc::EAGAIN,
            ErrorKind::InvalidInput => libc::EINVAL,
            ErrorKind::TimedOut => libc::ETIMEDOUT,
            ErrorKind::Interrupted => libc::EINTR,
            ErrorKind::NetworkDown => libc::ENETDOWN,
            ErrorKind::AlreadyExists => libc::EEXIST,
            ErrorKind::NotFound => libc::ENOENT,
            ErrorKind::Unsupported => libc::EOPNOTSUPP,
            ErrorKind::OutOfMemory => libc::ENOMEM,
            _ => libc::EIO,
        })
    }
}

/// The result of a call.
pub type Outcome<T> = Result<T, Errno>;
