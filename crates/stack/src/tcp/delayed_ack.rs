//! Delayed acknowledgements that are sent early when the driver is idle. A peer whose send buffer
//! is full waits for them.
//!
//! Connections that alternate keep waiting for data to carry them, see `INTERACTIVE`. Other
//! connections would wait for their timer: with a send buffer of 4 KiB, half a millisecond for
//! every 4 KiB.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Context, Tcp, flag};
use crate::time::Instant;

/// Most connections in the list. Others wait for their timers.
const MOST: usize = 7;

/// Connections that have delayed an acknowledgement, or had when they were noted. All zeroes: none.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct DelayedAcks {
    count: u32,
    connections: [u32; MOST],
}

impl DelayedAcks {
    #[inline]
    pub(super) fn note(&mut self, index: u32) {
        if let Some(place) = self.connections.get_mut(self.count as usize) {
            *place = index;
            self.count += 1;
        }
    }

    #[inline]
    fn is_any(&self) -> bool {
        self.count != 0
    }

    /// Takes all valid entries, whatever another process has written to the memory.
    fn take(&mut self) -> impl Iterator<Item = u32> + use<> {
        let taken = std::mem::take(self);
        taken.connections.into_iter().take(taken.count as usize)
    }
}

impl Tcp {
    /// Whether an acknowledgement is delayed without need.
    #[inline]
    pub(crate) fn has_delayed_acks(&self) -> bool {
        self.state[0].delayed_acks.is_any()
    }

    /// Sends the delayed acknowledgements with the next round.
    pub(crate) fn flush_delayed_acks(&mut self, cx: &Context<'_>) {
        for index in self.state[0].delayed_acks.take() {
            if !self.pcbs.is_live(index) {
                continue;
            }
            self.touch(index);
            let pcb = &mut self.pcbs[index];
            if pcb.ack_at.is_set() && pcb.ack_at > cx.now && !pcb.has(flag::INTERACTIVE) {
                pcb.ack_at = Instant::NEVER;
                pcb.set(flag::ACK_NOW);
                self.mark_ready(index);
            }
        }
    }
}
