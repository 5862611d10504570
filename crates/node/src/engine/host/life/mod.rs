//! One life of a node: its memory, its threads, its connections with others.
//!
//! A node usually has one. It begins another one, with new memory, when a program has written
//! nonsense to the memory. It also does when a program has died while it ran the stack and what
//! that has left cannot be mended.

mod begin;
mod threads;

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use toehold_link::capture::Player;
use toehold_link::mq::PeerDescriptors;
use toehold_shm::direct::{BellError, WaiterNumber};
use toehold_shm::{Doorbell, Region};

pub(super) use self::threads::{give_up, join, start};
use super::connections::Connections;
use super::direct::Banks;
use super::ends::{Gone, Lent};
use super::guard::Guard;
use super::look;
use super::relay::{Forward, Messenger, Relays};
use crate::attached::{Description, Descriptors};
use crate::clock;
use crate::control::{Counter, SocketStatus, peers};
use crate::direct::BellsOf;
use crate::driver::Driver;
use crate::kernel::Device;
use crate::lookout::rouse_all;
use crate::memory::Marks;
use crate::processes::Processes;
use crate::shards::Shards;

/// How long an orderly end may take beside what is left to be delivered. Only a
/// program that was stopped while it ran the stack makes it take that long.
const FAREWELL: Duration = Duration::from_secs(1);

/// A moment: many times as long as any thread has the lease.
const TURN: Duration = Duration::from_millis(100);

pub(super) struct Life {
    description: Description,
    parts: Vec<Part>,
    /// When the lease is closed if it cannot be had, in nanoseconds.
    closes_at: Arc<AtomicU64>,
    pub(super) shards: Arc<Shards>,
    drivers: Vec<(Arc<Driver>, Option<JoinHandle<()>>)>,
    guards: Vec<(Arc<Guard>, JoinHandle<()>)>,
    fabric: Arc<Connections>,
    connecting: Option<JoinHandle<()>>,
    relays: Relays,
    /// The threads that carry the kernel's frames to the fabric, one for each queue, and the bells
    /// that end them.
    inlets: Vec<(Doorbell, JoinHandle<()>)>,
    kernel: Option<Arc<Device>>,
    direct: Option<Arc<Banks>>,
    processes: Arc<Processes>,
    drain: Duration,
}

/// The outcome of a process's death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Burial {
    /// The process was not running the stack.
    Quiet,
    /// The process was running the stack, which goes on without it.
    Mended,
    /// The process was running the stack, and this life is lost.
    Lost,
}

/// The engine's part of a shard beside the way to it.
struct Part {
    region: Arc<Region>,
    marks: Marks,
    /// The value of the marks.
    mark: u32,
    player: Player,
}

impl Life {
    /// The number that tells this life from others, see [`Description`].
    pub(super) fn number(&self) -> u64 {
        self.description.life
    }

    /// The description and descriptors with which a process attaches.
    pub(super) fn offer(&self) -> std::io::Result<(Description, Vec<OwnedFd>)> {
        let bells = &self.shards.get(0).bells;
        let mut list = vec![bells.fabric.try_clone()?.into_fd()];
        list.extend(bells.resters.to_list()?);
        for ((shard, handle), part) in self.shards.iter().zip(&self.parts) {
            let region = part.region.fd().map(|region| region.try_clone_to_owned());
            let port = self.fabric.lock(shard).bell().map_err(std::io::Error::other)?;
            let descriptors = Descriptors {
                region: region.ok_or(std::io::ErrorKind::Unsupported)??,
                sleeper: handle.bells.sleeper.try_clone()?,
                driver: handle.bells.driver.try_clone()?,
                port,
            };
            list.extend(descriptors.into_list());
        }
        if let Some(kernel) = &self.kernel {
            list.extend(kernel.descriptors()?);
        }
        if let Some(direct) = &self.direct {
            list.extend(direct.to_list()?);
        }
        Ok((self.description.clone(), list))
    }

    /// The descriptors with which a process exchanges frames with a peer of a shard.
    pub(super) fn peer(&self, shard: u8, slot: u16, generation: u16) -> Option<PeerDescriptors> {
        let known = shard < self.shards.count();
        known
            .then(|| self.fabric.lock(shard).descriptors(slot, generation).ok()?)
            .flatten()
    }

    /// The descriptors with which a process uses a bank of direct connections.
    pub(super) fn bank(&self, slot: u16, generation: u32) -> Option<Vec<OwnedFd>> {
        self.direct.as_ref()?.descriptors(slot, generation)
    }

    /// A set of bells, `None` if there is no such set.
    pub(super) fn bells(&self, which: BellsOf) -> Result<Option<Vec<OwnedFd>>, BellError> {
        let direct = self.direct.as_ref();
        direct.map_or(Ok(None), |direct| direct.bell_descriptors(which))
    }

    /// Rings a waiter for a process that has no room for bells.
    pub(super) fn ring(&self, which: BellsOf, waiter: u16) {
        if let (Some(direct), Some(waiter)) = (&self.direct, WaiterNumber::new(waiter)) {
            direct.ring(which, waiter);
        }
    }

    /// Listeners and connections, direct ones included. Returns `None` if a program has a stack for
    /// too long.
    pub(super) fn sockets(&self) -> Option<Vec<SocketStatus>> {
        let direct = self.direct.as_deref();
        let mut sockets = look::sockets(&self.shards, direct)?;
        let descriptions = &self.shards.get(0).descriptions;
        sockets.extend(direct.into_iter().flat_map(|direct| direct.sockets(descriptions)));
        Some(sockets)
    }

    /// The counts of the node's processes about direct connections.
    pub(super) fn direct_counters(&self) -> Vec<Counter> {
        let processes = self.processes.numbers();
        self.direct
            .as_ref()
            .map_or_else(Vec::new, |direct| direct.counters(&processes))
    }

    /// Bytes of memory that the rings to all peers take up.
    pub(super) fn peer_memory(&self) -> u64 {
        let shards = 0..self.shards.count();
        shards.map(|shard| self.fabric.lock(shard).memory()).sum()
    }

    /// The counters of peers that come and go, each shard for itself if there are several.
    pub(super) fn membership_counters(&self) -> Vec<Counter> {
        let count = self.shards.count();
        let of_shard = |index: u8| {
            let shard = (count > 1).then_some(index.into());
            peers::of_membership(&self.fabric.lock(index).statistics(), shard)
        };
        (0..count).flat_map(of_shard).collect()
    }

    /// The players of the frames that cross the links of the shards, and of those of direct
    /// connections. Of all these of a tape, one plays at a time.
    pub(super) fn players(&self) -> Vec<Player> {
        let of_shards = self.parts.iter().map(|part| part.player.clone());
        let direct = self.direct.as_ref().map(|banks| banks.player());
        of_shards.chain(direct).collect()
    }

    /// Notes whether the processor time of a process is limited.
    pub(super) fn set_limited(&self, process: u16, limited: bool) {
        for (_, shard) in self.shards.iter() {
            shard.signals.set_limited(process, limited);
        }
    }

    /// Changes the threads that drive.
    pub(super) fn set_placement(&self, placement: crate::Placement) {
        for (_, shard) in self.shards.iter() {
            shard.signals.set_placement(placement);
        }
        for (driver, _) in &self.drivers {
            driver.wake();
        }
        self.fabric.wake_sleeper();
    }

    /// Cleans up after a process of the node that is dead. If it died while it ran the stack, that
    /// is mended. Never waits for the lease, which another dead process may have.
    pub(super) fn bury(&self, process: u16) -> Burial {
        // It takes up what the dead one has left undone in any of them.
        let seized = self.shards.iter().map(|(_, shard)| shard.lease.seize(process));
        let mut seized: Vec<_> = seized.flatten().collect();
        for guard in &mut seized {
            // What a program has written there may make it panic.
            let mend = AssertUnwindSafe(|| guard.mend(process));
            if !catch_unwind(mend).unwrap_or(false) {
                // Before it can be had again.
                self.close();
                return Burial::Lost;
            }
        }
        let burial = match seized.is_empty() {
            true => Burial::Quiet,
            false => Burial::Mended,
        };
        drop(seized);
        // It may have died between marking a thread and waking it.
        self.rouse_all();
        self.fabric.bury(process);
        burial
    }

    /// Closes the leases of all shards: none is used any more.
    fn close(&self) {
        for (_, shard) in self.shards.iter() {
            shard.lease.lease().close();
        }
    }

    fn rouse_all(&self) {
        let wakes = self
            .shards
            .iter()
            .map(|(_, shard)| shard.bells.wake(&shard.parking, &shard.channels));
        rouse_all(&wakes.collect::<Vec<_>>());
    }

    /// Whether a shard's lease can be had within a moment: with a guard that does nothing.
    pub(super) fn comes_round(&self, shard: u8) -> bool {
        let until = clock::now() + TURN;
        // A lease that is closed is noticed elsewhere.
        self.shards
            .get(shard)
            .lease
            .lock_until(until.0)
            .is_ok_and(|guard| guard.is_some())
    }

    /// Whether a process of that number is dead, and something of it still there.
    pub(super) fn is_burying(&self, process: u16) -> bool {
        self.fabric.is_burying(process)
    }

    /// Holders of this node, at most.
    pub(super) fn holders(&self) -> u32 {
        self.description
            .shards
            .first()
            .map_or(0, |(layout, _)| layout.holders)
    }

    /// Notes the names that the system has for a holder's descriptor.
    pub(super) fn name(&self, number: u32, descriptor: BorrowedFd<'_>) {
        let inode = rustix::fs::fstat(descriptor).map_or(0, |stat| stat.st_ino);
        let cookie = rustix::net::sockopt::socket_cookie(descriptor).unwrap_or(0);
        for (_, handle) in self.shards.iter() {
            handle.descriptions.name(number, inode, cookie);
        }
    }

    /// Takes a port from the kernel, if it is beside the node, for the listener that a
    /// holder will stand for.
    pub(super) fn take_port(&self, holder: u32, address: SocketAddr, only_ipv6: bool) -> Result<u16, Errno> {
        match &self.kernel {
            Some(kernel) => self.fabric.ports.take(kernel, holder, address, only_ipv6),
            None => Ok(address.port()),
        }
    }

    /// Gives back the port that was taken for a holder.
    pub(super) fn release_port(&self, holder: u32) {
        self.fabric.ports.release(holder);
    }

    /// Carries the bytes of a connection to and from its descriptor.
    pub(super) fn relay(&self, shard: u8, end: Lent) -> std::io::Result<()> {
        let direct_end = self.shards.get(0).descriptions.direct_end(end.number());
        match (direct_end, &self.direct) {
            (Some(direct_end), Some(direct)) => self.relays.begin_direct(direct, direct_end, end),
            _ => self.relays.begin(shard, end),
        }
    }

    /// Signals the owner of a connection when urgent data are announced.
    pub(super) fn own(&self, shard: u8, holder: u32, messenger: Messenger) -> std::io::Result<()> {
        let direct_end = self.shards.get(0).descriptions.direct_end(holder);
        match (direct_end, &self.direct) {
            (Some(end), Some(direct)) => self.relays.own_direct(direct, end, messenger),
            _ => self.relays.own(shard, holder, messenger),
        }
    }

    /// Forwards all peers that connect to a holder's listener to one of the kernel's.
    pub(super) fn forward(&self, holder: u32, forward: Forward) -> std::io::Result<()> {
        self.relays.forward(holder, forward)
    }

    /// Carries the bytes that wait, and no more.
    pub(super) fn end_relays(&self) {
        self.relays.end();
        if let Some(direct) = &self.direct {
            direct.stop_relay();
        }
    }

    /// Lets go of holders that no process has any more. What they stood for is closed soon, and
    /// their numbers are [free](Life::freed) then.
    pub(super) fn let_go(&self, holders: Vec<Gone>) {
        self.fabric.let_go(holders);
    }

    /// Rings once all of that is closed that was to be closed soon.
    pub(super) fn await_closing(&self, bell: Doorbell) {
        self.fabric.await_closing(bell);
    }

    /// Holders that stand for nothing any more.
    pub(super) fn freed(&self) -> Vec<u32> {
        self.fabric.freed()
    }

    /// Whether this life is lost.
    pub(super) fn is_over(&self) -> bool {
        let ended = |thread: &Option<JoinHandle<()>>| thread.as_ref().is_none_or(JoinHandle::is_finished);
        self.shards
            .iter()
            .any(|(_, shard)| shard.lease.lease().is_closed())
            || self.drivers.iter().any(|(_, driving)| ended(driving))
            || self.guards.iter().any(|(_, guarding)| guarding.is_finished())
            || ended(&self.connecting)
            || self.relays.are_over()
            || self.inlets.iter().any(|(_, carrying)| carrying.is_finished())
            || self.parts.iter().any(|part| !part.marks.are(part.mark))
    }

    /// Ends this life at once. A process that holds something of it is told so.
    fn abandon(&mut self) {
        self.close();
        self.rouse_all();
        self.drivers.iter().for_each(|(driver, _)| driver.stop());
        self.guards.iter().for_each(|(guard, _)| guard.stop());
        self.fabric.stop();
        if let Some(direct) = &self.direct {
            direct.stop_closer();
            direct.stop_relay();
        }
        self.relays.end();
        self.inlets.iter().for_each(|(stop, _)| stop.ring());
        self.inlets.drain(..).for_each(|(_, carrying)| join(carrying));
        let driving = self.drivers.iter_mut().filter_map(|(_, driving)| driving.take());
        driving.for_each(join);
        self.guards.drain(..).for_each(|(_, guarding)| join(guarding));
        self.connecting.take().into_iter().for_each(join);
    }

    /// Ends this life when all bytes that were written, and all closings, have been delivered.
    pub(super) fn end(&mut self) {
        let closes_at = clock::now() + self.drain + FAREWELL;
        self.closes_at.store(closes_at.0, Relaxed);
        self.fabric.care_at_once();
        self.drivers.iter().for_each(|(driver, _)| driver.stop());
        self.shards.drain(self.drain);
        self.abandon();
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.abandon();
    }
}
