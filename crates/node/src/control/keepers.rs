//! The processes that keep a node that ends with its last user.
//!
//! A launcher gives the node one end of a pair of sockets. The launcher's program and whatever that
//! starts inherit the other end; as long as any process has it, the node is used. The launcher's
//! own process, which becomes the program, also uses the node, as does any process that has
//! attached, for as long as they live. So a program that closes descriptors which it does not know
//! keeps its node all the same. The pair is a door (`door`), too.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};

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

/// The two ends of a pair that keeps a node, which [`keeper_pair`] makes.
#[derive(Debug)]
pub(crate) struct KeeperPair {
    /// The node's end.
    pub(crate) end: KeeperEnd,
    /// The users' end.
    pub(crate) keeper: OwnedFd,
}

/// The node's end of a pair that keeps it.
#[derive(Debug)]
pub(crate) struct KeeperEnd {
    pub(crate) descriptor: OwnedFd,
    /// The inode of the other end.
    pub(crate) inode: u64,
}

/// Makes a pair of descriptors that keeps a node.
///
/// # Errors
///
/// If the system has no descriptor left.
pub(crate) fn keeper_pair() -> Result<KeeperPair, Errno> {
    let (descriptor, keeper) = super::door::pair()?;
    let inode = rustix::fs::fstat(&keeper)?.st_ino;
    let end = KeeperEnd { descriptor, inode };
    Ok(KeeperPair { end, keeper })
}

/// A descriptor that tells that a user is gone.
#[derive(Debug)]
struct Keeper {
    descriptor: OwnedFd,
    /// The system's number of a process that keeps the node while it lives.
    pid: Option<u32>,
    /// The inode of the other end, if it is a pair of sockets.
    inode: Option<u64>,
}

/// The processes that keep one node.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    lifetime: Lifetime,
    keepers: HashMap<u64, Keeper>,
    next_id: u64,
    /// Until then the node needs no user.
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

    /// When the node ends if no user has come.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.grace
    }

    /// Notes that a user has come.
    pub(super) fn used(&mut self) {
        self.grace = None;
    }

    /// Keeps the node until the descriptor's other end is gone.
    ///
    /// # Errors
    ///
    /// If it is of another kind, or there are too many.
    pub(super) fn keep(&mut self, epoll: &OwnedFd, descriptor: OwnedFd, inode: u64) -> Result<(), Errno> {
        let is_unix = socket_domain(&descriptor)? == AddressFamily::UNIX;
        if !is_unix || socket_type(&descriptor)? != SocketType::SEQPACKET {
            return Err(Errno::PROTOTYPE);
        }
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        self.add(epoll, descriptor, EventFlags::IN, None, Some(inode))
    }

    /// The node's end of a user's pair, if it is a door.
    pub(super) fn door(&self, id: u64) -> Option<BorrowedFd<'_>> {
        let keeper = self.keepers.get(&id)?;
        keeper.inode.map(|_| keeper.descriptor.as_fd())
    }

    /// The inodes of the users' ends.
    pub(super) fn inodes(&self) -> Vec<u64> {
        self.keepers.values().filter_map(|keeper| keeper.inode).collect()
    }

    /// Keeps the node until a process ends.
    pub(super) fn keep_for(&mut self, epoll: &OwnedFd, pidfd: OwnedFd, pid: u32) {
        // Processes without a number here are not told from one another.
        let known = pid != 0 && self.keepers.values().any(|keeper| keeper.pid == Some(pid));
        if self.lifetime == Lifetime::WhileUsed && !known {
            // If there are too many, others keep the node.
            let _ = self.add(epoll, pidfd, EventFlags::IN, Some(pid), None);
        }
    }

    fn add(
        &mut self,
        epoll: &OwnedFd,
        descriptor: OwnedFd,
        flags: EventFlags,
        pid: Option<u32>,
        inode: Option<u64>,
    ) -> Result<(), Errno> {
        if self.keepers.len() >= MAX_KEEPERS {
            return Err(Errno::MFILE);
        }
        self.next_id += 1;
        epoll::add(epoll, &descriptor, Source::Keeper(self.next_id).token(), flags)?;
        let keeper = Keeper {
            descriptor,
            pid,
            inode,
        };
        self.keepers.insert(self.next_id, keeper);
        self.used();
        Ok(())
    }

    /// Removes a keeper that is gone.
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
