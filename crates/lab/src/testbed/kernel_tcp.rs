//! The kernel's TCP sockets, set up alike wherever they are measured.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use nix::sys::socket::sockopt::TcpCongestion;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, connect, setsockopt, socket};

use super::{Connection, Context, TestbedError};
use crate::workload::Workload;

/// Makes sockets at one address, with the congestion control of the settings and
/// without Nagle's delay.
#[derive(Debug)]
pub(super) struct KernelTcp {
    /// Where servers listen.
    address: Ipv4Addr,
    congestion: OsString,
}

/// Listens, and knows what accepted connections are for.
#[derive(Debug)]
pub(super) struct Listener {
    listener: TcpListener,
    carries_data: bool,
}

impl KernelTcp {
    /// Tries the congestion control on a socket first.
    pub(super) fn new(address: Ipv4Addr, context: &Context) -> Result<Self, TestbedError> {
        let congestion = OsString::from(&context.settings.congestion);
        let attempt = socket(
            AddressFamily::Inet,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .map_err(|error| TestbedError::failed("make a TCP socket", error))?;
        setsockopt(&attempt, TcpCongestion, &congestion).map_err(|error| {
            let name = &context.settings.congestion;
            TestbedError::Unavailable(format!(
                "cannot set congestion control `{name}` on a socket ({error}): load it with \
                 `modprobe tcp_{name}` and allow it in net.ipv4.tcp_allowed_congestion_control"
            ))
        })?;
        Ok(Self { address, congestion })
    }

    pub(super) fn listen(&self, workload: &Workload) -> io::Result<(Listener, String)> {
        let listener = TcpListener::bind((self.address, 0))?;
        // Accepted sockets inherit it.
        setsockopt(&listener, TcpCongestion, &self.congestion)?;
        let address = listener.local_addr()?.to_string();
        Ok((
            Listener {
                listener,
                carries_data: carries_data(workload),
            },
            address,
        ))
    }

    pub(super) fn connect(&self, address: &str, workload: &Workload) -> io::Result<TcpStream> {
        let address: SocketAddrV4 = address.parse().map_err(io::Error::other)?;
        if !carries_data(workload) {
            return TcpStream::connect(address);
        }
        let socket = socket(
            AddressFamily::Inet,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        // Before it is connected: one that had BBR for a moment stays paced for good.
        setsockopt(&socket, TcpCongestion, &self.congestion)?;
        connect(socket.as_raw_fd(), &SockaddrIn::from(address))?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Listener {
    pub(super) fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.listener.accept()?;
        if self.carries_data {
            stream.set_nodelay(true)?;
        }
        Ok(stream)
    }

    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        self.listener.set_nonblocking(true)
    }
}

/// Options that only matter to data would be a burden on mere connections.
fn carries_data(workload: &Workload) -> bool {
    *workload != Workload::Connect
}

impl Connection for TcpStream {
    fn finish(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}
