//! A coarse position in the received stream, from which buffers grow once a round trip.

use toehold_wire::tcp::Seq;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::time::Instant;

/// A coarse position in the received stream. A round trip is shorter than a minute, and the bytes
/// read in one fit the largest buffer. All zeroes: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Round {
    /// The time in milliseconds, modulo 2^16.
    at_ms: u16,
    /// The first byte that the program had not read, in KiB of sequence space.
    read_kib: u16,
}

impl Round {
    pub(super) fn new(now: Instant, read: Seq) -> Self {
        Self {
            at_ms: now.millis() as u16,
            read_kib: (read.0 >> 10) as u16,
        }
    }

    pub(super) fn ms_since(self, before: Self) -> u64 {
        self.at_ms.wrapping_sub(before.at_ms).into()
    }

    pub(super) fn bytes_since(self, before: Self) -> u32 {
        // Modulo 64 MiB.
        let kib = self.read_kib.wrapping_sub(before.read_kib);
        u32::from(kib) << 10
    }
}
