//! Recognises living members from the slots of a segment over time.
//!
//! The clocks of members are unrelated. Only a changing beat counter shows life.

use toehold_shm::ring::segment::{Segment, Sight};

/// Interval of this member's beats, in nanoseconds.
pub(super) const BEAT_NS: u64 = 50_000_000;
/// Time without a beat after which a member is gone, in nanoseconds. A machine that
/// stops for less keeps its number.
pub const STALE_NS: u64 = 3_000_000_000;

#[derive(Debug, Clone, Copy, Default)]
struct Watched {
    seen: Sight,
    /// When the slot changed last, or was first read.
    since_ns: u64,
    /// Whether the slot has changed since it was first read. A dead member's slot
    /// does not.
    moved: bool,
    known: bool,
}

/// Observations of all members' slots.
#[derive(Debug)]
pub(super) struct Liveness {
    slots: Vec<Watched>,
}

impl Liveness {
    pub(super) fn new(members: usize) -> Liveness {
        Liveness {
            slots: vec![Watched::default(); members],
        }
    }

    /// Reads all slots.
    pub(super) fn look(&mut self, segment: &Segment, now_ns: u64) {
        for (member, watched) in self.slots.iter_mut().enumerate() {
            watched.note(segment.slot(member).look(), now_ns);
        }
    }

    /// Returns the member that lives in a slot, if there is one.
    pub(super) fn living(&self, member: usize, now_ns: u64) -> Option<Sight> {
        let watched = self.slots.get(member)?;
        let Sight { owner, present, .. } = watched.seen;
        let lives = watched.moved && present != 0 && owner == present && !watched.is_stale(now_ns);
        lives.then_some(watched.seen)
    }

    /// Returns the owner that may be replaced in a slot: 0 for a free one, or a
    /// member that is gone.
    pub(super) fn replaceable(&self, member: usize, now_ns: u64) -> Option<u64> {
        let watched = self.slots.get(member)?;
        (watched.seen.owner == 0 || watched.is_stale(now_ns)).then_some(watched.seen.owner)
    }
}

impl Watched {
    fn note(&mut self, seen: Sight, now_ns: u64) {
        if self.known && self.seen == seen {
            return;
        }
        self.moved = self.known;
        self.known = true;
        (self.seen, self.since_ns) = (seen, now_ns);
    }

    fn is_stale(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.since_ns) >= STALE_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(owner: u64, beat: u64) -> Sight {
        Sight {
            owner,
            present: owner,
            identity: 0,
            beat,
        }
    }

    #[test]
    fn beating_member_lives_and_stopped_member_is_replaceable() {
        let mut liveness = Liveness::new(1);
        liveness.slots[0].note(sight(7, 1), 10);
        assert_eq!(
            (liveness.living(0, 10), liveness.replaceable(0, 10)),
            (None, None)
        );
        liveness.slots[0].note(sight(7, 1), STALE_NS + 10);
        assert_eq!(
            liveness.replaceable(0, STALE_NS + 10),
            Some(7),
            "a dead member's slot"
        );
        liveness.slots[0].note(sight(7, 2), STALE_NS + 20);
        assert_eq!(liveness.living(0, STALE_NS + 20), Some(sight(7, 2)));
        assert_eq!(liveness.replaceable(0, STALE_NS + 20), None);
        liveness.slots[0].note(sight(0, 3), STALE_NS + 30);
        assert_eq!(liveness.living(0, STALE_NS + 30), None);
        assert_eq!(liveness.replaceable(0, STALE_NS + 30), Some(0));
        let mut half = sight(8, 4);
        half.present = 7;
        liveness.slots[0].note(half, STALE_NS + 40);
        assert_eq!(
            liveness.living(0, STALE_NS + 40),
            None,
            "the member has not beaten yet"
        );
        assert_eq!(liveness.living(1, 0), None);
    }
}
