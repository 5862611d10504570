//! Listeners.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use toehold_node::{Operation, Ownership, Possession, Shard, SpinBudget, Subscription};
use toehold_stack::{Event, ListenerId, Settings, SocketError, SocketOption};

use crate::error::{from_socket, would_block};
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
    ownership: Ownership,
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
        let mut shard = node.shared.enter()?;
        shard.tick();
        let now = shard.now;
        let id = shard
            .stack
            .listen(now, addr, backlog, settings)
            .map_err(from_socket)?;
        let possession = Possession::Source(Event::Listener(id));
        let ownership = match node.shared.own(&mut shard, possession) {
            Ok(ownership) => ownership,
            Err(error) => {
                let _ = shard.stack.close_listener(id);
                return Err(error);
            }
        };
        drop(shard);
        let listener = Listener {
            node: Arc::clone(&node.shared),
            id,
            ownership,
            nonblocking: AtomicBool::new(false),
            spin: SpinBudget::new(),
        };
        Ok(TcpListener {
            listener: Arc::new(listener),
        })
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
        let mut shard = node.enter()?;
        let mut result = operation.attempt(&mut shard);
        if result.is_none() && nonblocking.load(Relaxed) {
            shard.poll_once(None);
            result = operation.attempt(&mut shard);
        } else if result.is_none() {
            result = node.block(&mut shard, &mut operation, spin, None)?;
        }
        node.settle(&mut shard);
        let connection = result.ok_or_else(would_block)?.map_err(from_socket)?;
        let peer = shard.stack.peer_addr(connection).map_err(from_socket)?;
        Ok((TcpStream::new(node, &mut shard, connection)?, peer))
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
        // A node that is gone holds nothing.
        let Ok(mut shard) = self.node.enter() else { return };
        shard.tick();
        shard.forget(Event::Listener(self.id));
        // There is nothing to be done about a listener that is gone already.
        let _ = shard.stack.close_listener(self.id);
        self.node.disown(&mut shard, self.ownership);
        shard.respond();
        self.node.settle(&mut shard);
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
