//! Figures of single measurements, grouped by metric and candidate.

use std::collections::BTreeMap;

use super::results::Figures;
use crate::experiment::{Comparison, Plan};
use crate::samples::{Outcome, Sample};
use crate::statistics::Estimate;
use crate::workload::{Cell, Metric, Reading};

/// Figures of one metric by candidate and round.
struct Gathered {
    workload: String,
    cell: Cell,
    sample: Metric,
    values: BTreeMap<String, BTreeMap<u32, f64>>,
}

impl Gathered {
    /// The ratios of the rounds in which both were measured, in order.
    fn round_ratios(&self, comparison: &Comparison) -> impl Iterator<Item = f64> {
        let ours = self.values.get(&comparison.candidate);
        let pairs = ours.zip(self.values.get(&comparison.baseline)).into_iter();
        pairs.flat_map(|(ours, theirs)| {
            let of_round = |(round, value): (&u32, &f64)| theirs.get(round).map(|other| value / other);
            ours.iter().filter_map(of_round)
        })
    }
}

/// All figures of a run.
pub(crate) struct Summary {
    metrics: BTreeMap<String, Gathered>,
    /// Parts of figures that the plan shows.
    shown: Vec<String>,
}

impl Summary {
    pub(crate) fn of(plan: &Plan, samples: &[Sample]) -> Self {
        let mut metrics: BTreeMap<String, Gathered> = BTreeMap::new();
        for sample in samples
            .iter()
            .filter(|sample| plan.candidates.contains(&sample.candidate))
        {
            let Outcome::Measured { client, server } = &sample.outcome else {
                continue;
            };
            for metric in sample.cell.metrics(client, server) {
                let value = metric.value;
                let gathered = metrics.entry(metric.name.clone()).or_insert_with(|| Gathered {
                    workload: sample.name.clone(),
                    cell: sample.cell,
                    sample: metric,
                    values: BTreeMap::new(),
                });
                let rounds = gathered.values.entry(sample.candidate.clone()).or_default();
                rounds.insert(sample.round, value);
            }
        }
        Self {
            metrics,
            shown: plan.show.clone(),
        }
    }

    /// The values of a metric of a candidate in each round, in order.
    pub(super) fn rounds(&self, metric: &str, candidate: &str) -> impl Iterator<Item = f64> {
        let gathered = self.metrics.get(metric);
        let rounds = gathered.and_then(|gathered| gathered.values.get(candidate));
        rounds.into_iter().flat_map(|rounds| rounds.values().copied())
    }

    /// The ratios of a metric in the rounds in which both were measured, in order.
    pub(super) fn round_ratios(&self, metric: &str, comparison: &Comparison) -> impl Iterator<Item = f64> {
        let gathered = self.metrics.get(metric).into_iter();
        gathered.flat_map(|gathered| gathered.round_ratios(comparison))
    }

    /// The median of each metric over the rounds.
    pub(crate) fn figures(&self) -> BTreeMap<String, Figures> {
        let figures = |gathered: &Gathered| {
            let estimate = |rounds: &BTreeMap<u32, f64>| Estimate::of(rounds.values().copied());
            let values = gathered.values.iter();
            Figures {
                workload: gathered.workload.clone(),
                kind: gathered.cell.workload.kind().into(),
                part: gathered.sample.part.into(),
                factors: gathered.cell.factors(),
                label: gathered.sample.label.into(),
                unit: gathered.sample.quantity,
                better: gathered.sample.quantity.better(),
                main: gathered.sample.main,
                detail: gathered.sample.detail && !self.shown.iter().any(|part| part == gathered.sample.part),
                values: values
                    .filter_map(|(name, rounds)| Some((name.clone(), estimate(rounds)?)))
                    .collect(),
            }
        };
        self.metrics
            .iter()
            .map(|(name, gathered)| (name.clone(), figures(gathered)))
            .collect()
    }

    /// The median of the rounds' ratios, not the ratio of medians: effects of a round on all
    /// candidates cancel out. Also figures that need no comparison.
    pub(crate) fn ratios(&self, comparisons: &[Comparison]) -> BTreeMap<String, Estimate> {
        let mut ratios = self.plain();
        let compared = self
            .metrics
            .iter()
            .filter(|(_, gathered)| gathered.sample.reading != Reading::Plain);
        for (name, gathered) in compared {
            for comparison in comparisons {
                if let Some(estimate) = Estimate::of(gathered.round_ratios(comparison)) {
                    let Comparison { candidate, baseline } = comparison;
                    ratios.insert(format!("{name}/{candidate}/{baseline}"), estimate);
                }
            }
        }
        ratios
    }

    /// Figures of single candidates.
    fn plain(&self) -> BTreeMap<String, Estimate> {
        let mut plain = BTreeMap::new();
        for (name, gathered) in &self.metrics {
            if gathered.sample.reading == Reading::Compared {
                continue;
            }
            let (unit, suffix) = gathered.sample.quantity.plain_unit();
            for (candidate, rounds) in &gathered.values {
                if let Some(estimate) = Estimate::of(rounds.values().map(|value| value / unit)) {
                    plain.insert(format!("{name}{suffix}/{candidate}"), estimate);
                }
            }
        }
        plain
    }
}
