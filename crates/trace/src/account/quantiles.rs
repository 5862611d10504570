//! The quantiles of stages. They stand beside the means and are never added.

use super::histogram::{TimeHistogram, TimeQuantiles};
use super::sums::{BlockStamps, durations, stamp_times};
use super::{AccountError, TimeAccount};
use crate::plan::{BlockUse, PairKind, TracePlan};

/// How the times of stages are distributed.
///
/// No round trip is dropped here, for long times are what a quantile shows. A hop has no quantiles:
/// it is a difference of means, and no single message shows it. The sum of quantiles means nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageQuantiles {
    /// Each stage of [`TimeAccount::steps`], less the mean cost of a stamp. `None` without stamps.
    pub steps: Vec<Option<TimeQuantiles>>,
    /// Each stage of [`TimeAccount::beside`].
    pub beside: Vec<Option<TimeQuantiles>>,
    /// Round trips without stamps.
    pub untraced_round_trips: Option<TimeQuantiles>,
}

impl StageQuantiles {
    /// The quantiles of the blocks from which an account was made.
    ///
    /// Memory is bounded by a histogram of 14 KB a pair.
    ///
    /// # Errors
    ///
    /// [`AccountError::NoRate`] if `ns_per_tick` is not a positive number.
    pub fn of(
        plan: &TracePlan,
        account: &TimeAccount,
        blocks: &[BlockStamps],
        ns_per_tick: f64,
    ) -> Result<Self, AccountError> {
        if !ns_per_tick.is_finite() || ns_per_tick <= 0.0 {
            return Err(AccountError::NoRate);
        }
        let mut pairs = vec![TimeHistogram::new(); plan.pairs().len()];
        let mut untraced = TimeHistogram::new();
        for block in blocks {
            let Some(durations) = durations(plan, block) else {
                continue;
            };
            match plan.use_of(block.block) {
                BlockUse::Untraced => {
                    let ns = durations.iter().map(|ticks| *ticks as f64 * ns_per_tick);
                    ns.for_each(|ns| untraced.add(ns as u64));
                }
                BlockUse::Counted => {
                    let is_kept = vec![true; durations.len()];
                    let times = stamp_times(plan, block, &durations, &is_kept, ns_per_tick);
                    for time in times.unwrap_or_default().times {
                        let actor = plan.pairs()[time.pair].span.actor;
                        let cost = account.stamp_cost_of(actor).unwrap_or(0.0);
                        // Conversion turns a negative time into 0.
                        pairs[time.pair].add((time.ns - cost).round() as u64);
                    }
                }
                BlockUse::Cost | BlockUse::Fenced => {}
            }
        }
        let of_kind = |is_wanted: fn(PairKind) -> bool| {
            let wanted = plan.pairs().iter().zip(&pairs);
            let wanted = wanted.filter(|(pair, _)| is_wanted(pair.kind));
            wanted.map(|(_, times)| times.quantiles()).collect()
        };
        Ok(Self {
            steps: of_kind(|kind| matches!(kind, PairKind::Stage(_))),
            beside: of_kind(|kind| matches!(kind, PairKind::Beside(_))),
            untraced_round_trips: untraced.quantiles(),
        })
    }
}
