//! Where the time of a message goes: the layouts of ping-pongs that were followed.

mod bars;
mod rows;

pub(super) use bars::{LayoutBar, bars};
pub(super) use rows::{heads, remarks, stage_rows, title};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toehold_trace::kernel::{
    BLIND_SPOTS, KernelAccount, KernelBlock, KernelBlocks, KernelEdge, KernelMismatches, KernelStageTime,
    KernelVerdict,
};

use crate::experiment::Plan;
use crate::samples::{Counts, Outcome, Sample, Side};
use crate::workload::Cell;

/// The layout of a message's time over one candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageLayout {
    /// Stable name of the cell.
    pub workload: String,
    /// The message, for people.
    pub message: String,
    /// Name of the candidate.
    pub candidate: String,
    /// The clock of the trace, for people.
    pub clock: String,
    /// Whether the stages add up to the time without tracepoints, within 5 %.
    pub closes: bool,
    /// Whether they do, or the first reason against it, for people.
    pub verdict: String,
    /// The stages and their sum; `None` if the traces do not suffice for them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub account: Option<LayoutAccount>,
    /// One way without tracepoints; `None` without a round trip.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub untraced: Option<LayoutQuantiles>,
    /// The parts of traces that are not in the stages.
    pub losses: LayoutLosses,
    /// What the layout cannot see, a sentence each.
    pub blind_spots: Vec<String>,
}

/// The stages of a message, and whether they add up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayoutAccount {
    /// The stages that messages passed, in the order of their way.
    pub stages: Vec<LayoutStage>,
    /// The sum of the stages' means, one way.
    pub sum_ns: f64,
    /// The mean time one way without tracepoints.
    pub untraced_ns: f64,
    /// The mean time one way with tracepoints.
    pub traced_ns: f64,
    /// Closing error: the sum divided by the time without tracepoints, less 1.
    pub error: f64,
    /// Lower end of the error's interval.
    pub error_low: f64,
    /// Upper end of the error's interval.
    pub error_high: f64,
    /// The error by medians of round trips, which hardly feels what else the machine does.
    pub typical_error: f64,
    /// The median of the rounds' errors.
    pub median_error: f64,
    /// Rounds with both kinds of blocks.
    pub rounds: u32,
    /// Round trips whose stages are counted.
    pub samples: u64,
    /// The share of traced round trips over five medians, which are left out.
    pub traced_drops: f64,
    /// The share of untraced round trips over five medians, which are left out.
    pub untraced_drops: f64,
}

/// The time of a stage, one way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayoutStage {
    /// Stable name, such as `kernel.send`.
    pub stage: String,
    /// What happens in it, for people.
    pub about: String,
    /// The part of the machine that runs it, such as `softirq`.
    pub actor: String,
    /// The mean without the cost of tracepoints.
    pub mean_ns: f64,
    /// Lower end of the mean's interval.
    pub low_ns: f64,
    /// Upper end of the mean's interval.
    pub high_ns: f64,
    /// The median of the messages that passed the stage, without the cost of tracepoints.
    pub median_ns: f64,
    /// The share of the sum.
    pub share: f64,
    /// The cost of tracepoints, which the other figures do not contain.
    pub cost_ns: f64,
}

/// Times one way, half a round trip each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutQuantiles {
    /// The median.
    pub p50_ns: u64,
    /// The 90th percentile.
    pub p90_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// The parts of traces that no stage contains.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LayoutLosses {
    /// Messages that were followed.
    pub followed: u64,
    /// Messages that were not.
    pub unfollowed: u64,
    /// How many of them lack a tracepoint, by the first one that they lack.
    pub missing: BTreeMap<String, u64>,
    /// How many of them have tracepoints out of order.
    pub disordered: u64,
    /// How many of them have another length.
    pub other_length: u64,
    /// Events that the kernel dropped. Blocks with such events are left out.
    pub lost_events: u64,
    /// Lines of the trace that are no events.
    pub malformed_lines: u64,
}

/// All layouts of a run, in the order of its plan.
pub(super) fn layouts(plan: &Plan, samples: &[Sample]) -> Vec<MessageLayout> {
    let cells = plan.cells.iter().filter(|cell| cell.workload.is_followed());
    let of_cell = |cell: &Cell| {
        let candidates = plan.candidates.iter();
        let found = candidates.filter_map(|candidate| layout(cell, candidate, samples));
        found.collect::<Vec<_>>()
    };
    cells.flat_map(of_cell).collect()
}

/// The layout of a candidate; `None` without a measurement.
fn layout(cell: &Cell, candidate: &str, samples: &[Sample]) -> Option<MessageLayout> {
    let name = cell.name();
    let of_it = samples
        .iter()
        .filter(|sample| sample.name == name && sample.candidate == candidate);
    let clients = of_it.filter_map(|sample| match &sample.outcome {
        Outcome::Measured { client, .. } => Some(&**client),
        _ => None,
    });
    let clients: Vec<&Side> = clients.collect();
    let followed = clients.iter().filter_map(|side| side.followed.as_deref());
    let clock = followed.clone().next()?.clock.clone();
    let joined = KernelBlocks::joined(followed.map(|followed| followed.blocks.clone()));
    let account = KernelAccount::of(&joined.blocks, joined.ns_per_tick);
    let (verdict, account) = match account {
        Ok(account) => (Ok(account.verdict()), LayoutAccount::of(&account)),
        Err(error) => (Err(error), None),
    };
    let durations = clients.iter().filter_map(|side| side.durations.clone());
    let factors = cell.factors();
    let size = factors.get("size").and_then(|bytes| usize::try_from(*bytes).ok());
    let size = size.and_then(crate::size::Size::new);
    Some(MessageLayout {
        workload: name,
        message: size.map_or_else(String::new, |size| size.to_string()),
        candidate: candidate.to_owned(),
        clock,
        closes: verdict == Ok(KernelVerdict::Closes) && account.is_some(),
        verdict: match verdict {
            Ok(KernelVerdict::Closes) => KernelVerdict::Closes.to_string(),
            Ok(reason) => format!("does not close: {reason}"),
            Err(reason) => format!("does not close: {reason}"),
        },
        account,
        untraced: durations
            .reduce(|all, one| all.and(&one))
            .and_then(|counts| LayoutQuantiles::of(&counts)),
        losses: LayoutLosses::of(&joined.blocks),
        blind_spots: BLIND_SPOTS.map(str::to_owned).into(),
    })
}

impl LayoutAccount {
    /// The account for a report; `None` if a figure is not a number, which JSON could not keep.
    fn of(account: &KernelAccount) -> Option<Self> {
        let passed = account.stages.iter().filter(|time| time.traced_ns > 0.0);
        let found = Self {
            stages: passed.map(|time| LayoutStage::of(time, account.sum_ns)).collect(),
            sum_ns: account.sum_ns,
            untraced_ns: account.untraced_ns,
            traced_ns: account.traced_ns,
            error: account.error,
            error_low: account.interval.low,
            error_high: account.interval.high,
            typical_error: account.typical_error,
            median_error: account.median_error,
            rounds: account.rounds,
            samples: account.samples,
            traced_drops: account.traced_drops,
            untraced_drops: account.untraced_drops,
        };
        let figures = [
            found.sum_ns,
            found.untraced_ns,
            found.error,
            found.error_low,
            found.error_high,
            found.typical_error,
        ];
        let are_numbers = figures.iter().all(|figure| figure.is_finite());
        are_numbers.then_some(found)
    }
}

impl LayoutStage {
    fn of(time: &KernelStageTime, sum_ns: f64) -> Self {
        Self {
            stage: time.stage.name().into(),
            about: time.stage.about().into(),
            actor: time.stage.actor().name().into(),
            mean_ns: time.mean_ns,
            low_ns: time.interval.low,
            high_ns: time.interval.high,
            median_ns: time.usual_ns,
            share: time.mean_ns / sum_ns,
            cost_ns: time.cost_ns,
        }
    }
}

impl LayoutQuantiles {
    /// Half of some round trips.
    fn of(round_trips: &Counts) -> Option<Self> {
        let one_way = |quantile| Some(round_trips.quantile_ns(quantile)? / 2);
        Some(Self {
            p50_ns: one_way(0.5)?,
            p90_ns: one_way(0.9)?,
            p99_ns: one_way(0.99)?,
            p999_ns: one_way(0.999)?,
            max_ns: one_way(1.0)?,
        })
    }
}

impl LayoutLosses {
    fn of(blocks: &[KernelBlock]) -> Self {
        let mut mismatches = KernelMismatches::default();
        blocks.iter().for_each(|block| mismatches.join(&block.mismatches));
        let counts = KernelEdge::ALL.iter().zip(mismatches.missing);
        let mut missing = BTreeMap::new();
        for (edge, count) in counts.filter(|(_, count)| *count > 0) {
            *missing.entry(edge.tracepoint().to_owned()).or_default() += count;
        }
        Self {
            followed: blocks.iter().map(|block| block.messages.len() as u64).sum(),
            unfollowed: mismatches.total(),
            missing,
            disordered: mismatches.disordered,
            other_length: mismatches.other_length,
            lost_events: blocks.iter().map(|block| block.lost_events).sum(),
            malformed_lines: blocks.iter().map(|block| block.malformed_lines).sum(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
