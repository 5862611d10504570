//! From the means of pairs to the times of stages and hops.

use super::sums::{BlockSums, PairSums, Summed};
use crate::actor::Actor;
use crate::plan::{BlockUse, PairId, PairKind, TracePlan};

/// Sums over blocks, by their use.
#[derive(Debug, Clone)]
pub(super) struct UseSums {
    untraced: Summed,
    traced: Summed,
    cost: PairSums,
    counted: PairSums,
    fenced: PairSums,
}

impl UseSums {
    pub(super) fn empty(plan: &TracePlan) -> Self {
        Self {
            untraced: Summed::default(),
            traced: Summed::default(),
            cost: PairSums::empty(plan),
            counted: PairSums::empty(plan),
            fenced: PairSums::empty(plan),
        }
    }

    pub(super) fn add(&mut self, block_use: BlockUse, sums: &PairSums) {
        match block_use {
            BlockUse::Untraced => self.untraced.join(&sums.round_trips),
            BlockUse::Cost => {
                self.cost.join(sums);
                self.traced.join(&sums.round_trips);
            }
            BlockUse::Counted => {
                self.counted.join(sums);
                self.traced.join(&sums.round_trips);
            }
            BlockUse::Fenced => self.fenced.join(sums),
        }
    }

    /// The sums of some blocks, with or without the round trips that were dropped.
    pub(super) fn of<'a>(plan: &TracePlan, blocks: impl Iterator<Item = &'a BlockSums>, kept: bool) -> Self {
        let mut sums = Self::empty(plan);
        for block in blocks {
            sums.add(block.block_use, if kept { &block.kept } else { &block.all });
        }
        sums
    }
}

/// What cannot be computed for want of stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingStamps {
    Pair(PairId),
    Cost,
    Untraced,
}

/// Times in nanoseconds, corrected for the cost of stamps.
#[derive(Debug, Clone, Default)]
pub(super) struct Evaluation {
    /// The cost of a stamp in its place, by actor.
    pub(super) cost: [Option<f64>; 4],
    /// Each step on the path; hops are 0 here.
    pub(super) steps: Vec<f64>,
    pub(super) samples: Vec<u64>,
    /// Each stage beside the path, with its samples.
    pub(super) beside: Vec<(f64, u64)>,
    /// What each step costs between fences.
    pub(super) alone: Vec<Option<f64>>,
    /// Each turn as a whole.
    pub(super) turns: Vec<f64>,
    /// The sum of a turn's stages, minus the turn.
    pub(super) turn_errors: Vec<f64>,
    /// The hops of each group together.
    pub(super) groups: Vec<f64>,
    pub(super) untraced: f64,
    pub(super) traced: f64,
}

impl Evaluation {
    /// Computes all times. The cost of a stamp comes from the cost blocks alone.
    pub(super) fn of(plan: &TracePlan, sums: &UseSums) -> Result<Self, MissingStamps> {
        let untraced = sums.untraced.mean().ok_or(MissingStamps::Untraced)?;
        let traced = sums.traced.mean().ok_or(MissingStamps::Untraced)?;
        let cost = stamp_costs(plan, &sums.cost)?;
        let of = |pair: usize| {
            let mean = sums.counted.pairs[pair]
                .mean()
                .ok_or(MissingStamps::Pair(PairId(pair as u16)))?;
            let actor = plan.pairs()[pair].span.actor;
            cost[actor.index()]
                .map(|cost| mean - cost)
                .ok_or(MissingStamps::Cost)
        };
        let trip = plan.trip();
        let mut found = Self {
            cost,
            steps: vec![0.0; trip.steps().len()],
            samples: vec![0; trip.steps().len()],
            alone: vec![None; trip.steps().len()],
            untraced,
            traced,
            ..Self::default()
        };
        for (index, pair) in plan.pairs().iter().enumerate() {
            match pair.kind {
                PairKind::Stage(step) => {
                    found.steps[step] = of(index)?;
                    found.samples[step] = sums.counted.pairs[index].count as u64;
                    found.alone[step] = alone(plan, &sums.fenced, index);
                }
                // A beside stage that did not happen took no time.
                PairKind::Beside(_) => {
                    let samples = sums.counted.pairs[index].count as u64;
                    found.beside.push((of(index).unwrap_or(0.0), samples));
                }
                PairKind::Turn(_) => found.turns.push(of(index)?),
                PairKind::Outer(_) | PairKind::Inner(_) | PairKind::Empty(_) => {}
            }
        }
        for (turn, whole) in trip.turns().iter().zip(&found.turns) {
            let stages: f64 = found.steps[turn.steps.0..turn.steps.1].iter().sum();
            found.turn_errors.push(stages - whole);
        }
        for group in trip.hop_groups() {
            let time = |span| {
                let is_whole = |kind| !matches!(kind, PairKind::Stage(_));
                let mut pairs = plan.pairs().iter();
                let pair = pairs.position(|pair| pair.span == span && is_whole(pair.kind));
                pair.map_or(Err(MissingStamps::Cost), of)
            };
            let mut hops = time(group.outer)?;
            for inner in &group.inner {
                hops -= time(*inner)?;
            }
            found.groups.push(hops);
        }
        Ok(found)
    }

    /// All stages on the path and all hops.
    pub(super) fn sum(&self) -> f64 {
        self.steps.iter().sum::<f64>() + self.groups.iter().sum::<f64>()
    }

    /// How far the sum is from the untraced round trip, as a share of it.
    pub(super) fn error(&self) -> f64 {
        self.sum() / self.untraced - 1.0
    }

    /// How far stages are from their turns, as a share of the turns.
    pub(super) fn turn_error(&self) -> f64 {
        let errors: f64 = self.turn_errors.iter().map(|error| error.abs()).sum();
        errors / self.turns.iter().sum::<f64>().max(f64::MIN_POSITIVE)
    }
}

/// The cost of a stamp in its place, by actor, in nanoseconds.
///
/// Each pair holds the cost of one stamp. So the stages of a turn, added up, hold `stages − 1` stamps
/// more than the whole turn (SPLINTER.md §7). An actor whose turns have one stage gets the mean of
/// the others.
fn stamp_costs(plan: &TracePlan, sums: &PairSums) -> Result<[Option<f64>; 4], MissingStamps> {
    let mean = |pair: usize| {
        sums.pairs[pair]
            .mean()
            .ok_or(MissingStamps::Pair(PairId(pair as u16)))
    };
    let mut excess = [(0.0, 0.0); 4];
    for (index, pair) in plan.pairs().iter().enumerate() {
        let PairKind::Turn(turn) = pair.kind else {
            continue;
        };
        let steps = plan.trip().turns()[turn].steps;
        let mut stages = 0.0;
        for (stage, found) in plan.pairs().iter().enumerate() {
            if matches!(found.kind, PairKind::Stage(step) if (steps.0..steps.1).contains(&step)) {
                stages += mean(stage)?;
            }
        }
        let (over, count) = &mut excess[pair.span.actor.index()];
        *over += stages - mean(index)?;
        *count += (steps.1 - steps.0 - 1) as f64;
    }
    let known = excess.iter().filter(|(_, count)| *count > 0.0);
    let (sum, count) = known.fold((0.0, 0.0), |(sum, count), (over, stamps)| {
        (sum + over / stamps, count + 1.0)
    });
    if count == 0.0 {
        return Err(MissingStamps::Cost);
    }
    let mut cost = [None; 4];
    for actor in plan.trip().actors() {
        let (over, stamps) = excess[actor.index()];
        cost[actor.index()] = Some(if stamps > 0.0 { over / stamps } else { sum / count });
    }
    Ok(cost)
}

/// What a stage costs between fences, less two fenced stamps with nothing between them.
fn alone(plan: &TracePlan, fenced: &PairSums, stage: usize) -> Option<f64> {
    let actor: Actor = plan.pairs()[stage].span.actor;
    let empty = plan
        .pairs()
        .iter()
        .position(|pair| pair.kind == PairKind::Empty(actor))?;
    Some(fenced.pairs[stage].mean()? - fenced.pairs[empty].mean()?)
}
