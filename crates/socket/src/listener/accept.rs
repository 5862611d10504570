//! How connections are accepted: direct ones without the lease, all others from the stack.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use toehold_node::direct::{Bank, Bed, Direct, DirectWait, RungBy, WaitError, WaitTarget};
use toehold_node::{Everywhere, Holder, Operation, Placement, Shard, Shards, Subscription};
use toehold_shm::direct::{self, ArmError, ThreadNumber, WaiterNumber};
use toehold_stack::{ConnectionId, Event, ListenerId, SocketError};

use super::{Listener, TcpListener};
use crate::error::{from_holder, from_socket, gone, would_block};
use crate::node::Shared;
use crate::stream::direct::DirectConnection;
use crate::stream::{Connected, TcpStream};

/// The id by which peers know a listener, as of an epoch of the directory.
#[derive(Debug, Default)]
pub(super) struct PublishedAs(Mutex<Option<(u64, Option<direct::ListenerId>)>>);

impl Listener {
    /// The id by which peers know the listener. Returns `None` if it takes connections over TCP
    /// only.
    pub(crate) fn direct_id(&self, direct: &Direct) -> Option<direct::ListenerId> {
        let epoch = direct.directory().epoch();
        let mut known = self.published.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, id)) = *known
            && of == epoch
        {
            return id;
        }
        // A node that is gone lists nothing. With the lease, what is listed belongs to the epoch.
        let _lease = self.node.enter(0).ok()?;
        let id = direct.listener(&self.ids);
        *known = Some((epoch, id));
        id
    }

    /// Whether a direct connection waits at a listener that peers know.
    pub(crate) fn has_direct(&self) -> bool {
        let Some(direct) = self.node.shards().ok().and_then(Shards::direct) else {
            return false;
        };
        let id = self.direct_id(direct);
        id.is_some_and(|id| direct.tcp_waiting(id) > 0 || has_waiting(&direct.accepting(), id))
    }

    /// The number of direct connections that wait.
    pub(super) fn waiting_directly(&self) -> u32 {
        let Some(direct) = self.node.shards().ok().and_then(Shards::direct) else {
            return 0;
        };
        let Some(id) = self.direct_id(direct) else {
            return 0;
        };
        let pending: u64 = direct.accepting().iter().map(|bank| bank.waiting(id)).sum();
        u32::try_from(pending).unwrap_or(u32::MAX)
    }

    /// The id by which peers know the listener, if the engine accepts connections that come over
    /// TCP. Then no call on the listener takes the lease.
    pub(super) fn leaseless(&self) -> Option<direct::ListenerId> {
        let shards = self.node.shards().ok()?;
        let direct = shards.direct()?;
        let is_driven = shards.get(0).placement() != Placement::Inline;
        self.direct_id(direct).filter(|_| is_driven)
    }
}

fn has_waiting(banks: &[Arc<Bank>], id: direct::ListenerId) -> bool {
    banks.iter().any(|bank| bank.has_waiting(id))
}

impl TcpListener {
    pub(super) fn accept_or_wait(&self, waits: bool) -> io::Result<(TcpStream, SocketAddr)> {
        let node = &self.listener.node;
        let direct = node.shards()?.direct();
        match direct.and_then(|direct| Some((direct, self.listener.direct_id(direct)?))) {
            Some((direct, _)) => node.contain(|| self.accept_both(direct, waits)),
            None => self.accept_in_shards(waits),
        }
    }

    /// Accepts a direct connection, or one over TCP.
    fn accept_both(&self, direct: &Direct, waits: bool) -> io::Result<(TcpStream, SocketAddr)> {
        let Listener {
            node,
            description,
            spin,
            ..
        } = &*self.listener;
        loop {
            let shards = node.shards()?;
            if shards.is_over() {
                return Err(Errno::NETDOWN.into());
            }
            let Some(id) = self.listener.direct_id(direct) else {
                return self.accept_in_shards(waits);
            };
            let thread = direct.thread().ok_or(Errno::NOBUFS)?;
            let settings = description.settings();
            if has_waiting(&direct.accepting(), id)
                && let Some(connection) = DirectConnection::accept(node, shards, (thread, id), &settings)?
            {
                let peer = connection.peer_addr();
                return Ok((TcpStream::over(Connected::Direct(connection)), peer));
            }
            if direct.tcp_waiting(id) > 0 || self.listener.leaseless().is_none() {
                match self.accept_in_shards(false) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    accepted => return accepted,
                }
            }
            if !waits {
                return Err(would_block());
            }
            let banks = direct.accepting();
            let mut target = ForConnection {
                direct,
                banks: &banks,
                id,
                watching: None,
            };
            let bed = Bed {
                banks: &banks,
                waiter: None,
                rings: RungBy::Any,
                beside: &[],
                ear: None,
            };
            match shards.wait_directly(direct, &mut target, bed, spin, None) {
                Ok(DirectWait::Interrupted) => return Err(would_block()),
                Ok(_) => {}
                Err(WaitError::Gone(error)) => return Err(gone(error)),
                Err(WaitError::Waiters) => return Err(Errno::NOBUFS.into()),
            }
        }
    }

    fn accept_in_shards(&self, waits: bool) -> io::Result<(TcpStream, SocketAddr)> {
        let Listener { node, ids, spin, .. } = &*self.listener;
        let [id] = ids[..] else {
            return self.accept_anywhere(waits);
        };
        let mut operation = Accept { id };
        let (holder, accepted) = node.make(0, |shard| {
            let mut result = operation.attempt(shard);
            if result.is_none() && !waits {
                shard.poll_once(None);
                result = operation.attempt(shard);
            } else if result.is_none() {
                result = node.block(0, shard, &mut operation, spin, None)?;
            }
            let accepted = result.ok_or_else(would_block)?;
            let connection = accepted.map_err(from_socket)?;
            Ok((
                Event::Connection(connection),
                Accepted::new(0, shard, connection)?,
            ))
        })?;
        Ok(accepted.into_stream(node, holder))
    }

    fn accept_anywhere(&self, waits: bool) -> io::Result<(TcpStream, SocketAddr)> {
        self.listener.node.contain(|| {
            let Listener { node, ids, spin, .. } = &*self.listener;
            let shards = node.shards()?;
            let holder = shards.get(0).holder().map_err(from_holder)?;
            let mut operation = AcceptAnywhere {
                ids,
                shards,
                holder: &holder,
            };
            let mut accepted = None;
            for index in shards.from_home() {
                let mut shard = node.enter(index)?;
                accepted = operation.attempt(index, &mut shard);
                if accepted.is_none() && !waits {
                    shard.poll_once(None);
                    accepted = operation.attempt(index, &mut shard);
                }
                node.settle(index, &mut shard);
                if accepted.is_some() {
                    break;
                }
            }
            if accepted.is_none() && waits {
                self.settle()?;
                let waited = shards.block(shards.from_home(), &mut operation, spin, None);
                accepted = waited.map_err(gone)?;
            }
            match accepted.unwrap_or_else(|| Err(would_block())) {
                Ok(accepted) => Ok(accepted.into_stream(node, holder)),
                Err(error) => {
                    shards.get(0).give_back(holder);
                    Err(error)
                }
            }
        })
    }

    /// Prefers the shard in which the calling thread makes its own connections. Of listeners that
    /// share a port, this one gets that shard's connections from now on. It shares them with others
    /// whose threads are at home there. A listener that no thread has waited for gets none.
    pub(super) fn settle(&self) -> io::Result<()> {
        let Listener { node, settled, .. } = &*self.listener;
        if settled.swap(true, Relaxed) {
            return Ok(());
        }
        let home = node.shards()?.home();
        self.with(|index, shard, id| shard.stack.prefer_listener(id, index == home))
    }
}

/// Waits for a connection. Of the threads that wait so, one is told of it.
struct ForConnection<'a> {
    direct: &'a Direct,
    banks: &'a [Arc<Bank>],
    id: direct::ListenerId,
    watching: Option<WaiterNumber>,
}

impl WaitTarget for ForConnection<'_> {
    fn is_ready(&self) -> bool {
        has_waiting(self.banks, self.id) || self.direct.tcp_waiting(self.id) > 0
    }

    fn arm(&mut self, _: ThreadNumber, waiter: WaiterNumber) -> Result<bool, ArmError> {
        if self.watching.is_none() {
            direct::watch(self.direct.waiters(), self.id.number, waiter, true);
            self.watching = Some(waiter);
        }
        // Peers that have come since are looked at, too.
        let is_new = self.direct.accepting().len() != self.banks.len();
        Ok(is_new || self.is_ready())
    }
}

impl Drop for ForConnection<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = self.watching {
            direct::unwatch(self.direct.waiters(), self.id.number, waiter);
        }
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

/// A connection that was accepted, with the facts that this process needs of it.
struct Accepted {
    shard: u8,
    id: ConnectionId,
    peer: SocketAddr,
    low_water: u32,
}

impl Accepted {
    fn new(index: u8, shard: &Shard, id: ConnectionId) -> io::Result<Accepted> {
        let settings = shard.stack.settings(id).map_err(from_socket)?;
        Ok(Accepted {
            shard: index,
            id,
            peer: shard.stack.peer_addr(id).map_err(from_socket)?,
            low_water: settings.receive_low_water(),
        })
    }

    fn into_stream(self, node: &Arc<Shared>, holder: Holder) -> (TcpStream, SocketAddr) {
        let stream = TcpStream::new(node, (self.shard, self.id), holder, Some(self.low_water));
        (stream, self.peer)
    }
}

/// Takes a connection in a shard that has one, and lets the holder stand for it at once: its
/// process may die.
struct AcceptAnywhere<'a> {
    ids: &'a [ListenerId],
    shards: &'a Shards,
    holder: &'a Holder,
}

impl Everywhere for AcceptAnywhere<'_> {
    type Output = io::Result<Accepted>;

    fn attempt(&mut self, index: u8, shard: &mut Shard) -> Option<Self::Output> {
        let id = *self.ids.get(usize::from(index))?;
        let connection = match shard.stack.accept(id) {
            Err(SocketError::WouldBlock) => return None,
            accepted => accepted,
        };
        Some(connection.map_err(from_socket).and_then(|connection| {
            let accepted = Accepted::new(index, shard, connection)?;
            let source = Event::Connection(connection);
            if self.shards.get(index).hold(shard, self.holder, source) {
                return Ok(accepted);
            }
            shard.close(source);
            Err(Errno::NFILE.into())
        }))
    }

    fn subscription(&self, index: u8) -> Subscription {
        let id = self.ids.get(usize::from(index));
        id.map_or(Subscription::Nothing, |id| {
            Subscription::Source(Event::Listener(*id))
        })
    }
}
