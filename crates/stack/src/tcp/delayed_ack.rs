//! Delayed acknowledgements that are sent early when the driver is idle. A peer whose send buffer
//! is full waits for them.
//!
//! Connections that alternate keep waiting for data to carry them, see `INTERACTIVE`. Other
//! connections would wait for their timer: with a send buffer of 4 KiB, half a millisecond for
//! every 4 KiB.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

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
    pub(super) fn is_any(&self) -> bool {
        self.count != 0
    }

    /// Takes all valid entries, whatever another process has written to the memory.
    pub(super) fn take(&mut self) -> impl Iterator<Item = u32> + use<> {
        let taken = std::mem::take(self);
        taken.connections.into_iter().take(taken.count as usize)
    }
}
