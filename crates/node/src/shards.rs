//! One process's way to a node: to each of its shards.
//!
//! A shard is a stack with a region, a lease and a link of its own, and a connection belongs to one
//! of them. So threads that use connections of different shards never wait for each other. What is
//! the node's, and not a shard's, needs no lease. That is the descriptors of a process, its number,
//! and the number of a holder, which may stand for something in several shards.

use std::cell::Cell;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use toehold_stack::Event;

use crate::direct::{Direct, DirectEnd};
use crate::holder::{Holder, HolderError};
use crate::lookout::rouse_all;
use crate::ownership::Relayed;
use crate::wait::ShardHandle;

/// The ways to all shards of a node.
pub struct Shards {
    /// The first shard. Most nodes have no other one, and should not have to look for it.
    first: ShardHandle,
    others: Box<[ShardHandle]>,
    direct: Option<Direct>,
}

impl Shards {
    /// The ways to these shards; `None` if there are none.
    pub(crate) fn new(shards: Vec<ShardHandle>) -> Option<Shards> {
        let mut shards = shards.into_iter();
        Some(Shards {
            first: shards.next()?,
            others: shards.collect(),
            direct: None,
        })
    }

    /// The ways, for a process that has a part in the node's direct connections.
    pub(crate) fn with_direct(mut self, direct: Option<Direct>) -> Shards {
        self.direct = direct;
        self
    }

    /// This process's part in the node's direct connections, if the node has them.
    #[inline]
    pub fn direct(&self) -> Option<&Direct> {
        self.direct.as_ref()
    }

    /// The number of shards.
    #[inline]
    pub fn count(&self) -> u8 {
        self.others.len() as u8 + 1
    }

    /// The way to a shard; to the first one, if there is none of that number.
    #[inline]
    pub fn get(&self, shard: u8) -> &ShardHandle {
        match shard.checked_sub(1) {
            None => &self.first,
            Some(other) => self.others.get(usize::from(other)).unwrap_or(&self.first),
        }
    }

    /// All shards, the first one first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u8, &ShardHandle)> {
        (0..self.count()).map(|shard| (shard, self.get(shard)))
    }

    /// The shard in which the calling thread makes connections: the threads of a node take
    /// turns, and stay with theirs.
    #[inline]
    pub fn home(&self) -> u8 {
        match self.count() {
            1 => 0,
            count => (turn().wrapping_add(self.first.process().into()) % u32::from(count)) as u8,
        }
    }

    /// All shards, the thread's own first.
    pub fn from_home(&self) -> impl Iterator<Item = u8> + use<> {
        let (home, count) = (self.home(), self.count());
        (0..count).map(move |step| (home + step) % count)
    }

    /// The holder that a descriptor is, which another process has given to this one. Also its
    /// connection or listener, in every shard that has one.
    ///
    /// # Errors
    ///
    /// If it is none of this node's, or the node is gone.
    pub fn identify(&self, descriptor: OwnedFd) -> Result<(Holder, Vec<(u8, Event)>), HolderError> {
        let holder = self.first.identify(descriptor)?;
        let sources = self.sources(&holder)?;
        Ok((holder, sources))
    }

    /// The connection or listener that a holder stands for, in every shard that has one.
    ///
    /// # Errors
    ///
    /// If the holder is none of this node's, or the node is gone.
    pub fn sources(&self, holder: &Holder) -> Result<Vec<(u8, Event)>, HolderError> {
        let mut sources = Vec::new();
        for (shard, handle) in self.iter() {
            if handle.relayed(holder)?.is_some() {
                continue;
            }
            if let Some(source) = handle.held(holder)? {
                sources.push((shard, source));
            }
        }
        if sources.is_empty() {
            return Err(HolderError::Foreign);
        }
        Ok(sources)
    }
}

impl Shards {
    /// Lets a holder stand for an end of a direct connection from now on. Returns `false` if it
    /// cannot.
    pub fn hold_direct(&self, holder: &Holder, end: DirectEnd) -> bool {
        let descriptions = &self.first.descriptions;
        holder.number().is_some_and(|number| {
            descriptions.begin(number);
            holder.begin(descriptions.looks());
            descriptions.set_direct_end(number, Some(end))
        })
    }

    /// Whether the engine has ended, which every process of the node then learns. One system call.
    pub fn has_lost_engine(&self) -> bool {
        self.is_over() || self.get(0).check_engine().is_err()
    }

    /// Whether this life of the node has ended: what its processes share is used no more.
    pub fn is_over(&self) -> bool {
        self.first.lease.lease().is_closed()
    }

    /// Has the engine carry the bytes between the end of a direct connection and the descriptor of
    /// its holder. The descriptor then is a connected Unix socket to any program. No process uses
    /// the end itself any more, once it sees that it [is relayed](Shards::is_direct_relayed). If
    /// the engine does already, it goes on.
    ///
    /// # Errors
    ///
    /// If the holder stands for no such end, or the engine has no descriptors left or is gone.
    pub fn relay_direct(&self, holder: &Holder) -> Result<(), HolderError> {
        let attachment = self.first.attachment.as_ref().ok_or(HolderError::Private)?;
        let number = holder.number().ok_or(HolderError::Private)?;
        match self.first.descriptions.relay_direct(number) {
            true => attachment.relay(number),
            false => Err(HolderError::Foreign),
        }
    }

    /// Whether the engine carries the bytes of the direct connection that a holder stands for.
    #[inline]
    pub fn is_direct_relayed(&self, holder: &Holder) -> bool {
        let number = holder.number();
        number.is_some_and(|number| self.first.descriptions.is_direct_relayed(number))
    }

    /// The end of a direct connection that a holder stands for, if it stands for one.
    pub fn direct_end(&self, holder: &Holder) -> Option<DirectEnd> {
        self.first.descriptions.direct_end(holder.number()?)
    }

    /// The holder that a descriptor is, which another process has given to this one, and the end of
    /// a direct connection that it stands for. Returns `None` if it stands for none, or the engine
    /// carries its bytes.
    ///
    /// # Errors
    ///
    /// If the descriptor is none of this node's, or the node is gone.
    pub fn identify_direct(&self, descriptor: OwnedFd) -> Result<(Holder, Option<DirectEnd>), HolderError> {
        let holder = self.first.identify(descriptor)?;
        let end = self
            .direct_end(&holder)
            .filter(|_| !self.is_direct_relayed(&holder));
        Ok((holder, end))
    }

    /// Has the kernel signal the owner of a direct connection (SIGURG) when its peer announces
    /// urgent data. The owner is that of the first of two connected Unix sockets.
    ///
    /// # Errors
    ///
    /// If the node has no descriptors left, or is gone.
    pub fn signal_direct_owner(&self, holder: &Holder, messenger: [OwnedFd; 2]) -> Result<(), HolderError> {
        let attachment = self.first.attachment.as_ref().ok_or(HolderError::Private)?;
        attachment.own(holder.number().ok_or(HolderError::Private)?, messenger)
    }

    /// Lets a holder stand for no end of a direct connection any more: it was closed.
    pub fn release_direct(&self, holder: &Holder) {
        if let Some(number) = holder.number() {
            self.first.descriptions.set_direct_end(number, None);
        }
    }

    /// The ends of the connection whose bytes the engine carries to and from a descriptor.
    ///
    /// # Errors
    ///
    /// If the descriptor is none of this node's, or the node is gone.
    pub fn relayed(&self, descriptor: OwnedFd) -> Result<Option<Relayed>, HolderError> {
        let holder = self.first.identify(descriptor)?;
        if self.is_direct_relayed(&holder) {
            return Ok(Some(self.ends_of(&holder)));
        }
        for (_, handle) in self.iter() {
            if let Some(relayed) = handle.relayed(&holder)? {
                return Ok(Some(relayed));
            }
        }
        Ok(None)
    }

    /// The addresses of the direct connection that a holder stands for.
    fn ends_of(&self, holder: &Holder) -> Relayed {
        let record = self.direct_end(holder).and_then(|end| {
            let bank = self.direct.as_ref()?.bank_of(end)?;
            bank.half.record(end.number, end.generation)
        });
        Relayed {
            local: record.map(|record| record.local),
            peer: record.map(|record| record.remote),
        }
    }

    /// Ends this life of the node: no thread gets a lease any more, and all that wait find out. For
    /// a process that has found the node's memory damaged.
    #[cold]
    pub fn abandon(&self) {
        self.iter().for_each(|(_, handle)| handle.lease.lease().close());
        let wakes = |(_, handle): (u8, &ShardHandle)| handle.bells.wake(&handle.parking, &handle.channels);
        rouse_all(&self.iter().map(wakes).collect::<Vec<_>>());
    }

    /// Delivers what was written and closed in every shard, for some time at most. No other thread
    /// uses them any more.
    pub(crate) fn drain(&self, longest: Duration) {
        std::thread::scope(|scope| {
            for handle in &self.others {
                let drain = move || {
                    // A shard that is gone has nothing to deliver.
                    let _ = handle.drain(longest);
                };
                let thread = std::thread::Builder::new().name("toehold-drain".into());
                if thread.spawn_scoped(scope, drain).is_err() {
                    drain();
                }
            }
            let _ = self.first.drain(longest);
        });
    }
}

/// The calling thread's number among those of this process that ever asked.
fn turn() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static OWN: Cell<Option<u32>> = const { Cell::new(None) };
    }
    OWN.with(|own| {
        let number = own.get().unwrap_or_else(|| NEXT.fetch_add(1, Relaxed));
        own.set(Some(number));
        number
    })
}

/// The way to one of a node's shards, for the threads of an engine.
#[derive(Clone)]
pub(crate) struct OneShard {
    pub(crate) shards: Arc<Shards>,
    pub(crate) index: u8,
}

impl Deref for OneShard {
    type Target = ShardHandle;

    #[inline]
    fn deref(&self) -> &ShardHandle {
        self.shards.get(self.index)
    }
}
