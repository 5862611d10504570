//! The journal: what each thread of a node is doing with direct connections.
//!
//! A thread may be killed at any instruction. The engine then reads the lines of its process,
//! instead of the locks of every connection of every bank.

use core::num::NonZeroU16;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::compiler_fence;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::bank::{CONNECTIONS, JOURNAL_LEN, JOURNAL_LINES, JournalLine, Kind, THREADS};
use super::memory::{Memory, MemoryError};
use crate::Access;

/// Number of a thread in its node's [`Journal`]: what it stores in the locks that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadNumber(NonZeroU16);

impl ThreadNumber {
    /// The thread of that number; `None` if there can be none.
    pub fn new(number: u16) -> Option<ThreadNumber> {
        let number = NonZeroU16::new(number)?;
        (usize::from(number.get()) < THREADS).then_some(ThreadNumber(number))
    }

    /// The number, from 1 on.
    #[inline]
    pub fn get(self) -> u16 {
        self.0.get()
    }
}

/// Which side of a bank an end is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Side {
    /// The side that opens connections.
    Opening = 0,
    /// The side that accepts connections.
    Accepting = 1,
}

/// Which end a thread works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The node's own number of the bank.
    pub bank: u32,
    /// Number of the connection, below [`CONNECTIONS`].
    pub number: u16,
    /// The side that the node has in this bank.
    pub side: Side,
}

/// What a thread does at a [`Place`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Step {
    /// Writes, or tells the peer that it has written.
    Send = 1,
    /// Reads, or tells the peer that it has read.
    Receive = 2,
    /// Says what the end waits for.
    Arm = 3,
    /// Opens a connection, which is not offered yet.
    Open = 4,
    /// Offers a connection to a listener.
    Offer = 5,
    /// Takes a connection from a queue.
    Take = 6,
    /// Closes the end.
    Close = 7,
}

impl Step {
    fn from_number(number: u64) -> Option<Step> {
        use Step::{Arm, Close, Offer, Open, Receive, Send, Take};
        [Send, Receive, Arm, Open, Offer, Take, Close]
            .into_iter()
            .find(|&step| step as u64 == number)
    }
}

/// Lines in which threads of a node write what they are doing. No peer maps it.
///
/// A clone is of the same mapping.
///
/// ```
/// use toehold_shm::direct::{Journal, Place, Side, Step};
///
/// let journal = Journal::create("toehold-journal", 1)?;
/// let thread = journal.claim(17).expect("a free line");
/// let place = Place { bank: 0, number: 5, side: Side::Opening };
/// journal.begin(thread, place, Step::Send);
/// assert_eq!(journal.found(thread), Some((place, Step::Send)));
/// journal.end(thread);
/// assert_eq!(journal.found(thread), None);
/// journal.free(thread);
/// # Ok::<(), toehold_shm::direct::MemoryError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Journal {
    memory: Arc<Memory>,
}

impl Journal {
    /// Makes a journal of no threads. `name` shows up in `/proc/PID/maps`.
    ///
    /// # Errors
    ///
    /// If the kernel makes no memory file, or this process has too few addresses.
    pub fn create(name: &str, incarnation: u64) -> Result<Journal, MemoryError> {
        let len = JOURNAL_LEN as u64;
        Memory::create(name, Kind::Journal, len, JOURNAL_LEN, incarnation).map(Journal::over)
    }

    /// Maps the journal that another process of this node has made.
    ///
    /// # Errors
    ///
    /// If the descriptor is of something else, or this process has too few addresses.
    pub fn open(fd: OwnedFd) -> Result<Journal, MemoryError> {
        let len = JOURNAL_LEN as u64;
        Memory::open(fd, Kind::Journal, len, JOURNAL_LEN, Access::ReadWrite).map(Journal::over)
    }

    fn over(memory: Memory) -> Journal {
        Journal {
            memory: Arc::new(memory),
        }
    }

    /// The descriptor, for processes of this node.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    #[inline]
    pub(super) fn line(&self, thread: ThreadNumber) -> &JournalLine {
        self.memory.line(JOURNAL_LINES, thread.get().into(), THREADS)
    }

    /// Gives a thread of process `process` a line. `process` is the node's own number of it,
    /// never 0. `None` if every line is taken.
    pub fn claim(&self, process: u16) -> Option<ThreadNumber> {
        // Each process begins elsewhere, so that few lines are tried.
        let start = usize::from(process).wrapping_mul(97);
        let mut numbers = (0..THREADS).map(|at| (start + at) % THREADS);
        numbers.find_map(|number| {
            let thread = ThreadNumber::new(number as u16)?;
            let owner = &self.line(thread).owner;
            if owner.load(Relaxed) != 0 {
                return None;
            }
            let claimed = owner.compare_exchange(0, process.into(), AcqRel, Relaxed);
            claimed.is_ok().then_some(thread)
        })
    }

    /// Frees a thread's line. The thread has no lock and sleeps nowhere.
    pub fn free(&self, thread: ThreadNumber) {
        let line = self.line(thread);
        line.step.store(0, Relaxed);
        line.owner.store(0, Release);
    }

    /// The process that a line belongs to; `None` if it is free.
    pub fn process(&self, thread: ThreadNumber) -> Option<NonZeroU16> {
        NonZeroU16::new(self.line(thread).owner.load(Acquire) as u16)
    }

    /// The threads of a process.
    pub fn threads_of(&self, process: NonZeroU16) -> impl Iterator<Item = ThreadNumber> {
        (0..THREADS)
            .filter_map(|number| ThreadNumber::new(number as u16))
            .filter(move |&thread| self.process(thread) == Some(process))
    }

    /// Writes what a thread is about to do, before it takes a lock for that. A step within
    /// another one replaces it.
    #[inline]
    pub fn begin(&self, thread: ThreadNumber, place: Place, step: Step) {
        let line = self.line(thread);
        let side = place.side as u64;
        let word = u64::from(place.bank) | u64::from(place.number) << 32 | side << 44;
        line.place.store(word, Relaxed);
        // Nobody reads while the thread lives, and all that it stored is seen after its death:
        // the order of its instructions is all that counts.
        compiler_fence(Release);
        line.step.store(step as u64, Relaxed);
        compiler_fence(AcqRel);
    }

    /// Writes that a thread has done it, after the last store of the step.
    #[inline]
    pub fn end(&self, thread: ThreadNumber) {
        compiler_fence(AcqRel);
        self.line(thread).step.store(0, Relaxed);
    }

    /// What a dead thread was doing; `None` for nothing.
    pub fn found(&self, thread: ThreadNumber) -> Option<(Place, Step)> {
        let line = self.line(thread);
        let step = Step::from_number(line.step.load(Acquire))?;
        let word = line.place.load(Relaxed);
        let place = Place {
            bank: word as u32,
            number: ((word >> 32) % CONNECTIONS as u64) as u16,
            side: match word >> 44 & 1 {
                0 => Side::Opening,
                _ => Side::Accepting,
            },
        };
        Some((place, step))
    }
}
