//! Long copies into memory that another core will read.
//!
//! Where the two cores share no cache near them, a store has to fetch its line from
//! the reader's cache first, one after the other: 16 to 30 Gb/s, where stores that
//! go past the caches reach 100. Where they do share one, it is the other way
//! round: the reader finds nothing in its caches. On a virtual machine this changes
//! from one minute to the next. So both ways are timed now and then, and streaming
//! is taken where it is clearly faster.
//!
//! What one copy costs depends on how those before it were made, since memory is used
//! again and again: after streaming, none of it is in a cache, and the first cached
//! copies are slow wherever the cores are. So a way is tried for long enough to have
//! gone through the memory, and timed only then.

use core::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128, _mm256_loadu_si256, _mm256_stream_si256,
    _rdtsc,
};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use crate::copy::copy_bytes;

/// Every so many copies one is timed.
const TIMED: u32 = 16;

/// Bytes copied in one way before what it costs counts: as much as waits in the send queues of
/// a few dozen connections.
const SETTLING: u64 = 8 << 20;

/// Bytes of a trial, of which the first are for settling.
const TRIAL: u64 = 2 * SETTLING;

/// Bytes from one trial to the next: what the worse way costs more is little beside it.
const CYCLE: u64 = 64 * TRIAL;

/// Streaming has to be half as fast again at least: only this side's cost is measured, and the
/// reader, who finds nothing in its caches then, has one too. Between distant cores of a Zen
/// processor a cached copy took this side 0.2 ns a byte and a streamed one 0.08, between neighbours
/// a cached one 0.04; the reader's took 0.08 and 0.09.
const ADVANTAGE: f64 = 1.5;

/// What a copy costs, in cycles for 64 KiB; 0: not known yet.
struct Cost(AtomicU32);

impl Cost {
    const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes a copy into the mean. One that was interrupted counts for little.
    fn learn(&self, cycles: u64, len: usize) {
        let new = (cycles << 16) / (len as u64).max(1);
        let mean = u64::from(self.0.load(Relaxed));
        let next = if mean == 0 {
            new
        } else {
            (mean * 7 + new.min(mean * 4)) / 8
        };
        self.0.store(u32::try_from(next).unwrap_or(u32::MAX), Relaxed);
    }
}

/// The two ways of copying, and what is known of them.
struct Choice {
    cached: Cost,
    streamed: Cost,
    /// Copies made, and their bytes; lost counts do not matter.
    copies: AtomicU32,
    bytes: AtomicU64,
    /// What the last trial has shown.
    streaming: AtomicBool,
}

/// How to make a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    streamed: bool,
    timed: bool,
}

impl Choice {
    const fn new() -> Self {
        Self {
            cached: Cost::new(),
            streamed: Cost::new(),
            copies: AtomicU32::new(0),
            bytes: AtomicU64::new(0),
            streaming: AtomicBool::new(false),
        }
    }

    /// How to make the next copy.
    #[inline]
    fn next(&self, len: usize) -> Way {
        let copies = self.copies.load(Relaxed);
        self.copies.store(copies.wrapping_add(1), Relaxed);
        let bytes = self.bytes.load(Relaxed);
        self.bytes.store(bytes.wrapping_add(len as u64), Relaxed);
        let in_cycle = bytes % CYCLE;
        // The first one is of streaming: before it, all copies are cached.
        let trial = TRIAL..2 * TRIAL;
        let is_trial = trial.contains(&in_cycle);
        let settled = match is_trial {
            true => in_cycle >= trial.start + SETTLING,
            false => in_cycle >= trial.end + SETTLING || (SETTLING..trial.start).contains(&in_cycle),
        };
        let streaming = self.streaming.load(Relaxed);
        if is_trial && in_cycle + len as u64 >= trial.end {
            self.streaming.store(self.is_streaming_better(), Relaxed);
        }
        Way {
            streamed: streaming != is_trial,
            timed: settled && copies.is_multiple_of(TIMED),
        }
    }

    fn is_streaming_better(&self) -> bool {
        let (cached, streamed) = (self.cached.0.load(Relaxed), self.streamed.0.load(Relaxed));
        streamed != 0 && f64::from(streamed) * ADVANTAGE < f64::from(cached)
    }
}

/// Copies of a few KiB and longer ones fare differently.
static CHOICES: [Choice; 2] = [Choice::new(), Choice::new()];

/// Copies from this length on are long.
const LONGER: usize = 8 << 10;

/// Copies a slice into another of the same length in the way that is faster now.
///
/// # Panics
///
/// If the lengths differ.
pub(crate) fn copy(from: &[u8], to: &mut [u8]) {
    let choice = &CHOICES[usize::from(from.len() >= LONGER)];
    let way = choice.next(from.len());
    let copy = if way.streamed { copy_streamed } else { copy_bytes };
    if !way.timed {
        return copy(from, to);
    }
    // SAFETY: reads a counter.
    let began = unsafe { _rdtsc() };
    copy(from, to);
    // SAFETY: as above.
    let cycles = unsafe { _rdtsc() }.saturating_sub(began);
    let cost = if way.streamed {
        &choice.streamed
    } else {
        &choice.cached
    };
    cost.learn(cycles, from.len());
}

/// Copies past the caches.
fn copy_streamed(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len());
    let head = to.as_ptr().align_offset(64).min(to.len());
    let lines = (to.len() - head) / 64;
    let body = head + lines * 64;
    copy_bytes(&from[..head], &mut to[..head]);
    copy_bytes(&from[body..], &mut to[body..]);
    let (source, destination) = (from[head..body].as_ptr(), to[head..body].as_mut_ptr());
    // SAFETY: so many lines are in both, and the destination's begin on a line; the feature was
    // looked for.
    unsafe {
        if std::arch::is_x86_feature_detected!("avx") {
            stream_lines_256(source, destination, lines);
        } else {
            stream_lines(source, destination, lines);
        }
    }
    // SAFETY: streaming stores are in no order with others until here; what is
    // published later must come after them.
    unsafe { _mm_sfence() };
}

/// Copies so many lines of 64 bytes past the caches.
///
/// # Safety
///
/// `from` must be readable and `to` writable for all of them, without overlap, and `to` aligned
/// to a line.
unsafe fn stream_lines(from: *const u8, to: *mut u8, lines: usize) {
    for part in 0..lines * 4 {
        // SAFETY: demanded of the caller; a part is a quarter of a line.
        unsafe {
            let value = _mm_loadu_si128(from.add(part * 16).cast::<__m128i>());
            _mm_stream_si128(to.add(part * 16).cast::<__m128i>(), value);
        }
    }
}

/// The same in wider pieces.
///
/// # Safety
///
/// As for [`stream_lines`], on a processor with AVX.
#[target_feature(enable = "avx")]
unsafe fn stream_lines_256(from: *const u8, to: *mut u8, lines: usize) {
    for line in 0..lines {
        // SAFETY: demanded of the caller.
        unsafe {
            let (source, destination) = (from.add(line * 64), to.add(line * 64));
            let first = _mm256_loadu_si256(source.cast::<__m256i>());
            let second = _mm256_loadu_si256(source.add(32).cast::<__m256i>());
            _mm256_stream_si256(destination.cast::<__m256i>(), first);
            _mm256_stream_si256(destination.add(32).cast::<__m256i>(), second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streamed_copies_are_whole_at_every_alignment_and_length() {
        let from: Vec<u8> = (0..5000_u32).map(|i| (i * 31 + i / 256) as u8).collect();
        for offset in [0, 1, 15, 63] {
            for len in [0, 1, 63, 64, 65, 1024, 4097] {
                let mut to = vec![0; 5000];
                copy_streamed(&from[offset..offset + len], &mut to[offset..offset + len]);
                assert_eq!(to[offset..offset + len], from[offset..offset + len]);
                assert!(
                    to[..offset]
                        .iter()
                        .chain(&to[offset + len..])
                        .all(|&byte| byte == 0)
                );
            }
        }
    }

    const COPY: usize = 16 << 10;

    /// The ways of the copies from behind one trial to the end of the next, if they cost so much.
    fn cycle(choice: &Choice, cached: u64, streamed: u64) -> Vec<Way> {
        let copies = CYCLE / COPY as u64;
        let make = |_| {
            let way = choice.next(COPY);
            let (cost, cycles) = match way.streamed {
                true => (&choice.streamed, streamed),
                false => (&choice.cached, cached),
            };
            if way.timed {
                cost.learn(cycles, COPY);
            }
            way
        };
        (0..copies).map(make).collect()
    }

    fn to_the_end_of_a_trial(choice: &Choice) {
        while choice.bytes.load(Relaxed) % CYCLE != 2 * TRIAL {
            choice.next(COPY);
        }
    }

    #[test]
    fn the_cheaper_way_is_taken_and_the_other_tried_now_and_then() {
        let choice = Choice::new();
        cycle(&choice, 1000, 300);
        to_the_end_of_a_trial(&choice);
        // What is found out is followed from the end of a trial on.
        let mut was = true;
        for (cached, streamed) in [(1000, 300), (1000, 5000), (1000, 800), (1000, 600)] {
            let made = cycle(&choice, cached, streamed);
            let (tried, rest): (Vec<_>, Vec<_>) = made.iter().partition(|way| way.streamed != was);
            assert_eq!(tried.len(), TRIAL as usize / COPY);
            assert_eq!(made[made.len() - tried.len()..].first(), tried.first().copied());
            assert!(rest.iter().all(|way| way.streamed == was));
            was = streamed as f64 * ADVANTAGE < cached as f64;
        }
    }

    /// A trial was a single copy, whose memory the other way had left as it was.
    #[test]
    fn a_way_is_timed_when_it_has_gone_through_the_memory() {
        let choice = Choice::new();
        let (mut before, mut last) = (0, None);
        let mut timed = [0, 0];
        for way in (0..3).flat_map(|_| cycle(&choice, 1000, 300)) {
            before = if last == Some(way.streamed) {
                before + COPY
            } else {
                0
            };
            last = Some(way.streamed);
            assert!(!way.timed || before >= SETTLING as usize - COPY);
            timed[usize::from(way.streamed)] += usize::from(way.timed);
        }
        assert!(timed.iter().all(|&timed| timed >= 60), "{timed:?}");
    }
}
