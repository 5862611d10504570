//! Which way of writing what another core will read is faster: found out by trying.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Every so many copies one is timed.
const TIMED: u32 = 16;

/// Bytes copied in one way before what it costs counts: as much as waits in the send queues of
/// a few dozen connections.
const SETTLING: u64 = 8 << 20;

/// Bytes of a trial, of which the first are for settling.
const TRIAL: u64 = 2 * SETTLING;

/// Bytes from one trial to the next: what the worse way costs more is little beside it. After a
/// trial that has changed nothing it is twice as long as it was, up to [`LONGEST`].
const SHORTEST: u64 = 64 * TRIAL;
const LONGEST: u64 = 8 * SHORTEST;

/// What has become so many times as expensive as it was at the last trial is compared anew
/// soon: where the cores are has changed.
const DEARER: u32 = 2;

/// Streaming has to be half as fast again at least: only this side's cost is measured, and the
/// reader, who finds nothing in its caches then, has one too. Between distant cores of a Zen
/// processor a cached copy took this side 0.2 ns a byte and a streamed one 0.08, between neighbours
/// a cached one 0.04; the reader's took 0.08 and 0.09.
const ADVANTAGE: f64 = 1.5;

/// A way of writing what another core will read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Through the caches, as all other stores.
    Cached,
    /// Past them.
    Streamed,
}

/// What a copy costs, in cycles for 64 KiB; 0: not known yet.
#[derive(Debug)]
struct Cost(AtomicU32);

impl Cost {
    const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Takes a copy into the mean. One that was interrupted counts for little.
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

/// The two ways of making copies of one kind, and what is known of them. It is shared by
/// threads, of which some may overwrite what others have counted: that does not matter.
#[derive(Debug)]
pub struct Choice {
    cached: Cost,
    streamed: Cost,
    /// Copies made, and their bytes.
    copies: AtomicU32,
    bytes: AtomicU64,
    /// Byte from which on copies are made as they are now, if it is no trial.
    since: AtomicU64,
    /// Byte at which the next trial begins, or this one has begun.
    trial: AtomicU64,
    /// Bytes from the last trial to that one.
    pause: AtomicU64,
    /// What the last trial has shown, and what the way that is taken did cost then.
    streaming: AtomicBool,
    expected: AtomicU32,
}

/// A copy that is being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    way: Way,
    len: usize,
    /// When it began, of one that is timed.
    began: Option<u64>,
}

impl Attempt {
    /// How to make it.
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

    /// The copy is made, of so many bytes. One that is shorter than it was to be, as at the end of a
    /// file, says little of what a byte costs.
    #[inline]
    pub fn end(&self, attempt: Attempt, made: usize) {
        if let Some(began) = attempt.began.filter(|_| made >= attempt.len) {
            self.learn(attempt.way, cycles().saturating_sub(began), made);
        }
    }

    /// How to make the next copy, and whether to see how long it takes.
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
            // Until then the mean has come to what it costs now.
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

/// Of the processor's counter; where it has none that one may read, nanoseconds.
fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a counter.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    crate::monotonic_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY: usize = 16 << 10;

    /// Copies from behind one trial to the end of the next, if they cost so much: the ways they
    /// were made, and whether they were timed.
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
    fn the_cheaper_way_is_taken_and_the_other_tried_now_and_then() {
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

    /// A trial was a single copy, whose memory the other way had left as it was.
    #[test]
    fn a_way_is_timed_when_it_has_gone_through_the_memory() {
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

    /// The end of a file was a copy of no bytes, which cost as much as thousands.
    #[test]
    fn copies_that_fall_short_teach_nothing() {
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
    fn trials_that_change_nothing_become_rare() {
        let choice = Choice::new();
        let lengths: Vec<u64> = (0..7)
            .map(|_| round(&choice, 1000, 300).len() as u64 * COPY as u64)
            .collect();
        let pauses: Vec<u64> = lengths[1..].iter().map(|len| (len - TRIAL) / SHORTEST).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 8, 8]);
    }

    #[test]
    fn what_has_become_dear_is_compared_soon() {
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
