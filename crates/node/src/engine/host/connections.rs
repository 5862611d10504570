//! The node's connections with others, in a thread of their own. It tells the port which nodes come
//! and go. It cleans up after the node's dead processes, and closes what no process holds any more.
//! No program has to wait for what it does with the lease.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use toehold_link::mq::{Change, Membership};
use toehold_shm::Doorbell;

use super::direct::Banks;
use super::ends::Gone;
use crate::clock;
use crate::kernel::Ports;
use crate::shards::Shards;
use crate::wait::{self, ShardHandle};

/// Peers that are done with, of which one round takes leave.
const MAX_DEPARTED: usize = 256;

/// Time from one look for pages of payload memory that hold nothing to the next.
const DISCARDS_NS: u64 = 500_000_000;

/// Holders that no process has any more.
#[derive(Debug, Default)]
struct Holders {
    /// Holders that stood for something that is still to be closed.
    gone: Vec<Gone>,
    /// Holders that stand for nothing.
    freed: Vec<u32>,
    /// The bells that are rung once that is closed.
    bells: Bells,
}

/// Bells of processes that wait. They ring when this is dropped, whatever becomes of the closing.
#[derive(Debug, Default)]
struct Bells(Vec<Doorbell>);

/// Holders that are let go of once all is closed that they stood for. The descriptors go first, and
/// then the bells ring. A process that is woken by them finds nothing left.
#[derive(Debug)]
pub(super) struct Closed {
    _gone: Vec<Gone>,
    _bells: Bells,
}

impl Drop for Bells {
    fn drop(&mut self) {
        self.0.iter().for_each(Doorbell::ring);
    }
}

pub(super) struct Connections {
    /// The memberships of the shards.
    memberships: Vec<Mutex<Membership>>,
    shards: Arc<Shards>,
    /// Processes that are dead, and something of them still there.
    dead: Mutex<BTreeSet<u16>>,
    holders: Mutex<Holders>,
    /// Held by the thread that closes something.
    caring: Mutex<()>,
    /// Ports taken from the kernel beside the node, for the listeners that the holders stand for.
    pub(super) ports: Ports,
    wake_sleeper: AtomicBool,
    stop: AtomicBool,
    /// When pages of payload memory that hold nothing next go back, in nanoseconds.
    discards_at: AtomicU64,
    direct: Option<Arc<Banks>>,
}

impl Connections {
    pub(super) fn new(
        memberships: Vec<Membership>,
        shards: Arc<Shards>,
        direct: Option<Arc<Banks>>,
    ) -> Connections {
        Connections {
            memberships: memberships.into_iter().map(Mutex::new).collect(),
            shards,
            dead: Mutex::default(),
            holders: Mutex::default(),
            caring: Mutex::default(),
            ports: Ports::default(),
            wake_sleeper: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            discards_at: AtomicU64::new(0),
            direct,
        }
    }

    /// The membership of a shard that there is.
    pub(super) fn lock(&self, shard: u8) -> MutexGuard<'_, Membership> {
        let membership = &self.memberships[usize::from(shard)];
        membership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bell(&self) -> &Doorbell {
        &self.shards.get(0).bells.fabric
    }

    fn dead(&self) -> MutexGuard<'_, BTreeSet<u16>> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the connections and listeners of a dead process closed soon.
    pub(super) fn bury(&self, process: u16) {
        self.dead().insert(process);
        self.bell().ring();
    }

    fn holders(&self) -> MutexGuard<'_, Holders> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the connections and listeners closed soon that no process holds any more.
    pub(super) fn let_go(&self, holders: Vec<Gone>) {
        self.holders().gone.extend(holders);
        self.bell().ring();
    }

    /// Rings once that is done of all that was let go of by now.
    pub(super) fn await_closing(&self, bell: Doorbell) {
        let mut holders = self.holders();
        if holders.gone.is_empty() && self.caring.try_lock().is_ok() {
            drop(holders);
            return self.release(Vec::new(), Bells(vec![bell]));
        }
        holders.bells.0.push(bell);
        self.bell().ring();
    }

    /// Holders of which that was done.
    pub(super) fn freed(&self) -> Vec<u32> {
        std::mem::take(&mut self.holders().freed)
    }

    pub(super) fn is_burying(&self, process: u16) -> bool {
        self.dead().contains(&process)
    }

    /// Makes the thread look again that sleeps at the link, soon.
    pub(super) fn wake_sleeper(&self) {
        self.wake_sleeper.store(true, Release);
        self.bell().ring();
    }

    /// Ends [`Connections::run`].
    pub(super) fn stop(&self) {
        self.stop.store(true, Release);
        self.bell().ring();
    }

    /// Descriptors, each readable when a membership has something to do.
    pub(super) fn events(&self) -> std::io::Result<Vec<OwnedFd>> {
        let shards = 0..self.shards.count();
        shards
            .map(|shard| self.lock(shard).descriptor().try_clone_to_owned())
            .collect()
    }

    /// Handles events until stopped, or until the shard is gone.
    pub(super) fn run(&self, events: &[OwnedFd]) {
        let bell = self.bell();
        while !self.stop.load(Acquire) {
            let mut state = vec![PollFd::new(bell, PollFlags::IN)];
            let events = events.iter();
            state.extend(events.map(|events| PollFd::from_borrowed_fd(events.as_fd(), PollFlags::IN)));
            // A signal ends the sleep early, which does no harm.
            let timeout = self.direct.as_ref().and_then(|direct| direct.timeout());
            let _ = poll(&mut state, timeout.as_ref());
            bell.clear();
            if self.care().is_err() || self.round().is_err() {
                return;
            }
        }
    }

    /// Closes at once the connections and listeners that were to be closed soon.
    pub(super) fn care_at_once(&self) {
        // If a shard is gone, so is what was in it.
        let _ = self.care();
    }

    /// Carries out the work that the control thread has left to this one.
    fn care(&self) -> Result<(), wait::Gone> {
        let _caring = self.caring.lock().unwrap_or_else(PoisonError::into_inner);
        let dead = self.dead().clone();
        let (gone, bells) = {
            let mut holders = self.holders();
            (
                std::mem::take(&mut holders.gone),
                std::mem::take(&mut holders.bells),
            )
        };
        let numbers: Vec<u32> = gone.iter().map(|gone| gone.number).collect();
        let wake_sleeper = self.wake_sleeper.swap(false, Acquire);
        if dead.is_empty() && gone.is_empty() && !wake_sleeper {
            self.release(gone, bells);
            return Ok(());
        }
        // The first shard last: a listener's port is free when it is closed there.
        for (_, handle) in self.shards.iter().rev() {
            // Like a call of a program: the thread that drives has to know of what is closed here.
            let mut shard = handle.enter()?;
            for &process in &dead {
                shard.forget_process(process);
            }
            shard.forget_holders(&numbers);
            if wake_sleeper {
                shard.wake_sleeper();
            }
            handle.settle(&mut shard);
            handle.care(&mut shard);
        }
        if let Some(direct) = &self.direct {
            let descriptions = &self.shards.get(0).descriptions;
            direct.close_gone(descriptions, &numbers);
            dead.iter()
                .for_each(|&process| direct.bury(process, descriptions));
        }
        self.dead().retain(|process| !dead.contains(process));
        numbers.iter().for_each(|&holder| self.ports.release(holder));
        self.holders().freed.extend(numbers);
        self.release(gone, bells);
        Ok(())
    }

    /// Lets go of holders, and rings bells, once their direct connections are closed, too.
    fn release(&self, gone: Vec<Gone>, bells: Bells) {
        if gone.is_empty() && bells.0.is_empty() {
            return;
        }
        let closed = Closed {
            _gone: gone,
            _bells: bells,
        };
        match &self.direct {
            Some(direct) => direct.release_when_closed(closed),
            None => drop(closed),
        }
    }

    /// Handles the events of every shard, until none is left.
    pub(super) fn round(&self) -> Result<(), wait::Gone> {
        let mut shards = self.shards.iter();
        shards.try_for_each(|(shard, handle)| self.round_of(shard, handle))?;
        let now = clock::now().0;
        if now >= self.discards_at.load(Relaxed) {
            self.discards_at.store(now.saturating_add(DISCARDS_NS), Relaxed);
            for (_, handle) in self.shards.iter() {
                handle.lease.lock()?.stack.discard_unused_payload();
            }
        }
        Ok(())
    }

    fn round_of(&self, index: u8, handle: &ShardHandle) -> Result<(), wait::Gone> {
        loop {
            let mut membership = self.lock(index);
            if let Some(direct) = self.direct.as_ref().filter(|_| index == 0) {
                direct.housekeeping(&mut membership, &handle.descriptions);
            } else {
                membership.housekeeping();
            }
            let changes: Vec<Change> = std::iter::from_fn(|| membership.next_change()).collect();
            drop(membership);
            let mut shard = handle.lease.lock()?;
            if let Some(direct) = self.direct.as_ref().filter(|_| index == 0) {
                direct.free_withdrawn(&mut shard);
            }
            let mut unmapped = Vec::new();
            let Some(port) = shard.link.port() else {
                return Ok(());
            };
            let mut joined = false;
            for change in changes {
                let peer = match &change {
                    Change::Joined(peer) => Some((peer.slot, peer.generation)),
                    Change::Left { .. } => None,
                };
                joined |= peer.is_some();
                // A peer that broke a rule is among those that depart.
                if port.apply(change).is_err_and(|error| !error.is_offence()) {
                    unmapped.extend(peer);
                }
            }
            let departed: Vec<_> = std::iter::from_fn(|| port.departed())
                .take(MAX_DEPARTED)
                .collect();
            if joined {
                handle.signals.peer_joined();
            }
            shard.housekeeping();
            drop(shard);
            if unmapped.is_empty() && departed.is_empty() {
                return Ok(());
            }
            let mut membership = self.lock(index);
            unmapped
                .into_iter()
                .for_each(|(slot, generation)| membership.disconnect(slot, generation));
            departed.into_iter().for_each(|peer| membership.let_go(peer));
        }
    }
}
