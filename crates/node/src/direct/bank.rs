//! A bank as one process has mapped it.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use toehold_link::mq::BankMemory;
use toehold_shm::direct::{Directory, Ends, Half, MemoryError, PeerDirectory, PeerHalf, Side, Signals};

use super::table::Entry;

/// Descriptors of a bank, in the order of [`Bank::to_list`].
const DESCRIPTORS: usize = 6;

/// A bank of this node, and the side that it has in it: what a process needs to open, accept and
/// use its connections. The rings of a connection are mapped when they are first used.
#[derive(Debug)]
pub struct Bank {
    slot: u16,
    generation: u32,
    side: Side,
    same_user: bool,
    half: Half,
    peer_half: PeerHalf,
    own_signals: Signals,
    peer_signals: Signals,
    ends: Ends,
    peer_directory: PeerDirectory,
}

impl Bank {
    /// The bank with a peer, of memory that was exchanged with it. For the engine.
    pub(crate) fn with_peer(
        entry: &Entry,
        memory: BankMemory,
        directory: &PeerDirectory,
    ) -> Result<Bank, MemoryError> {
        let BankMemory {
            own_half,
            peer_half,
            own_signals,
            peer_signals,
        } = memory;
        Ok(Bank {
            slot: entry.slot,
            generation: entry.generation,
            side: entry.side,
            same_user: entry.same_user,
            ends: Ends::create("toehold-ends", own_half.incarnation())?,
            half: own_half,
            peer_half,
            own_signals,
            peer_signals,
            peer_directory: directory.clone(),
        })
    }

    /// Both sides of the bank that a node has with itself. For the engine.
    pub(crate) fn with_itself(
        entries: [&Entry; 2],
        directory: &Directory,
        incarnation: u64,
    ) -> Result<[Bank; 2], MemoryError> {
        let half = || Half::create("toehold-half", incarnation);
        let signals = || Signals::create("toehold-signals", incarnation);
        let ends = || Ends::create("toehold-ends", incarnation);
        let (halves, told) = ([half()?, half()?], [signals()?, signals()?]);
        let side = |own: usize, ends| Bank {
            slot: entries[own].slot,
            generation: entries[own].generation,
            side: entries[own].side,
            same_user: true,
            half: halves[own].clone(),
            peer_half: halves[1 - own].as_peer(),
            own_signals: told[own].clone(),
            peer_signals: told[1 - own].clone(),
            ends,
            peer_directory: directory.as_peer(),
        };
        Ok([side(0, ends()?), side(1, ends()?)])
    }

    /// Maps a bank that the engine has, of the descriptors that it gave.
    ///
    /// # Errors
    ///
    /// If they are not those of a bank, or this process has too few addresses for it.
    pub(crate) fn open(entry: &Entry, list: Vec<OwnedFd>) -> Result<Bank, MemoryError> {
        let list: Result<[OwnedFd; DESCRIPTORS], _> = list.try_into();
        let [half, peer_half, own_signals, peer_signals, ends, directory] =
            list.map_err(|_| MemoryError::Foreign)?;
        Ok(Bank {
            slot: entry.slot,
            generation: entry.generation,
            side: entry.side,
            same_user: entry.same_user,
            half: Half::open(half)?,
            peer_half: PeerHalf::open(peer_half)?,
            own_signals: Signals::open(own_signals)?,
            peer_signals: Signals::open(peer_signals)?,
            ends: Ends::open(ends)?,
            peer_directory: PeerDirectory::open(directory)?,
        })
    }

    /// Copies of the descriptors, for another process of the node.
    ///
    /// # Errors
    ///
    /// If there are no descriptors left.
    pub(crate) fn to_list(&self) -> Result<Vec<OwnedFd>, Errno> {
        let copy = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 0);
        let all: [BorrowedFd<'_>; DESCRIPTORS] = [
            self.half.fd(),
            self.peer_half.fd(),
            self.own_signals.fd(),
            self.peer_signals.fd(),
            self.ends.fd(),
            self.peer_directory.fd(),
        ];
        all.into_iter().map(copy).collect()
    }

    /// The node's own number of the bank.
    #[inline]
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// Tells the bank from earlier ones of the slot.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The side that this node has.
    #[inline]
    pub fn side(&self) -> Side {
        self.side
    }

    /// Whether the other side runs as the same user.
    #[inline]
    pub fn same_user(&self) -> bool {
        self.same_user
    }

    /// What this side writes.
    #[inline]
    pub fn half(&self) -> &Half {
        &self.half
    }

    /// What the other side writes.
    #[inline]
    pub fn peer_half(&self) -> &PeerHalf {
        &self.peer_half
    }

    /// What this side is told by.
    #[inline]
    pub fn own_signals(&self) -> &Signals {
        &self.own_signals
    }

    /// What the other side is told by.
    #[inline]
    pub fn peer_signals(&self) -> &Signals {
        &self.peer_signals
    }

    /// What this side knows of its ends.
    #[inline]
    pub fn ends(&self) -> &Ends {
        &self.ends
    }

    /// The other side's listeners and waiters.
    #[inline]
    pub fn peer_directory(&self) -> &PeerDirectory {
        &self.peer_directory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::table::tests::entry;

    #[test]
    fn bank_with_itself_has_halves_and_signals_crosswise() {
        let directory = Directory::create("toehold-test", 7).unwrap();
        let entries = [entry(0, 1, Side::Opening), entry(1, 1, Side::Accepting)];
        let banks = Bank::with_itself([&entries[0], &entries[1]], &directory, 7).unwrap();
        let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
        for (own, other) in [(0, 1), (1, 0)] {
            assert_eq!(inode(banks[own].half.fd()), inode(banks[other].peer_half.fd()));
            assert_eq!(
                inode(banks[own].own_signals.fd()),
                inode(banks[other].peer_signals.fd())
            );
        }
        assert_ne!(inode(banks[0].ends.fd()), inode(banks[1].ends.fd()));
        assert_eq!((banks[0].side, banks[1].side), (Side::Opening, Side::Accepting));
    }

    #[test]
    fn bank_given_to_another_process_is_the_same() {
        let directory = Directory::create("toehold-test", 7).unwrap();
        let entries = [entry(0, 9, Side::Opening), entry(1, 9, Side::Accepting)];
        let [bank, _] = Bank::with_itself([&entries[0], &entries[1]], &directory, 7).unwrap();
        let list = bank.to_list().unwrap();
        let there = Bank::open(&entries[0], list).unwrap();
        assert_eq!(
            (there.slot(), there.generation(), there.side()),
            (0, 9, Side::Opening)
        );
        assert_eq!(there.half().incarnation(), 7);
        let mut list = bank.to_list().unwrap();
        list.swap(0, 2);
        assert!(Bank::open(&entries[0], list).is_err());
        let mut list = bank.to_list().unwrap();
        list.pop();
        assert_eq!(Bank::open(&entries[0], list).unwrap_err(), MemoryError::Foreign);
    }
}
