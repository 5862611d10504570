//! Payload memory that is scarce: what is kept for receiving, and who waits for
//! more of it.

use super::{Tcp, flag};
use crate::socket::Change;

/// The end of the list of those who wait. An index counts from [`FIRST_INDEX`],
/// so that zero stands for not being on the list, and for no list.
const END: u32 = 1;
const FIRST_INDEX: u32 = 2;

/// Bytes of the largest frame.
const LARGEST_FRAME: u32 = 1 << 16;

/// Most programs that one round tells of memory. Who is not told in this round
/// is told in the next one, if there is still some left.
const MOST_WAKES: u32 = 64;

impl Tcp {
    /// Blocks programs may fill with what they send.
    ///
    /// The last quarter of payload memory is kept for what arrives: otherwise two
    /// stacks whose memory is full of what the other one has no room for would
    /// wait for each other for ever. Of little memory it is more: one frame of a stack to itself
    /// has to find room for as long as another one is not read.
    #[inline]
    fn queueable_blocks(&self) -> u32 {
        let capacity = self.payload.capacity();
        let frames = 2 * (LARGEST_FRAME / self.payload.block_len() as u32 + 1);
        let kept = (capacity / 4).max(frames.min(capacity / 2));
        self.payload.free_blocks().saturating_sub(kept)
    }

    /// How many bytes programs may queue for sending.
    #[inline]
    pub(crate) fn queueable(&self) -> usize {
        self.queueable_blocks() as usize * self.payload.block_len()
    }

    /// Whether programs may queue any bytes.
    #[inline]
    pub(crate) fn may_queue(&self) -> bool {
        self.queueable_blocks() > 0
    }

    /// Has a connection's program told when there is memory again, after those
    /// that wait already.
    pub(crate) fn await_memory(&mut self, index: u32) {
        let pcb = &mut self.pcbs[index];
        if pcb.memory_next != 0 {
            return;
        }
        pcb.memory_next = END;
        if self.shard[0].memory_waiters == 0 {
            self.press();
            self.touch(index);
        }
        let entry = index + FIRST_INDEX;
        let tail = std::mem::replace(&mut self.shard[0].memory_waiters_tail, entry);
        match tail.checked_sub(FIRST_INDEX) {
            Some(last) => self.pcbs[last].memory_next = entry,
            None => self.shard[0].memory_waiters = entry,
        }
    }

    /// Whether somebody waits for memory, and there is some.
    #[inline]
    pub(crate) fn memory_is_back(&self) -> bool {
        self.shard[0].memory_waiters != 0 && self.may_queue()
    }

    /// Tells those who have waited longest, no more than there are blocks for;
    /// whoever finds too little waits again.
    #[cold]
    pub(super) fn wake_memory_waiters(&mut self) {
        for _ in 0..self.queueable_blocks().min(MOST_WAKES) {
            let Some(index) = self.shard[0].memory_waiters.checked_sub(FIRST_INDEX) else {
                return;
            };
            let pcb = &mut self.pcbs[index];
            let next = std::mem::take(&mut pcb.memory_next);
            pcb.clear(flag::WRITER_WAITS);
            let shard = &mut self.shard[0];
            if next == END {
                (shard.memory_waiters, shard.memory_waiters_tail) = (0, 0);
                self.channels.press(false);
            } else {
                shard.memory_waiters = next;
            }
            self.mark_event(index, Change::ROOM);
            self.free_if_done(index);
        }
    }
}
