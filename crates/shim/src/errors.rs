//! The node's errors as numbers.

use std::io;

use toehold_posix::errno::Errno;

/// The number of an error.
pub(crate) fn number_of(error: io::Error) -> Errno {
    if let Some(number) = error.raw_os_error() {
        return Errno(number);
    }
    Errno(match error.kind() {
        io::ErrorKind::WouldBlock => libc::EAGAIN,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::Interrupted => libc::EINTR,
        io::ErrorKind::NetworkDown => libc::ENETDOWN,
        io::ErrorKind::AlreadyExists => libc::EEXIST,
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        _ => libc::EIO,
    })
}
