//! The connection of a process with its node's engine.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::Shutdown;
use toehold_link::mq::{MeshSettings, PeerDescriptors};
use toehold_shm::direct::{BellSet, WaiterNumber};
use toehold_shm::{LeaseGuard, Process};
use toehold_stack::Instant;

use crate::callers::{Callers, Forwarded};
use crate::clock;
use crate::control::{Connection, ControlError};
use crate::direct::{BellKeeper, BellsOf, Entry};
use crate::driver::Signals;
use crate::estate::Estate;
use crate::fabric::NodeRecord;
use crate::holder::{Holder, HolderError, Pool};
use crate::lookout::Lookout;
use crate::wait::{Gone, Guard};

/// How often a process looks whether the engine still lives, if it calls and never waits. The
/// kernel tells threads that wait.
const PERIOD_NS: u64 = 100_000_000;

/// When to ask an engine again that did not answer, since it may be stopped, and for peers
/// that this process could not map.
const ASK_AGAIN_NS: u64 = 1_000_000_000;

/// How long a thread waits at most for another one of its process that is mapping peers. What it
/// sends to all of them would not reach those that are not mapped.
const MAPPING: Duration = Duration::from_millis(50);

/// Peers that are looked at in one go: each of those that can be there, and one that takes its place.
const MAX_MAPPED: usize = 2 * MeshSettings::MAX_PEERS;

/// Calls between two looks at the clock.
const CALLS: u32 = 16;

/// The connection of an attached process. The engine learns of the process's end by the
/// connection's, and the process of the engine's.
pub(crate) struct Membership {
    connection: Mutex<Connection>,
    pool: Pool,
    lookout: Arc<Lookout>,
    /// The estate that this process's children take over.
    estate: Arc<Estate>,
}

/// The connection of an attached process, as the way to one of the node's shards has it.
pub(crate) struct Attachment {
    membership: Arc<Membership>,
    /// The shard of the node that it leads to.
    shard: u8,
    /// When this process looked last whether the engine lives, in nanoseconds.
    looked_at: AtomicU64,
    /// How many peers had joined when this process last mapped those it missed.
    mapped: AtomicU32,
    /// When to ask again for peers that the engine did not tell of in time, in nanoseconds.
    asks_at: AtomicU64,
    /// When to try peers again that this process could not map, in nanoseconds; 0 if there are
    /// none.
    retries_at: AtomicU64,
    mapper: Mapper,
    calls: AtomicU32,
}

/// The engine's answer to a request for a peer.
enum Asked {
    /// No answer yet.
    Later,
    /// The peer's descriptors; `None` if the peer cannot be had.
    Answered(Option<PeerDescriptors>),
}

impl Attachment {
    pub(crate) fn new(membership: Arc<Membership>, shard: u8) -> Attachment {
        Attachment {
            membership,
            shard,
            looked_at: AtomicU64::new(0),
            mapped: AtomicU32::new(0),
            asks_at: AtomicU64::new(0),
            retries_at: AtomicU64::new(0),
            mapper: Mapper::default(),
            calls: AtomicU32::new(0),
        }
    }

    /// The record of a node of the fabric, or those of all, as the engine sees them.
    pub(crate) fn names(&self, node: Option<&str>) -> Vec<NodeRecord> {
        let connection = &self.membership.connection;
        let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.names(node).unwrap_or_default()
    }

    /// The spare holders.
    #[inline]
    pub(crate) fn pool(&self) -> &Pool {
        &self.membership.pool
    }

    /// A holder for something new.
    #[inline]
    pub(crate) fn holder(&self) -> Result<Holder, HolderError> {
        self.membership.pool.take(&self.membership.connection)
    }

    /// The holder that a descriptor is.
    pub(crate) fn identify(&self, descriptor: OwnedFd) -> Result<Holder, HolderError> {
        let Membership { pool, connection, .. } = &*self.membership;
        pool.identify(connection, descriptor)
    }

    /// Lets go of a holder, see [`Pool::inherit`].
    pub(crate) fn inherit(&self, holder: Holder) -> Option<Holder> {
        let Membership { pool, connection, .. } = &*self.membership;
        pool.inherit(connection, holder)
    }

    /// Takes a port from the kernel beside the node, see [`Pool::take_port`]; of a node
    /// that is alone it has the port that it wants.
    pub(crate) fn take_port(
        &self,
        holder: &mut Holder,
        address: SocketAddr,
        only_ipv6: bool,
    ) -> Result<u16, HolderError> {
        let Membership { pool, connection, .. } = &*self.membership;
        if !self.membership.estate.is_beside_kernel() {
            return Ok(address.port());
        }
        pool.take_port(connection, holder, address, only_ipv6)
    }

    /// Has the engine carry the bytes of the connection that a holder of that number stands for.
    pub(crate) fn relay(&self, holder: u32) -> Result<(), HolderError> {
        let connection = &self.membership.connection;
        let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = connection.relay(self.shard, holder);
        asked.map_err(|error| HolderError::of(error, HolderError::Foreign))
    }

    /// Has the kernel signal the owner of the connection that a holder of that number stands for,
    /// when urgent data are announced.
    pub(crate) fn own(&self, holder: u32, messenger: [OwnedFd; 2]) -> Result<(), HolderError> {
        let connection = &self.membership.connection;
        let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = connection.own(self.shard, holder, messenger);
        asked.map_err(|error| HolderError::of(error, HolderError::Foreign))
    }

    /// Has the engine forward peers that connect to a holder's listener to one of the kernel's.
    pub(crate) fn forward(
        &self,
        holder: &Holder,
        (listener, callers): (BorrowedFd<'_>, &Callers),
        which: Forwarded,
    ) -> Result<(), HolderError> {
        let number = holder.number().ok_or(HolderError::Private)?;
        let copy = |descriptor: BorrowedFd<'_>| descriptor.try_clone_to_owned().map_err(no_room);
        let callers = callers.descriptor().ok_or(HolderError::Private)?;
        let (listener, callers) = (copy(listener)?, copy(callers)?);
        let connection = &self.membership.connection;
        let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = connection.forward(number, [listener, callers], which);
        asked.map_err(|error| HolderError::of(error, HolderError::Foreign))
    }

    /// Keeps a holder that stands for nothing any more, or closes it.
    #[inline]
    pub(crate) fn give_back(&self, holder: Holder) {
        let Membership { pool, connection, .. } = &*self.membership;
        pool.give_back(connection, holder);
    }

    /// Becomes readable when the engine is gone.
    pub(crate) fn engine(&self) -> BorrowedFd<'_> {
        self.membership.lookout.engine()
    }

    /// Fails if the engine is gone, and tells the node's other threads so. One system call.
    pub(crate) fn check(&self) -> Result<(), Gone> {
        self.membership.lookout.check()
    }

    /// Fails if the engine is gone, like [`Attachment::check`], but looks at most once a period.
    #[inline]
    pub(crate) fn check_at(&self, now: Instant) -> Result<(), Gone> {
        if now.0.saturating_sub(self.looked_at.load(Relaxed)) < PERIOD_NS {
            return Ok(());
        }
        self.looked_at.store(now.0, Relaxed);
        self.check()
    }

    /// Fails if the engine is gone, for calls that do not know the time. Looks once in some calls.
    #[inline]
    pub(crate) fn count_call(&self) -> Result<(), Gone> {
        let calls = self.calls.load(Relaxed).wrapping_add(1);
        self.calls.store(calls, Relaxed);
        if calls.is_multiple_of(CALLS) {
            self.check_at(clock::now())
        } else {
            Ok(())
        }
    }

    /// Whether peers have joined that this process did not map.
    #[inline]
    pub(crate) fn misses_peers(&self, signals: &Signals) -> bool {
        signals.peers_joined() != self.mapped.load(Relaxed) && self.may_ask()
            || self.retries_at.load(Relaxed) != 0 && self.may_retry()
    }

    #[cold]
    fn may_retry(&self) -> bool {
        clock::now().0 >= self.retries_at.load(Relaxed)
    }

    #[cold]
    fn may_ask(&self) -> bool {
        let asks_at = self.asks_at.load(Relaxed);
        asks_at == 0 || clock::now().0 >= asks_at
    }

    /// Maps the peers that this process has not mapped. Waits for the engine's
    /// answers, without the lease, or for another thread that does so.
    #[cold]
    pub(crate) fn map_peers(&self, signals: &Signals, shard: &mut Guard<'_>) -> Result<(), Gone> {
        let Some(_turn) = LeaseGuard::unlocked(shard, || self.mapper.take())? else {
            // The engine may be stopped, and answer late.
            return Ok(());
        };
        if !self.misses_peers(signals) {
            return Ok(());
        }
        let joined = signals.peers_joined();
        if let Some(port) = shard.link.port() {
            port.retry_skipped();
        }
        let mut retries_at = 0;
        for _ in 0..MAX_MAPPED {
            let missing = shard.link.port().and_then(|port| port.unmapped());
            let Some((slot, generation)) = missing else {
                break;
            };
            let asked = LeaseGuard::unlocked(shard, || self.ask(slot, generation))??;
            let Asked::Answered(descriptors) = asked else {
                return Ok(());
            };
            let Some(port) = shard.link.port() else {
                break;
            };
            match descriptors.map(|descriptors| port.map(slot, generation, descriptors)) {
                Some(Ok(mapped)) => self.membership.estate.note(self.shard, &mapped),
                // The peer is cut off, and is no process's peer any more.
                Some(Err(error)) if error.is_offence() => {}
                // It cannot be had now. Others take its frames, and so does this process later.
                _ => {
                    retries_at = clock::now().plus_nanos(ASK_AGAIN_NS).0;
                    port.skip(slot, generation);
                }
            }
        }
        if shard.link.port().is_some_and(|port| port.has_departed()) {
            shard.housekeeping();
        }
        self.retries_at.store(retries_at, Relaxed);
        self.mapped.store(joined, Relaxed);
        Ok(())
    }

    fn ask(&self, slot: u16, generation: u16) -> Result<Asked, Gone> {
        let connection = &self.membership.connection;
        let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        match connection.peer(self.shard, slot, generation) {
            Ok(list) => Ok(Asked::Answered(list.and_then(PeerDescriptors::from_list))),
            Err(ControlError::HungUp(_)) => Err(Gone),
            Err(ControlError::TimedOut { .. }) => {
                let later = clock::now().plus_nanos(ASK_AGAIN_NS);
                self.asks_at.store(later.0, Relaxed);
                Ok(Asked::Later)
            }
            Err(_) => Ok(Asked::Answered(None)),
        }
    }
}

/// Which thread of a process maps peers, so that only one does.
#[derive(Default)]
struct Mapper {
    is_busy: Mutex<bool>,
    done: Condvar,
}

/// The right to map peers.
struct Turn<'a>(&'a Mapper);

impl Mapper {
    /// Waits until no thread maps peers. Returns `None` if another thread does so and takes long.
    fn take(&self) -> Option<Turn<'_>> {
        let is_busy = self.is_busy.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.done.wait_timeout_while(is_busy, MAPPING, |is_busy| *is_busy);
        let (mut is_busy, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let was_busy = std::mem::replace(&mut *is_busy, true);
        (!was_busy).then(|| Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Turn(mapper) = self;
        *mapper.is_busy.lock().unwrap_or_else(PoisonError::into_inner) = false;
        mapper.done.notify_all();
    }
}

impl Membership {
    pub(crate) fn new(
        connection: Connection,
        lookout: Arc<Lookout>,
        process: Process,
        estate: Arc<Estate>,
    ) -> Membership {
        Membership {
            estate,
            connection: Mutex::new(connection),
            pool: Pool::new(process),
            lookout,
        }
    }

    /// The descriptors of a bank of direct connections. Returns `None` if it is not there any more,
    /// or the engine does not answer.
    pub(crate) fn bank(&self, entry: &Entry) -> Option<Vec<OwnedFd>> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.bank(entry.slot, entry.generation).ok()?
    }
}

impl BellKeeper for Membership {
    fn bells(&self, which: BellsOf) -> Option<Option<BellSet>> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let found = connection.bells(which).ok()?;
        Some(found.and_then(|list| BellSet::from_node(list).ok()))
    }

    fn ring(&self, which: BellsOf, waiter: WaiterNumber) {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        // An engine that does not answer has rung, or is gone, of which all are told.
        let _ = connection.ring(which, waiter.get());
    }
}

impl Drop for Membership {
    /// Detaches, although a forked child may have a copy of the connection.
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(self.lookout.engine(), Shutdown::Both);
    }
}

/// The error of a process that the system does not let copy a descriptor.
fn no_room(error: std::io::Error) -> HolderError {
    HolderError::System(Errno::from_io_error(&error).unwrap_or(Errno::MFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Several threads connected at once when a node had just begun. They asked for their peer's
    /// hardware address before it was mapped, and then a second later.
    #[test]
    fn one_thread_maps_peers_and_others_wait_for_it() {
        let mapper = Mapper::default();
        let turn = mapper.take();
        assert!(turn.is_some());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| mapper.take().is_some());
            drop(turn);
            assert!(waits.join().unwrap());
        });
    }

    /// A thread that has waited in vain leaves the turn to the thread that has it. It once gave
    /// back a turn that it did not have.
    #[test]
    fn who_has_waited_in_vain_leaves_the_turn_to_who_has_it() {
        let mapper = Mapper::default();
        let turn = mapper.take();
        for _ in 0..2 {
            assert!(mapper.take().is_none());
        }
        drop(turn);
        assert!(mapper.take().is_some());
    }
}
