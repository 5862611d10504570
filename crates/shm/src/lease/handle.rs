//! A process's handle to a lease in a region.

use core::fmt;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::Arc;

use super::Revoked;
use super::protocol::{HOLDER, Side, is_closed, is_wanted};
use crate::carve::{Carver, OutOfMemory};
use crate::futex::{Waited, now_ns};
use crate::words::Words;

/// Words of a lease: all on one cache line, since whoever looks at one of them
/// has just looked at the other, or is about to.
const STATE: usize = 0;
const EPOCH: usize = 1;
const LEN: usize = 2;

/// A lock between threads of several processes, of which some may die.
///
/// Every process of the node has a number. Process 1 is the engine, which sees
/// the others die, and takes from them what they held.
///
/// ```
/// use toehold_shm::{Carver, Lease, Region};
///
/// let mut carver = Carver::new(Region::private(Lease::BYTES_NEEDED)?)?;
/// let engine = carver.lease()?;
/// let program = engine.with_holder(2);
///
/// program.acquire()?;
/// assert!(!engine.try_acquire());
/// // The program dies.
/// assert!(engine.seize(2));
/// assert_eq!((engine.holder(), engine.epoch()), (Some(Lease::ENGINE), 1));
/// engine.release();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Lease {
    words: Words,
    me: u32,
    vigil: Option<Vigil>,
}

/// What a thread does that has slept for the lease in vain, a few times a second: to
/// look whether the engine still lives, which alone sees others die.
pub type Vigil = Arc<dyn Fn() + Send + Sync>;

impl Lease {
    /// Bytes that a lease takes from a region.
    pub const BYTES_NEEDED: usize = crate::carve::PIECE_ALIGN;
    /// The engine's number, which a carved lease has.
    pub const ENGINE: u16 = 1;
    /// The greatest number a process can have.
    pub const MAX_HOLDER: u16 = HOLDER as u16 - 1;

    fn carve(carver: &mut Carver) -> Result<Self, OutOfMemory> {
        Ok(Self {
            words: carver.words(LEN)?,
            me: u32::from(Self::ENGINE),
            vigil: None,
        })
    }

    /// The same lease, for a process of that number.
    ///
    /// # Panics
    ///
    /// If it is 0, or more than [`Lease::MAX_HOLDER`].
    #[must_use]
    pub fn with_holder(&self, process: u16) -> Self {
        let range = Self::ENGINE..=Self::MAX_HOLDER;
        assert!(range.contains(&process), "no process has the number {process}");
        Self {
            words: self.words.clone(),
            me: u32::from(process),
            vigil: None,
        }
    }

    /// The same lease, whose threads keep watch while they wait for it.
    #[must_use]
    pub fn with_vigil(self, vigil: Vigil) -> Self {
        Self {
            vigil: Some(vigil),
            ..self
        }
    }

    /// The number of the process this handle is for.
    #[inline]
    pub fn me(&self) -> u16 {
        self.me as u16
    }

    /// Takes the lease if it is free and meant for nobody else.
    #[inline]
    #[must_use]
    pub fn try_acquire(&self) -> bool {
        self.side().try_acquire()
    }

    /// Waits for the lease: a few microseconds awake, then asleep.
    #[inline]
    pub fn acquire(&self) -> Result<(), Revoked> {
        self.side().acquire(|waited| self.keep_watch(waited)).map(drop)
    }

    /// The same, until a time in nanoseconds on the monotonic clock, or some
    /// hundredths of a second longer. False: somebody else has it all the time.
    pub fn acquire_until(&self, until_ns: u64) -> Result<bool, Revoked> {
        let goes_on = |waited| self.keep_watch(waited) && now_ns() < until_ns;
        self.side().acquire(goes_on)
    }

    fn keep_watch(&self, waited: Waited) -> bool {
        if let (Waited::TimedOut, Some(vigil)) = (waited, &self.vigil) {
            vigil();
        }
        true
    }

    /// Lets the lease go, if this process has it. Whoever rests after that without
    /// having asked [`Lease::is_closed`] could rest for ever.
    #[inline]
    pub fn release(&self) {
        let _ = self.side().release();
    }

    /// Lets those who want the lease have it, before this thread takes it back. One
    /// that sleeps for it comes first and is not overtaken.
    pub fn give_way(&self) -> Result<(), Revoked> {
        let goes_on = |waited| self.keep_watch(waited);
        self.side().give_way(goes_on).map(drop)
    }

    /// Whether somebody wants the lease, or something to be done with it. A hint: it may
    /// have died since.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        is_wanted(self.state().load(Relaxed))
    }

    /// Whether nobody gets the lease any more.
    #[inline]
    pub fn is_closed(&self) -> bool {
        is_closed(self.state().load(Relaxed))
    }

    /// The process that has the lease now. The engine can [`Lease::seize`] it from
    /// one that does not exist.
    pub fn holder(&self) -> Option<u16> {
        match self.state().load(Relaxed) & HOLDER {
            0 => None,
            holder => Some(holder as u16),
        }
    }

    /// How often the lease was seized. Does not change while this process has it.
    #[inline]
    pub fn epoch(&self) -> u32 {
        self.words.word(EPOCH).load(Acquire)
    }

    /// Takes the lease from a process that is dead, and begins an epoch. False: it
    /// did not have it. To be called whenever a process dies, since it also takes up
    /// whatever else the process has left undone: others may wait for it.
    ///
    /// Of a process that is not dead this makes one that has no lease and does not
    /// know it.
    #[must_use]
    pub fn seize(&self, dead: u16) -> bool {
        let seized = self.side().seize(u32::from(dead));
        if seized {
            self.words.word(EPOCH).fetch_add(1, Release);
        }
        seized
    }

    /// Makes every attempt to acquire fail from now on, and wakes up who waits for the
    /// lease. Any process may find that the node is dead. Those who rest elsewhere are
    /// to be roused after this.
    pub fn close(&self) {
        self.side().close();
    }

    /// Takes the lease if it is free, and otherwise tells whoever has it that a request was
    /// left, which that one serves before it lets go.
    #[inline]
    pub(super) fn try_acquire_or_request(&self) -> Result<bool, Revoked> {
        self.side().take_or_request()
    }

    /// False: a request was left, and has to be served before the next try.
    #[inline]
    pub(super) fn release_unless_requested(&self) -> Result<bool, Revoked> {
        self.side().release_unless_requested()
    }

    /// Whether a request was left, which is to be served now.
    #[inline]
    pub(super) fn take_requested(&self) -> bool {
        self.side().take_requested()
    }

    /// Whether somebody sleeps for the lease, or is about to.
    #[cfg(test)]
    pub(super) fn is_asleep_for(&self) -> bool {
        self.state().load(Relaxed) & super::protocol::SLEEPERS != 0
    }

    #[inline]
    fn side(&self) -> Side<'_, AtomicU32> {
        Side {
            futex: self.state(),
            me: self.me,
        }
    }

    #[inline]
    pub(super) fn state(&self) -> &AtomicU32 {
        self.words.word(STATE)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("me", &self.me)
            .field("holder", &self.holder())
            .field("epoch", &self.epoch())
            .finish_non_exhaustive()
    }
}

impl Carver {
    /// A lease. The handle is the engine's.
    pub fn lease(&mut self) -> Result<Lease, OutOfMemory> {
        Lease::carve(self)
    }
}
