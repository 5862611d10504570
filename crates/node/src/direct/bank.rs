//! A bank as one process has mapped it.

use std::ops::Deref;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use toehold_link::mq::{BankBells, BankMemory};
use toehold_shm::direct::{
    self, BellSet, Class, Directory, Ends, Half, MemoryError, PeerDirectory, PeerHalf, Signals, WaiterNumber,
    Waiters,
};

use super::bells::{BellsOf, LazyBells};
use super::recording::{BankRecorder, DirectTape};
use super::table::Entry;

/// Descriptors of a bank, in the order of [`Bank::to_list`].
const DESCRIPTORS: usize = 6;

/// The largest rings that are mapped of another user's node.
const FOREIGN_CLASS: Class = Class::K16;

/// The parts that all banks of a node have in common in one process.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    /// The node's directory and journal.
    pub(crate) waiters: Waiters,
    /// The bells on which the node's own processes ring its waiters.
    pub(crate) bells: Arc<LazyBells>,
    /// Bytes of rings that the node may have in use.
    pub(crate) payload_bound: u64,
    /// What connections carry while a capture runs.
    pub(crate) tape: DirectTape,
}

/// A bank of this node, and the side that it has in it. With it a process opens, accepts and uses
/// connections. The rings of a connection are mapped when they are first used.
#[derive(Debug)]
pub struct Bank {
    slot: u16,
    generation: u32,
    same_user: bool,
    bells: Arc<SideBells>,
    memory: direct::Bank,
}

/// The bells of the two sides.
#[derive(Debug)]
struct SideBells {
    own: LazyBells,
    other: LazyBells,
}

impl SideBells {
    fn names(entry: &Entry) -> [BellsOf; 2] {
        let &Entry { slot, generation, .. } = entry;
        [
            BellsOf::OwnSide { slot, generation },
            BellsOf::OtherSide { slot, generation },
        ]
    }

    /// The bells that the engine has.
    fn of_engine(entry: &Entry, bells: Option<BankBells>) -> SideBells {
        let [own, other] = Self::names(entry);
        let (ours, theirs) = bells.map(|bells| (bells.own, bells.peer)).unzip();
        SideBells {
            own: LazyBells::of_engine(own, ours),
            other: LazyBells::of_engine(other, theirs),
        }
    }

    /// The bells that another process can get.
    fn of_process(entry: &Entry, own: &Own) -> SideBells {
        let [ours, theirs] = Self::names(entry).map(|which| own.bells.another(which));
        SideBells {
            own: ours,
            other: theirs,
        }
    }
}

/// The memory of the two sides, and of this node.
impl Deref for Bank {
    type Target = direct::Bank;

    #[inline]
    fn deref(&self) -> &direct::Bank {
        &self.memory
    }
}

impl Bank {
    fn new(
        entry: &Entry,
        own: &Own,
        (half, peer): (Half, PeerHalf),
        (signals, peer_signals): (Signals, Signals),
        ends: Ends,
        peer_directory: PeerDirectory,
        bells: SideBells,
    ) -> Bank {
        let bells = Arc::new(bells);
        let rung = Arc::clone(&bells);
        Bank {
            slot: entry.slot,
            generation: entry.generation,
            same_user: entry.same_user,
            bells,
            memory: direct::Bank {
                number: entry.slot.into(),
                side: entry.side,
                half,
                peer,
                ends,
                signals,
                peer_signals,
                waiters: own.waiters.clone(),
                peer_directory,
                class_limit: match entry.same_user {
                    true => Class::M4,
                    false => FOREIGN_CLASS,
                },
                payload_bound: own.payload_bound,
                ring_descriptor: Box::new(move |waiter| rung.other.ring(waiter)),
                recorder: Some(Box::new(BankRecorder::new(own.tape.clone(), entry))),
            },
        }
    }

    /// Makes the bank with a peer, of memory that was exchanged with it. For the engine.
    pub(crate) fn with_peer(
        entry: &Entry,
        own: &Own,
        memory: BankMemory,
        directory: &PeerDirectory,
    ) -> Result<Bank, MemoryError> {
        let BankMemory {
            own_half,
            peer_half,
            own_signals,
            peer_signals,
            bells,
        } = memory;
        let ends = Ends::create("toehold-ends", own_half.incarnation())?;
        let (halves, signals) = ((own_half, peer_half), (own_signals, peer_signals));
        let bells = SideBells::of_engine(entry, bells);
        let directory = directory.clone();
        Ok(Bank::new(entry, own, halves, signals, ends, directory, bells))
    }

    /// Maps the two sides of the bank that a node has with itself. For the engine.
    pub(crate) fn with_itself(
        entries: [&Entry; 2],
        own: &Own,
        incarnation: u64,
    ) -> Result<[Bank; 2], MemoryError> {
        let half = || Half::create("toehold-half", incarnation);
        let signals = || Signals::create("toehold-signals", incarnation);
        let ends = || Ends::create("toehold-ends", incarnation);
        let (halves, told) = ([half()?, half()?], [signals()?, signals()?]);
        let directory: &Directory = own.waiters.directory();
        // Without descriptors left, threads look again now and then.
        let sets = BellSet::new().ok().zip(BellSet::new().ok());
        let bells = |this: usize| {
            let (opening, accepting) = sets.clone()?;
            let [own, peer] = match this {
                0 => [opening, accepting],
                _ => [accepting, opening],
            };
            Some(BankBells { own, peer })
        };
        let side = |this: usize, ends| {
            Bank::new(
                entries[this],
                own,
                (halves[this].clone(), halves[1 - this].as_peer()),
                (told[this].clone(), told[1 - this].clone()),
                ends,
                directory.as_peer(),
                SideBells::of_engine(entries[this], bells(this)),
            )
        };
        Ok([side(0, ends()?), side(1, ends()?)])
    }

    /// Maps a bank that the engine has, of the descriptors that it gave.
    ///
    /// # Errors
    ///
    /// If they are not those of a bank, or this process has too few addresses for it.
    pub(crate) fn open(entry: &Entry, own: &Own, list: Vec<OwnedFd>) -> Result<Bank, MemoryError> {
        let list: Result<[OwnedFd; DESCRIPTORS], _> = list.try_into();
        let [half, peer, signals, peer_signals, ends, directory] = list.map_err(|_| MemoryError::Foreign)?;
        Ok(Bank::new(
            entry,
            own,
            (Half::open(half)?, PeerHalf::open(peer)?),
            (Signals::open(signals)?, Signals::open(peer_signals)?),
            Ends::open(ends)?,
            PeerDirectory::open(directory)?,
            SideBells::of_process(entry, own),
        ))
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
            self.peer.fd(),
            self.signals.fd(),
            self.peer_signals.fd(),
            self.ends.fd(),
            self.peer_directory.fd(),
        ];
        all.into_iter().map(copy).collect()
    }

    /// The descriptor that becomes readable when the other side rings a waiter of this node that
    /// sleeps on descriptors. It stays readable: see [`Ear`](super::Ear). Returns `None` if the
    /// other side is of another user, this process has no descriptors left, or the engine does not
    /// answer.
    pub fn bell(&self, waiter: WaiterNumber) -> Option<BorrowedFd<'_>> {
        self.bells.own.bell_of(waiter)
    }

    /// Bells of this side or the other one, for the engine.
    pub(crate) fn bells(&self, which: BellsOf) -> &LazyBells {
        match which {
            BellsOf::OtherSide { .. } => &self.bells.other,
            BellsOf::OwnSide { .. } | BellsOf::Node => &self.bells.own,
        }
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

    /// Whether the other side runs as the same user.
    #[inline]
    pub fn same_user(&self) -> bool {
        self.same_user
    }
}

#[cfg(test)]
pub(super) mod tests {
    use toehold_link::capture::SharedTap;
    use toehold_shm::direct::{Journal, Side};
    use toehold_shm::{Carver, Region};

    use super::*;
    use crate::direct::table::tests::entry;

    fn tape() -> DirectTape {
        let region = Region::private(SharedTap::bytes_needed()).unwrap();
        let tap = SharedTap::create(&mut Carver::new(region).unwrap()).unwrap();
        DirectTape {
            tap: Arc::new(tap),
            mac: [2; 6],
        }
    }

    pub(in crate::direct) fn own() -> Own {
        let directory = Directory::create("toehold-test", 7).unwrap();
        let journal = Journal::create("toehold-test", 7).unwrap();
        Own {
            waiters: Waiters::new(directory, journal),
            bells: Arc::new(LazyBells::of_engine(BellsOf::Node, None)),
            payload_bound: 1 << 20,
            tape: tape(),
        }
    }

    #[test]
    fn bank_with_itself_has_halves_and_signals_crosswise() {
        let entries = [entry(0, 1, Side::Opening), entry(1, 1, Side::Accepting)];
        let banks = Bank::with_itself([&entries[0], &entries[1]], &own(), 7).unwrap();
        let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
        for (this, other) in [(0, 1), (1, 0)] {
            assert_eq!(inode(banks[this].half.fd()), inode(banks[other].peer.fd()));
            assert_eq!(
                inode(banks[this].signals.fd()),
                inode(banks[other].peer_signals.fd())
            );
        }
        assert_ne!(inode(banks[0].ends.fd()), inode(banks[1].ends.fd()));
        assert_eq!((banks[0].side, banks[1].side), (Side::Opening, Side::Accepting));
    }

    #[test]
    fn bank_given_to_another_process_is_the_same() {
        let own = own();
        let entries = [entry(0, 9, Side::Opening), entry(1, 9, Side::Accepting)];
        let [bank, _] = Bank::with_itself([&entries[0], &entries[1]], &own, 7).unwrap();
        let list = bank.to_list().unwrap();
        let there = Bank::open(&entries[0], &own, list).unwrap();
        assert_eq!(
            (there.slot(), there.generation(), there.side),
            (0, 9, Side::Opening)
        );
        assert_eq!(there.half.incarnation(), 7);
        let mut list = bank.to_list().unwrap();
        list.swap(0, 2);
        assert!(Bank::open(&entries[0], &own, list).is_err());
        let mut list = bank.to_list().unwrap();
        list.pop();
        assert_eq!(
            Bank::open(&entries[0], &own, list).unwrap_err(),
            MemoryError::Foreign
        );
    }
}
