//! A process's handle to a lease in a region.

use core::fmt;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::Arc;

use super::protocol::{HOLDER, Side, is_closed, is_wanted};
use super::{Revoked, stopped};
use crate::carve::{Carver, OutOfMemory};
use crate::futex::{ALL, Futex, Waited, now_ns};
use crate::words::Words;

/// Words of a lease. They share one cache line, since a thread that reads one of them usually reads
/// the others too.
const STATE: usize = 0;
const EPOCH: usize = 1;
/// Identifies the thread that holds the lease within its process: the lower half of its thread
/// pointer.
const THREAD: usize = 2;
/// [`ticket`] of the process that stops after it has released the lease.
const STOPS_FOR: usize = 3;
/// Counts the threads that have waited in vain, see [`Lease::await_plea`].
const PLEAS: usize = 4;
const LEN: usize = 5;

/// The value of [`STOPS_FOR`] that means a process. Memory does not hold it by chance.
fn ticket(process: u32) -> u32 {
    process.wrapping_mul(0x9e37_79b1) ^ 0x5f0b_51a7
}

/// The words, as the protocol of the first one uses them.
#[derive(Clone)]
struct State(Words);

impl Futex for State {
    #[inline]
    fn word(&self) -> &AtomicU32 {
        self.0.word(STATE)
    }

    fn wait(&self, expected: u32, until_ns: Option<u64>) -> Waited {
        self.word().wait(expected, until_ns)
    }

    fn wake(&self, threads: u32) -> usize {
        self.word().wake(threads)
    }

    #[cold]
    fn plead(&self) {
        let pleas = self.0.word(PLEAS);
        pleas.fetch_add(1, Release);
        pleas.wake(1);
    }

    #[cold]
    fn halt(&self, me: u32) {
        let asked = self
            .0
            .word(STOPS_FOR)
            .compare_exchange(ticket(me), 0, Relaxed, Relaxed);
        if asked.is_ok() {
            stopped::stop_here();
        }
    }
}

/// A lock between threads of several processes, of which some may die.
///
/// Every process of the node has a number. Process 1 is the engine. It notices the death of other
/// processes, and takes over the leases that they held.
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
    words: State,
    me: u32,
    vigil: Option<Vigil>,
}

/// Called a few times a second by a thread that has slept for the lease in vain. It checks whether
/// the engine still lives, since only the engine notices other deaths.
pub type Vigil = Arc<dyn Fn() + Send + Sync>;

impl Lease {
    /// Bytes that a lease takes from a region.
    pub const BYTES_NEEDED: usize = crate::carve::PIECE_ALIGN;
    /// The engine's number. A carved lease has this number.
    pub const ENGINE: u16 = 1;
    /// The greatest number a process can have.
    pub const MAX_HOLDER: u16 = HOLDER as u16 - 1;

    fn carve(carver: &mut Carver) -> Result<Self, OutOfMemory> {
        Ok(Self {
            words: State(carver.words(LEN)?),
            me: u32::from(Self::ENGINE),
            vigil: None,
        })
    }

    /// A handle to the lease for the process with number `process`.
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

    /// Makes the waiting threads of this handle call `vigil`.
    #[must_use]
    pub fn with_vigil(self, vigil: Vigil) -> Self {
        Self {
            vigil: Some(vigil),
            ..self
        }
    }

    /// The number of this handle's process.
    #[inline]
    pub fn me(&self) -> u16 {
        self.me as u16
    }

    /// Takes the lease if it is free and not handed to another thread.
    #[inline]
    #[must_use]
    pub fn try_acquire(&self) -> bool {
        self.side().try_acquire()
    }

    /// Waits for the lease: it spins for a few microseconds, then sleeps.
    #[inline]
    pub fn acquire(&self) -> Result<(), Revoked> {
        self.side().acquire(|waited| self.keep_watch(waited)).map(drop)
    }

    /// Waits for the lease until a time in nanoseconds on the monotonic clock, or some hundredths
    /// of a second longer. Returns `false` if other threads held it all the time.
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

    /// Releases the lease, if this process has it. A thread that rests after that must check
    /// [`Lease::is_closed`] first, or it could rest forever.
    #[inline]
    pub fn release(&self) {
        let _ = self.side().release();
    }

    /// Lets waiting threads have the lease, before this thread takes it back. A sleeping thread
    /// comes first, and no other thread overtakes it.
    pub fn give_way(&self) -> Result<(), Revoked> {
        let goes_on = |waited| self.keep_watch(waited);
        self.side().give_way(goes_on).map(drop)
    }

    /// Whether a thread wants the lease, or has left a request. A hint: that thread may have died
    /// since.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        is_wanted(self.state().load(Relaxed))
    }

    /// Whether the lease is closed: no thread gets it any more.
    #[inline]
    pub fn is_closed(&self) -> bool {
        is_closed(self.state().load(Relaxed))
    }

    /// The process that holds the lease now. The engine can [`Lease::seize`] it from a process that
    /// does not exist.
    pub fn holder(&self) -> Option<u16> {
        match self.state().load(Relaxed) & HOLDER {
            0 => None,
            holder => Some(holder as u16),
        }
    }

    /// How often the engine seized the lease. It does not change while this process holds it.
    #[inline]
    pub fn epoch(&self) -> u32 {
        self.words.0.word(EPOCH).load(Acquire)
    }

    /// Takes the lease from a dead process, and begins an epoch. Returns `false` if the process did
    /// not hold it. Call this whenever a process dies: it also completes the wake-ups that the
    /// process has left undone.
    ///
    /// A process that is not dead loses the lease without knowing it.
    #[must_use]
    pub fn seize(&self, dead: u16) -> bool {
        let seized = self.side().seize(u32::from(dead));
        if seized {
            self.words.0.word(EPOCH).fetch_add(1, Release);
        }
        seized
    }

    /// Makes every later attempt to acquire fail, and wakes all threads that wait for the lease.
    /// Any process may find that the node is dead. The caller has to rouse threads that rest
    /// elsewhere afterwards.
    pub fn close(&self) {
        self.side().close();
    }

    /// Records which thread of this process holds the lease. If the process is stopped, only that
    /// thread needs to run for a moment.
    #[inline]
    pub(super) fn note_thread(&self) {
        let thread = stopped::thread_pointer() as u32;
        self.words.0.word(THREAD).store(thread, Relaxed);
    }

    /// Whether the holder stops after it has released the lease.
    #[cfg(test)]
    pub(super) fn stops(&self) -> bool {
        self.state().load(Relaxed) & super::protocol::STOPS != 0
    }

    /// How often threads have waited for the lease in vain, for [`Lease::await_plea`].
    pub fn pleas(&self) -> u32 {
        self.words.0.word(PLEAS).load(Acquire)
    }

    /// Sleeps until [`Lease::pleas`] differs from `seen`: a thread has waited for the lease for
    /// milliseconds, and the holder may be stopped. May return early.
    pub fn await_plea(&self, seen: u32) {
        self.words.0.word(PLEAS).wait(seen, None);
    }

    /// Ends [`Lease::await_plea`].
    pub fn end_pleas(&self) {
        let pleas = self.words.0.word(PLEAS);
        pleas.fetch_add(1, Release);
        pleas.wake(ALL);
    }

    /// Makes a process that a signal such as SIGSTOP or Ctrl-Z has stopped release the lease. The
    /// thread with the lease runs until it has released it; then the process is stopped as before.
    /// `pid` is the system's number of the process.
    ///
    /// The engine runs the thread by `ptrace(2)`, so neither the other threads nor the parent
    /// notice. Where the system forbids that, the process gets SIGCONT and stops itself by SIGSTOP,
    /// and its parent notices both.
    ///
    /// # Errors
    ///
    /// If the process cannot be made to release it: a debugger has it, or it belongs to another
    /// user.
    #[cfg(not(miri))]
    pub fn release_stopped(&self, process: u16, pid: u32) -> Result<(), rustix::io::Errno> {
        let process = u32::from(process);
        let thread = self.words.0.word(THREAD).load(Relaxed);
        self.words.0.word(STOPS_FOR).store(ticket(process), Release);
        let ask = || self.side().ask_to_stop(process);
        let is_held = || self.state().load(Relaxed) & HOLDER == process;
        let released = stopped::release(pid, thread, ask, is_held);
        if released.is_err() {
            self.words.0.word(STOPS_FOR).store(0, Release);
        }
        released
    }

    /// [`Lease::release_stopped`] where the system forbids `ptrace(2)`.
    #[cfg(all(test, not(miri)))]
    pub(super) fn release_stopped_by_signals(&self, process: u16, pid: u32) -> Result<(), rustix::io::Errno> {
        let process = u32::from(process);
        self.words.0.word(STOPS_FOR).store(ticket(process), Release);
        let is_held = || self.state().load(Relaxed) & HOLDER == process;
        stopped::run_all(pid as i32, &|| self.side().ask_to_stop(process), &is_held)
    }

    /// Takes the lease if it is free, and otherwise tells the holder that there is a request. The
    /// holder serves it before it releases the lease.
    #[inline]
    pub(super) fn try_acquire_or_request(&self) -> Result<bool, Revoked> {
        self.side().take_or_request()
    }

    /// Releases the lease. Returns `false` if there is a request, which the caller has to serve
    /// before the next attempt.
    #[inline]
    pub(super) fn release_unless_requested(&self) -> Result<bool, Revoked> {
        self.side().release_unless_requested()
    }

    /// Whether there is a request for this holder to serve now.
    #[inline]
    pub(super) fn take_requested(&self) -> bool {
        self.side().take_requested()
    }

    /// Whether a thread sleeps for the lease, or is about to.
    #[cfg(test)]
    pub(super) fn is_asleep_for(&self) -> bool {
        self.state().load(Relaxed) & super::protocol::SLEEPERS != 0
    }

    #[inline]
    fn side(&self) -> Side<'_, State> {
        Side {
            futex: &self.words,
            me: self.me,
        }
    }

    #[inline]
    pub(super) fn state(&self) -> &AtomicU32 {
        self.words.word()
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
