//! Thresholds of payload memory, see `memory`.

use toehold_shm::Payload;

/// Bytes that a queue may hold whatever others hold, as long as these fit for all connections.
pub(crate) const GUARANTEED: u32 = 16 << 10;

/// Bytes of the largest frame. A reader may have one in flight to it unless memory is nearly out.
pub(super) const LARGEST_FRAME: u32 = 1 << 16;

/// The thresholds of `memory` in blocks, as far as they depend only on the size of payload memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thresholds {
    /// All blocks.
    pub(super) capacity: u32,
    /// A guarantee while those of all connections fit.
    pub(super) guarantee: u32,
    /// With fewer free blocks than this, programs queue no data.
    pub(super) kept: u32,
    /// The bounds of the reserve.
    pub(super) reserve: [u32; 2],
    /// Memory is scarce this far below the reserve.
    pub(super) margin: u32,
}

impl Thresholds {
    /// The last eighth of payload memory is kept for received data. Otherwise two stacks with full
    /// memory could wait for each other forever. Of little memory, it is more: a frame of a stack
    /// to itself needs room while another frame is unread.
    ///
    /// A sixteenth of the memory is shared by all queues, even if guarantees would take all of it.
    /// Many idle connections therefore do not slow down a busy one.
    pub(super) fn new(payload: &Payload) -> Self {
        let capacity = payload.capacity();
        let block_len = payload.block_len() as u32;
        let frames = 2 * (LARGEST_FRAME / block_len + 1);
        Self {
            capacity,
            guarantee: (GUARANTEED / block_len).max(1),
            kept: (capacity / 8).max(frames.min(capacity / 2)),
            reserve: [capacity / 2, capacity - capacity / 16],
            margin: capacity / 8,
        }
    }
}
