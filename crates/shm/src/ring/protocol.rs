//! The words of a ring: when a record is there, when its space is free again, who
//! sleeps. No bytes of records are touched here, so that the very same code runs
//! under loom.
//!
//! Every word has one writer. The three ways in which one side waits for the other:
//!
//! - A record becomes visible when its header is stored (release) over zero; the
//!   consumer loads it (acquire). Everything of a burst is stored before the
//!   header of its first record, so the consumer finds all of it.
//! - Space becomes free when the consumer stores its position (release); the
//!   producer loads it (acquire) when it seems out of space.
//! - A sleeper makes its word odd, fences, and looks once more. Whoever has
//!   something for it stores that, fences, and looks at the sleeper's word. The
//!   fences are sequentially consistent (or the sleeper makes one for both, see
//!   [`super::barrier`]): of two sides that both have fenced, at
//!   least one sees what the other stored before. (Release and acquire alone lose
//!   wake-ups.) The word is a count, so that each sleep is rung for once only.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

#[cfg(not(loom))]
pub(super) use core::sync::atomic::{AtomicU64, fence};
#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU64, fence};

use super::layout::{PADDING, RECORD_ALIGN, RecordHeader, max_record, record_size};
use super::{Corrupt, barrier};

/// Where the words of one direction lie.
pub(super) trait Words {
    /// Header of the record at `position`, a multiple of [`RECORD_ALIGN`]; written
    /// by the producer.
    fn header(&self, position: u64) -> &AtomicU64;
    /// The consumer's position; written by the consumer.
    fn consumed(&self) -> &AtomicU64;
    /// Odd while the consumer sleeps; written by the consumer.
    fn sleeping(&self) -> &AtomicU64;
    /// Odd while the producer waits for space; written by the producer.
    fn starving(&self) -> &AtomicU64;
}

/// The next odd number: a sleep that nobody has rung for yet, even if the one
/// before was never taken back.
#[inline]
fn next_sleep(sleeps: u64) -> u64 {
    (sleeps + 1) | 1
}

/// Why there is no space for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// The consumer has to make room first.
    #[error("the ring is full")]
    Full,
    /// Longer than any record of this ring.
    #[error("the record is longer than the ring allows")]
    TooLong,
    /// The other side broke the rules; the ring is of no use any more.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// Which side makes the fences of both when it is about to sleep or to wait, see
/// [`super::barrier`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Fences {
    /// This side does.
    pub(super) own: bool,
    /// The other side does.
    pub(super) other: bool,
}

/// The producer's side.
#[derive(Debug)]
pub(super) struct Outgoing<W> {
    pub(super) words: W,
    capacity: u64,
    /// End of the last committed record.
    position: u64,
    /// End of the last record the consumer can see; the header there is zero.
    published: u64,
    /// Header for the place at `published`, once something is committed.
    first: u64,
    /// The consumer's position, as last seen.
    consumed: u64,
    /// The consumer's sleep that was rung for last.
    rung: u64,
    /// Number of times the starving word was changed.
    waits: u64,
    fences: Fences,
    fault: Option<Corrupt>,
}

impl<W: Words> Outgoing<W> {
    /// The producer of a ring whose words are all zero.
    pub(super) fn new(words: W, capacity: u64, fences: Fences) -> Self {
        Self {
            words,
            capacity,
            fences,
            position: 0,
            published: 0,
            first: 0,
            consumed: 0,
            rung: 0,
            waits: 0,
            fault: None,
        }
    }

    #[inline]
    pub(super) fn max_record(&self) -> u64 {
        max_record(self.capacity)
    }

    /// End of the last committed record.
    #[inline]
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Finds space for a record of `len` bytes and returns its position. The record
    /// is there once committed.
    #[inline]
    pub(super) fn reserve(&mut self, len: u64) -> Result<u64, ReserveError> {
        if len > self.max_record() {
            return Err(ReserveError::TooLong);
        }
        let padding = self.padding(len);
        let needed = padding + record_size(len);
        if needed > self.space() {
            self.consumed()?;
            if needed > self.space() {
                return Err(ReserveError::Full);
            }
        }
        if padding > 0 {
            let len = padding - super::layout::HEADER_LEN;
            self.commit(RecordHeader::new(self.position, PADDING, len as u32));
        }
        Ok(self.position)
    }

    /// Completes the record at the present position, whose bytes are written.
    #[inline]
    pub(super) fn commit(&mut self, header: RecordHeader) {
        if self.position == self.published {
            self.first = header.to_word();
        } else {
            // Out of the consumer's reach until the burst's first record is.
            self.words.header(self.position).store(header.to_word(), Relaxed);
        }
        self.position += header.size();
    }

    /// Lets the consumer see what was committed. True: it sleeps and must be rung.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        if self.position == self.published {
            return false;
        }
        self.words.header(self.position).store(0, Relaxed);
        self.words.header(self.published).store(self.first, Release);
        self.published = self.position;
        barrier::sender(self.fences.other);
        let sleep = self.words.sleeping().load(Relaxed);
        sleep % 2 == 1 && core::mem::replace(&mut self.rung, sleep) != sleep
    }

    /// The consumer's position now.
    #[inline]
    pub(super) fn consumed(&mut self) -> Result<u64, Corrupt> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let consumed = self.words.consumed().load(Acquire);
        if consumed == self.consumed {
            return Ok(consumed);
        }
        let fault = if !consumed.is_multiple_of(RECORD_ALIGN) {
            Corrupt::ConsumedUnaligned
        } else if consumed < self.consumed {
            Corrupt::ConsumedBackwards
        } else if consumed > self.published {
            Corrupt::ConsumedAhead
        } else {
            self.consumed = consumed;
            return Ok(consumed);
        };
        self.fault = Some(fault);
        Err(fault)
    }

    /// Announces that this side waits for space for a record of `len` bytes. False:
    /// there is no need to wait, and nothing was announced.
    pub(super) fn prepare_wait(&mut self, len: u64) -> bool {
        self.announce_wait();
        if barrier::sleeper(self.fences.own) {
            self.confirm_wait(len)
        } else {
            self.finish_wait();
            false
        }
    }

    /// The first half of [`Outgoing::prepare_wait`]; a fence has to follow.
    pub(super) fn announce_wait(&mut self) {
        self.waits = next_sleep(self.waits);
        self.words.starving().store(self.waits, Relaxed);
    }

    /// The second half.
    pub(super) fn confirm_wait(&mut self, len: u64) -> bool {
        let full = self.consumed().is_ok() && self.padding(len) + record_size(len) > self.space();
        if !full {
            self.finish_wait();
        }
        full
    }

    /// Takes the announcement back, if there is one.
    pub(super) fn finish_wait(&mut self) {
        if self.waits % 2 == 1 {
            self.waits += 1;
            self.words.starving().store(self.waits, Relaxed);
        }
    }

    /// Bytes before the end that a record of `len` bytes would have to skip.
    #[inline]
    fn padding(&self, len: u64) -> u64 {
        let to_end = self.capacity - (self.position & (self.capacity - 1));
        if record_size(len) > to_end { to_end } else { 0 }
    }

    /// Bytes that can be used, as far as known. One line always stays free: the
    /// zero header after the last record.
    #[inline]
    fn space(&self) -> u64 {
        self.capacity - (self.position - self.consumed) - RECORD_ALIGN
    }
}

/// The consumer's side.
#[derive(Debug)]
pub(super) struct Incoming<W> {
    pub(super) words: W,
    capacity: u64,
    /// Where the next record is expected.
    position: u64,
    /// The position the producer knows of.
    released: u64,
    /// Number of times the sleeping word was changed.
    sleeps: u64,
    /// The producer's wait that was rung for last, and the position it was told.
    rung: (u64, u64),
    fences: Fences,
}

impl<W: Words> Incoming<W> {
    /// The consumer of a ring whose words are all zero.
    pub(super) fn new(words: W, capacity: u64, fences: Fences) -> Self {
        Self {
            words,
            capacity,
            fences,
            position: 0,
            released: 0,
            sleeps: 0,
            rung: (0, 0),
        }
    }

    /// Where the next record is expected.
    #[inline]
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Header of the next record, if it is there. It was read once and is checked:
    /// all of the record lies in the ring.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<RecordHeader>, Corrupt> {
        loop {
            let word = self.words.header(self.position).load(Acquire);
            if word == 0 {
                return Ok(None);
            }
            let header = RecordHeader::from_word(word);
            self.check(header)?;
            if header.kind != PADDING {
                return Ok(Some(header));
            }
            // Padding ends at the end, and none as long as the whole ring passes the
            // check: the loop runs twice at most.
            self.position += header.size();
        }
    }

    /// Goes on behind the record that has `header`.
    #[inline]
    pub(super) fn advance(&mut self, header: RecordHeader) {
        self.position += header.size();
    }

    /// Lets the producer reuse what was consumed. True: it waits and must be rung.
    #[inline]
    pub(super) fn release(&mut self) -> bool {
        if self.position == self.released {
            return false;
        }
        self.released = self.position;
        self.words.consumed().store(self.position, Release);
        // Enough if the other side fences for both. Otherwise a wait that is being
        // announced may go unseen here, and `room_wanted` finds it.
        barrier::sender(true);
        self.starves()
    }

    /// Whether the producer waits for space that it may not know to be free yet.
    #[inline]
    pub(super) fn room_wanted(&mut self) -> bool {
        barrier::sender(self.fences.other);
        self.starves()
    }

    #[inline]
    fn starves(&mut self) -> bool {
        let wait = self.words.starving().load(Relaxed);
        if wait.is_multiple_of(2) || wait == self.rung.0 || self.released == self.rung.1 {
            return false;
        }
        self.rung = (wait, self.released);
        true
    }

    /// Announces that this side will sleep. False: a record is there, and nothing
    /// was announced.
    #[inline]
    pub(super) fn prepare_sleep(&mut self) -> bool {
        self.announce_sleep();
        if barrier::sleeper(self.fences.own) {
            self.confirm_sleep()
        } else {
            self.finish_sleep();
            false
        }
    }

    /// The first half of [`Incoming::prepare_sleep`]; a fence has to follow.
    #[inline]
    pub(super) fn announce_sleep(&mut self) {
        self.sleeps = next_sleep(self.sleeps);
        self.words.sleeping().store(self.sleeps, Relaxed);
    }

    /// The second half.
    #[inline]
    pub(super) fn confirm_sleep(&mut self) -> bool {
        let empty = self.words.header(self.position).load(Relaxed) == 0;
        if !empty {
            self.finish_sleep();
        }
        empty
    }

    /// Takes the announcement back, if there is one.
    #[inline]
    pub(super) fn finish_sleep(&mut self) {
        if self.sleeps % 2 == 1 {
            self.sleeps += 1;
            self.words.sleeping().store(self.sleeps, Relaxed);
        }
    }

    /// Whether a header the other side wrote can be that of the next record.
    #[inline]
    fn check(&self, header: RecordHeader) -> Result<(), Corrupt> {
        let left = self.capacity - (self.position & (self.capacity - 1));
        let size = header.size();
        let expected = RecordHeader::new(self.position, header.kind, header.len);
        let fault = if header.kind == 0 {
            Corrupt::RecordKind
        } else if header.sequence != expected.sequence {
            Corrupt::RecordSequence
        } else if u64::from(header.len) > max_record(self.capacity) {
            Corrupt::RecordLength
        } else if size > left {
            Corrupt::RecordCrossesEnd
        } else if header.kind == PADDING && size != left {
            Corrupt::Padding
        } else {
            return Ok(());
        };
        Err(fault)
    }
}
