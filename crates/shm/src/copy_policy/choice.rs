//! Finds by trial the faster way to write memory that another core will read.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// One of this many copies is timed.
const TIMED: u32 = 16;

/// Bytes copied in one way before its cost counts: about as much as the send queues of a few dozen
/// connections hold.
const SETTLING: u64 = 8 << 20;

/// Bytes of a trial, of which the first `SETTLING` are not timed.
const TRIAL: u64 = 2 * SETTLING;

/// Bytes from one trial to the next: the extra cost of the slower way is small beside them. After a
/// trial without a change the pause doubles, up to [`LONGEST`].
const SHORTEST: u64 = 64 * TRIAL;
const LONGEST: u64 = 8 * SHORTEST;

/// If a way has become this many times as expensive as at the last trial, a new comparison follows
/// soon: the cores have moved.
const DEARER: u32 = 2;

/// Streaming must be at least half as fast again. Only this side's cost is measured, and the reader
/// pays too, since it finds nothing in its caches. Between distant cores of a Zen processor a
/// cached copy took this side 0.2 ns a byte and a streamed one 0.08. Between neighbours a cached
/// one took 0.04. The reader's copies took 0.08 and 0.09.
const ADVANTAGE: f64 = 1.5;

/// A way to write memory that another core will read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Through the caches, as all other stores.
    Cached,
    /// Past the caches.
    Streamed,
}

/// The cost of a copy, in cycles for 64 KiB; 0: not known yet.
#[derive(Debug)]
struct Cost(AtomicU32);

impl Cost {
    const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Adds a copy to the mean. An interrupted one has little weight.
    fn learn(&self, cycles: u64, len: usize) {
        let new = (cycles << 16) / (len as u64).max(1);
        let mean = u64::from(self.get());
        let next = if mean == 0 {
            new
        } else {
            (mean * 7 + new.min(mean * 4)) / 8
        };
        self.0.store(u32::try_from(next).unwrap_or(u32::MAX), Relaxed);
    }
}

/// The two ways to make copies of one kind, and their known costs. Threads share it; some of them
/// may overwrite the counts of others, which is harmless.
#[derive(Debug)]
pub struct Choice {
    cached: Cost,
    streamed: Cost,
    /// Copies made, and their bytes.
    copies: AtomicU32,
    bytes: AtomicU64,
    /// Byte from which on copies are made in the present way, outside a trial.
    since: AtomicU64,
    /// Byte at which the next trial begins, or the present one has begun.
    trial: AtomicU64,
    /// Bytes from the last trial to the next.
    pause: AtomicU64,
    /// The result of the last trial, and the cost of the chosen way at that time.
    streaming: AtomicBool,
    expected: AtomicU32,
}

/// A copy under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    way: Way,
    len: usize,
    /// The start of a timed copy.
    began: Option<u64>,
}

impl Attempt {
    /// The way to make it.
    #[inline]
    pub fn way(self) -> Way {
        self.way
    }
}

impl Choice {
    /// Nothing is known yet: copies are cached.
    #[expect(clippy::new_without_default, reason = "it is for statics")]
    pub const fn new() -> Self {
        Self {
            cached: Cost::new(),
            streamed: Cost::new(),
            copies: AtomicU32::new(0),
            bytes: AtomicU64::new(0),
            since: AtomicU64::new(0),
            trial: AtomicU64::new(TRIAL),
            pause: AtomicU64::new(SHORTEST),
            streaming: AtomicBool::new(false),
            expected: AtomicU32::new(0),
        }
    }

    /// Begins a copy of so many bytes.
    #[inline]
    pub fn begin(&self, len: usize) -> Attempt {
        let (way, is_timed) = self.next(len);
        Attempt {
            way,
            len,
            began: is_timed.then(cycles),
        }
    }

    /// Ends a copy of `made` bytes. A copy that was shorter than planned, as at the end of a file,
    /// says little about the cost of a byte.
    #[inline]
    pub fn end(&self, attempt: Attempt, made: usize) {
        if let Some(began) = attempt.began.filter(|_| made >= attempt.len) {
            self.learn(attempt.way, cycles().saturating_sub(began), made);
        }
    }

    /// The way to make the next copy, and whether to time it.
    #[inline]
    fn next(&self, len: usize) -> (Way, bool) {
        let copies = self.copies.load(Relaxed);
        self.copies.store(copies.wrapping_add(1), Relaxed);
        let bytes = self.bytes.load(Relaxed);
        let after = bytes + len as u64;
        self.bytes.store(after, Relaxed);
        let trial = self.trial.load(Relaxed);
        let is_trial = bytes >= trial;
        let began = if is_trial { trial } else { self.since.load(Relaxed) };
        let streaming = self.streaming.load(Relaxed);
        if is_trial && after >= trial + TRIAL {
            self.conclude(after);
        }
        let way = match streaming != is_trial {
            true => Way::Streamed,
            false => Way::Cached,
        };
        (way, bytes >= began + SETTLING && copies.is_multiple_of(TIMED))
    }

    /// Ends a trial.
    #[cold]
    fn conclude(&self, bytes: u64) {
        let was = self.streaming.load(Relaxed);
        let better = self.is_streaming_better();
        let pause = match was == better {
            true => (self.pause.load(Relaxed) * 2).min(LONGEST),
            false => SHORTEST,
        };
        self.streaming.store(better, Relaxed);
        self.expected.store(self.cost_of(better).get(), Relaxed);
        self.pause.store(pause, Relaxed);
        self.since.store(bytes, Relaxed);
        self.trial.store(bytes + pause, Relaxed);
    }

    #[cold]
    fn learn(&self, way: Way, cycles: u64, len: usize) {
        let streamed = way == Way::Streamed;
        let cost = self.cost_of(streamed);
        cost.learn(cycles, len);
        let expected = self.expected.load(Relaxed);
        let usual = streamed == self.streaming.load(Relaxed);
        if usual && expected != 0 && cost.get() / DEARER > expected {
            // By then the mean has reached the present cost.
            let soon = self.bytes.load(Relaxed) + SETTLING;
            self.trial.fetch_min(soon, Relaxed);
        }
    }

    fn cost_of(&self, streamed: bool) -> &Cost {
        match streamed {
            true => &self.streamed,
            false => &self.cached,
        }
    }

    fn is_streaming_better(&self) -> bool {
        let (cached, streamed) = (self.cached.get(), self.streamed.get());
        streamed != 0 && f64::from(streamed) * ADVANTAGE < f64::from(cached)
    }
}

/// The processor's counter, or nanoseconds where a program cannot read one.
fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction only reads a counter.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    crate::monotonic_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY: usize = 16 << 10;

    /// Makes copies from behind one trial to the end of the next, at the given costs. Returns their
    /// ways, and whether they were timed.
    fn round(choice: &Choice, cached: u64, streamed: u64) -> Vec<(Way, bool)> {
        let end = choice.trial.load(Relaxed) + TRIAL;
        let mut made = Vec::new();
        while choice.bytes.load(Relaxed) < end {
            made.push(copy(choice, cached, streamed));
        }
        made
    }

    fn copy(choice: &Choice, cached: u64, streamed: u64) -> (Way, bool) {
        let (way, is_timed) = choice.next(COPY);
        if is_timed {
            let cycles = match way {
                Way::Cached => cached,
                Way::Streamed => streamed,
            };
            choice.learn(way, cycles, COPY);
        }
        (way, is_timed)
    }

    fn way(streaming: bool) -> Way {
        if streaming { Way::Streamed } else { Way::Cached }
    }

    #[test]
    fn cheaper_way_is_used_and_other_tried() {
        let choice = Choice::new();
        let mut was = false;
        for (cached, streamed) in [(1000, 300), (1000, 550), (1000, 700), (1000, 600), (1200, 500)] {
            let made = round(&choice, cached, streamed);
            let (usual, tried): (Vec<_>, Vec<_>) = made.iter().partition(|made| made.0 == way(was));
            assert_eq!(tried.len(), TRIAL as usize / COPY);
            assert_eq!(made[usual.len()..].first(), tried.first().copied());
            was = streamed as f64 * ADVANTAGE < cached as f64;
            assert_eq!(choice.streaming.load(Relaxed), was);
        }
    }

    /// Earlier a trial was a single copy, whose memory was in the state that the other way had
    /// left.
    #[test]
    fn way_is_timed_after_settling() {
        let choice = Choice::new();
        let (mut before, mut last) = (0, None);
        let mut timed = [0, 0];
        for (way, is_timed) in (0..3).flat_map(|_| round(&choice, 1000, 300)) {
            before = if last == Some(way) { before + COPY } else { 0 };
            last = Some(way);
            assert!(!is_timed || before >= SETTLING as usize - COPY);
            timed[usize::from(way == Way::Streamed)] += usize::from(is_timed);
        }
        assert!(timed.iter().all(|&timed| timed >= 60), "{timed:?}");
    }

    /// Earlier the end of a file counted as a copy of no bytes, with the cost of thousands.
    #[test]
    fn short_copies_are_not_learned() {
        let choice = Choice::new();
        let attempt = Attempt {
            way: Way::Cached,
            len: COPY,
            began: Some(0),
        };
        choice.end(attempt, 0);
        choice.end(attempt, COPY - 1);
        assert_eq!(choice.cached.get(), 0);
        choice.end(attempt, COPY);
        assert_ne!(choice.cached.get(), 0);
    }

    /// Between distant cores each trial costs as much as seven times its bytes.
    #[test]
    fn trials_without_change_become_rare() {
        let choice = Choice::new();
        let lengths: Vec<u64> = (0..7)
            .map(|_| round(&choice, 1000, 300).len() as u64 * COPY as u64)
            .collect();
        let pauses: Vec<u64> = lengths[1..].iter().map(|len| (len - TRIAL) / SHORTEST).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 8, 8]);
    }

    #[test]
    fn dearer_way_is_compared_soon() {
        let choice = Choice::new();
        for _ in 0..6 {
            round(&choice, 300, 900);
        }
        assert!(!choice.streaming.load(Relaxed));
        let before = choice.bytes.load(Relaxed);
        while !choice.streaming.load(Relaxed) {
            copy(&choice, 5000, 900);
        }
        let bytes = choice.bytes.load(Relaxed) - before;
        assert!(bytes < 3 * TRIAL, "{bytes}");
    }
}
