//! Listeners.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use toehold_node::{Holder, HolderError, Operation, Shard, SpinBudget, Subscription};
use toehold_stack::{Event, ListenerId, Settings, SocketError, SocketOption};

use crate::error::{from_holder, from_socket, invalid, would_block};
use crate::node::{Node, Shared};
use crate::stream::{TcpStream, each_address};

/// Connections that wait to be accepted unless said otherwise, as many as
/// std's listeners have on Linux.
const BACKLOG: u32 = 4096;

/// A socket that others connect to.
///
/// The methods that `std::net::TcpListener` has too mean the same here.
/// Dropping the last handle closes it; connections that wait are reset.
pub struct TcpListener {
    listener: Arc<Listener>,
}

struct Listener {
    node: Arc<Shared>,
    id: ListenerId,
    /// Taken when it is dropped, and not before.
    holder: Option<Holder>,
    nonblocking: AtomicBool,
    spin: SpinBudget,
}

impl TcpListener {
    /// Listens at an address of the node, or at all of them (`0.0.0.0`, `[::]`).
    /// Port 0 lets the node choose; [`TcpListener::local_addr`] tells.
    ///
    /// # Errors
    ///
    /// `AddrInUse`, `AddrNotAvailable`, ENOBUFS if there are too many listeners.
    pub fn bind<A: ToSocketAddrs>(node: &Node, addr: A) -> io::Result<TcpListener> {
        Self::bind_with_backlog(node, addr, BACKLOG)
    }

    /// As [`TcpListener::bind`]; at most `backlog` + 1 connections wait to be
    /// accepted. The peers of more have to wait for their turn.
    ///
    /// # Errors
    ///
    /// As for [`TcpListener::bind`].
    pub fn bind_with_backlog<A: ToSocketAddrs>(
        node: &Node,
        addr: A,
        backlog: u32,
    ) -> io::Result<TcpListener> {
        let mut settings = node.default_settings()?;
        // As std does.
        let _ = settings.apply(SocketOption::ReuseAddress(true));
        each_address(addr, |addr| {
            Self::bind_with_settings(node, addr, backlog, &settings)
        })
    }

    /// As [`TcpListener::bind_with_backlog`], with settings for the
    /// connections that will be accepted.
    ///
    /// # Errors
    ///
    /// As for [`TcpListener::bind`].
    pub fn bind_with_settings(
        node: &Node,
        addr: SocketAddr,
        backlog: u32,
        settings: &Settings,
    ) -> io::Result<TcpListener> {
        let (holder, id) = node.shared.make(|shard| {
            shard.tick();
            let now = shard.now;
            let listened = shard.stack.listen(now, addr, backlog, settings);
            let id = listened.map_err(from_socket)?;
            Ok((Event::Listener(id), id))
        })?;
        Ok(Self::new(node, id, holder))
    }

    fn new(node: &Node, id: ListenerId, holder: Holder) -> TcpListener {
        let listener = Listener {
            node: Arc::clone(&node.shared),
            id,
            holder: Some(holder),
            nonblocking: AtomicBool::new(false),
            spin: SpinBudget::new(),
        };
        TcpListener {
            listener: Arc::new(listener),
        }
    }

    /// The listener that a descriptor is, which another process, or the program that this
    /// process ran before, had by [`TcpListener::descriptor`] or [`TcpListener::into_fd`].
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it is none of this node's, `Unsupported` if the node is only
    /// this process's.
    pub fn from_fd(node: &Node, descriptor: OwnedFd) -> io::Result<TcpListener> {
        match node.shared.identify(descriptor)? {
            (holder, Event::Listener(id)) => Ok(Self::new(node, id, holder)),
            _ => Err(invalid("the descriptor is a connection, and no listener")),
        }
    }

    /// The descriptor that keeps the listener open: whoever has a copy can make a
    /// listener of it, [`TcpListener::from_fd`]. It does not survive `exec` unless told
    /// so, and nothing but that can be done with it.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the node is only this process's.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        let holder = self.listener.holder.as_ref();
        let descriptor = holder.map_or(Err(HolderError::Private), Holder::descriptor);
        descriptor.map_err(from_holder)
    }

    /// The descriptor in place of the listener, which stays open as long as somebody has
    /// the descriptor.
    ///
    /// # Errors
    ///
    /// As [`TcpListener::descriptor`]; EMFILE if there is no room for another descriptor.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        self.descriptor()?.try_clone_to_owned()
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// None for a listener that exists.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.with(|shard, id| shard.stack.listener_addr(id))
    }

    /// Takes the oldest connection that waits, or waits for one.
    ///
    /// # Errors
    ///
    /// `WouldBlock` in non-blocking mode.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let Listener {
            node,
            id,
            nonblocking,
            spin,
            ..
        } = &*self.listener;
        let mut operation = Accept { id: *id };
        let (holder, (connection, peer)) = node.make(|shard| {
            let mut result = operation.attempt(shard);
            if result.is_none() && nonblocking.load(Relaxed) {
                shard.poll_once(None);
                result = operation.attempt(shard);
            } else if result.is_none() {
                result = node.block(shard, &mut operation, spin, None)?;
            }
            let accepted = result.ok_or_else(would_block)?;
            let connection = accepted.map_err(from_socket)?;
            let peer = shard.stack.peer_addr(connection).map_err(from_socket)?;
            Ok((Event::Connection(connection), (connection, peer)))
        })?;
        Ok((TcpStream::new(node, connection, holder), peer))
    }

    /// The connections that come, one after the other, for ever.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// A second handle of the same listener.
    ///
    /// # Errors
    ///
    /// Never; std's can run out of descriptors.
    pub fn try_clone(&self) -> io::Result<TcpListener> {
        Ok(TcpListener {
            listener: Arc::clone(&self.listener),
        })
    }

    /// Whether [`TcpListener::accept`] fails with `WouldBlock` instead of waiting.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.listener.nonblocking.store(nonblocking, Relaxed);
        Ok(())
    }

    /// Changes how many connections may wait, as a second `listen(2)` does.
    ///
    /// # Errors
    ///
    /// None for a listener that exists.
    pub fn set_backlog(&self, backlog: u32) -> io::Result<()> {
        self.with(|shard, id| shard.stack.set_backlog(id, backlog))
    }

    /// Sets an option of the connections that are accepted from now on;
    /// [`SocketOption::FastOpen`] is one of the listener itself.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the value is out of the option's range.
    pub fn set_option(&self, option: SocketOption) -> io::Result<()> {
        self.with(|shard, id| shard.stack.set_listener_option(id, option))
    }

    /// A listener has no errors of its own; std's has not either.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(None)
    }

    pub(crate) fn source(&self) -> (&Arc<Shared>, Event) {
        (&self.listener.node, Event::Listener(self.listener.id))
    }

    fn with<T>(&self, call: impl FnOnce(&mut Shard, ListenerId) -> Result<T, SocketError>) -> io::Result<T> {
        call(&mut *self.listener.node.enter()?, self.listener.id).map_err(from_socket)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(holder) = self.holder.take() {
            let source = Event::Listener(self.id);
            // A node that is gone holds nothing.
            let _ = self.node.unmake(holder, source, |_| Ok(()));
        }
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TcpListener");
        if let Ok(addr) = self.local_addr() {
            debug.field("addr", &addr);
        }
        debug.finish_non_exhaustive()
    }
}

struct Accept {
    id: ListenerId,
}

impl Operation for Accept {
    type Output = Result<toehold_stack::ConnectionId, SocketError>;

    fn attempt(&mut self, shard: &mut Shard) -> Option<Self::Output> {
        match shard.stack.accept(self.id) {
            Err(SocketError::WouldBlock) => None,
            result => Some(result),
        }
    }

    fn subscription(&self) -> Subscription {
        Subscription::Source(Event::Listener(self.id))
    }
}

/// The connections a listener accepts; see [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl std::iter::FusedIterator for Incoming<'_> {}
