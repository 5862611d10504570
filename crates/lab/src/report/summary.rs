//! Figures of single measurements, gathered by metric and candidate.

use std::collections::BTreeMap;

use super::Figures;
use crate::experiment::{Comparison, Plan};
use crate::samples::{Outcome, Sample};
use crate::statistics::Estimate;
use crate::workload::{Metric, Reading};

/// Figures of one metric by candidate and round.
struct Gathered {
    workload: String,
    sample: Metric,
    values: BTreeMap<String, BTreeMap<u32, f64>>,
}

/// All figures of a run.
pub(super) struct Summary {
    metrics: BTreeMap<String, Gathered>,
}

impl Summary {
    pub(super) fn of(plan: &Plan, samples: &[Sample]) -> Self {
        let mut metrics: BTreeMap<String, Gathered> = BTreeMap::new();
        for sample in samples
            .iter()
            .filter(|sample| plan.candidates.contains(&sample.candidate))
        {
            let Outcome::Measured { client, server } = &sample.outcome else {
                continue;
            };
            for metric in sample.workload.metrics(client, server) {
                let value = metric.value;
                let gathered = metrics.entry(metric.name.clone()).or_insert_with(|| Gathered {
                    workload: sample.name.clone(),
                    sample: metric,
                    values: BTreeMap::new(),
                });
                let rounds = gathered.values.entry(sample.candidate.clone()).or_default();
                rounds.insert(sample.round, value);
            }
        }
        Self { metrics }
    }

    /// The median of each metric over the rounds.
    pub(super) fn figures(&self) -> BTreeMap<String, Figures> {
        let figures = |gathered: &Gathered| {
            let estimate = |rounds: &BTreeMap<u32, f64>| Estimate::of(rounds.values().copied());
            let values = gathered.values.iter();
            Figures {
                workload: gathered.workload.clone(),
                label: gathered.sample.label.into(),
                unit: gathered.sample.quantity,
                better: gathered.sample.quantity.better(),
                main: gathered.sample.main,
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

    /// The median of the rounds' ratios, not the ratio of medians: what a round does
    /// to all candidates alike cancels out. And what stands for itself.
    pub(super) fn ratios(&self, comparisons: &[Comparison]) -> BTreeMap<String, Estimate> {
        let mut ratios = self.plain();
        let compared = self
            .metrics
            .iter()
            .filter(|(_, gathered)| gathered.sample.reading != Reading::Plain);
        for (name, gathered) in compared {
            for Comparison { candidate, baseline } in comparisons {
                let (Some(ours), Some(theirs)) =
                    (gathered.values.get(candidate), gathered.values.get(baseline))
                else {
                    continue;
                };
                let of_round = |(round, value): (&u32, &f64)| theirs.get(round).map(|other| value / other);
                if let Some(estimate) = Estimate::of(ours.iter().filter_map(of_round)) {
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
