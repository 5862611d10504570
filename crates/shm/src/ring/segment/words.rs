//! The addresses of a segment's words. Only this file makes references into a segment, all of them
//! to atomics.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use super::super::protocol::{AtomicU64, Fences, Ring, Words};
use super::super::rings::Direction;
use super::layout::{CONSUMED, Geometry, HEAD, OFFER, OFFERED_BY, OFFERED_TO, SESSION, UNUSED};
use super::session::Session;
use super::slot::Slot;
use crate::Region;

/// A word of a segment.
pub(super) fn word(region: &Region, at: usize) -> NonNull<AtomicU64> {
    assert!(at.is_multiple_of(8) && at + 8 <= region.len());
    // SAFETY: the caller passes an offset within the mapping, which lives as long as `region`.
    unsafe { region.base_mut().add(at).cast::<AtomicU64>() }
}

/// A word of a segment, borrowed as long as the mapping.
fn word_in(region: &Region, at: usize) -> &AtomicU64 {
    // SAFETY: an aligned word of the mapping, which lives as long as the reference. All members
    // access words of a segment as atomics only.
    unsafe { word(region, at).as_ref() }
}

/// The word that describes the segment.
pub(super) fn geometry(region: &Region) -> &AtomicU64 {
    word_in(region, 0)
}

/// A member's slot.
pub(super) fn slot(region: &Region, at: usize) -> Slot<'_> {
    Slot {
        owner: word_in(region, at),
        present: word_in(region, at + 8),
        identity: word_in(region, at + 16),
        beat: word_in(region, at + 24),
    }
}

/// The words of a way outside its ring. The ring keeps the mapping.
pub(super) struct WayWords {
    session: NonNull<AtomicU64>,
    offer: NonNull<AtomicU64>,
    by: NonNull<AtomicU64>,
    to: NonNull<AtomicU64>,
}

// SAFETY: the pointers lead to words that are accessed as atomics only, in a mapping that the way's
// ring keeps.
unsafe impl Send for WayWords {}

/// A way: its ring, and the words beside it.
pub(super) fn way(
    region: &Arc<Region>,
    geometry: Geometry,
    from: usize,
    to: usize,
) -> (Ring<Direction>, WayWords) {
    let at = geometry.way(from, to);
    let words = WayWords {
        session: word(region, at + SESSION),
        offer: word(region, at + OFFER),
        by: word(region, at + OFFERED_BY),
        to: word(region, at + OFFERED_TO),
    };
    let [consumed, sleeping, starving] =
        [CONSUMED, UNUSED, UNUSED + 8].map(|offset| word(region, at + offset));
    let ring = Ring {
        words: Direction::within(
            region,
            at + HEAD,
            geometry.capacity,
            [consumed, sleeping, starving],
        ),
        capacity: geometry.capacity,
        // No thread sleeps on it, so no order with a sleep is needed.
        fences: Fences {
            own: false,
            other: true,
        },
    };
    (ring, words)
}

impl WayWords {
    /// The session's words, together with those of the ring, which keeps the mapping.
    pub(super) fn session<'a>(&'a self, ring: &'a Direction) -> Session<'a> {
        // SAFETY: aligned words of the mapping that `ring` keeps, accessed as atomics only.
        let [session, offer, by, to] =
            [&self.session, &self.offer, &self.by, &self.to].map(|word| unsafe { word.as_ref() });
        Session {
            session,
            first: ring.header(0),
            consumed: ring.consumed(),
            offer,
            by,
            to,
        }
    }

    /// Whether there is a record at a position of the ring.
    #[inline]
    pub(super) fn has_record(&self, ring: &Direction, position: u64) -> bool {
        ring.header(position).load(Relaxed) != 0
    }
}
