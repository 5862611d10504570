//! Points in the traffic to a peer.

use super::settings::MAX_PEERS;
use crate::Fence;

// All of a slot's number is in the fence.
const _: () = assert!(MAX_PEERS <= 1 << (64 - Position::SLOT));

/// The position that a [`Fence`] of a mesh stands for, in the ring to one life of one peer.
/// Generation 0 is that of no peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) slot: u16,
    pub(super) generation: u16,
    /// Bytes sent before it.
    pub(super) bytes: u64,
}

impl Position {
    /// Positions are multiples of a ring's record alignment; 39 bits of their
    /// quotient wrap after 32 TiB.
    const UNIT: u64 = 64;
    const BITS: u32 = 39;
    const MASK: u64 = (1 << Self::BITS) - 1;
    /// Where the slot begins, behind the generation.
    const SLOT: u32 = Self::BITS + 16;

    pub(super) fn encode(self) -> Fence {
        let position = self.bytes.div_ceil(Self::UNIT) & Self::MASK;
        Fence(u64::from(self.slot) << Self::SLOT | u64::from(self.generation) << Self::BITS | position)
    }

    pub(super) fn decode(fence: Fence) -> Position {
        let Fence(word) = fence;
        let bytes = (word & Self::MASK) * Self::UNIT;
        Position {
            slot: (word >> Self::SLOT) as u16,
            generation: (word >> Self::BITS) as u16,
            bytes,
        }
    }

    /// Whether a consumer at `consumed` has passed this position. Exact unless
    /// 16 TiB lie between the two.
    pub(super) fn is_reached_by(self, consumed: u64) -> bool {
        let ahead = (consumed / Self::UNIT).wrapping_sub(self.bytes / Self::UNIT) & Self::MASK;
        ahead <= Self::MASK / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_survive_their_word_and_the_wrap_of_positions() {
        let position = Position {
            slot: MAX_PEERS as u16 - 1,
            generation: 65_535,
            bytes: 64 * 12_345,
        };
        assert_eq!(Position::decode(position.encode()), position);
        for bytes in [
            0,
            64,
            1 << 20,
            (1 << 45) - 64,
            1 << 45,
            (1 << 45) + 640,
            u64::MAX / 64 * 64,
        ] {
            let fence = Position {
                slot: 1,
                generation: 7,
                bytes,
            }
            .encode();
            let marked = Position::decode(fence);
            assert!(marked.is_reached_by(bytes), "{bytes}");
            assert!(marked.is_reached_by(bytes.saturating_add(1 << 24)), "{bytes}");
            assert!(bytes == 0 || !marked.is_reached_by(bytes - 64), "{bytes}");
        }
    }
}
