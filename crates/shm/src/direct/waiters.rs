//! The waiters of a node: threads in a call, and epoll instances.

use core::fmt;
use core::num::{NonZeroU16, NonZeroU32};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use rustix::io::Errno;
use rustix::thread::futex::{self, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, Timespec};

use super::audience::{Audience, WaiterNumber};
use super::bank::{LocalLine, WAITERS, WaiterLine};
use super::bell_set::LocalRing;
use super::directory::Directory;
use super::interruptible::Interruptible;
use super::journal::Journal;
use super::lock::{Reentered, ThreadNumber, lock, unlock_and_fence};
use super::signals::Signals;
use super::waiter;
use crate::futex::AtomicU32;

/// The kind of a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaiterKind {
    /// A thread in a call on one connection: it looks there, and needs no ready bits.
    Thread,
    /// An epoll instance, or a thread in `poll`: ready bits say where to look.
    Instance,
}

/// Set in a waiter's bell word if it needs ready bits.
const HAS_BITS: u64 = 1;
/// Set in a waiter's bell word if it sleeps on descriptors.
const ON_DESCRIPTOR: u64 = 2;

/// Most memories of signals that one sleep can watch. The kernel takes one word more.
pub const MOST_SIGNALS: usize = 127;

/// How a sleep has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Woken {
    /// The waiter was rung. What for has to be looked at; it may be nothing.
    Rung,
    /// The time had come.
    TimedOut,
    /// A signal handler has run.
    Interrupted,
}

/// Returns whether this kernel lets a thread sleep on several words (Linux 5.16), as every
/// sleep on direct connections does.
pub fn is_supported() -> bool {
    let word = AtomicU32::new(1);
    let found = futex::waitv(
        &[wait_for(&word, 0)],
        WaitvFlags::empty(),
        None,
        ClockId::Monotonic,
    );
    found == Err(Errno::AGAIN)
}

/// This node's waiters: their sleep words lie in the directory, what else they need in
/// the journal.
#[derive(Debug, Clone)]
pub struct Waiters {
    directory: Directory,
    journal: Journal,
    local_ring: LocalRing,
}

impl Waiters {
    /// The waiters of a node that has these memories.
    pub fn new(directory: Directory, journal: Journal) -> Waiters {
        Waiters {
            directory,
            journal,
            local_ring: LocalRing::NONE,
        }
    }

    /// Sets what rings a waiter that sleeps on a descriptor when a process of the node rings it.
    pub fn with_local_ring(mut self, ring: impl Fn(WaiterNumber) + Send + Sync + 'static) -> Waiters {
        self.local_ring = LocalRing::new(ring);
        self
    }

    /// The directory in which peers see the waiters.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The journal of the node's threads.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    #[inline]
    pub(super) fn line(&self, waiter: WaiterNumber) -> &WaiterLine {
        self.directory.waiter_line(waiter)
    }

    #[inline]
    fn local(&self, waiter: WaiterNumber) -> &LocalLine {
        self.journal.local(waiter)
    }

    /// Gives out a waiter to process `process`, the node's own number of it, never 0. `None` if
    /// every number is taken.
    pub fn claim(&self, process: u16, kind: WaiterKind) -> Option<WaiterNumber> {
        let start = usize::from(process).wrapping_mul(61);
        let mut numbers = (0..WAITERS).map(|at| (start + at) % WAITERS);
        numbers.find_map(|number| {
            let waiter = WaiterNumber::new(number as u16)?;
            let local = self.local(waiter);
            if local.owner.load(Relaxed) != 0 {
                return None;
            }
            let claimed = local.owner.compare_exchange(0, process.into(), AcqRel, Relaxed);
            claimed.ok()?;
            local.generation.fetch_add(1, Relaxed);
            let bell = match kind {
                WaiterKind::Thread => 0,
                WaiterKind::Instance => HAS_BITS,
            };
            // A thread that has died here may have left a sleeper that is none.
            waiter::end_all_sleeps(&self.line(waiter).sleep);
            self.line(waiter).outer.store(0, Relaxed);
            self.line(waiter).bell.store(bell, Release);
            Some(waiter)
        })
    }

    /// Frees a number on which no thread sleeps. An audience that names it still rings the
    /// next waiter of the number for nothing.
    pub fn free(&self, waiter: WaiterNumber) {
        self.local(waiter).owner.store(0, Release);
    }

    /// The process that a waiter belongs to; `None` if the number is free.
    pub fn process(&self, waiter: WaiterNumber) -> Option<NonZeroU16> {
        NonZeroU16::new(self.local(waiter).owner.load(Acquire) as u16)
    }

    /// Tells one use of a number from others.
    pub fn generation(&self, waiter: WaiterNumber) -> u64 {
        self.local(waiter).generation.load(Relaxed)
    }

    /// Has `outer` rung with a waiter from now on. Returns `false` if four are already.
    pub fn add_outer(&self, waiter: WaiterNumber, outer: WaiterNumber) -> bool {
        let add = |word| Audience::from_word(word).with(outer).map(Audience::to_word);
        let word = &self.line(waiter).outer;
        word.fetch_update(AcqRel, Acquire, add).is_ok()
    }

    /// Ends what [`add_outer`](Waiters::add_outer) has begun.
    pub fn remove_outer(&self, waiter: WaiterNumber, outer: WaiterNumber) {
        let remove = |word| {
            let left = Audience::from_word(word).retain(|other| other != outer);
            Some(left.to_word())
        };
        let _ = self.line(waiter).outer.fetch_update(AcqRel, Acquire, remove);
    }

    /// Says whether the waiter sleeps on descriptors, before it sleeps. It is then rung by a
    /// descriptor, too: by [`Bank::ring_descriptor`](super::Bank::ring_descriptor), and from
    /// within the node by what [`with_local_ring`](Waiters::with_local_ring) names.
    pub fn set_on_descriptor(&self, waiter: WaiterNumber, on: bool) {
        let bell = &self.line(waiter).bell;
        let _ = match on {
            true => bell.fetch_or(ON_DESCRIPTOR, AcqRel),
            false => bell.fetch_and(!ON_DESCRIPTOR, AcqRel),
        };
    }

    /// Whether a thread sleeps on the waiter.
    pub fn is_asleep(&self, waiter: WaiterNumber) -> bool {
        waiter::is_asleep(self.line(waiter).sleep.load(Acquire))
    }

    /// Whether the waiter has ready bits.
    pub(super) fn has_bits(&self, waiter: WaiterNumber) -> bool {
        has_bits(self.line(waiter))
    }

    /// Begins a sleep. The caller then arms what it waits for, looks at everything once more,
    /// and [waits](Sleep::wait) if there is nothing. A post after the look, by the
    /// node itself or by the peers of these signals, ends the wait.
    ///
    /// # Panics
    ///
    /// If there are more than [`MOST_SIGNALS`] signals.
    pub fn begin_sleep<'a>(
        &'a self,
        waiter: WaiterNumber,
        thread: ThreadNumber,
        signals: impl IntoIterator<Item = &'a Signals>,
    ) -> Sleep<'a> {
        let mut sleep = Sleep {
            waiters: self,
            waiter,
            thread,
            words: [Wait::new(); MOST_SIGNALS + 1],
            count: 0,
            last: None,
        };
        sleep.add(&self.local(waiter).bell);
        for signals in signals {
            sleep.add(&signals.bell_line(waiter).bell);
        }
        waiter::begin_sleep(&self.line(waiter).sleep);
        // While the journal says so, the thread is counted. One that dies just before leaves a sleeper
        // too many, which is rung for nothing; one too few would not be rung.
        let asleep = &self.journal.line(thread).asleep;
        asleep.store(u64::from(waiter.get()) + 1, Release);
        sleep
    }

    /// Rings a waiter of this node from within the node. After what there is to see was stored.
    /// Returns whether a thread slept that was not rung for.
    pub fn ring(&self, waiter: WaiterNumber) -> bool {
        super::lock::full_fence();
        let (line, local) = (self.line(waiter), self.local(waiter));
        waiter::ring(&line.sleep, &local.told, || {
            waiter::ring_bell(&local.bell);
            if is_on_descriptor(line) {
                self.local_ring.ring(waiter);
            }
        })
    }

    /// Takes the lock of those that collect a waiter's ready bits.
    ///
    /// # Errors
    ///
    /// If a signal handler has interrupted the thread while it had the lock.
    pub fn collecting<R>(
        &self,
        waiter: WaiterNumber,
        thread: ThreadNumber,
        collect: impl FnOnce() -> R,
    ) -> Result<R, Reentered> {
        let local = self.local(waiter);
        let collecting = &self.journal.line(thread).collecting;
        // Before the lock, so that no lock of a dead thread is unknown.
        let interrupted = collecting.swap(u64::from(waiter.get()) + 1, AcqRel);
        let collected = lock(&local.lock, thread).map(|()| {
            let collected = collect();
            unlock_and_fence(&local.lock);
            collected
        });
        collecting.store(interrupted, Release);
        collected
    }

    /// Ends what a dead thread has left at waiters: its sleep, the lock of those that collect, and
    /// bitmaps. Call it after [`Bank::recover`](super::Bank::recover) of each end at which the
    /// thread was. Returns the waiters whose bits have to be set again, since the thread may have
    /// taken some. They have to be rung, too, since it may have been rung instead of another.
    pub fn recover(&self, dead: ThreadNumber, thread: ThreadNumber) -> [Option<WaiterNumber>; 2] {
        super::bitmaps::free_of_dead(self, dead);
        let line = self.journal.line(dead);
        let named = |word: u64| WaiterNumber::new(u16::try_from(word.checked_sub(1)?).ok()?);
        let asleep = named(line.asleep.swap(0, AcqRel));
        if let Some(waiter) = asleep {
            waiter::end_dead_sleep(&self.line(waiter).sleep);
        }
        let collecting = named(line.collecting.swap(0, AcqRel));
        if let Some(waiter) = collecting {
            let lock = &self.local(waiter).lock;
            if super::lock::take_from_dead(lock, dead, thread) {
                unlock_and_fence(lock);
            }
        }
        [asleep, collecting]
    }
}

/// Whether a waiter has ready bits, of this node or of a peer.
#[inline]
pub(super) fn has_bits(line: &WaiterLine) -> bool {
    line.bell.load(Relaxed) & HAS_BITS != 0
}

/// Whether a waiter has to be rung by a descriptor.
#[inline]
pub(super) fn is_on_descriptor(line: &WaiterLine) -> bool {
    line.bell.load(Relaxed) & ON_DESCRIPTOR != 0
}

/// A sleep that has begun. It ends when dropped.
#[must_use = "the sleep ends when this is dropped"]
pub struct Sleep<'a> {
    waiters: &'a Waiters,
    waiter: WaiterNumber,
    thread: ThreadNumber,
    words: [Wait; MOST_SIGNALS + 1],
    count: usize,
    /// The word that was added last.
    last: Option<(&'a AtomicU32, u32)>,
}

impl<'a> Sleep<'a> {
    fn add(&mut self, bell: &'a AtomicU32) {
        assert!(self.count < self.words.len(), "signals of one sleep");
        let value = bell.load(Acquire);
        self.words[self.count] = wait_for(bell, value);
        self.count += 1;
        self.last = Some((bell, value));
    }

    /// Lets [`end_own_sleep`](super::end_own_sleep) end the sleep, until what is returned is
    /// dropped.
    pub fn interruptible(&self) -> Interruptible<'_> {
        Interruptible::new(self.last.map(|(word, _)| word))
    }

    /// Sleeps until the waiter is rung, or until a time in nanoseconds on the monotonic clock.
    /// Returns at once if it was rung since the sleep began.
    pub fn wait(&self, until_ns: Option<u64>) -> Woken {
        let until = until_ns.map(timespec);
        let words = &self.words[..self.count];
        let flags = WaitvFlags::empty();
        woken(futex::waitv(words, flags, until.as_ref(), ClockId::Monotonic).map(drop))
    }

    /// Sleeps as [`Sleep::wait`] does, for rings through the signals that were given last alone:
    /// those of the peer, and those of [`Bank::ring_own`](super::Bank::ring_own). Older than the
    /// call that waits for several words, and so known to filters of system calls.
    pub fn wait_for_bank(&self, until_ns: Option<u64>) -> Woken {
        let Some((word, value)) = self.last else {
            return Woken::Rung;
        };
        let until = until_ns.map(timespec);
        let flags = futex::Flags::empty();
        woken(futex::wait_bitset(
            word,
            flags,
            value,
            until.as_ref(),
            NonZeroU32::MAX,
        ))
    }
}

fn timespec(ns: u64) -> Timespec {
    const NANOS: u64 = 1_000_000_000;
    Timespec {
        tv_sec: (ns / NANOS) as i64,
        tv_nsec: (ns % NANOS) as i64,
    }
}

fn woken(slept: Result<(), Errno>) -> Woken {
    match slept {
        Err(Errno::TIMEDOUT) => Woken::TimedOut,
        Err(Errno::INTR) => Woken::Interrupted,
        _ => Woken::Rung,
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        let asleep = &self.waiters.journal.line(self.thread).asleep;
        asleep.store(0, Release);
        waiter::end_sleep(&self.waiters.line(self.waiter).sleep);
    }
}

impl fmt::Debug for Sleep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("waiter", &self.waiter)
            .field("words", &self.count)
            .finish_non_exhaustive()
    }
}

/// A word that processes share, with the value at which a sleep on it goes on.
fn wait_for(word: &AtomicU32, value: u32) -> Wait {
    let mut wait = Wait::new();
    wait.val = value.into();
    wait.uaddr = WaitPtr::new(word.as_ptr().cast());
    wait.flags = WaitFlags::SIZE_U32;
    wait
}
