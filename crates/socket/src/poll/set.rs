//! A poll's parts in the shards of its node.

use std::io;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use toehold_node::direct::Bank;
use toehold_node::{Guard, Ownership};

use super::audience::Audience;
use super::direct::{DirectSet, Identity};
use crate::node::Shared;

/// Set in [`Set::used`] once something was registered without a lease.
pub(super) const DIRECT: u32 = 1 << 31;

/// A socket that is watched in shards, as long as the program has it.
type Leased = (Box<dyn Fn() -> bool + Send + Sync>, Identity);

/// A poll as long as a handle of it exists. It has a part in every shard of its node.
pub(super) struct Set {
    pub(super) node: Arc<Shared>,
    pub(super) polls: Vec<PollIn>,
    /// The shard of the thread that made it, in which its wakers are.
    pub(super) home: u8,
    /// The shards in which something was registered, and the home, as bits. A poll whose
    /// sockets are all of one shard waits for that one alone.
    pub(super) used: AtomicU32,
    /// The group of the last source in several shards that was registered.
    pub(super) group: AtomicU16,
    pub(super) audience: Audience,
    /// The sources that are watched without the lease, if the node has direct connections.
    pub(super) direct: Option<DirectSet>,
    /// The sources that are watched in shards, if the node has direct connections.
    leased: Mutex<Vec<Leased>>,
    /// The process that made it. A forked child has a copy, and has no use for it.
    pub(super) process: u16,
}

/// A poll's part in one shard.
pub(super) struct PollIn {
    pub(super) index: u32,
    pub(super) ownership: Ownership,
}

impl PollIn {
    fn open(node: &Shared, index: u8) -> io::Result<PollIn> {
        let mut shard = node.enter(index)?;
        let poll = shard.open_poll().ok_or(Errno::NOBUFS)?;
        match node.own(index, &mut shard, poll) {
            Ok(ownership) => Ok(PollIn {
                index: poll,
                ownership,
            }),
            Err(error) => {
                shard.close_poll(poll);
                Err(error)
            }
        }
    }
}

impl Set {
    /// Opens a part in every shard. What was opened is closed again if there is no room for all.
    pub(super) fn open(node: Arc<Shared>) -> io::Result<Set> {
        let owner = Arc::clone(&node);
        owner.contain(|| {
            let shards = node.shards()?;
            let (home, count) = (shards.home(), shards.count());
            let mut set = Set {
                process: node.process(),
                node,
                polls: Vec::new(),
                home,
                used: AtomicU32::new(1 << home),
                group: AtomicU16::new(0),
                audience: Audience::default(),
                direct: None,
                leased: Mutex::default(),
            };
            set.direct = DirectSet::open(set.node.shards()?)?;
            for shard in 0..count {
                let poll = PollIn::open(&set.node, shard)?;
                set.polls.push(poll);
            }
            Ok(set)
        })
    }

    /// Begins a call on the poll in a shard.
    pub(super) fn enter(&self, index: u8) -> io::Result<Guard<'_>> {
        if self.node.process() == self.process {
            self.node.enter(index)
        } else {
            Err(Errno::BADF.into())
        }
    }

    /// The number of the poll in a shard; one that no poll has if it is in none.
    pub(super) fn poll(&self, index: u8) -> u32 {
        let poll = self.polls.get(usize::from(index));
        poll.map_or(u32::MAX, |poll| poll.index)
    }

    /// A number for a source in several shards. A poll that has given out all numbers gives them
    /// again; events compare the program's own numbers, too.
    pub(super) fn new_group(&self) -> u16 {
        self.group.fetch_add(1, Relaxed).wrapping_add(1).max(1)
    }

    /// Ends the one-shot registrations of a source in its other shards, which was told of in one.
    pub(super) fn spend(&self, told: u8, group: u16) -> io::Result<()> {
        for index in (0..self.polls.len() as u8).filter(|index| *index != told) {
            let mut shard = self.enter(index)?;
            shard.spend(self.poll(index), group);
            self.node.settle(index, &mut shard);
        }
        Ok(())
    }

    /// Whether something is watched without the lease.
    pub(super) fn watches_directly(&self) -> bool {
        self.direct.as_ref().is_some_and(DirectSet::is_used)
    }

    fn leased(&self) -> MutexGuard<'_, Vec<Leased>> {
        self.leased.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something is watched in shards.
    pub(super) fn has_leased(&self) -> bool {
        if self.direct.is_none() {
            return true;
        }
        let mut leased = self.leased();
        leased.retain(|(is_there, _)| is_there());
        !leased.is_empty()
    }

    /// Notes that a socket is watched in shards as long as `is_there` says so.
    pub(super) fn note_leased(&self, identity: Identity, is_there: Box<dyn Fn() -> bool + Send + Sync>) {
        if let Some(direct) = &self.direct {
            self.leased().push((is_there, identity));
            direct.rouse();
        }
    }

    /// Whether a source is watched in shards.
    pub(super) fn is_leased(&self, identity: Identity) -> bool {
        self.leased().iter().any(|(_, known)| *known == identity)
    }

    /// Notes that a socket is watched in shards no more.
    pub(super) fn forget_leased(&self, identity: Identity) {
        self.leased().retain(|(_, known)| *known != identity);
    }

    /// Whether something that is watched without the lease has something to tell.
    pub(super) fn is_directly_ready(&self) -> io::Result<bool> {
        match (&self.direct, self.node.shards()?.direct()) {
            (Some(set), Some(direct)) => Ok(set.is_ready(direct)),
            _ => Ok(false),
        }
    }

    /// The banks in which something is watched.
    pub(super) fn direct_banks(&self) -> Vec<Arc<Bank>> {
        self.direct.as_ref().map_or_else(Vec::new, DirectSet::banks)
    }

    /// Notes that something is registered in these shards from now on. Threads that wait have to
    /// know.
    pub(super) fn use_shards(&self, shards: u32) -> io::Result<()> {
        let before = self.used.fetch_or(shards, Relaxed);
        if before | shards == before {
            return Ok(());
        }
        for index in (0..self.polls.len() as u8).filter(|index| before & 1 << index != 0) {
            let mut shard = self.enter(index)?;
            shard.rouse_poll(self.poll(index));
            self.node.settle(index, &mut shard);
        }
        Ok(())
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        // A node that is gone holds nothing.
        let _ = self.node.contain(|| {
            for (index, poll) in (0..).zip(&self.polls) {
                let mut shard = self.enter(index)?;
                shard.close_poll(poll.index);
                self.node.disown(index, &mut shard, poll.ownership);
            }
            Ok(())
        });
    }
}
