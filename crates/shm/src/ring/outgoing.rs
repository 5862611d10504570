//! The sending side of the protocol.
//!
//! A sender may be killed at any moment, and another process continues with its state. Therefore
//! the state never claims work that was not done yet. Compiler fences keep the order of writes for
//! that; [`Outgoing::mend`] does the rest.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::compiler_fence;

use super::layout::{
    FENCE_YOURSELF, HEADER_LEN, PADDING, RECORD_ALIGN, RecordHeader, max_record, record_size,
};
use super::protocol::{ReserveError, Ring, Words, after_all, next_sleep};
use super::state::ProducerState;
use super::{Corrupt, barrier};

/// The producer's side. If its state is overwritten, it sends meaningless bytes, but only within
/// the ring.
#[derive(Debug)]
pub(super) struct Outgoing<'a, W> {
    pub(super) ring: &'a Ring<W>,
    pub(super) state: &'a mut ProducerState,
}

impl<W: Words> Outgoing<'_, W> {
    #[inline]
    pub(super) fn max_record(&self) -> u64 {
        max_record(self.ring.capacity)
    }

    /// End of the last committed record.
    #[inline]
    pub(super) fn position(&self) -> u64 {
        self.state.position
    }

    /// Finds space for a record of `len` bytes and returns its position. The record exists once
    /// committed.
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
            let len = padding - HEADER_LEN;
            self.commit(RecordHeader::new(self.state.position, PADDING, len as u32));
        }
        Ok(self.state.position)
    }

    /// Completes the record at the present position, whose bytes are written.
    #[inline]
    pub(super) fn commit(&mut self, header: RecordHeader) {
        if self.state.position == self.state.published {
            self.state.first = header.to_word();
        } else {
            // The consumer cannot reach it before the burst's first record is visible.
            self.ring
                .words
                .header(self.state.position)
                .store(header.to_word(), Relaxed);
        }
        // The record is complete before it counts.
        compiler_fence(Release);
        self.state.position = self.state.position.wrapping_add(header.size());
    }

    /// Lets the consumer see the committed records. Returns `true` if it sleeps and must be rung.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        if self.state.position == self.state.published {
            return false;
        }
        self.ring.words.header(self.state.position).store(0, Relaxed);
        self.ring
            .words
            .header(self.state.published)
            .store(self.state.first, Release);
        // Publishing twice is harmless: the consumer does not read that place any more.
        compiler_fence(Release);
        self.state.published = self.state.position;
        barrier::sender(self.ring.fences.other);
        let mut sleep = self.ring.words.sleeping().load(Relaxed);
        if sleep & FENCE_YOURSELF != 0 && self.ring.fences.other {
            barrier::sender(false);
            sleep = self.ring.words.sleeping().load(Relaxed);
        }
        sleep % 2 == 1 && core::mem::replace(&mut self.state.rung, sleep) != sleep
    }

    /// The consumer's position now.
    #[inline]
    pub(super) fn consumed(&mut self) -> Result<u64, Corrupt> {
        if let Some(fault) = Corrupt::from_code(self.state.fault) {
            return Err(fault);
        }
        let consumed = self.ring.words.consumed().load(Acquire);
        if consumed == self.state.consumed {
            return Ok(consumed);
        }
        let fault = if !consumed.is_multiple_of(RECORD_ALIGN) {
            Corrupt::ConsumedUnaligned
        } else if consumed < self.state.consumed {
            Corrupt::ConsumedBackwards
        } else if consumed > self.state.published {
            Corrupt::ConsumedAhead
        } else {
            self.state.consumed = consumed;
            return Ok(consumed);
        };
        self.state.fault = fault.code();
        Err(fault)
    }

    /// Announces that this side waits for space for a record of `len` bytes. Returns `false` if
    /// there is no need to wait, and nothing was announced.
    pub(super) fn prepare_wait(&mut self, len: u64) -> bool {
        self.announce_wait();
        if barrier::sleeper(self.ring.fences.own) {
            self.confirm_wait(len)
        } else {
            self.finish_wait();
            false
        }
    }

    /// The first half of [`Outgoing::prepare_wait`]; a fence has to follow.
    pub(super) fn announce_wait(&mut self) {
        self.state.waits = next_sleep(self.state.waits);
        self.ring.words.starving().store(self.state.waits, Relaxed);
    }

    /// The second half of [`Outgoing::prepare_wait`].
    pub(super) fn confirm_wait(&mut self, len: u64) -> bool {
        let full = self.consumed().is_ok() && self.padding(len) + record_size(len) > self.space();
        if !full {
            self.finish_wait();
        }
        full
    }

    /// Withdraws the announcement, if there is one.
    pub(super) fn finish_wait(&mut self) {
        if self.state.waits % 2 == 1 {
            self.state.waits = self.state.waits.wrapping_add(1);
            self.ring.words.starving().store(self.state.waits, Relaxed);
        }
    }

    /// Continues for a process that was killed at any point: publishes the committed records, and
    /// withdraws the announcement. Whether the consumer sleeps without having been rung is unknown.
    pub(super) fn mend(&mut self) {
        let _ = self.publish();
        let starving = self.ring.words.starving();
        self.state.waits = after_all(self.state.waits, starving.load(Relaxed));
        starving.store(self.state.waits, Relaxed);
    }

    /// Bytes before the end that a record of `len` bytes would have to skip.
    #[inline]
    fn padding(&self, len: u64) -> u64 {
        let to_end = self.ring.to_end(self.state.position);
        if record_size(len) > to_end { to_end } else { 0 }
    }

    /// Usable bytes, as far as known. One line always stays free: the zero header after the last
    /// record.
    #[inline]
    fn space(&self) -> u64 {
        let used = self.state.position.wrapping_sub(self.state.consumed);
        (self.ring.capacity - RECORD_ALIGN).saturating_sub(used)
    }
}
