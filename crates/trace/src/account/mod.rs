//! From stamps to the time of each stage and hop.
//!
//! Only means over one set of blocks are added. Round trips of more than five times the median are
//! dropped whole, from traced and untraced blocks alike, and counted.

mod closing;
mod evaluate;
mod histogram;
mod quantiles;
mod rate;
mod resample;
mod sums;
mod times;

pub use closing::{
    ClosingCheck, ClosingVerdict, FEWEST_ROUNDS, MOST_DROP_DIFFERENCE, MOST_ERROR, MOST_HALF_INTERVAL,
    TimeInterval,
};
pub use histogram::{LONGEST_TIME_NS, TimeHistogram, TimeQuantiles};
pub use quantiles::StageQuantiles;
pub use sums::BlockStamps;
pub(crate) use sums::Summed;
pub use times::{HopTime, StepTime};

use crate::actor::Actor;
use crate::forecast::StageTimes;
use crate::plan::{BlockUse, PairId, TracePlan};
use evaluate::{Evaluation, MissingStamps, UseSums};
pub(crate) use rate::median;
use resample::resampled;
use std::collections::BTreeMap;
use sums::{BlockSums, durations, sum_block};
use thiserror::Error;

/// Round trips of more than so many medians are dropped.
pub(crate) const LONGEST: f64 = 5.0;

/// Stamps from which no account can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AccountError {
    /// No counted block, or no cost block, has stamps of a pair.
    #[error("pair {} was never stamped", .0.index())]
    NoStamps(PairId),
    /// Untraced and traced blocks are both needed, and one kind is missing.
    #[error("an untraced or a traced block is missing")]
    NoBlocks,
    /// No actor runs two stages one after another, so the cost of a stamp stays unknown.
    #[error("no actor runs two stages one after another, so the cost of a stamp is unknown")]
    NoCost,
    /// The reference clock's rate is not a positive number.
    #[error("the reference clock has no rate")]
    NoRate,
}

/// The times of a message's stages and hops.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeAccount {
    /// The stages on the path, in the order of a round trip.
    pub steps: Vec<StepTime>,
    /// The stages beside the path; they are never added.
    pub beside: Vec<StepTime>,
    /// The hops, by what can be told apart.
    pub hops: Vec<HopTime>,
    /// The cost of a stamp in its place, for each of [`Actor::ALL`], in nanoseconds.
    pub stamp_cost_ns: [Option<f64>; 4],
    /// Whether stages and hops add up.
    pub closing: ClosingCheck,
    /// Stamps that the plan never takes, or that are longer than their round trip.
    pub invalid_stamps: u64,
    /// Blocks that were left out: their times are impossible, or an actor has too few stamps.
    pub invalid_blocks: u64,
}

impl TimeAccount {
    /// The account of some blocks. `ns_per_tick` belongs to the clock of the program at end A.
    ///
    /// Other clocks need no rate: it is deduced in each block from the numbers of round trips.
    ///
    /// # Errors
    ///
    /// [`AccountError`] if a pair, a kind of block or the rate is missing.
    pub fn of(plan: &TracePlan, blocks: &[BlockStamps], ns_per_tick: f64) -> Result<Self, AccountError> {
        if !ns_per_tick.is_finite() || ns_per_tick <= 0.0 {
            return Err(AccountError::NoRate);
        }
        let sums = summed(plan, blocks, ns_per_tick);
        let whole = UseSums::of(plan, sums.iter(), true);
        let found = Evaluation::of(plan, &whole).map_err(AccountError::from)?;
        let draws = resampled(plan, &sums);
        Ok(Self {
            steps: step_times(plan, &found, &draws),
            beside: beside_times(plan, &found, &draws),
            hops: hop_times(plan, &found, &draws),
            stamp_cost_ns: found.cost,
            closing: closing(plan, &sums, &found, &draws),
            invalid_stamps: sums.iter().map(|block| block.invalid).sum(),
            invalid_blocks: (blocks.len() - sums.len()) as u64,
        })
    }

    /// The mean of both directions of each stage and hop.
    ///
    /// Hops that cannot be told apart get equal parts of their sum.
    pub fn one_way(&self) -> StageTimes {
        let mut times = StageTimes::default();
        for step in self.steps.iter().chain(&self.beside) {
            times.add(step.step.stage, step.mean_ns / 2.0);
        }
        for group in &self.hops {
            for stage in &group.stages {
                times.add(*stage, group.each_ns() / 2.0);
            }
        }
        times
    }

    /// The cost of a stamp of an actor, in nanoseconds; `None` if it has no stage on the path.
    pub fn stamp_cost_of(&self, actor: Actor) -> Option<f64> {
        self.stamp_cost_ns[actor.index()]
    }
}

impl From<MissingStamps> for AccountError {
    fn from(missing: MissingStamps) -> Self {
        match missing {
            MissingStamps::Pair(pair) => Self::NoStamps(pair),
            MissingStamps::Cost => Self::NoCost,
            MissingStamps::Untraced => Self::NoBlocks,
        }
    }
}

/// The sums of all blocks that are valid.
fn summed(plan: &TracePlan, blocks: &[BlockStamps], ns_per_tick: f64) -> Vec<BlockSums> {
    let valid = blocks
        .iter()
        .filter_map(|block| Some((block, durations(plan, block)?)));
    let valid: Vec<_> = valid.collect();
    let group = |block: &BlockStamps| match plan.use_of(block.block) {
        BlockUse::Untraced => 0,
        BlockUse::Cost | BlockUse::Counted => 1,
        BlockUse::Fenced => 2,
    };
    let longest = [0, 1, 2].map(|wanted| {
        let of_group = valid.iter().filter(|(block, _)| group(block) == wanted);
        LONGEST * median(of_group.flat_map(|(_, ticks)| ticks.iter().map(|ticks| *ticks as f64)))
    });
    let sums = valid.iter().filter_map(|(block, durations)| {
        sum_block(plan, block, durations, longest[group(block)], ns_per_tick)
    });
    sums.collect()
}

fn step_times(plan: &TracePlan, found: &Evaluation, draws: &[Evaluation]) -> Vec<StepTime> {
    let steps = plan.trip().steps().iter().enumerate();
    let works = steps.filter(|(_, step)| step.actor.is_some());
    let times = works.map(|(index, step)| StepTime {
        step: *step,
        mean_ns: found.steps[index],
        interval: interval(draws, |draw| draw.steps[index]),
        samples: found.samples[index],
        alone_ns: found.alone[index],
    });
    times.collect()
}

fn beside_times(plan: &TracePlan, found: &Evaluation, draws: &[Evaluation]) -> Vec<StepTime> {
    let steps = plan.trip().beside().iter().zip(&found.beside).enumerate();
    let times = steps.map(|(index, (step, (ns, samples)))| StepTime {
        step: *step,
        mean_ns: *ns,
        interval: interval(draws, |draw| draw.beside[index].0),
        samples: *samples,
        alone_ns: None,
    });
    times.collect()
}

fn hop_times(plan: &TracePlan, found: &Evaluation, draws: &[Evaluation]) -> Vec<HopTime> {
    let groups = plan.trip().hop_groups().iter().zip(&found.groups).enumerate();
    let times = groups.map(|(index, (group, sum))| HopTime {
        hops: group.hops.clone(),
        stages: group
            .hops
            .iter()
            .map(|hop| plan.trip().steps()[*hop].stage)
            .collect(),
        sum_ns: *sum,
        interval: interval(draws, |draw| draw.groups[index]),
    });
    times.collect()
}

fn interval(draws: &[Evaluation], figure: impl Fn(&Evaluation) -> f64) -> TimeInterval {
    TimeInterval::of(draws.iter().map(figure).collect())
}

fn closing(plan: &TracePlan, sums: &[BlockSums], found: &Evaluation, draws: &[Evaluation]) -> ClosingCheck {
    let without_drops = Evaluation::of(plan, &UseSums::of(plan, sums.iter(), false));
    let rounds = round_errors(plan, sums);
    let drops = |is_counted: fn(BlockUse) -> bool| {
        let blocks = sums.iter().filter(|block| is_counted(block.block_use));
        let (dropped, all) = blocks.fold((0.0, 0.0), |(dropped, all), block| {
            (dropped + block.dropped as f64, all + block.all.round_trips.count)
        });
        dropped / f64::max(all, 1.0)
    };
    ClosingCheck {
        sum_ns: found.sum() / 2.0,
        untraced_ns: found.untraced / 2.0,
        traced_ns: found.traced / 2.0,
        error: found.error(),
        median_error: median(rounds.iter().copied()),
        interval: interval(draws, Evaluation::error),
        rounds: rounds.len() as u32,
        turn_error: found.turn_error(),
        error_without_drops: without_drops.map_or(f64::NAN, |found| found.error()),
        traced_drops: drops(|block_use| matches!(block_use, BlockUse::Cost | BlockUse::Counted)),
        untraced_drops: drops(|block_use| block_use == BlockUse::Untraced),
    }
}

/// The error of the sum in each round of blocks that has all stamps.
fn round_errors(plan: &TracePlan, sums: &[BlockSums]) -> Vec<f64> {
    let mut rounds: BTreeMap<u32, UseSums> = BTreeMap::new();
    for block in sums {
        let round = rounds.entry(block.block / plan.blocks_of_round());
        let round = round.or_insert_with(|| UseSums::empty(plan));
        round.add(block.block_use, &block.kept);
    }
    let found = rounds
        .values()
        .filter_map(|round| Evaluation::of(plan, round).ok());
    found.map(|found| found.error()).collect()
}
