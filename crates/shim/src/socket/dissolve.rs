//! The way back from the node to the kernel. A connection that has ended for the program, or that has not
//! come about, becomes a socket of the kernel's again, before `connect` or `listen`.

use core::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::DupFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use toehold_posix::errno::{Errno, Outcome};

use super::owner::Owner;
use super::{Stream, UnconnectedSocket};
use crate::file::{File, Kind};
use crate::{next, node, table};

impl Stream {
    /// Ends the connection, and puts a socket of the kernel's in its place, at all of its fds. The peer sees
    /// a reset if there is one. `is_told`: the program's next call reports the reset, which the program has
    /// caused itself.
    pub(crate) fn dissolve(&self, file: &File, number: c_int, is_told: bool) -> Outcome<Arc<File>> {
        let from = self.local().ok().filter(|_| self.is_bound());
        self.history.forget_peek();
        let socket = self.history.shadow(self.domain)?;
        if is_told && self.history.protocol() == libc::IPPROTO_TCP {
            let _ = reset(&socket, self.domain);
        }
        let bound = from.is_some_and(|from| bind(&socket, self.domain, from));
        if self.is_nonblocking() {
            let _ = rustix::fs::fcntl_setfl(&socket, OFlags::NONBLOCK);
        }
        // As in the kernel, the port stays in the name of what is bound no more.
        let former = self.local().ok().filter(|_| !bound);
        self.end();
        let fresh = UnconnectedSocket::again(self.domain, &self.history, bound);
        fresh.note_former_port(former.map_or(0, |former| former.port()));
        let fresh = Arc::new(File::new(Kind::Fresh(fresh)));
        let numbers = match file.numbers().count() {
            1 => vec![number],
            _ => table::numbers_of(file),
        };
        let flags = rustix::fs::fcntl_getfl(table::borrow(&number)).unwrap_or(OFlags::empty());
        let owner = Owner::of(number, flags);
        // The connection gets the last one, as when the program has closed it.
        let last = node::copy(number);
        for number in numbers {
            let flags = rustix::io::fcntl_getfd(table::borrow(&number));
            let closes = flags.is_ok_and(|flags| flags.contains(rustix::io::FdFlags::CLOEXEC));
            let flags = if closes {
                DupFlags::CLOEXEC
            } else {
                DupFlags::empty()
            };
            let mut target = std::mem::ManuallyDrop::new(table::adopt(number));
            rustix::io::dup3(&socket, &mut target, flags).map_err(|errno| Errno(errno.raw_os_error()))?;
            table::put(number, Arc::clone(&fresh));
        }
        if let Some(owner) = owner {
            owner.has(number);
        }
        if let Some(last) = last {
            table::own(last.as_raw_fd());
            self.keep_last(last);
        }
        crate::epoll::moved(file, &fresh);
        Ok(fresh)
    }
}

/// Has a socket of the kernel's say ECONNRESET, as one does after a dissolved connection. It has such a
/// connection for a moment, with a listener at the kernel's loopback.
fn reset(socket: &OwnedFd, domain: c_int) -> Result<(), rustix::io::Errno> {
    let is_ipv6 = domain == libc::AF_INET6;
    let (family, host): (_, IpAddr) = match is_ipv6 && sockopt::ipv6_v6only(socket)? {
        true => (AddressFamily::INET6, Ipv6Addr::LOCALHOST.into()),
        false if is_ipv6 => (AddressFamily::INET, Ipv4Addr::LOCALHOST.to_ipv6_mapped().into()),
        false => (AddressFamily::INET, Ipv4Addr::LOCALHOST.into()),
    };
    let listener = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::listen(&listener, 1)?;
    let at = SocketAddr::try_from(rustix::net::getsockname(&listener)?)?;
    // The kernel's loopback connects at once, if there is any.
    rustix::fs::fcntl_setfl(socket, OFlags::NONBLOCK)?;
    let _ = rustix::net::connect(socket, &SocketAddr::new(host, at.port()));
    let undone = rustix::net::connect_unspec(socket);
    rustix::fs::fcntl_setfl(socket, OFlags::empty())?;
    undone
}

/// Binds a socket of the kernel's where the connection was bound to. Another socket may have the port by now:
/// then it leaves from any port.
fn bind(socket: &OwnedFd, domain: c_int, at: SocketAddr) -> bool {
    let mut bytes = [0_u8; 28];
    let mut len = bytes.len() as libc::socklen_t;
    // SAFETY: the room is as long as said, and any address has room in it.
    unsafe {
        toehold_posix::address::write(at, domain, bytes.as_mut_ptr().cast(), &mut len);
        next::bind(socket.as_raw_fd(), bytes.as_ptr().cast(), len) == 0
    }
}
