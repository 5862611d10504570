//! Long copies into memory that another core will read.
//!
//! Where the two cores share no cache near them, a store has to fetch its line from
//! the reader's cache first, one after the other: 16 to 30 Gb/s, where stores that
//! go past the caches reach 100. Where they do share one, it is the other way
//! round. On a virtual machine this changes from one minute to the next. So both
//! ways are timed now and then, and streaming is taken where it is clearly faster.

use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128, _rdtsc};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::copy::copy_bytes;

/// Every so many copies one is timed.
const TIMED: u32 = 16;

/// Every so many timed copies one is made the other way.
const TRIED: u32 = 16;

/// Streaming has to be so many times as fast: only this side's cost is measured,
/// and the reader, who finds nothing in its caches then, has one too.
const ADVANTAGE: u64 = 2;

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
    /// Copies made; a lost count does not matter.
    copies: AtomicU32,
}

impl Choice {
    const fn new() -> Self {
        Self {
            cached: Cost::new(),
            streamed: Cost::new(),
            copies: AtomicU32::new(0),
        }
    }

    /// Whether to stream the next copy, and whether to time it.
    #[inline]
    fn next(&self) -> (bool, bool) {
        let copies = self.copies.load(Relaxed);
        self.copies.store(copies.wrapping_add(1), Relaxed);
        let (cached, streamed) = (self.cached.0.load(Relaxed), self.streamed.0.load(Relaxed));
        let streamed_is_faster = streamed != 0 && u64::from(streamed) * ADVANTAGE < u64::from(cached);
        let timed = copies.is_multiple_of(TIMED);
        let other = timed && (copies / TIMED).is_multiple_of(TRIED);
        (streamed_is_faster != other, timed)
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
    let (streamed, timed) = choice.next();
    let copy = if streamed { copy_streamed } else { copy_bytes };
    if !timed {
        return copy(from, to);
    }
    // SAFETY: reads a counter.
    let began = unsafe { _rdtsc() };
    copy(from, to);
    // SAFETY: as above.
    let cycles = unsafe { _rdtsc() }.saturating_sub(began);
    let cost = if streamed {
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
    for line in 0..lines {
        let at = head + line * 64;
        // SAFETY: within both slices, which are as long; the destination of every
        // store is aligned, for `at` is to the line.
        unsafe {
            let source = from.as_ptr().add(at).cast::<__m128i>();
            let destination = to.as_mut_ptr().add(at).cast::<__m128i>();
            let words = [0, 1, 2, 3].map(|word| _mm_loadu_si128(source.add(word)));
            for (word, value) in words.into_iter().enumerate() {
                _mm_stream_si128(destination.add(word), value);
            }
        }
    }
    // SAFETY: streaming stores are in no order with others until here; what is
    // published later must come after them.
    unsafe { _mm_sfence() };
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

    #[test]
    fn the_cheaper_way_is_taken_and_the_other_tried_now_and_then() {
        let choice = Choice::new();
        choice.cached.learn(1000, 1 << 16);
        choice.streamed.learn(400, 1 << 16);
        let made: Vec<_> = (0..TIMED * TRIED).map(|_| choice.next()).collect();
        assert_eq!(made.iter().filter(|(streamed, _)| !streamed).count(), 1);
        assert_eq!(made.iter().filter(|(_, timed)| *timed).count(), TRIED as usize);
        for _ in 0..64 {
            choice.streamed.learn(5000, 1 << 16);
        }
        let made: Vec<_> = (0..TIMED * TRIED).map(|_| choice.next()).collect();
        assert_eq!(made.iter().filter(|(streamed, _)| *streamed).count(), 1);
    }
}
