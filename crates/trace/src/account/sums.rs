//! Sums of a block's stamps, in nanoseconds of the reference clock.

use super::rate::{is_line, median, resistant_slope};
use crate::actor::Actor;
use crate::plan::{BlockUse, TracePlan};
use crate::stamp::StampRecord;

/// What was recorded of one block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockStamps {
    /// The block's number.
    pub block: u32,
    /// When the program at end A began each round trip, in ticks of its clock, and once more at the
    /// end of the last one.
    ///
    /// The workload reads its clock once a round trip in every block, also in untraced ones.
    pub round_starts: Vec<u64>,
    /// The stamps of all actors.
    pub stamps: Vec<StampRecord>,
}

/// A sum and the number of its terms.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Summed {
    pub(crate) ns: f64,
    pub(crate) count: f64,
}

impl Summed {
    pub(crate) fn add(&mut self, ns: f64) {
        self.ns += ns;
        self.count += 1.0;
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.ns += other.ns;
        self.count += other.count;
    }

    /// The mean; `None` of nothing.
    pub(crate) fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.ns / self.count)
    }
}

/// Sums over the round trips of a block.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct PairSums {
    pub(super) round_trips: Summed,
    pub(super) pairs: Vec<Summed>,
}

/// A block after its ticks have become nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct BlockSums {
    pub(super) block: u32,
    pub(super) block_use: BlockUse,
    /// Without the round trips that were dropped.
    pub(super) kept: PairSums,
    /// With them.
    pub(super) all: PairSums,
    pub(super) dropped: u64,
    pub(super) invalid: u64,
}

/// The durations of a block's round trips, in ticks of the reference clock.
///
/// `None` if they cannot be the times of a block of this plan.
pub(super) fn durations(plan: &TracePlan, block: &BlockStamps) -> Option<Vec<u64>> {
    let starts = &block.round_starts;
    let is_valid = starts.len() >= 2
        && starts.len() - 1 <= plan.block_len() as usize
        && block.block.checked_mul(plan.block_len()).is_some();
    let passed = |pair: &[u64]| {
        let ticks = pair[1].wrapping_sub(pair[0]);
        // A clock that goes back is no clock.
        i64::try_from(ticks).ok().map(|_| ticks)
    };
    is_valid
        .then(|| starts.windows(2).map(passed).collect())
        .flatten()
}

/// Adds up a block. Round trips of more than `longest` ticks are dropped from `kept`.
///
/// `None` if an actor's stamps are too few for its clock's rate in this block.
pub(super) fn sum_block(
    plan: &TracePlan,
    block: &BlockStamps,
    durations: &[u64],
    longest: f64,
    ns_per_tick: f64,
) -> Option<BlockSums> {
    let is_kept: Vec<bool> = durations.iter().map(|ticks| *ticks as f64 <= longest).collect();
    let block_use = plan.use_of(block.block);
    let mut sums = BlockSums {
        block: block.block,
        block_use,
        kept: PairSums::empty(plan),
        all: PairSums::empty(plan),
        dropped: is_kept.iter().filter(|kept| !**kept).count() as u64,
        invalid: 0,
    };
    for (ticks, is_kept) in durations.iter().zip(&is_kept) {
        let ns = *ticks as f64 * ns_per_tick;
        sums.all.round_trips.add(ns);
        if *is_kept {
            sums.kept.round_trips.add(ns);
        }
    }
    if block_use == BlockUse::Untraced {
        return Some(sums);
    }
    let times = stamp_times(plan, block, durations, &is_kept, ns_per_tick)?;
    sums.invalid = times.invalid;
    for time in &times.times {
        sums.all.pairs[time.pair].add(time.ns);
        if time.is_kept {
            sums.kept.pairs[time.pair].add(time.ns);
        }
    }
    Some(sums)
}

/// The time between a pair's stamps, as it was taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct StampTime {
    /// The pair's index.
    pub(super) pair: usize,
    pub(super) ns: f64,
    /// Whether no round trip of the pair was dropped.
    pub(super) is_kept: bool,
}

/// The times of a block's stamps.
#[derive(Debug, Clone, Default)]
pub(super) struct StampTimes {
    pub(super) times: Vec<StampTime>,
    /// Stamps that the plan never takes, or that are longer than their round trip.
    pub(super) invalid: u64,
}

/// The times of a block's stamps. `is_kept` says which of its round trips were not dropped.
///
/// `None` if an actor's clock has no rate in this block.
pub(super) fn stamp_times(
    plan: &TracePlan,
    block: &BlockStamps,
    durations: &[u64],
    is_kept: &[bool],
    ns_per_tick: f64,
) -> Option<StampTimes> {
    let first = block.block * plan.block_len();
    let rates = rates(plan, block, durations, first)?;
    let mut found = StampTimes::default();
    for stamp in &block.stamps {
        let Some((round, pair)) = place_of(plan, stamp, first, durations.len()) else {
            found.invalid += 1;
            continue;
        };
        let span = plan.pairs()[pair].span;
        if span.wraps() && round + 1 == durations.len() {
            continue;
        }
        let reference_ticks = stamp.ticks() as f64 / rates[span.actor.index()];
        let next = durations.get(round + 1).copied().unwrap_or(durations[round]);
        if reference_ticks > durations[round].saturating_add(next) as f64 {
            found.invalid += 1;
            continue;
        }
        found.times.push(StampTime {
            pair,
            ns: reference_ticks * ns_per_tick,
            is_kept: is_kept[round] && (!span.wraps() || is_kept[round + 1]),
        });
    }
    Some(found)
}

impl PairSums {
    pub(super) fn empty(plan: &TracePlan) -> Self {
        Self {
            round_trips: Summed::default(),
            pairs: vec![Summed::default(); plan.pairs().len()],
        }
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.round_trips.join(&other.round_trips);
        for (sum, other) in self.pairs.iter_mut().zip(&other.pairs) {
            sum.join(other);
        }
    }
}

/// The round trip of a stamp within its block, and its pair; `None` for a stamp that this plan never
/// takes there.
fn place_of(plan: &TracePlan, stamp: &StampRecord, first: u32, count: usize) -> Option<(usize, usize)> {
    let round = stamp.message.checked_sub(first)? as usize;
    let is_chosen = round < count && plan.choice(stamp.message) == Some(stamp.pair);
    is_chosen.then_some((round, stamp.pair.index()))
}

/// Ticks of each actor's clock for a tick of the reference clock, in this block.
///
/// The times of equal round trips on both clocks determine it. So neither an offset nor a drift of a
/// clock matters.
///
/// `None` if the clock has no rate, or if its times do not lie on a line. A thread that moves to a
/// processor with another counter has such times.
fn rates(plan: &TracePlan, block: &BlockStamps, durations: &[u64], first: u32) -> Option<[f64; 4]> {
    let mut points: [Vec<(f64, f64)>; 4] = Default::default();
    let mut origins = [None; 4];
    for stamp in &block.stamps {
        let Some((round, pair)) = place_of(plan, stamp, first, block.round_starts.len() - 1) else {
            continue;
        };
        let actor = plan.pairs()[pair].span.actor.index();
        let origin = *origins[actor].get_or_insert(stamp.begin);
        let reference = block.round_starts[round].wrapping_sub(block.round_starts[0]);
        let ticks = stamp.begin.wrapping_sub(origin) as i64;
        points[actor].push((reference as f64, ticks as f64));
    }
    let usual = median(durations.iter().map(|ticks| *ticks as f64));
    let mut rates = [1.0; 4];
    for actor in plan.trip().actors().filter(|actor| *actor != Actor::REFERENCE) {
        let points = &mut points[actor.index()];
        points.sort_by(|left, right| left.0.total_cmp(&right.0));
        let slope = resistant_slope(points)?;
        if !is_line(points, slope, 2.0 * slope * usual) {
            return None;
        }
        rates[actor.index()] = slope;
    }
    Some(rates)
}
