//! Requests: what threads without the lease leave for whoever has it.
//!
//! A request is a number, of a channel that something was done with. To leave one that was
//! left already, and not yet taken, changes nothing; so there is room for all of them. A
//! process that is killed while it leaves one has left it or not.
//!
//! Whoever leaves a request sees to it that somebody takes it. While an *attendant* is
//! there, the engine's driver where it drives always, that is its affair, and it is to be
//! rung only while it sleeps. Otherwise it is that of whoever has the lease, and if nobody
//! has it, one's own.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crate::futex::{AtomicU32, AtomicU64, fence};

/// Numbers there are.
#[cfg(not(loom))]
pub(super) const WORDS: usize = 64;
#[cfg(loom)]
pub(super) const WORDS: usize = 1;

/// Nobody attends.
const ABSENT: u32 = 0;
/// Somebody does, and looks soon.
const AWAKE: u32 = 1;
/// Somebody does, and sleeps.
const ASLEEP: u32 = 2;

/// What the requests' memory holds. All zeroes: none.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Requests {
    /// A bit a word of numbers.
    summary: Apart<AtomicU64>,
    attendant: Apart<AtomicU32>,
    /// Not 0: payload memory is wanted back, see [`Requests::press`].
    pressed: Apart<AtomicU32>,
    /// Numbers that were ever in use are below this.
    used: Apart<AtomicU32>,
    /// A bit a number.
    words: [AtomicU64; WORDS],
}

#[derive(Debug)]
#[repr(C, align(128))]
struct Apart<T>(T);

/// Whose affair a request is that was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The attendant's, who looks soon.
    Attended,
    /// The attendant's, who has to be rung.
    MustRing,
    /// The holder's of the lease, or one's own.
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

    /// A number is in use from now on. With the lease.
    #[cfg(not(loom))]
    pub(super) fn note_used(&self, number: u32) {
        self.used.0.fetch_max(number.saturating_add(1), Relaxed);
    }

    /// Numbers that were ever in use are below this.
    #[cfg(not(loom))]
    pub(super) fn used(&self) -> u32 {
        self.used.0.load(Relaxed)
    }

    /// Memory is wanted back, or no longer: whoever has read something and waits for more
    /// leaves a request. What was read before is to be looked at after this. With the lease.
    pub(super) fn press(&self, wanted: bool) {
        self.pressed.0.store(wanted.into(), Relaxed);
        fence(SeqCst);
    }

    /// Whether it is, for a thread that has said how far it has read.
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

    /// Takes all requests. With the lease.
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

    /// Whether somebody attends.
    #[inline]
    pub(super) fn are_attended(&self) -> bool {
        self.attendant.0.load(Relaxed) != ABSENT
    }

    /// This thread attends from now on, awake.
    pub(super) fn attend(&self) {
        self.attendant.0.store(AWAKE, Relaxed);
    }

    /// This thread is about to sleep. False: it should not, for there are requests.
    pub(super) fn doze(&self) -> bool {
        self.attendant.0.store(ASLEEP, Relaxed);
        fence(SeqCst);
        let none = !self.are_there();
        if !none {
            self.attend();
        }
        none
    }

    /// Nobody attends any more. Requests that are there have to be taken after this.
    pub(super) fn retire(&self) {
        self.attendant.0.store(ABSENT, Relaxed);
        fence(SeqCst);
    }
}
