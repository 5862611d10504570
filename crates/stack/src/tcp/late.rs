//! Acknowledgements that are delayed for an answer to take them along, and go out earlier once
//! nobody has anything else to do: a peer whose send buffer is full waits for them.
//!
//! What alternates keeps waiting for its answers, see `INTERACTIVE`. Others would have waited for their
//! timer: with a send buffer of 4 KiB that was half a millisecond for every 4 KiB.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Context, Tcp, flag};
use crate::time::Instant;

/// So many connections are remembered. Others wait for their timers.
const MOST: usize = 7;

/// Connections that have delayed one, or had when they were noted. All zeroes: none.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Late {
    count: u32,
    connections: [u32; MOST],
}

impl Late {
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

    /// Takes all of them, as far as they are there, whatever somebody else has written to the memory.
    fn take(&mut self) -> impl Iterator<Item = u32> + use<> {
        let late = std::mem::take(self);
        late.connections.into_iter().take(late.count as usize)
    }
}

impl Tcp {
    /// Whether an acknowledgement is delayed that need not be.
    #[inline]
    pub(crate) fn has_late(&self) -> bool {
        self.shard[0].late.is_any()
    }

    /// Sends what is delayed with the next round.
    pub(crate) fn acknowledge_late(&mut self, cx: &Context<'_>) {
        for index in self.shard[0].late.take() {
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
