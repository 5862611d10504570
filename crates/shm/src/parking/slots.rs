//! The slots of a region's waiters.

use core::sync::atomic::AtomicU32;

use super::Rest;
use crate::carve::{Carver, OutOfMemory};
use crate::words::Words;

/// A number of slots in which threads rest, of all processes that map the region.
///
/// A slot that does not exist is one in which nobody ever rests: numbers of slots
/// come from memory that others write.
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

    /// How many slots there are.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.words.len() as u32
    }

    /// From now on a notification wakes the thread of the slot. With the lease held.
    pub fn begin(&self, slot: u32, rest: Rest) {
        if let Some(word) = self.word(slot) {
            super::begin(word, rest);
        }
    }

    /// Rests without the lease until notified, or until a time in nanoseconds on the
    /// monotonic clock. Ends early if a signal comes, or somebody has written nonsense to the slot.
    pub fn park(&self, slot: u32, until_ns: Option<u64>) {
        if let Some(word) = self.word(slot) {
            super::park(word, until_ns);
        }
    }

    /// Tells the thread of the slot to wake up, if it rests and was not told yet; where
    /// it rests. The caller has to [wake](Parking::wake) it then, or to ring for one that does not
    /// rest on its word. With the lease held.
    pub fn mark(&self, slot: u32) -> Option<Rest> {
        super::mark(self.word(slot)?)
    }

    /// Wakes the thread of a slot that was marked and is [`Rest::Parked`]. This needs no lease,
    /// and is better done without: the thread may want it at once.
    pub fn wake(&self, slot: u32) {
        if let Some(word) = self.word(slot) {
            super::wake(word);
        }
    }

    /// Tells the thread of the slot once more, whether it was told or not: whoever did
    /// may have died before it woke the thread or rang. This is due for every slot after
    /// a process has died, and after the lease was closed, when it needs no lease.
    pub fn rouse(&self, slot: u32) -> Option<Rest> {
        super::rouse(self.word(slot)?)
    }

    /// The thread is awake. Whether it was notified. With the lease held.
    pub fn end(&self, slot: u32) -> bool {
        self.word(slot).is_some_and(super::end)
    }

    /// Whether the thread of the slot rests and was not yet told to wake up.
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
    /// `slots` slots for threads that rest, all awake.
    pub fn parking(&mut self, slots: u32) -> Result<Parking, OutOfMemory> {
        Ok(Parking {
            words: self.spaced_words(slots as usize)?,
        })
    }
}
