//! Payload memory that is scarce: what is kept for receiving, and who waits for
//! more of it.

use super::{Tcp, flag};

/// The end of the list of those who wait. An index counts from [`FIRST_INDEX`],
/// so that zero stands for not being on the list.
const END: u32 = 1;
const FIRST_INDEX: u32 = 2;

impl Tcp {
    /// How many bytes programs may queue for sending.
    ///
    /// The last quarter of payload memory is kept for what arrives: otherwise two
    /// stacks whose memory is full of what the other one has no room for would
    /// wait for each other for ever.
    #[inline]
    pub(crate) fn queueable(&self) -> usize {
        let kept = self.payload.capacity() / 4;
        self.payload.free_blocks().saturating_sub(kept) as usize * self.payload.block_len()
    }

    /// Whether programs may queue any bytes.
    #[inline]
    pub(crate) fn may_queue(&self) -> bool {
        self.queueable() > 0
    }

    /// Has a connection's program told when there is memory again.
    pub(crate) fn await_memory(&mut self, index: u32) {
        let pcb = &mut self.pcbs[index];
        if pcb.memory_next != 0 {
            return;
        }
        let head = &mut self.shard[0].memory_waiters;
        pcb.memory_next = if *head == 0 { END } else { *head };
        *head = index + FIRST_INDEX;
    }

    /// Whether somebody waits for memory, and there is some.
    #[inline]
    pub(crate) fn memory_is_back(&self) -> bool {
        self.shard[0].memory_waiters != 0 && self.may_queue()
    }

    /// Tells all who wait; whoever finds too little waits again.
    #[cold]
    pub(super) fn wake_memory_waiters(&mut self) {
        let mut at = std::mem::take(&mut self.shard[0].memory_waiters);
        while let Some(index) = at.checked_sub(FIRST_INDEX) {
            let pcb = &mut self.pcbs[index];
            at = std::mem::take(&mut pcb.memory_next);
            pcb.clear(flag::WRITER_WAITS);
            self.mark_event(index);
            self.free_if_done(index);
        }
    }
}
