//! The journal: what each thread of a node is doing with direct connections.
//!
//! A thread may be killed at any instruction. The engine then reads the lines of its process,
//! instead of the locks of every connection of every bank.

use core::num::NonZeroU16;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::compiler_fence;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::audience::WaiterNumber;
use super::bank::{
    AUDIENCE_OWNERS, AUDIENCES, CHARGED_WORD, CONNECTIONS, JOURNAL_LEN, JOURNAL_LINES, JournalLine, Kind,
    LOCAL_LINES, LocalLine, PORT_LINES, PROCESSES, PortLine, THREADS, WAITERS,
};
use super::lock::ThreadNumber;
use super::memory::{Memory, MemoryError};
use crate::Access;
use crate::futex::{AtomicU32, AtomicU64};

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

/// Where the step lies in a word of the journal.
const STEP_AT: u32 = 48;

impl Place {
    fn to_word(self) -> u64 {
        let number = u64::from(self.number) % CONNECTIONS as u64;
        u64::from(self.bank) | number << 32 | (self.side as u64) << 44
    }

    fn from_word(word: u64) -> Place {
        Place {
            bank: word as u32,
            number: ((word >> 32) % CONNECTIONS as u64) as u16,
            side: match word >> 44 & 1 {
                0 => Side::Opening,
                _ => Side::Accepting,
            },
        }
    }
}

/// A step of a thread at a [`Place`].
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

/// A step that has begun: which of the line's words has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the step has to end"]
pub struct Begun(usize);

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
/// let begun = journal.begin(thread, place, Step::Send);
/// assert_eq!(journal.found(thread).collect::<Vec<_>>(), [(place, Step::Send)]);
/// journal.end(thread, begun);
/// assert_eq!(journal.found(thread).count(), 0);
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
        line.steps.iter().for_each(|word| word.store(0, Relaxed));
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

    /// Writes what a thread is about to do, before it takes a lock for that. A signal handler
    /// that interrupts a step has a word of its own, up to the fourth one at once.
    #[inline]
    pub fn begin(&self, thread: ThreadNumber, place: Place, step: Step) -> Begun {
        let steps = &self.line(thread).steps;
        let free = steps.iter().position(|word| word.load(Relaxed) == 0);
        let free = free.unwrap_or(steps.len());
        if let Some(word) = steps.get(free) {
            word.store(place.to_word() | (step as u64) << STEP_AT, Relaxed);
        }
        // Only the engine reads it, after the thread's death: it sees all that the thread has
        // stored, so that the order of the thread's instructions is all that counts.
        compiler_fence(AcqRel);
        Begun(free)
    }

    /// Writes that a thread has done it, after the last store of the step.
    #[inline]
    pub fn end(&self, thread: ThreadNumber, begun: Begun) {
        compiler_fence(AcqRel);
        if let Some(word) = self.line(thread).steps.get(begun.0) {
            word.store(0, Relaxed);
        }
    }

    /// The steps of a dead thread, the outermost call first.
    pub fn found(&self, thread: ThreadNumber) -> impl Iterator<Item = (Place, Step)> {
        let steps = self.line(thread).steps.iter();
        steps.filter_map(|word| {
            let word = word.load(Acquire);
            Some((Place::from_word(word), Step::from_number(word >> STEP_AT)?))
        })
    }

    /// Charges bytes of rings to the node, if all of them together stay within `most`. Returns
    /// `false` if they do not.
    pub fn charge(&self, bytes: u64, most: u64) -> bool {
        let before = self.charged().fetch_add(bytes, Relaxed);
        let fits = before.checked_add(bytes).is_some_and(|all| all <= most);
        if !fits {
            self.charged().fetch_sub(bytes, Relaxed);
        }
        fits
    }

    /// Takes a charge back.
    pub fn discharge(&self, bytes: u64) {
        self.charged().fetch_sub(bytes, Relaxed);
    }

    /// Corrects the bytes that are charged: a thread that dies between a charge and the note of
    /// it leaves too many. `count` adds up what all ends have noted. Returns `false` if a thread has
    /// changed something meanwhile.
    pub fn correct_charge(&self, count: impl FnOnce() -> u64) -> bool {
        let before = self.charged().load(Acquire);
        let exchanged = self.charged().compare_exchange(before, count(), AcqRel, Relaxed);
        exchanged.is_ok()
    }

    /// Bytes of rings that the node has in use.
    pub fn charged_bytes(&self) -> u64 {
        self.charged().load(Relaxed)
    }

    fn charged(&self) -> &AtomicU64 {
        &self.memory.line::<[AtomicU64; 1]>(CHARGED_WORD, 0, 1)[0]
    }

    #[inline]
    pub(super) fn local(&self, waiter: WaiterNumber) -> &LocalLine {
        self.memory.line(LOCAL_LINES, waiter.get().into(), WAITERS)
    }

    pub(super) fn ports(&self, process: u16) -> Option<&PortLine> {
        let process = usize::from(process);
        (process < PROCESSES).then(|| self.memory.line(PORT_LINES, process, PROCESSES))
    }

    /// Bitmaps that ends with more than four waiters have.
    pub fn bitmaps_in_use(&self) -> usize {
        let owners = self.bitmap_owners().iter();
        owners.filter(|owner| owner.load(Relaxed) != 0).count()
    }

    pub(super) fn bitmap_owners(&self) -> &[AtomicU32; AUDIENCES] {
        self.memory.line(AUDIENCE_OWNERS, 0, 1)
    }
}
