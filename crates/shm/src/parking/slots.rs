//! The slots of a region's waiters.

use core::sync::atomic::AtomicU32;

use super::Rest;
use crate::carve::{Carver, OutOfMemory};
use crate::words::Words;

/// Slots in which threads rest, of all processes that map the region.
///
/// A slot that does not exist behaves like one in which no thread ever rests: other processes can
/// write the numbers of slots.
///
/// ```
/// use toehold_shm::{Carver, Parking, Region, Rest};
///
/// let mut carver = Carver::new(Region::private(Parking::bytes_needed(2))?)?;
/// let here = carver.parking(2)?;
/// let there = here.clone();
///
/// here.begin(1, Rest::Parked);
/// assert_eq!(there.mark(1), Some(Rest::Parked));
/// there.wake(1);
/// here.park(1, None);
/// assert!(here.end(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Parking {
    words: Words,
}

impl Parking {
    /// Bytes that `slots` slots take from a region.
    pub fn bytes_needed(slots: u32) -> usize {
        Words::spaced_bytes_needed(slots as usize)
    }

    /// The number of slots.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.words.len() as u32
    }

    /// From now on a notification wakes the slot's thread. The caller holds the lease.
    pub fn begin(&self, slot: u32, rest: Rest) {
        if let Some(word) = self.word(slot) {
            super::begin(word, rest);
        }
    }

    /// Rests without the lease until notified, or until a time in nanoseconds on the monotonic
    /// clock. Ends early at a signal, or if another process overwrites the slot.
    pub fn park(&self, slot: u32, until_ns: Option<u64>) {
        if let Some(word) = self.word(slot) {
            super::park(word, until_ns);
        }
    }

    /// Marks the slot's thread as notified, if it rests and is not marked yet, and returns where it
    /// rests. The caller then has to [wake](Parking::wake) it, or to ring for a thread that rests
    /// on descriptors. It holds the lease.
    pub fn mark(&self, slot: u32) -> Option<Rest> {
        super::mark(self.word(slot)?)
    }

    /// Wakes the thread of a slot that was marked and is [`Rest::Parked`]. This needs no lease;
    /// call it without one, since the thread may want the lease at once.
    pub fn wake(&self, slot: u32) {
        if let Some(word) = self.word(slot) {
            super::wake(word);
        }
    }

    /// Marks the slot's thread once more: the process that marked it may have died before it woke
    /// the thread or rang. Call this for every slot after a process has died. Call it also after
    /// the lease was closed; then it needs no lease.
    pub fn rouse(&self, slot: u32) -> Option<Rest> {
        super::rouse(self.word(slot)?)
    }

    /// Ends the rest of an awake thread, and returns whether it was notified. The caller holds the
    /// lease.
    pub fn end(&self, slot: u32) -> bool {
        self.word(slot).is_some_and(super::end)
    }

    /// Whether the slot's thread rests and is not marked yet.
    #[inline]
    pub fn is_resting(&self, slot: u32) -> bool {
        self.word(slot).is_some_and(super::is_resting)
    }

    #[inline]
    pub(super) fn word(&self, slot: u32) -> Option<&AtomicU32> {
        self.words.get(slot as usize)
    }
}

impl Carver {
    /// `slots` slots for resting threads, all awake.
    pub fn parking(&mut self, slots: u32) -> Result<Parking, OutOfMemory> {
        Ok(Parking {
            words: self.spaced_words(slots as usize)?,
        })
    }
}
