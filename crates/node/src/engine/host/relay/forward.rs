//! Forwarding from a node's listener to one of the kernel's at the same place. Its program can be
//! told nothing else, or does not ask. The engine connects a peer of the first listener to the
//! second.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::callers::{Callers, Forwarded};

/// Processes that may accept from one listener and have been told the peers' addresses, at most.
const TABLES: usize = 8;

/// The address of a listener of the kernel's, and the tables of the processes that are told the
/// peers.
#[derive(Debug)]
pub(in crate::engine::host) struct Forward {
    listener: SocketAddr,
    /// The tables of the programs that have it, the one that said so last first.
    callers: Vec<Arc<Callers>>,
    pub(super) which: Forwarded,
}

/// A connection to a listener of the kernel's, on behalf of a peer.
#[derive(Debug)]
pub(in crate::engine::host) struct Caller {
    socket: OwnedFd,
    port: u16,
    forward: Arc<Forward>,
}

impl Forward {
    /// Forwarding to a listener, with the table that its program has made.
    ///
    /// # Errors
    ///
    /// EADDRNOTAVAIL if the kernel does not have the listener's address, EINVAL if it is no
    /// listener or that is no table.
    pub(in crate::engine::host) fn new(
        listener: &OwnedFd,
        callers: OwnedFd,
        which: Forwarded,
    ) -> Result<Forward, Errno> {
        let callers = Callers::open(callers).ok_or(Errno::INVAL)?;
        if !sockopt::socket_acceptconn(listener)? {
            return Err(Errno::INVAL);
        }
        let mut address = SocketAddr::try_from(rustix::net::getsockname(listener)?)?;
        if address.ip().is_unspecified() {
            let is_ipv6 = address.is_ipv6() && sockopt::ipv6_v6only(listener)?;
            address.set_ip(match is_ipv6 {
                true => Ipv6Addr::LOCALHOST.into(),
                false => Ipv4Addr::LOCALHOST.into(),
            });
        }
        let forward = Forward {
            listener: address,
            callers: vec![Arc::new(callers)],
            which,
        };
        // If it is an address of the kernel's, there is no way but within the kernel.
        forward.socket().map(|_| forward)
    }

    /// Forwarding in this way, also for the programs that had the listener before: any of them may
    /// accept.
    pub(super) fn and_before(&self, former: &Forward) -> Forward {
        let mut callers = self.callers.clone();
        for table in &former.callers {
            if callers.len() < TABLES && !callers.iter().any(|known| known.is_same(table)) {
                callers.push(Arc::clone(table));
            }
        }
        Forward { callers, ..*self }
    }

    /// A socket at the listener's address.
    fn socket(&self) -> Result<OwnedFd, Errno> {
        let family = match self.listener {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&socket, &SocketAddr::new(self.listener.ip(), 0))?;
        Ok(socket)
    }

    /// Connects to the listener on behalf of the peer of a connection. It does not wait for it.
    ///
    /// # Errors
    ///
    /// If the system has no sockets or ports, or no program listens any more.
    pub(in crate::engine::host) fn call(
        forward: &Arc<Forward>,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Result<Caller, Errno> {
        let socket = forward.socket()?;
        let port = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?.port();
        sockopt::set_tcp_nodelay(&socket, true)?;
        for callers in &forward.callers {
            callers.note(port, local, peer);
        }
        let caller = Caller {
            socket,
            port,
            forward: Arc::clone(forward),
        };
        match rustix::net::connect(&caller.socket, &forward.listener) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(caller),
            Err(errno) => Err(errno),
        }
    }
}

impl Caller {
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Whether it still waits for room at the listener.
    pub(super) fn is_connecting(&self) -> bool {
        // One that has failed is at its end, too, but for its error.
        rustix::net::getpeername(&self.socket).is_err() && sockopt::socket_error(&self.socket) == Ok(Ok(()))
    }

    /// Has the program see a reset.
    pub(in crate::engine::host) fn reset(&self) {
        let _ = sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        for callers in &self.forward.callers {
            callers.forget(self.port);
        }
    }
}
