//! Who keeps a node that ends with its last user.
//!
//! A launcher gives the node one end of a pipe: as long as any process has the other end,
//! which the launcher's program and whatever that starts inherit, the node is used. It
//! also is by the launcher's own process, which becomes the program, and by any that has
//! attached, for as long as they live: a program that closes descriptors which it does not
//! know keeps its node all the same.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use super::server::Source;

/// Keepers of a node, at most.
const MAX_KEEPERS: usize = 1 << 12;

/// How long a node lasts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Lifetime {
    /// Until it is told to end.
    #[default]
    UntilTold,
    /// Until its last user is gone, or it is told to end.
    WhileUsed,
}

/// What tells that a user is gone.
#[derive(Debug)]
struct Keeper {
    descriptor: OwnedFd,
    /// Of a process that is to be alive.
    pid: Option<u32>,
}

/// Of one node.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    lifetime: Lifetime,
    keepers: HashMap<u64, Keeper>,
    next_id: u64,
    /// Until then nobody needs to have come.
    grace: Option<Instant>,
}

impl Keepers {
    pub(super) fn new(lifetime: Lifetime, grace: Duration) -> Keepers {
        Keepers {
            lifetime,
            grace: (lifetime == Lifetime::WhileUsed).then(|| Instant::now() + grace),
            ..Keepers::default()
        }
    }

    /// When the node ends if nobody has come.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.grace
    }

    /// Somebody has come.
    pub(super) fn used(&mut self) {
        self.grace = None;
    }

    /// The node is used until the descriptor's other end is gone.
    ///
    /// # Errors
    ///
    /// If it is of another kind, or there are too many.
    pub(super) fn keep(&mut self, epoll: &OwnedFd, descriptor: OwnedFd) -> Result<(), Errno> {
        // Of a pipe, that nobody writes any more is told unasked.
        self.add(epoll, descriptor, EventFlags::empty(), None)
    }

    /// The node is used until a process ends.
    pub(super) fn keep_for(&mut self, epoll: &OwnedFd, pidfd: OwnedFd, pid: u32) {
        let known = self.keepers.values().any(|keeper| keeper.pid == Some(pid));
        if self.lifetime == Lifetime::WhileUsed && !known {
            // If there are too many, others keep the node.
            let _ = self.add(epoll, pidfd, EventFlags::IN, Some(pid));
        }
    }

    fn add(
        &mut self,
        epoll: &OwnedFd,
        descriptor: OwnedFd,
        flags: EventFlags,
        pid: Option<u32>,
    ) -> Result<(), Errno> {
        if self.keepers.len() >= MAX_KEEPERS {
            return Err(Errno::MFILE);
        }
        self.next_id += 1;
        epoll::add(epoll, &descriptor, Source::Keeper(self.next_id).token(), flags)?;
        self.keepers.insert(self.next_id, Keeper { descriptor, pid });
        self.used();
        Ok(())
    }

    /// A user is gone.
    pub(super) fn gone(&mut self, epoll: &OwnedFd, id: u64) {
        if let Some(keeper) = self.keepers.remove(&id) {
            // By hand: a forked child may hold a copy, which would stay in the set.
            let _ = epoll::delete(epoll, keeper.descriptor.as_fd());
        }
    }

    /// Whether the node is to end, unless processes are attached.
    pub(super) fn are_gone(&self) -> bool {
        let waiting = self.grace.is_some_and(|grace| Instant::now() < grace);
        self.lifetime == Lifetime::WhileUsed && self.keepers.is_empty() && !waiting
    }
}
