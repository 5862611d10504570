//! Payload that stays in the send queue of a connection of the same stack.

use toehold_shm::Payload;
use toehold_wire::tcp::Seq;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::pcb::Pcb;

/// Payload in the send queue of a connection of this stack.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Queued {
    pub(super) connection: u32,
    /// The position of the payload in the sender's sequence space; the next field is its block.
    pub(super) start: Seq,
    pub(super) block: u32,
    pub(super) len: u32,
}

impl Queued {
    /// No payload.
    pub(super) const NONE: Self = Self {
        connection: 0,
        start: Seq(0),
        block: 0,
        len: 0,
    };

    /// The payload from `offset` bytes behind the head of a connection's queue on.
    pub(super) fn new(
        index: u32,
        pcb: &mut Pcb,
        memory: &Payload,
        (offset, len): (usize, usize),
    ) -> Option<Self> {
        if len == 0 {
            return Some(Self::NONE);
        }
        Some(Self {
            connection: index,
            start: pcb.queue_start() + offset as u32,
            block: pcb.send_queue.seek(memory, offset)?,
            len: len as u32,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }
}
