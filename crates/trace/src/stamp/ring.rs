//! A bounded ring of stamps with one writer and one reader.
//!
//! # Layout
//!
//! The ring is an array of 64-bit words, version 1. Words 0 to 7 are the writer's line, words 8 to
//! 15 the reader's, and entries of three words follow.
//!
//! | word | written by | holds |
//! | --- | --- | --- |
//! | 0 | writer | entries written so far |
//! | 1 | writer | entries dropped because the ring was full |
//! | 8 | reader | entries taken so far |
//! | 16 + 3·n | writer | round trip's number in the upper half, pair in the lower |
//! | 17 + 3·n, 18 + 3·n | writer | ticks of the first and of the last stamp |
//!
//! An entry has both stamps of a pair. So a full ring drops a pair whole, and never overwrites.
//! Each side trusts its own count alone. The other side's words may be nonsense.

use crate::plan::PairId;
#[cfg(not(loom))]
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
#[cfg(loom)]
use loom::sync::atomic::AtomicU64;
use thiserror::Error;

const WRITTEN: usize = 0;
const DROPPED: usize = 1;
const TAKEN: usize = 8;
const HEADER: usize = 16;
const ENTRY: usize = 3;

/// Words of storage for a number of entries.
///
/// # Examples
///
/// ```
/// assert_eq!(toehold_trace::stamp::words_for(1024), 16 + 3 * 1024);
/// ```
pub const fn words_for(entries: usize) -> usize {
    HEADER + ENTRY * entries
}

/// Storage that cannot be a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RingError {
    /// There is no room for the header and one entry.
    #[error("{0} words hold no stamp")]
    TooSmall(usize),
}

/// A pair of stamps as an actor took it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StampRecord {
    /// The round trip's number.
    pub message: u32,
    /// The pair.
    pub pair: PairId,
    /// The first stamp, in ticks of the actor's clock.
    pub begin: u64,
    /// The last stamp, in ticks of the actor's clock.
    pub end: u64,
}

impl StampRecord {
    /// The time between the stamps, in ticks of the actor's clock.
    pub fn ticks(&self) -> u64 {
        self.end.wrapping_sub(self.begin)
    }
}

/// The end of a ring that one actor writes.
///
/// The caller makes sure that a ring has one writer. Two of them lose stamps, and harm nothing else.
#[derive(Debug)]
pub struct StampWriter<'a> {
    words: &'a [AtomicU64],
    capacity: u64,
    written: u64,
    taken: u64,
    dropped: u64,
}

impl<'a> StampWriter<'a> {
    /// The writer of an empty ring in `words`. Its counts begin at 0.
    ///
    /// # Errors
    ///
    /// [`RingError::TooSmall`] if no entry fits.
    pub fn new(words: &'a [AtomicU64]) -> Result<Self, RingError> {
        let capacity = capacity(words)?;
        for header in &words[..HEADER] {
            header.store(0, Release);
        }
        Ok(Self {
            words,
            capacity,
            written: 0,
            taken: 0,
            dropped: 0,
        })
    }

    /// Adds a pair of stamps. A full ring drops and counts it.
    pub fn write(&mut self, record: StampRecord) {
        if self.is_full() {
            self.dropped = self.dropped.wrapping_add(1);
            self.words[DROPPED].store(self.dropped, Relaxed);
            return;
        }
        let at = HEADER + (self.written % self.capacity) as usize * ENTRY;
        let label = u64::from(record.message) << 32 | u64::from(record.pair.0);
        self.words[at].store(label, Relaxed);
        self.words[at + 1].store(record.begin, Relaxed);
        self.words[at + 2].store(record.end, Relaxed);
        self.written = self.written.wrapping_add(1);
        self.words[WRITTEN].store(self.written, Release);
    }

    /// Entries dropped so far because the ring was full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Looks at the reader's count only if the last one known leaves no room.
    fn is_full(&mut self) -> bool {
        let is_full = |taken: u64| self.written.wrapping_sub(taken) >= self.capacity;
        if !is_full(self.taken) {
            return false;
        }
        let taken = self.words[TAKEN].load(Acquire);
        // A count beyond what was written, or behind the last one, is nonsense and frees nothing.
        if self.written.wrapping_sub(taken) <= self.written.wrapping_sub(self.taken) {
            self.taken = taken;
        }
        self.written.wrapping_sub(self.taken) >= self.capacity
    }
}

/// The end of a ring from which stamps are taken.
#[derive(Debug)]
pub struct StampReader<'a> {
    words: &'a [AtomicU64],
    capacity: u64,
    taken: u64,
}

impl<'a> StampReader<'a> {
    /// The reader of a ring from which nothing has been taken.
    ///
    /// # Errors
    ///
    /// [`RingError::TooSmall`] if no entry fits.
    pub fn new(words: &'a [AtomicU64]) -> Result<Self, RingError> {
        Ok(Self {
            words,
            capacity: capacity(words)?,
            taken: 0,
        })
    }

    /// Takes all entries that are there, at most the ring's capacity. Returns their number.
    ///
    /// A writer's count that cannot be gives no entries.
    pub fn take_into(&mut self, records: &mut Vec<StampRecord>) -> usize {
        let written = self.words[WRITTEN].load(Acquire);
        let count = written.wrapping_sub(self.taken);
        if count > self.capacity {
            return 0;
        }
        for number in 0..count {
            let at = HEADER + (self.taken.wrapping_add(number) % self.capacity) as usize * ENTRY;
            let label = self.words[at].load(Relaxed);
            records.push(StampRecord {
                message: (label >> 32) as u32,
                pair: PairId(label as u16),
                begin: self.words[at + 1].load(Relaxed),
                end: self.words[at + 2].load(Relaxed),
            });
        }
        self.taken = written;
        self.words[TAKEN].store(written, Release);
        count as usize
    }

    /// Entries that the writer says it dropped.
    pub fn dropped(&self) -> u64 {
        self.words[DROPPED].load(Relaxed)
    }
}

fn capacity(words: &[AtomicU64]) -> Result<u64, RingError> {
    match words.len().saturating_sub(HEADER) / ENTRY {
        0 => Err(RingError::TooSmall(words.len())),
        capacity => Ok(capacity as u64),
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
