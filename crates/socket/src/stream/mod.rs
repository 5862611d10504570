//! Streams: connections as programs hold them.

mod calls;
mod connected;
mod connection;
pub(crate) mod direct;
mod lanes;
mod leased;
mod least;
mod operations;
mod options;

pub use calls::{ReceiveOptions, SendOptions};
pub use options::Keepalive;

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use toehold_node::{Description, Holder, Relayed};
use toehold_stack::{ConnectionId, Event, Settings};

use self::calls::scatter;
pub(crate) use self::connected::Connected;
use self::connection::{Connection, bounded};
use self::direct::DirectConnection;
use crate::error::{from_socket, invalid};
use crate::node::{Identified, Node, OnShard, Shared};

/// A TCP connection between this node and another one, or itself.
///
/// The methods that `std::net::TcpStream` has too mean the same here, down to the kinds of errors.
/// Dropping the last handle closes the connection. What was written is still sent while the node is
/// driven, at the latest when the node ends; see [`TcpStream::set_linger`].
///
/// See [`Node`] for an example.
pub struct TcpStream {
    connection: Arc<Connected>,
}

/// Options of opening a connection; [`TcpStream::connect`] uses the defaults.
#[derive(Debug, Clone, Default)]
pub struct ConnectOptions {
    /// This side's address; an unspecified address or port is chosen by the node.
    pub local: Option<SocketAddr>,
    /// How long to try, at most; longer than zero.
    pub timeout: Option<Duration>,
    /// Settings from the start, see [`Node::default_settings`].
    pub settings: Option<Settings>,
    /// Whether the SYN leaves with the first bytes, see [`TcpStream::send_first`].
    pub with_data: bool,
    /// Whether the connection is made over TCP, though both ends are on this host. Set it if the
    /// program asks for something that only TCP has.
    pub over_tcp: bool,
}

impl TcpStream {
    /// Opens a connection. Of several addresses each is tried until one answers.
    ///
    /// # Errors
    ///
    /// The error of the last address: `ConnectionRefused`, `TimedOut`, `HostUnreachable`,
    /// `NetworkUnreachable`, `AddrNotAvailable` if no port is left, ENOBUFS if the node's bound of
    /// connections is reached.
    pub fn connect<A: ToSocketAddrs>(node: &Node, addr: A) -> io::Result<TcpStream> {
        each_address(addr, |addr| {
            Self::connect_with(node, &addr, &ConnectOptions::default())
        })
    }

    /// Connects to an address through the node, and tries no longer than `timeout`.
    ///
    /// # Errors
    ///
    /// The errors of [`TcpStream::connect`]; `TimedOut` after that time, `InvalidInput` if it is
    /// zero.
    pub fn connect_timeout(node: &Node, addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        let options = ConnectOptions {
            timeout: Some(timeout),
            ..ConnectOptions::default()
        };
        Self::connect_with(node, addr, &options)
    }

    /// Connects to an address through the node, with settings from the start.
    ///
    /// # Errors
    ///
    /// The errors of [`TcpStream::connect_timeout`]; `AddrInUse` or `AddrNotAvailable` for the
    /// local address.
    pub fn connect_with(node: &Node, addr: &SocketAddr, options: &ConnectOptions) -> io::Result<TcpStream> {
        if options.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(invalid("cannot set a 0 duration timeout"));
        }
        let stream = Self::begin(node, addr, options)?;
        stream.finish_connect(options.timeout)?;
        Ok(stream)
    }

    /// Begins to open a connection and does not wait for it. The stream is in non-blocking mode,
    /// and writable, or broken, when the attempt is over. [`TcpStream::take_error`] tells which.
    ///
    /// # Errors
    ///
    /// If the attempt cannot even be begun.
    pub fn connect_nonblocking(node: &Node, addr: &SocketAddr) -> io::Result<TcpStream> {
        let stream = Self::begin(node, addr, &ConnectOptions::default())?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// Begins to open a connection, see [`TcpStream::finish_connect`].
    ///
    /// # Errors
    ///
    /// If the attempt cannot even be begun.
    pub fn begin(node: &Node, addr: &SocketAddr, options: &ConnectOptions) -> io::Result<TcpStream> {
        node.shared.contain(|| {
            // Data leave with the SYN over TCP only (RFC 7413), and the program may look whether they did.
            if !(options.with_data || options.over_tcp)
                && let Some(direct) =
                    DirectConnection::open(&node.shared, *addr, options.local, options.settings.as_ref())?
            {
                return Ok(Self::over(Connected::Direct(direct)));
            }
            let shards = node.shared.shards()?;
            let local = options.local.filter(|local| local.port() != 0);
            if let (Some(_), 2..) = (local, shards.count()) {
                // The port says which it is.
                let owner = node.shared.enter(0)?.stack.shard_for(local, *addr);
                return Self::begin_in(node, owner.unwrap_or(0), addr, options);
            }
            let mut begun = Err(Errno::ADDRNOTAVAIL.into());
            for shard in shards.from_home() {
                begun = Self::begin_in(node, shard, addr, options);
                let full = [Errno::ADDRNOTAVAIL, Errno::NOBUFS].map(|errno| Some(errno.raw_os_error()));
                match &begun {
                    // Another one may have ports or memory left.
                    Err(error) if full.contains(&error.raw_os_error()) => {}
                    _ => break,
                }
            }
            begun
        })
    }

    fn begin_in(
        node: &Node,
        shard: u8,
        addr: &SocketAddr,
        options: &ConnectOptions,
    ) -> io::Result<TcpStream> {
        let (holder, (id, low_water)) = node.shared.make(shard, |shard| {
            shard.tick();
            let now = shard.now;
            let settings = options.settings.unwrap_or_else(|| shard.stack.default_settings());
            let begun = match options.with_data {
                true => shard
                    .stack
                    .connect_with_data(now, options.local, *addr, &settings),
                false => shard.stack.connect(now, options.local, *addr, &settings),
            };
            let id = begun.map_err(from_socket)?;
            shard.respond();
            // The question for the peer's hardware address is no output of TCP's.
            shard.transmit();
            Ok((Event::Connection(id), (id, settings.receive_low_water())))
        })?;
        Ok(Self::new(&node.shared, (shard, id), holder, Some(low_water)))
    }

    /// Makes a stream of a connection that this process has from now on.
    pub(crate) fn new(
        node: &Arc<Shared>,
        (index, id): (u8, ConnectionId),
        holder: Holder,
        low_water: Option<u32>,
    ) -> Self {
        let node = Arc::clone(node);
        let connection = Connection::new(OnShard { node, index }, id, holder, low_water);
        Self::over(Connected::Tcp(connection))
    }

    pub(crate) fn over(connection: Connected) -> TcpStream {
        TcpStream {
            connection: Arc::new(connection),
        }
    }

    /// The connection that a descriptor is, which another process, or the program that
    /// this process ran before, had by [`TcpStream::descriptor`] or [`TcpStream::into_fd`].
    /// Processes that have the same connection share its bytes and settings, its timeouts and
    /// its mode.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it is none of this node's, `Unsupported` if the node is only
    /// this process's.
    pub fn from_fd(node: &Node, descriptor: OwnedFd) -> io::Result<TcpStream> {
        node.shared.contain(|| {
            let (holder, sources) = match node.shared.identify_direct(descriptor)? {
                Identified::Direct(holder, end) => {
                    let direct = DirectConnection::adopt(&node.shared, holder, end)?;
                    return Ok(Self::over(Connected::Direct(direct)));
                }
                Identified::InShards(holder, sources) => (holder, sources),
            };
            match sources[..] {
                [(shard, Event::Connection(id))] => {
                    let there = node.shared.enter(shard)?.stack.settings(id);
                    there.map_err(from_socket)?;
                    Ok(Self::new(&node.shared, (shard, id), holder, None))
                }
                _ => Err(invalid("the descriptor is a listener, and no connection")),
            }
        })
    }

    /// The descriptor that keeps the connection open. A process that has a copy can make a stream
    /// of it with [`TcpStream::from_fd`]. It has no other use: neither bytes nor readiness go
    /// through it. It does not survive `exec` unless told so.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the node is only this process's.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        self.connection.descriptor()
    }

    /// Turns the stream into its descriptor. The connection stays open as long as a process has the
    /// descriptor.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the node is only this process's; EMFILE if there is no room for another
    /// descriptor.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        self.descriptor()?.try_clone_to_owned()
    }

    /// Has the engine carry the bytes between the connection and its descriptor from now on. The
    /// descriptor is then a connected Unix socket, which any program can use, whether it knows of
    /// the node or not. Such a program is a child of this process, or what this process becomes by
    /// `exec`. All handles of the stream, in all processes, lose it: their calls fail with EBADF.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the node is only this process's; `NetworkDown` if it is gone.
    pub fn relay(&self) -> io::Result<()> {
        self.connection.relay()
    }

    /// Has the kernel send SIGURG when the peer announces urgent data. It goes to the owner
    /// (`F_SETOWN`) of the first of two connected Unix sockets, since the kernel knows nothing of
    /// the connection. Call it again when the owner changes. Where the kernel's Unix sockets have
    /// no urgent data (before Linux 5.15), no process is signalled.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the node is only this process's; `NetworkDown` if it is gone.
    pub fn signal_owner(&self, messenger: [OwnedFd; 2]) -> io::Result<()> {
        self.connection.signal_owner(messenger)
    }

    /// The ends of the connection, if the engine carries its bytes.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn relayed(&self) -> io::Result<Option<Relayed>> {
        self.connection.relayed()
    }

    /// The state of the connection beside its stack, which all processes that have it share.
    #[inline]
    pub fn description(&self) -> &Description {
        self.connection.description()
    }

    /// Whether the connection carries its bytes over memory alone: no call on it drives the node.
    #[inline]
    pub fn is_direct(&self) -> bool {
        matches!(*self.connection, Connected::Direct(_))
    }

    pub(crate) fn connected(&self) -> &Arc<Connected> {
        &self.connection
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.connection.peer_addr()
    }

    /// This side's address.
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.connection.local_addr()
    }

    /// Shuts one or both directions. What was written before is still sent,
    /// and what was received can still be read.
    ///
    /// # Errors
    ///
    /// `NotConnected`.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match &*self.connection {
            Connected::Direct(connection) => connection.shutdown(how),
            Connected::Tcp(connection) => connection.shutdown(match how {
                Shutdown::Read => toehold_stack::Shutdown::Read,
                Shutdown::Write => toehold_stack::Shutdown::Write,
                Shutdown::Both => toehold_stack::Shutdown::Both,
            }),
        }
    }

    /// A second handle of the same stream; both share their position, their
    /// timeouts and their mode.
    ///
    /// # Errors
    ///
    /// Never; std's can run out of descriptors.
    pub fn try_clone(&self) -> io::Result<TcpStream> {
        Ok(TcpStream {
            connection: Arc::clone(&self.connection),
        })
    }

    /// Receives bytes and leaves them for the next call.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is nothing to read and the call does not wait, or its time is over.
    /// `NotConnected`; `NetworkDown` if the node is gone; or the connection's error, once.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let options = ReceiveOptions {
            peek: true,
            ..ReceiveOptions::default()
        };
        self.receive_with(&mut [IoSliceMut::new(buf)], options)
    }

    /// Sets how long reading waits at most; `None` means as long as it takes. A call whose time is
    /// over fails with `WouldBlock`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a zero duration.
    pub fn set_read_timeout(&self, dur: Option<Duration>) -> io::Result<()> {
        self.connection.description().set_read_timeout(bounded(dur)?);
        Ok(())
    }

    /// Sets how long writing waits at most; `None` means as long as it takes. A call whose time is
    /// over fails with `WouldBlock`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a zero duration.
    pub fn set_write_timeout(&self, dur: Option<Duration>) -> io::Result<()> {
        self.connection.description().set_write_timeout(bounded(dur)?);
        Ok(())
    }

    /// How long reading waits.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.connection.description().read_timeout())
    }

    /// How long writing waits.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.connection.description().write_timeout())
    }

    /// Sets whether calls fail with `WouldBlock` instead of waiting.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.connection.description().set_nonblocking(nonblocking);
        Ok(())
    }
}

/// Tries each address in turn.
pub(crate) fn each_address<A: ToSocketAddrs, T>(
    addr: A,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for addr in addr.to_socket_addrs()? {
        match attempt(addr) {
            Ok(made) => return Ok(made),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| invalid("could not resolve to any addresses")))
}

impl Read for &TcpStream {
    #[inline]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.receive_with(&mut [IoSliceMut::new(buf)], ReceiveOptions::default())
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.receive_with(bufs, ReceiveOptions::default())
    }
}

impl Write for &TcpStream {
    #[inline]
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.send_with(&[IoSlice::new(buf)], SendOptions::default())
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send_with(bufs, SendOptions::default())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    #[inline]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for TcpStream {
    #[inline]
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TcpStream");
        if let (Ok(local), Ok(peer)) = (self.local_addr(), self.peer_addr()) {
            debug.field("addr", &local).field("peer", &peer);
        }
        debug.finish_non_exhaustive()
    }
}
