//! The times of the kernel's stages, and whether they add up.

use super::blocks::KernelBlockUse;
use super::matching::{KernelMessage, KernelMismatches};
use super::measure::KernelBlock;
use super::stages::{KernelEdge, KernelStage};
use crate::account::{FEWEST_ROUNDS, LONGEST, MOST_DROP_DIFFERENCE, Summed, TimeInterval, median};
use crate::mix::mix;
use std::collections::BTreeMap;
use std::fmt;
use thiserror::Error;

/// The most that the stages may differ from the time without tracepoints, as a share of it.
pub const MOST_KERNEL_ERROR: f64 = 0.05;

/// The most that half of the error's interval may be.
const MOST_HALF: f64 = MOST_KERNEL_ERROR / 2.0;

/// The most that the share of messages that were not matched may be.
const MOST_UNMATCHED: f64 = 0.05;

/// The least share of messages that had a stage, if the stage's tracepoints are to have a cost. A
/// median of fewer says nothing.
const LEAST_SHARE: f64 = 0.05;

/// How often rounds are drawn again.
const RESAMPLES: u64 = 400;

/// Blocks from which no account can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KernelAccountError {
    /// The trace's clock has no rate.
    #[error("the clock of the trace has no rate")]
    NoRate,
    /// No block without tracepoints has a round trip.
    #[error("no round trip was measured without tracepoints")]
    NoUntraced,
    /// No round trip has both of its messages matched.
    #[error("no round trip has both of its messages matched")]
    NoMessages,
    /// No round has both kinds of cost blocks with matched messages.
    #[error("no round has messages whose events were recorded once, and others twice")]
    NoCosts,
}

/// The time of a stage of one message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelStageTime {
    /// The stage.
    pub stage: KernelStage,
    /// The mean of both directions less the cost of tracepoints, in nanoseconds.
    pub mean_ns: f64,
    /// The mean with that cost, in nanoseconds.
    pub traced_ns: f64,
    /// What the tracepoints add to the stage, in nanoseconds.
    pub cost_ns: f64,
    /// The interval of the mean, by drawing rounds again, in nanoseconds.
    pub interval: TimeInterval,
    /// The median of the messages that had the stage, without the cost of tracepoints, in
    /// nanoseconds. Medians of stages do not add up.
    pub usual_ns: f64,
}

/// A message's time in the kernel by stages.
///
/// Stages come from counted blocks, and the untraced time from untraced blocks. The cost of tracepoints
/// comes from two further kinds. A stage whose events are recorded twice is longer than one whose
/// events are recorded once, by their cost. No constant is fitted. All stages of a message add up to
/// its traced time by construction. So the error tests whether the tracepoints' cost is known, and
/// nothing else changed.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelAccount {
    /// All stages, in the order of a message's way.
    pub stages: Vec<KernelStageTime>,
    /// The sum of the stages, in nanoseconds one way.
    pub sum_ns: f64,
    /// Half of a round trip without tracepoints, in nanoseconds.
    pub untraced_ns: f64,
    /// Half of a round trip with tracepoints, in nanoseconds.
    pub traced_ns: f64,
    /// `sum / untraced − 1`.
    pub error: f64,
    /// The error if round trips count by their medians. It hardly feels what else the machine does.
    /// If it is small and `error` is not, measure on a quieter machine.
    pub typical_error: f64,
    /// The median of the rounds' errors.
    pub median_error: f64,
    /// The interval of `error`, by drawing rounds again.
    pub interval: TimeInterval,
    /// Rounds with counted and untraced round trips.
    pub rounds: u32,
    /// Round trips whose stages were counted.
    pub samples: u64,
    /// The share of messages that were not matched.
    pub unmatched: f64,
    /// Why they were not.
    pub mismatches: KernelMismatches,
    /// The share of traced round trips over five medians, which were dropped.
    pub traced_drops: f64,
    /// The share of untraced round trips over five medians, which were dropped.
    pub untraced_drops: f64,
    /// Events that the kernel dropped. Traced blocks with such events are left out.
    pub lost_events: u64,
    /// Lines of the trace that are no events.
    pub malformed_lines: u64,
}

/// What a report may say of the kernel's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelVerdict {
    /// The stages are the untraced time, within 5 %.
    Closes,
    /// Fewer than nine rounds: measure more.
    TooFewRounds,
    /// More than one message in twenty was not matched.
    TooManyUnmatched,
    /// Half of the interval is above 2.5 %: measure more rounds.
    IntervalTooWide,
    /// The stages are not the untraced time.
    DoesNotClose,
    /// Traced and untraced blocks lost different shares of round trips.
    DropsDiffer,
}

impl KernelAccount {
    /// The account of some blocks. `ns_per_tick` is the rate of the trace's clock.
    ///
    /// # Errors
    ///
    /// [`KernelAccountError`] if a kind of block or the rate is missing.
    pub fn of(blocks: &[KernelBlock], ns_per_tick: f64) -> Result<Self, KernelAccountError> {
        if !ns_per_tick.is_finite() || ns_per_tick <= 0.0 {
            return Err(KernelAccountError::NoRate);
        }
        let intact = blocks.iter().filter(|block| block.lost_events == 0);
        let intact: Vec<&KernelBlock> = intact.collect();
        let sums = AllSums::of(&intact, ns_per_tick);
        let rounds: Vec<&RoundSums> = sums.rounds.values().collect();
        let mut whole = RoundSums::default();
        rounds.iter().for_each(|round| whole.join(round));
        let untraced = whole.untraced.mean().ok_or(KernelAccountError::NoUntraced)?;
        let traced = whole.traced.mean().ok_or(KernelAccountError::NoMessages)?;
        let costs = stage_costs(rounds.iter().copied()).ok_or(KernelAccountError::NoCosts)?;
        let draws = Draws::of(&rounds);
        let usual =
            usual_stages(of_use(&intact, KernelBlockUse::Counted)).ok_or(KernelAccountError::NoMessages)?;
        let stages = whole.stage_times(&costs, &draws, &usual.map(|usual| usual.ticks * ns_per_tick));
        let sum_ns: f64 = stages.iter().map(|stage| stage.mean_ns).sum();
        let total: f64 = costs.iter().sum();
        let errors: Vec<f64> = rounds.iter().filter_map(|round| round.error(total)).collect();
        let mut mismatches = KernelMismatches::default();
        blocks.iter().for_each(|block| mismatches.join(&block.mismatches));
        let matched: usize = blocks.iter().map(|block| block.messages.len()).sum();
        let all = mismatches.total() + matched as u64;
        Ok(Self {
            stages,
            sum_ns,
            untraced_ns: untraced / 2.0,
            traced_ns: traced / 2.0,
            error: 2.0 * sum_ns / untraced - 1.0,
            typical_error: sums.typical_error(total, ns_per_tick),
            median_error: median(errors.iter().copied()),
            interval: TimeInterval::of(draws.errors),
            rounds: errors.len() as u32,
            samples: whole.traced.count as u64,
            unmatched: mismatches.total() as f64 / all.max(1) as f64,
            mismatches,
            traced_drops: sums.traced_drops,
            untraced_drops: sums.untraced_drops,
            lost_events: blocks.iter().map(|block| block.lost_events).sum(),
            malformed_lines: blocks.iter().map(|block| block.malformed_lines).sum(),
        })
    }

    /// The first reason against the sum, in the order of [`KernelVerdict`], or that it closes.
    pub fn verdict(&self) -> KernelVerdict {
        let is_over = |error: f64| error.is_nan() || error.abs() > MOST_KERNEL_ERROR;
        let half = self.interval.half_width();
        if self.rounds < FEWEST_ROUNDS {
            KernelVerdict::TooFewRounds
        } else if self.unmatched > MOST_UNMATCHED {
            KernelVerdict::TooManyUnmatched
        } else if half.is_nan() || half > MOST_HALF {
            KernelVerdict::IntervalTooWide
        } else if is_over(self.error) || is_over(self.median_error) {
            KernelVerdict::DoesNotClose
        } else if (self.traced_drops - self.untraced_drops).abs() > MOST_DROP_DIFFERENCE {
            KernelVerdict::DropsDiffer
        } else {
            KernelVerdict::Closes
        }
    }
}

impl fmt::Display for KernelVerdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Closes => "the kernel's stages add up to the untraced time",
            Self::TooFewRounds => "too few rounds; measure at least nine",
            Self::TooManyUnmatched => "more than one message in twenty could not be followed",
            Self::IntervalTooWide => "the interval is too wide; measure more rounds",
            Self::DoesNotClose => "the kernel's stages do not add up to the untraced time",
            Self::DropsDiffer => "traced and untraced blocks lost different shares of round trips",
        })
    }
}

/// The cost of tracepoints in each stage of one message, in nanoseconds.
type StageCosts = [f64; KernelStage::COUNT];

/// Sums of a round's round trips, in nanoseconds.
#[derive(Debug, Clone, Default)]
struct RoundSums {
    traced: Summed,
    untraced: Summed,
    stages_ns: [f64; KernelStage::COUNT],
    costs: Option<StageCosts>,
}

/// The sums of all rounds, and the shares of round trips that are not in them.
struct AllSums {
    rounds: BTreeMap<u32, RoundSums>,
    usual_ticks: f64,
    usual_ns: f64,
    traced_drops: f64,
    untraced_drops: f64,
}

impl AllSums {
    fn of(blocks: &[&KernelBlock], ns_per_tick: f64) -> Self {
        let of_use = |wanted: KernelBlockUse| of_use(blocks, wanted);
        let counted: Vec<(u32, [u64; KernelStage::COUNT])> =
            of_use(KernelBlockUse::Counted).flat_map(trips).collect();
        let untraced = of_use(KernelBlockUse::Untraced);
        let untraced =
            untraced.flat_map(|block| block.round_trips_ns.iter().map(|ns| (round_of(block), *ns)));
        let untraced: Vec<(u32, u64)> = untraced.collect();
        let total = |stages: &[u64]| stages.iter().map(|ticks| *ticks as f64).sum::<f64>();
        let usual_ticks = median(counted.iter().map(|(_, stages)| total(stages)));
        let usual_ns = median(untraced.iter().map(|(_, ns)| *ns as f64));
        let (most_ticks, most_ns) = (LONGEST * usual_ticks, LONGEST * usual_ns);
        let mut rounds: BTreeMap<u32, RoundSums> = BTreeMap::new();
        let (mut traced_kept, mut untraced_kept) = (0, 0);
        for (round, stages) in counted.iter().filter(|(_, stages)| total(stages) <= most_ticks) {
            let sums = rounds.entry(*round).or_default();
            sums.traced.add(total(stages) * ns_per_tick);
            let all = sums.stages_ns.iter_mut().zip(stages);
            all.for_each(|(sum, ticks)| *sum += *ticks as f64 * ns_per_tick);
            traced_kept += 1;
        }
        for (round, ns) in untraced.iter().filter(|(_, ns)| *ns as f64 <= most_ns) {
            rounds.entry(*round).or_default().untraced.add(*ns as f64);
            untraced_kept += 1;
        }
        for (round, sums) in &mut rounds {
            let of_round = |wanted| of_use(wanted).filter(|block| round_of(block) == *round);
            let once = usual_stages(of_round(KernelBlockUse::Single));
            let twice = usual_stages(of_round(KernelBlockUse::Double));
            let cost = |once: UsualTime, twice: UsualTime| {
                if once.share.min(twice.share) < LEAST_SHARE {
                    return 0.0;
                }
                (twice.ticks - once.ticks) * f64::midpoint(once.share, twice.share) * ns_per_tick
            };
            let both = once.zip(twice);
            sums.costs =
                both.map(|(once, twice)| std::array::from_fn(|stage| cost(once[stage], twice[stage])));
        }
        let dropped = |kept: usize, all: usize| (all - kept) as f64 / all.max(1) as f64;
        Self {
            rounds,
            usual_ticks,
            usual_ns,
            traced_drops: dropped(traced_kept, counted.len()),
            untraced_drops: dropped(untraced_kept, untraced.len()),
        }
    }
}

impl AllSums {
    /// The error of medians if the tracepoints of one message take `cost_ns`.
    fn typical_error(&self, cost_ns: f64, ns_per_tick: f64) -> f64 {
        (self.usual_ticks * ns_per_tick - 2.0 * cost_ns) / self.usual_ns - 1.0
    }
}

impl RoundSums {
    fn join(&mut self, other: &Self) {
        self.traced.join(&other.traced);
        self.untraced.join(&other.untraced);
        let stages = self.stages_ns.iter_mut().zip(other.stages_ns);
        stages.for_each(|(sum, more)| *sum += more);
    }

    /// The time of a stage with its tracepoints, in nanoseconds.
    fn traced_ns(&self, stage: usize) -> f64 {
        self.stages_ns[stage] / self.traced.count.max(1.0) / 2.0
    }

    fn stage_times(&self, costs: &StageCosts, draws: &Draws, usual_ns: &StageCosts) -> Vec<KernelStageTime> {
        let time = |stage: KernelStage| {
            let index = stage.index();
            let (traced_ns, cost_ns) = (self.traced_ns(index), costs[index]);
            let is_had = usual_ns[index] > 0.0;
            KernelStageTime {
                stage,
                traced_ns,
                cost_ns,
                mean_ns: traced_ns - cost_ns,
                interval: TimeInterval::of(draws.stages_ns.iter().map(|stages| stages[index]).collect()),
                usual_ns: if is_had { usual_ns[index] - cost_ns } else { 0.0 },
            }
        };
        KernelStage::ALL.into_iter().map(time).collect()
    }

    /// The error if the tracepoints of one message take `cost_ns`.
    fn error(&self, cost_ns: f64) -> Option<f64> {
        Some((self.traced.mean()? - 2.0 * cost_ns) / self.untraced.mean()? - 1.0)
    }
}

fn round_of(block: &KernelBlock) -> u32 {
    block.block / KernelBlockUse::BLOCKS_OF_ROUND
}

/// The stages of each round trip of a block whose two messages were matched, in ticks.
fn trips(block: &KernelBlock) -> impl Iterator<Item = (u32, [u64; KernelStage::COUNT])> {
    let is_trip = |pair: &&[KernelMessage]| {
        let answered = pair[0].at(KernelEdge::NextSend) == pair[1].at(KernelEdge::SendEntered);
        pair[0].sender == 0 && pair[1].sender == 1 && answered
    };
    block.messages.windows(2).filter(is_trip).map(|pair| {
        let mut stages = pair[0].stage_ticks();
        let back = pair[1].stage_ticks();
        stages.iter_mut().zip(back).for_each(|(sum, ticks)| *sum += ticks);
        (round_of(block), stages)
    })
}

/// The usual time of a stage.
#[derive(Debug, Clone, Copy)]
struct UsualTime {
    /// The median of the messages that had it; 0 if none had it.
    ticks: f64,
    /// The share of messages that had it.
    share: f64,
}

/// The usual time of each stage; `None` without messages.
///
/// A tracepoint makes all messages longer alike, so it moves the median by its cost. The median
/// hardly feels what else the machine does.
fn usual_stages<'a>(
    blocks: impl Iterator<Item = &'a KernelBlock>,
) -> Option<[UsualTime; KernelStage::COUNT]> {
    let mut times = vec![Vec::new(); KernelStage::COUNT];
    let mut count = 0.0;
    for message in blocks.flat_map(|block| &block.messages) {
        count += 1.0;
        let stages = times.iter_mut().zip(message.stage_ticks());
        stages
            .filter(|(_, ticks)| *ticks > 0)
            .for_each(|(times, ticks)| times.push(ticks as f64));
    }
    let usual = |stage: usize| UsualTime {
        ticks: median(times[stage].iter().copied()),
        share: times[stage].len() as f64 / count,
    };
    (count > 0.0).then(|| std::array::from_fn(usual))
}

/// The median over some rounds of each stage's cost; `None` if no round has both kinds of blocks.
fn stage_costs<'a>(rounds: impl Iterator<Item = &'a RoundSums>) -> Option<StageCosts> {
    let rounds: Vec<&StageCosts> = rounds.filter_map(|round| round.costs.as_ref()).collect();
    let cost = |stage: usize| median(rounds.iter().map(|costs| costs[stage]));
    (!rounds.is_empty()).then(|| std::array::from_fn(cost))
}

/// The blocks of one use.
fn of_use<'a>(
    blocks: &'a [&'a KernelBlock],
    wanted: KernelBlockUse,
) -> impl Iterator<Item = &'a KernelBlock> {
    let blocks = blocks.iter().copied();
    blocks.filter(move |block| block.block_use == wanted)
}

/// What the account would be with other rounds of the same kind: whole rounds are drawn again.
#[derive(Debug, Default)]
struct Draws {
    errors: Vec<f64>,
    /// The mean of each stage without tracepoints, in nanoseconds.
    stages_ns: Vec<StageCosts>,
}

impl Draws {
    fn of(rounds: &[&RoundSums]) -> Self {
        let mut draws = Self::default();
        for resample in 0..RESAMPLES {
            let drawn = |number: usize| mix(resample << 32 | number as u64) % rounds.len().max(1) as u64;
            let drawn: Vec<&RoundSums> = (0..rounds.len())
                .map(|number| rounds[drawn(number) as usize])
                .collect();
            let mut sums = RoundSums::default();
            drawn.iter().for_each(|round| sums.join(round));
            let Some(costs) = stage_costs(drawn.iter().copied()) else {
                continue;
            };
            draws.errors.extend(sums.error(costs.iter().sum()));
            let stages = std::array::from_fn(|stage| sums.traced_ns(stage) - costs[stage]);
            draws.stages_ns.push(stages);
        }
        draws
    }
}

#[cfg(test)]
mod tests;
