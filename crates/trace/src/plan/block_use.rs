//! What a block of round trips is for.

/// The use of a block. No block has two uses, so no figure checks itself.
///
/// Blocks come in rounds. In each round the uses are mirrored, so a machine that becomes steadily
/// slower or faster changes all uses alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockUse {
    /// No stamps. Its round trips are what the stages must add up to.
    Untraced,
    /// Stamps from which only the cost of a stamp is taken.
    Cost,
    /// Stamps from which the times of stages and hops are taken.
    Counted,
    /// Stamps between fences, one stage at a time: what each stage costs alone.
    Fenced,
}

const PLAIN: [BlockUse; 8] = {
    use BlockUse::{Cost, Counted, Untraced};
    [
        Untraced, Cost, Untraced, Counted, Untraced, Counted, Untraced, Cost,
    ]
};

const WITH_FENCES: [BlockUse; 12] = {
    use BlockUse::{Cost, Counted, Fenced, Untraced};
    [
        Untraced, Cost, Untraced, Counted, Untraced, Fenced, Untraced, Fenced, Untraced, Counted, Untraced,
        Cost,
    ]
};

/// The uses of the blocks of a round.
pub(crate) const fn uses(fences: bool) -> &'static [BlockUse] {
    if fences { &WITH_FENCES } else { &PLAIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean place of the blocks of a use, doubled.
    fn doubled_mean_place(uses: &[BlockUse], wanted: BlockUse) -> usize {
        let places = uses.iter().enumerate().filter(|(_, found)| **found == wanted);
        let (sum, count) = places.fold((0, 0), |(sum, count), (place, _)| (sum + place, count + 1));
        2 * sum / count
    }

    #[test]
    fn cost_and_counted_blocks_have_one_mean_place() {
        for fences in [false, true] {
            let uses = uses(fences);
            let cost = doubled_mean_place(uses, BlockUse::Cost);
            assert_eq!(cost, doubled_mean_place(uses, BlockUse::Counted));
            if fences {
                assert_eq!(cost, doubled_mean_place(uses, BlockUse::Fenced));
            }
        }
    }

    #[test]
    fn every_other_block_is_untraced() {
        for fences in [false, true] {
            let untraced = uses(fences).iter().step_by(2);
            assert!(untraced.clone().all(|found| *found == BlockUse::Untraced));
            assert_eq!(untraced.len() * 2, uses(fences).len());
        }
    }
}
