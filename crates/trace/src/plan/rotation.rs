//! The rotation of pairs, and the schedule of blocks.

use super::block_use::{BlockUse, uses};
use super::pair::{PairId, PairKind, StampPair, pairs_of};
use crate::layout::TripPath;
use crate::mix::mix;

/// Round trips of a block, unless the caller chooses otherwise.
pub const DEFAULT_BLOCK: u32 = 4096;

/// How often long intervals come in a rotation, for each time that a stage comes.
///
/// A long interval holds the jitter of all its stages, so it needs more stamps.
const LONG_WEIGHT: usize = 4;

/// Which pair is stamped in each round trip, and what each block is for.
///
/// A hash of the round trip's number chooses the pair. A remainder would meet what happens every so
/// many messages, such as grants.
#[derive(Debug, Clone)]
pub struct TracePlan {
    trip: TripPath,
    pairs: Vec<StampPair>,
    plain: Vec<PairId>,
    fenced: Vec<PairId>,
    block: u32,
    fences: bool,
    seed: u64,
}

impl TracePlan {
    /// The plan of a round trip. `block` is the number of round trips of a block, at least 1.
    /// With `fences`, rounds have blocks with fenced stamps too. `seed` varies the rotation.
    pub fn new(trip: TripPath, block: u32, fences: bool, seed: u64) -> Self {
        let pairs = pairs_of(&trip);
        let (mut plain, mut fenced) = (Vec::new(), Vec::new());
        for (index, pair) in pairs.iter().enumerate() {
            let id = PairId(index as u16);
            match pair.kind {
                PairKind::Stage(_) => {
                    plain.push(id);
                    fenced.push(id);
                }
                PairKind::Beside(_) => plain.push(id),
                PairKind::Empty(_) => fenced.extend([id; LONG_WEIGHT]),
                PairKind::Turn(_) | PairKind::Outer(_) | PairKind::Inner(_) => {
                    plain.extend([id; LONG_WEIGHT]);
                }
            }
        }
        Self {
            trip,
            pairs,
            plain,
            fenced,
            block: block.max(1),
            fences,
            seed,
        }
    }

    /// The round trip that is measured.
    pub fn trip(&self) -> &TripPath {
        &self.trip
    }

    /// All pairs, by their index.
    pub fn pairs(&self) -> &[StampPair] {
        &self.pairs
    }

    /// The pair of an index; `None` if the plan has fewer.
    pub fn pair(&self, id: PairId) -> Option<&StampPair> {
        self.pairs.get(id.index())
    }

    /// Round trips of a block.
    pub fn block_len(&self) -> u32 {
        self.block
    }

    /// Blocks of a round, after which the uses of blocks repeat.
    pub fn blocks_of_round(&self) -> u32 {
        uses(self.fences).len() as u32
    }

    /// The use of a block.
    pub fn use_of(&self, block: u32) -> BlockUse {
        let uses = uses(self.fences);
        uses[block as usize % uses.len()]
    }

    /// The pair that is stamped in a round trip; `None` if it has no stamps.
    ///
    /// A round trip behind one whose pair wraps has none, for its stamps would lengthen that pair.
    pub fn choice(&self, message: u32) -> Option<PairId> {
        let before = message.checked_sub(1).and_then(|before| self.drawn(before));
        let is_free = before.is_none_or(|pair| !self.pairs[pair.index()].wraps());
        if is_free { self.drawn(message) } else { None }
    }

    /// Returns `true` if the stamps of a round trip are between fences.
    pub fn is_fenced(&self, message: u32) -> bool {
        self.use_of(message / self.block) == BlockUse::Fenced
    }

    fn drawn(&self, message: u32) -> Option<PairId> {
        let list = match self.use_of(message / self.block) {
            BlockUse::Untraced => return None,
            BlockUse::Cost | BlockUse::Counted => &self.plain,
            BlockUse::Fenced => &self.fenced,
        };
        let drawn = mix(self.seed ^ mix(u64::from(message)));
        list.get((drawn % list.len().max(1) as u64) as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{HandOver, PathKind, StagePath};
    use crate::stage::StageSet;

    fn plan(block: u32, fences: bool) -> TracePlan {
        let path = StagePath::new(PathKind::Message, StageSet::EMPTY, HandOver::Line).unwrap();
        TracePlan::new(TripPath::new(&path), block, fences, 7)
    }

    #[test]
    fn round_trip_behind_a_wrapping_pair_has_no_stamps() {
        let plan = plan(64, true);
        let mut wrapping = 0;
        for message in 0..10_000 {
            if plan
                .choice(message)
                .is_some_and(|pair| plan.pairs()[pair.index()].wraps())
            {
                wrapping += 1;
                assert_eq!(plan.choice(message + 1), None);
            }
        }
        assert!(wrapping > 100);
    }

    #[test]
    fn untraced_blocks_have_no_stamps_and_fenced_ones_only_stages_and_empty_pairs() {
        let plan = plan(64, true);
        for message in 0..10_000 {
            let pair = plan.choice(message).map(|pair| plan.pairs()[pair.index()].kind);
            match plan.use_of(message / 64) {
                BlockUse::Untraced => assert_eq!(pair, None),
                BlockUse::Fenced => assert!(matches!(
                    pair,
                    None | Some(PairKind::Stage(_) | PairKind::Empty(_))
                )),
                BlockUse::Cost | BlockUse::Counted => assert!(!matches!(pair, Some(PairKind::Empty(_)))),
            }
        }
    }

    #[test]
    fn each_pair_meets_every_remainder_of_32() {
        let plan = plan(DEFAULT_BLOCK, false);
        let mut met = vec![0_u32; plan.pairs().len()];
        for message in DEFAULT_BLOCK..2 * DEFAULT_BLOCK {
            if let Some(pair) = plan.choice(message) {
                met[pair.index()] |= 1 << (message % 32);
            }
        }
        let traced = plan.pairs().iter().zip(met);
        for (pair, met) in traced.filter(|(pair, _)| !matches!(pair.kind, PairKind::Empty(_))) {
            assert!(met.count_ones() > 24, "{pair:?} met {met:x}");
        }
    }

    #[test]
    fn block_of_no_round_trips_counts_as_one() {
        assert_eq!(plan(0, false).block_len(), 1);
    }
}
