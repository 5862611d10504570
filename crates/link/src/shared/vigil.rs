//! Who lives: what the slots of a segment say, looked at over time.
//!
//! Clocks of other members are not known here, only that their beats go on.

use toehold_shm::ring::segment::{Segment, Sight};

/// How often a member says that it lives, in nanoseconds.
pub(super) const BEAT_NS: u64 = 50_000_000;
/// Whoever has said nothing for so long is gone, in nanoseconds: a machine that is held up
/// for less keeps its place.
pub const STALE_NS: u64 = 3_000_000_000;

#[derive(Debug, Clone, Copy, Default)]
struct Watched {
    seen: Sight,
    /// When it changed last, or was looked at first.
    since_ns: u64,
    /// Whether it changed at all since it was looked at first: what a dead member has left
    /// does not.
    moved: bool,
    known: bool,
}

/// What is known of each member.
#[derive(Debug)]
pub(super) struct Vigil {
    slots: Vec<Watched>,
}

impl Vigil {
    pub(super) fn new(members: usize) -> Vigil {
        Vigil {
            slots: vec![Watched::default(); members],
        }
    }

    /// Looks at all slots.
    pub(super) fn look(&mut self, segment: &Segment, now_ns: u64) {
        for (member, watched) in self.slots.iter_mut().enumerate() {
            watched.note(segment.slot(member).look(), now_ns);
        }
    }

    /// The member that lives in a slot, if one does.
    pub(super) fn living(&self, member: usize, now_ns: u64) -> Option<Sight> {
        let watched = self.slots.get(member)?;
        let Sight { owner, present, .. } = watched.seen;
        let lives = watched.moved && present != 0 && owner == present && !watched.is_stale(now_ns);
        lives.then_some(watched.seen)
    }

    /// Who has to be replaced to have a slot: nobody (0), or one that is gone.
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
    fn only_what_beats_lives_and_only_what_stopped_is_replaced() {
        let mut vigil = Vigil::new(1);
        vigil.slots[0].note(sight(7, 1), 10);
        assert_eq!((vigil.living(0, 10), vigil.replaceable(0, 10)), (None, None));
        vigil.slots[0].note(sight(7, 1), STALE_NS + 10);
        assert_eq!(vigil.replaceable(0, STALE_NS + 10), Some(7), "left by a dead one");
        vigil.slots[0].note(sight(7, 2), STALE_NS + 20);
        assert_eq!(vigil.living(0, STALE_NS + 20), Some(sight(7, 2)));
        assert_eq!(vigil.replaceable(0, STALE_NS + 20), None);
        vigil.slots[0].note(sight(0, 3), STALE_NS + 30);
        assert_eq!(vigil.living(0, STALE_NS + 30), None);
        assert_eq!(vigil.replaceable(0, STALE_NS + 30), Some(0));
        let mut half = sight(8, 4);
        half.present = 7;
        vigil.slots[0].note(half, STALE_NS + 40);
        assert_eq!(vigil.living(0, STALE_NS + 40), None, "not there yet");
        assert_eq!(vigil.living(1, 0), None);
    }
}
