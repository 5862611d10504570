//! Requests: messages of threads without the lease to its holder.
//!
//! A request is the number of a channel that a thread has used. Leaving a request that is there
//! already changes nothing, so there is room for all of them. A process that is killed while it
//! leaves a request has either left it or not.
//!
//! A thread that leaves a request ensures that another thread takes it. While there is an
//! *attendant*, it takes the requests, and needs a ring only while it sleeps. The attendant is the
//! engine's driver under placement `engine`. Without an attendant the holder of the lease takes
//! them. If the lease is free, the thread takes it itself.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crate::futex::{AtomicU32, AtomicU64, fence};

/// Words of request bits; each has 64 numbers.
#[cfg(not(loom))]
pub(super) const WORDS: usize = 64;
#[cfg(loom)]
pub(super) const WORDS: usize = 1;

/// There is no attendant.
const ABSENT: u32 = 0;
/// The attendant is awake and checks soon.
const AWAKE: u32 = 1;
/// The attendant sleeps.
const ASLEEP: u32 = 2;

/// The shared state of the requests. All zeroes: none.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Requests {
    /// One bit for each word of numbers.
    summary: Apart<AtomicU64>,
    attendant: Apart<AtomicU32>,
    /// Not 0: the stack wants payload memory back, see [`Requests::press`].
    pressed: Apart<AtomicU32>,
    /// All numbers that were ever in use are below this.
    used: Apart<AtomicU32>,
    /// One bit for each number.
    words: [AtomicU64; WORDS],
}

#[derive(Debug)]
#[repr(C, align(128))]
struct Apart<T>(T);

/// The thread that has to take a new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The attendant, which checks soon.
    Attended,
    /// The attendant, which has to be rung.
    MustRing,
    /// The holder of the lease, or else the caller.
    Unattended,
}

impl Requests {
    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Requests {
            summary: Apart(AtomicU64::new(0)),
            attendant: Apart(AtomicU32::new(ABSENT)),
            pressed: Apart(AtomicU32::new(0)),
            used: Apart(AtomicU32::new(0)),
            words: [AtomicU64::new(0)],
        }
    }

    /// Leaves a request.
    #[inline]
    pub(super) fn leave(&self, number: u32) -> Left {
        let word = number as usize / 64 % WORDS;
        self.words[word].fetch_or(1 << (number % 64), Release);
        self.summary.0.fetch_or(1 << word, Release);
        fence(SeqCst);
        let attendant = &self.attendant.0;
        match attendant.load(Relaxed) {
            ABSENT => Left::Unattended,
            ASLEEP => match attendant.compare_exchange(ASLEEP, AWAKE, Relaxed, Relaxed) {
                Ok(_) => Left::MustRing,
                Err(ABSENT) => Left::Unattended,
                Err(_) => Left::Attended,
            },
            _ => Left::Attended,
        }
    }

    /// Marks a number as used. The caller holds the lease.
    #[cfg(not(loom))]
    pub(super) fn note_used(&self, number: u32) {
        self.used.0.fetch_max(number.saturating_add(1), Relaxed);
    }

    /// All numbers that were ever in use are below this.
    #[cfg(not(loom))]
    pub(super) fn used(&self) -> u32 {
        self.used.0.load(Relaxed)
    }

    /// Sets whether the stack wants memory back. If so, threads that have read bytes and wait for
    /// more leave a request. The caller checks afterwards what was read before. It holds the lease.
    pub(super) fn press(&self, wanted: bool) {
        self.pressed.0.store(wanted.into(), Relaxed);
        fence(SeqCst);
    }

    /// Whether the stack wants memory back, for a thread that has published its position.
    #[inline]
    pub(super) fn are_pressed(&self) -> bool {
        fence(SeqCst);
        self.pressed.0.load(Relaxed) != 0
    }

    /// Whether requests were left. A hint.
    #[inline]
    pub(super) fn are_there(&self) -> bool {
        self.summary.0.load(Relaxed) != 0
    }

    /// Takes all requests. The caller holds the lease.
    #[inline]
    pub(super) fn take(&self, mut serve: impl FnMut(u32)) {
        if !self.are_there() {
            return;
        }
        let mut words = self.summary.0.swap(0, AcqRel);
        while words != 0 {
            let word = words.trailing_zeros();
            words &= words - 1;
            let Some(place) = self.words.get(word as usize) else {
                return;
            };
            let mut bits = place.swap(0, Acquire);
            while bits != 0 {
                serve(word * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }

    /// Whether there is an attendant.
    #[inline]
    pub(super) fn are_attended(&self) -> bool {
        self.attendant.0.load(Relaxed) != ABSENT
    }

    /// This thread attends from now on, awake.
    pub(super) fn attend(&self) {
        self.attendant.0.store(AWAKE, Relaxed);
    }

    /// Announces that this thread will sleep. Returns `false` if it must not, since there are
    /// requests.
    pub(super) fn doze(&self) -> bool {
        self.attendant.0.store(ASLEEP, Relaxed);
        fence(SeqCst);
        let none = !self.are_there();
        if !none {
            self.attend();
        }
        none
    }

    /// Ends the attendance. The caller has to take the present requests afterwards.
    pub(super) fn retire(&self) {
        self.attendant.0.store(ABSENT, Relaxed);
        fence(SeqCst);
    }
}
