//! The receiving side of the protocol.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::layout::{FENCE_YOURSELF, PADDING, RECORD_ALIGN, RecordHeader, max_record};
use super::protocol::{Ring, Words, after_all, next_sleep};
use super::state::ConsumerState;
use super::{Corrupt, barrier};

/// Fewer bytes than this before a sleep are few: the senders' fences would have cost less than the
/// sleeper's. A fence waits for the lines of its burst, about 30 ns each between distant cores. The
/// sleeper's costs 25 µs and the time of the interrupted threads.
const FEW: u64 = 512 * RECORD_ALIGN;

/// After this many sleeps in a row with few records before them, the consumer asks the producer to
/// fence itself.
pub(super) const OFTEN: u32 = 4;

/// This many bytes without a sleep end that request.
pub(super) const MANY: u64 = 8 * FEW;

/// The consumer's side. If its state is overwritten, it receives meaningless bytes, but only bytes
/// of the ring.
#[derive(Debug)]
pub(super) struct Incoming<'a, W> {
    pub(super) ring: &'a Ring<W>,
    pub(super) state: &'a mut ConsumerState,
}

impl<W: Words> Incoming<'_, W> {
    /// The position of the next record.
    #[inline]
    pub(super) fn position(&self) -> u64 {
        self.state.position
    }

    /// Header of the next record, if there is one. It was read once and is checked: all of the
    /// record lies in the ring.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<RecordHeader>, Corrupt> {
        loop {
            let word = self.ring.words.header(self.state.position).load(Acquire);
            if word == 0 {
                return Ok(None);
            }
            let header = RecordHeader::from_word(word);
            self.check(header)?;
            if header.kind != PADDING {
                return Ok(Some(header));
            }
            // Padding ends at the ring's end, and padding as long as the whole ring fails the
            // check. The loop therefore runs twice at most.
            self.state.position = self.state.position.wrapping_add(header.size());
        }
    }

    /// Continues behind the record with `header`.
    #[inline]
    pub(super) fn advance(&mut self, header: RecordHeader) {
        self.state.position = self.state.position.wrapping_add(header.size());
    }

    /// Lets the producer reuse the consumed space. Returns `true` if the producer waits and must be
    /// rung.
    #[inline]
    pub(super) fn release(&mut self) -> bool {
        if self.state.position == self.state.released {
            return false;
        }
        self.state.released = self.state.position;
        if self.state.sleeps & FENCE_YOURSELF != 0 {
            self.stay_awake();
        }
        self.ring.words.consumed().store(self.state.position, Release);
        // This is enough if the other side fences for both. Otherwise this may miss a wait that is
        // being announced, and `room_wanted` finds it.
        barrier::sender(true);
        self.starves()
    }

    /// Whether the producer waits for space that it may not know to be free yet.
    #[inline]
    pub(super) fn room_wanted(&mut self) -> bool {
        barrier::sender(self.ring.fences.other);
        self.starves()
    }

    #[inline]
    fn starves(&mut self) -> bool {
        let wait = self.ring.words.starving().load(Relaxed);
        let state = &mut *self.state;
        if wait.is_multiple_of(2) || wait == state.rung_wait || state.released == state.rung_position {
            return false;
        }
        (state.rung_wait, state.rung_position) = (wait, state.released);
        true
    }

    /// Announces that this side will sleep. Returns `false` if there is a record, and nothing was
    /// announced.
    #[inline]
    pub(super) fn prepare_sleep(&mut self) -> bool {
        let everywhere = self.announce_sleep();
        if barrier::sleeper(everywhere) {
            self.confirm_sleep()
        } else {
            self.finish_sleep();
            false
        }
    }

    /// The first half of [`Incoming::prepare_sleep`]. A fence has to follow, everywhere if this is
    /// true.
    #[inline]
    pub(super) fn announce_sleep(&mut self) -> bool {
        let state = &mut *self.state;
        let few = state.position.wrapping_sub(state.slept_at) <= FEW;
        state.short_turns = if few {
            state.short_turns.saturating_add(1)
        } else {
            0
        };
        state.slept_at = state.position;
        state.sleeps = next_sleep(state.sleeps) & !FENCE_YOURSELF;
        if self.ring.fences.own && state.short_turns >= OFTEN {
            state.sleeps |= FENCE_YOURSELF;
        } else {
            state.is_understood = 0;
        }
        self.ring.words.sleeping().store(state.sleeps, Relaxed);
        self.ring.fences.own && state.is_understood == 0
    }

    /// The second half of [`Incoming::prepare_sleep`].
    #[inline]
    pub(super) fn confirm_sleep(&mut self) -> bool {
        self.state.is_understood = (self.state.sleeps & FENCE_YOURSELF != 0).into();
        let empty = self.ring.words.header(self.state.position).load(Relaxed) == 0;
        if !empty {
            self.finish_sleep();
        }
        empty
    }

    /// Withdraws the announcement, if there is one.
    #[inline]
    pub(super) fn finish_sleep(&mut self) {
        if self.state.sleeps % 2 == 1 {
            self.state.sleeps = self.state.sleeps.wrapping_add(1);
            self.ring.words.sleeping().store(self.state.sleeps, Relaxed);
        }
    }

    /// Continues for a process that was killed at any point: releases the consumed space, and
    /// withdraws the announcement. Whether the producer waits without having been rung is unknown.
    pub(super) fn mend(&mut self) {
        let (words, state) = (&self.ring.words, &mut *self.state);
        let sleeping = words.sleeping();
        let count = |sleeps: u64| sleeps & !FENCE_YOURSELF;
        state.sleeps = after_all(count(state.sleeps), count(sleeping.load(Relaxed))) & !FENCE_YOURSELF;
        (state.short_turns, state.is_understood) = (0, 0);
        sleeping.store(state.sleeps, Relaxed);
        state.released = state.position;
        words.consumed().store(state.position, Release);
    }

    /// Ends the request for the producer's fences if it has sent much since the last sleep.
    #[cold]
    fn stay_awake(&mut self) {
        let state = &mut *self.state;
        if state.position.wrapping_sub(state.slept_at) > MANY && state.sleeps.is_multiple_of(2) {
            state.sleeps &= !FENCE_YOURSELF;
            (state.short_turns, state.is_understood) = (0, 0);
            self.ring.words.sleeping().store(state.sleeps, Relaxed);
        }
    }

    /// Checks whether the other side's header can be that of the next record.
    #[inline]
    fn check(&self, header: RecordHeader) -> Result<(), Corrupt> {
        let left = self.ring.to_end(self.state.position);
        let size = header.size();
        let expected = RecordHeader::new(self.state.position, header.kind, header.len);
        let fault = if header.kind == 0 {
            Corrupt::RecordKind
        } else if header.sequence != expected.sequence {
            Corrupt::RecordSequence
        } else if u64::from(header.len) > max_record(self.ring.capacity) {
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
