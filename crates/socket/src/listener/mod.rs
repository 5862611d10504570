//! Listeners.
//!
//! Accepting connections is in `accept`.

mod accept;

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use toehold_node::{Callers, Description, Forwarded, Holder, HolderError, Shard, SpinBudget};
use toehold_stack::{Event, ListenerId, Readiness, Settings, SocketError, SocketOption};

use self::accept::PublishedAs;
use crate::error::{from_holder, from_socket, invalid};
use crate::node::{Node, Shared};
use crate::stream::{TcpStream, each_address};

/// Default limit of connections that wait to be accepted, that of std's listeners on Linux.
const BACKLOG: u32 = 4096;

/// A TCP socket that accepts connections.
///
/// The methods that `std::net::TcpListener` has too mean the same here.
/// Dropping the last handle closes it; connections that wait are reset.
pub struct TcpListener {
    listener: Arc<Listener>,
}

pub(crate) struct Listener {
    node: Arc<Shared>,
    /// The listener's id in each shard.
    ids: Vec<ListenerId>,
    /// The holder; taken when the listener is dropped, and not before.
    holder: Option<Holder>,
    /// Whether calls wait, for all processes that have the listener.
    description: Description,
    /// The node knows that threads that wait for the listener are told on the node.
    attended: AtomicBool,
    /// The shard of the threads that wait for it is known.
    settled: AtomicBool,
    spin: SpinBudget,
    /// The id by which peers know the listener.
    published: PublishedAs,
}

impl Listener {
    pub(crate) fn node(&self) -> &Arc<Shared> {
        &self.node
    }

    /// The listener's id in each shard of its node.
    pub(crate) fn names(&self) -> impl Iterator<Item = (u8, Event)> {
        (0..).zip(self.ids.iter().map(|id| Event::Listener(*id)))
    }
}

impl From<Arc<Listener>> for TcpListener {
    fn from(listener: Arc<Listener>) -> TcpListener {
        TcpListener { listener }
    }
}

impl TcpListener {
    /// Listens at an address of the node, or at all of them (`0.0.0.0`, `[::]`).
    /// Port 0 lets the node choose; [`TcpListener::local_addr`] tells.
    ///
    /// # Errors
    ///
    /// `AddrInUse`, also if a program of the kernel beside the node has the port;
    /// `AddrNotAvailable`; ENOBUFS if there are too many listeners.
    pub fn bind<A: ToSocketAddrs>(node: &Node, addr: A) -> io::Result<TcpListener> {
        Self::bind_with_backlog(node, addr, BACKLOG)
    }

    /// Listens at an address of the node, with a limit of waiting connections. At most `backlog` +
    /// 1 connections wait to be accepted, in each of the node's shards. The peers of more have to
    /// wait for their turn.
    ///
    /// # Errors
    ///
    /// `AddrInUse`, also if a program of the kernel beside the node has the port;
    /// `AddrNotAvailable`; ENOBUFS if there are too many listeners.
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

    /// Listens at an address of the node, with settings for the connections that will be accepted.
    /// At most `backlog` + 1 connections wait to be accepted, in each of the node's shards.
    ///
    /// # Errors
    ///
    /// `AddrInUse`, also if a program of the kernel beside the node has the port;
    /// `AddrNotAvailable`; ENOBUFS if there are too many listeners.
    pub fn bind_with_settings(
        node: &Node,
        addr: SocketAddr,
        backlog: u32,
        settings: &Settings,
    ) -> io::Result<TcpListener> {
        let (holder, addr) = node.shared.holder_at(addr, settings)?;
        Self::bind_with_holder(node, addr, holder, backlog, settings)
    }

    /// Listens with settings, for a program that also listens in the kernel at the same address and
    /// port. The kernel then leaves the port to no other program.
    ///
    /// # Errors
    ///
    /// `AddrInUse`, `AddrNotAvailable`; ENOBUFS if there are too many listeners.
    pub fn bind_beside_kernel(
        node: &Node,
        addr: SocketAddr,
        backlog: u32,
        settings: &Settings,
    ) -> io::Result<TcpListener> {
        node.shared.contain(|| {
            let holder = node.shared.shards()?.get(0).holder().map_err(from_holder)?;
            Self::bind_with_holder(node, addr, holder, backlog, settings)
        })
    }

    fn bind_with_holder(
        node: &Node,
        mut addr: SocketAddr,
        holder: Holder,
        backlog: u32,
        settings: &Settings,
    ) -> io::Result<TcpListener> {
        let (holder, ids) = node.shared.make_everywhere(holder, |_, shard| {
            let listened = shard.listen(addr, backlog, settings);
            let id = listened.map_err(from_socket)?;
            // The first shard chooses the port, and keeps it from every other listener.
            let port = shard.stack.listener_addr(id).map_or(0, |addr| addr.port());
            addr.set_port(port);
            Ok((Event::Listener(id), id))
        })?;
        let listener = Self::new(node, ids, holder);
        listener.listener.description.begin_settings(settings);
        Ok(listener)
    }

    fn new(node: &Node, ids: Vec<ListenerId>, holder: Holder) -> TcpListener {
        let shards = node.shared.shards();
        let description = shards.map_or_else(
            |_| Description::private(),
            |shards| shards.get(0).description(&holder),
        );
        let listener = Listener {
            node: Arc::clone(&node.shared),
            ids,
            holder: Some(holder),
            description,
            attended: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            spin: SpinBudget::new(),
            published: PublishedAs::default(),
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
        let (holder, sources) = node.shared.identify(descriptor)?;
        let ids: Option<Vec<ListenerId>> = sources
            .iter()
            .map(|(_, source)| match source {
                Event::Listener(id) => Some(*id),
                Event::Connection(_) => None,
            })
            .collect();
        let ids = ids.filter(|ids| {
            let shards = node.shared.shards();
            shards.is_ok_and(|shards| ids.len() == usize::from(shards.count()))
        });
        let no_listener = || invalid("the descriptor is a connection, and no listener");
        Ok(Self::new(node, ids.ok_or_else(no_listener)?, holder))
    }

    /// The descriptor that keeps the listener open. A process that has a copy can make a listener
    /// of it with [`TcpListener::from_fd`]. It has no other use, and does not survive `exec` unless
    /// told so.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the node is only this process's.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        let holder = self.listener.holder.as_ref();
        let descriptor = holder.map_or(Err(HolderError::Private), Holder::descriptor);
        descriptor.map_err(from_holder)
    }

    /// Turns the listener into its descriptor. The listener stays open as long as a process has the
    /// descriptor.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the node is only this process's; EMFILE if there is no room for another
    /// descriptor.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        self.descriptor()?.try_clone_to_owned()
    }

    /// Has the node's engine forward peers that connect from now on to a listener of the kernel's
    /// at the same place. [`Forwarded`] says which: all, for a process that cannot accept here any
    /// more, or those that arrive while no thread waits here. `callers` tells the process the
    /// addresses of the forwarded peers.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the node is only this process's; `InvalidInput` if the engine does not
    /// reach the kernel's listener; `NetworkDown` if the node is gone.
    pub fn forward(&self, listener: BorrowedFd<'_>, callers: &Callers, which: Forwarded) -> io::Result<()> {
        self.listener.node.contain(|| {
            let Listener { node, holder, .. } = &*self.listener;
            let holder = holder.as_ref().ok_or_else(|| from_holder(HolderError::Private))?;
            let forwarded = node.shards()?.get(0).forward(holder, listener, callers, which);
            forwarded.map_err(from_holder)
        })
    }

    /// The state of the listener beside its stack, which all processes that have it share.
    pub fn description(&self) -> &Description {
        &self.listener.description
    }

    /// The address where it listens.
    ///
    /// # Errors
    ///
    /// None for a listener that exists.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.node.contain(|| {
            let Listener { node, ids, .. } = &*self.listener;
            let id = *ids.first().ok_or(Errno::BADF)?;
            node.enter(0)?.stack.listener_addr(id).map_err(from_socket)
        })
    }

    /// Takes the oldest connection that waits, or waits for one. Of a node with several
    /// shards, each has connections that wait: those of the thread's own come first.
    ///
    /// # Errors
    ///
    /// `WouldBlock` in non-blocking mode.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept_or_wait(!self.listener.description.is_nonblocking())
    }

    /// Takes the oldest connection that waits, whatever the listener's mode is.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none.
    pub fn try_accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept_or_wait(false)
    }

    /// Iterates over the connections that come, without end.
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

    /// Sets whether [`TcpListener::accept`] fails with `WouldBlock` instead of waiting.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.listener.description.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Returns the readiness of the listener, as far as received frames were looked at.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn readiness(&self) -> io::Result<Readiness> {
        if self.listener.node.shards()?.is_over() {
            return Err(Errno::NETDOWN.into());
        }
        let readable = match self.listener.leaseless() {
            Some(_) => self.listener.has_direct(),
            None => self.listener.has_direct() || self.waiting()? > 0,
        };
        Ok(Readiness {
            readable,
            ..Readiness::default()
        })
    }

    /// Whether no call on the listener has to drive the node to find connections.
    pub fn is_leaseless(&self) -> bool {
        self.listener.leaseless().is_some()
    }

    /// Returns how many connections wait to be accepted, as far as received frames were looked at.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn waiting(&self) -> io::Result<u32> {
        let mut waiting = self.listener.waiting_directly();
        self.with(|_, shard, id| {
            waiting += shard.stack.accept_queue_len(id)?;
            Ok(())
        })?;
        Ok(waiting)
    }

    /// Changes the limit of waiting connections, as a second `listen(2)` does.
    ///
    /// # Errors
    ///
    /// None for a listener that exists.
    pub fn set_backlog(&self, backlog: u32) -> io::Result<()> {
        self.with(|_, shard, id| shard.set_backlog(id, backlog))
    }

    /// Sets an option of the connections that are accepted from now on;
    /// [`SocketOption::FastOpen`] is one of the listener itself.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the value is out of the option's range.
    pub fn set_option(&self, option: SocketOption) -> io::Result<()> {
        self.with(|_, shard, id| shard.set_listener_option(id, option))?;
        let keep = |settings: &mut Settings| settings.apply(option);
        // An option of the listener itself is none of its connections'.
        let _ = self.listener.description.change_settings(keep);
        Ok(())
    }

    /// Takes the pending error: always `None`, for a listener has no errors of its own. std's has
    /// none either.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(None)
    }

    /// Whether this process has waited for the listener, or counts as one that has: see
    /// [`TcpListener::attend`].
    #[inline]
    pub fn is_attended(&self) -> bool {
        self.listener.attended.load(Relaxed)
    }

    /// Notes that threads that wait for the listener are told on the node. Polls and calls that
    /// wait note this by themselves. [`Forwarded::Unattended`] forwards no peer of the listener any
    /// more.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn attend(&self) -> io::Result<()> {
        self.listener.node.contain(|| {
            let Listener {
                node, holder, ids, ..
            } = &*self.listener;
            if let Some(holder) = holder {
                for index in 0..ids.len() as u8 {
                    let mut shard = node.enter(index)?;
                    node.shards()?.get(index).attend(&mut shard, holder);
                }
            }
            self.listener.attended.store(true, Relaxed);
            self.settle()
        })
    }

    /// A reference that does not keep the listener open.
    pub(crate) fn downgrade(&self) -> Weak<Listener> {
        Arc::downgrade(&self.listener)
    }

    pub(crate) fn handle(&self) -> Arc<Listener> {
        Arc::clone(&self.listener)
    }

    /// Calls `act` in every shard.
    fn with(
        &self,
        mut call: impl FnMut(u8, &mut Shard, ListenerId) -> Result<(), SocketError>,
    ) -> io::Result<()> {
        self.listener.node.contain(|| {
            for (index, id) in (0..).zip(&self.listener.ids) {
                let mut shard = self.listener.node.enter(index)?;
                shard.look_if_stale();
                call(index, &mut shard, *id).map_err(from_socket)?;
            }
            Ok(())
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(holder) = self.holder.take() {
            let sources: Vec<Event> = self.ids.iter().map(|id| Event::Listener(*id)).collect();
            // A node that is gone holds nothing.
            let _ = self.node.unmake_everywhere(holder, &sources);
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
