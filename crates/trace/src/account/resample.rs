//! Intervals by resampling blocks.

use super::evaluate::{Evaluation, UseSums};
use super::sums::BlockSums;
use crate::mix::mix;
use crate::plan::{BlockUse, TracePlan};

/// How often blocks are drawn again.
pub(super) const RESAMPLES: u64 = 400;

const USES: [BlockUse; 4] = [
    BlockUse::Untraced,
    BlockUse::Cost,
    BlockUse::Counted,
    BlockUse::Fenced,
];

/// Evaluations of blocks drawn with replacement, each use apart (Efron, "Bootstrap methods: another
/// look at the jackknife", 1979). A block is drawn whole, so what lasts for a while stays together.
///
/// The draws depend on the blocks' number alone. A draw that lacks a pair is left out.
pub(super) fn resampled(plan: &TracePlan, blocks: &[BlockSums]) -> Vec<Evaluation> {
    let by_use = USES.map(|block_use| {
        let blocks = blocks.iter().filter(|block| block.block_use == block_use);
        blocks.collect::<Vec<_>>()
    });
    let drawn = (0..RESAMPLES).filter_map(|resample| {
        let mut sums = UseSums::empty(plan);
        for (place, blocks) in by_use.iter().enumerate() {
            for number in 0..blocks.len() {
                let drawn = mix(resample << 32 | (number as u64) << 2 | place as u64);
                let block = blocks[(drawn % blocks.len() as u64) as usize];
                sums.add(block.block_use, &block.kept);
            }
        }
        Evaluation::of(plan, &sums).ok()
    });
    drawn.collect()
}
