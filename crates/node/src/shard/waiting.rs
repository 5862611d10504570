//! The threads that wait for a shard, and what wakes them.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use toehold_shm::{Carver, Channels, Doorbell, OutOfMemory, Parking, Rest};

use super::due::{Due, Wakeup};
use super::holders::Holders;
use super::interests::{Interests, Key, Kind};
use super::owners::Owners;
use super::polls::{self, Polls};
use super::seats::Seats;
use crate::direct::ListenerBell;

/// The threads that wait and what for, and the driver: the part of a shard's state that is neither
/// stack nor link.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) interests: Interests,
    pub(crate) polls: Polls,
    pub(crate) owners: Owners,
    pub(crate) holders: Holders,
    pub(crate) seats: Seats,
    /// The wake-ups that this process owes.
    pub(crate) due: Due,
}

impl Waiting {
    /// The bytes of these structures. `interests` is the most threads that wait and registrations
    /// with polls.
    pub(crate) fn bytes_needed(interests: u32, holders: u32) -> usize {
        Interests::bytes_needed(interests)
            + Polls::bytes_needed()
            + Owners::bytes_needed(polls::CAPACITY)
            + Holders::bytes_needed(holders)
            + Seats::bytes_needed()
    }

    pub(crate) fn create(
        carver: &mut Carver,
        (interests, holders): (u32, u32),
        index: u8,
    ) -> Result<Self, OutOfMemory> {
        Ok(Self {
            interests: Interests::create(carver, interests)?,
            polls: Polls::create(carver)?,
            owners: Owners::create(carver, polls::CAPACITY)?,
            holders: Holders::create(carver, holders)?,
            seats: Seats::create(carver, index)?,
            due: Due::default(),
        })
    }

    /// The numbers of threads of programs that rest, interests, polls and possessions.
    pub(crate) fn lengths(&self) -> [u32; 4] {
        [
            self.seats.programs_that_rest(),
            self.interests.len(),
            self.polls.len(),
            self.owners.len().saturating_add(self.holders.len()),
        ]
    }

    /// Wakes the threads that wait for `key`, as soon as the lease is free. Whether there are any
    /// that had not been woken before.
    pub(super) fn wake(&self, key: Key, wakes: &[Wake]) -> bool {
        let mut woken = false;
        for (_, entry) in self.interests.of(key).filter(|(_, entry)| entry.is(Kind::Thread)) {
            woken |= self.notify(entry.owner, wakes);
        }
        woken
    }

    /// Wakes a thread that rests, as soon as the lease is free. Returns `false` if none does, or it
    /// was woken before.
    pub(crate) fn notify(&self, slot: u32, wakes: &[Wake]) -> bool {
        let Some(waiter) = self.seats.waiters.get(slot) else {
            return false;
        };
        let home = wakes.get(usize::from(waiter.home));
        let Some(rested) = home.and_then(|home| home.parking.mark(waiter.word.into())) else {
            return false;
        };
        let wakeup = match rested {
            Rest::Parked => Wakeup::Parked {
                shard: waiter.home,
                word: waiter.word,
            },
            Rest::Seated => Wakeup::Sleeper { shard: waiter.bell },
            Rest::Polled => Wakeup::Resters {
                shard: waiter.home,
                process: waiter.process,
            },
        };
        self.due.owe(wakeup, wakes);
        true
    }

    /// Whether the thread of a slot rests and was not yet told to wake up.
    pub(crate) fn is_resting(&self, slot: u32, wakes: &[Wake]) -> bool {
        let waiter = self.seats.waiters.get(slot);
        waiter.is_some_and(|waiter| {
            let home = wakes.get(usize::from(waiter.home));
            home.is_some_and(|home| home.parking.is_resting(waiter.word.into()))
        })
    }
}

/// The means to wake threads that have their words in one shard, or sleep at its link.
#[derive(Debug)]
pub(crate) struct Wake {
    pub(crate) parking: Parking,
    /// The channels on whose lanes threads sleep.
    pub(crate) channels: Channels,
    /// The bell of the thread that sleeps at its link.
    pub(crate) sleeper: Arc<Doorbell>,
    /// The bells of threads that rest on descriptors of their own.
    pub(crate) resters: Arc<Resters>,
}

/// The wakes of all shards of a node, once there are some.
#[derive(Debug, Default)]
pub(crate) struct Wakes(OnceLock<Box<[Wake]>>, OnceLock<ListenerBell>);

impl Wakes {
    #[inline]
    pub(crate) fn all(&self) -> &[Wake] {
        self.0.get().map_or(&[], |wakes| wakes)
    }

    /// The bell that tells the waiters of published listeners, of a node with direct connections.
    #[inline]
    pub(crate) fn listeners(&self) -> Option<&ListenerBell> {
        self.1.get()
    }

    /// Sets the bell of published listeners when the process starts, in a node with direct
    /// connections.
    pub(crate) fn set_listeners(&self, bell: ListenerBell) {
        let _ = self.1.set(bell);
    }

    /// Sets the wakes of all shards, once they are made.
    pub(crate) fn set(&self, wakes: impl Iterator<Item = Wake>) {
        let _ = self.0.set(wakes.collect());
    }
}

/// Bells of threads that rest on descriptors of their own, among which the processes of a node are
/// shared out. Each ring of a bell wakes every such thread in the bell's processes, through an
/// epoll of the thread's own, at edges. A bell is never silenced.
#[derive(Debug)]
pub(crate) struct Resters([Doorbell; Resters::COUNT]);

impl Resters {
    /// With more bells, a ring wakes fewer threads that have nothing to do. Each is a descriptor
    /// more that every process has.
    pub(crate) const COUNT: usize = 32;

    pub(crate) fn new() -> Result<Resters, Errno> {
        let bells: Result<Vec<_>, _> = (0..Self::COUNT).map(|_| Doorbell::new()).collect();
        bells?.try_into().map(Resters).map_err(|_| Errno::NOBUFS)
    }

    /// The bells of another process of the node. Returns `None` if there are not as many as there
    /// should be.
    pub(crate) fn from_list(list: Vec<OwnedFd>) -> Option<Resters> {
        let bells: Vec<_> = list.into_iter().map(Doorbell::from_fd).collect();
        bells.try_into().map(Resters).ok()
    }

    /// Copies the bells' descriptors for another process.
    pub(crate) fn to_list(&self) -> std::io::Result<Vec<OwnedFd>> {
        let copies = self.0.iter().map(|bell| Ok(bell.try_clone()?.into_fd()));
        copies.collect()
    }

    /// The bell that wakes the threads of a process.
    pub(crate) fn of(&self, process: u16) -> &Doorbell {
        &self.0[usize::from(process) % Self::COUNT]
    }

    /// Rings every bell, so that all threads wake up.
    pub(crate) fn ring_all(&self) {
        self.0.iter().for_each(Doorbell::ring);
    }
}

/// The bells of a node's threads. Its processes trust one another.
#[derive(Debug, Clone)]
pub(crate) struct Bells {
    /// The bell of the thread that sleeps at the link.
    pub(crate) sleeper: Arc<Doorbell>,
    /// The bells of threads that rest on descriptors of their own; the same for all shards.
    pub(crate) resters: Arc<Resters>,
    /// The bell of the engine's driver.
    pub(crate) driver: Arc<Doorbell>,
    /// The bell of the engine's thread that connects the node with others, the same for all shards.
    pub(crate) fabric: Arc<Doorbell>,
}

impl Bells {
    /// The means to wake a thread that has its word in this shard, or sleeps at its link.
    pub(crate) fn wake(&self, parking: &Parking, channels: &Channels) -> Wake {
        Wake {
            parking: parking.clone(),
            channels: channels.clone(),
            sleeper: Arc::clone(&self.sleeper),
            resters: Arc::clone(&self.resters),
        }
    }

    pub(crate) fn new(fabric: &Arc<Doorbell>, resters: &Arc<Resters>) -> Result<Self, Errno> {
        Ok(Self {
            sleeper: Arc::new(Doorbell::new()?),
            resters: Arc::clone(resters),
            driver: Arc::new(Doorbell::new()?),
            fabric: Arc::clone(fabric),
        })
    }
}
