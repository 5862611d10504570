//! Decides when a cell has been measured often enough.

use std::collections::BTreeMap;

use super::{Comparison, Plan, StopRule};
use crate::report::Summary;
use crate::samples::Sample;
use crate::statistics::Estimate;

impl Plan {
    /// Most rounds of the plan.
    pub fn most_rounds(&self) -> u32 {
        self.stop
            .map_or(self.rounds, |stop| stop.most_rounds.max(self.rounds))
    }

    /// The cells to measure in a round, given the samples of earlier rounds.
    pub(crate) fn wanted_in(&self, round: u32, samples: &[Sample]) -> Vec<bool> {
        let Some(rule) = self.stop.filter(|_| round >= self.rounds) else {
            return vec![round < self.rounds; self.cells.len()];
        };
        let before: Vec<_> = samples
            .iter()
            .filter(|sample| sample.round < round)
            .cloned()
            .collect();
        let summary = Summary::of(self, &before);
        let (ratios, figures) = (summary.ratios(&self.comparisons), summary.figures());
        let is_unsure = |name: String| {
            let compared = |it: &Comparison| ratios.get(&format!("{name}/{}/{}", it.candidate, it.baseline));
            let mut of_ratios = self.comparisons.iter().filter_map(compared).peekable();
            if of_ratios.peek().is_some() {
                return of_ratios.any(|ratio| rule.is_unsure(ratio));
            }
            let values = figures.get(&name).map(|figures| &figures.values);
            values.is_some_and(|values: &BTreeMap<String, Estimate>| {
                values.values().any(|figure| rule.is_unsure(figure))
            })
        };
        self.cells.iter().map(|cell| is_unsure(cell.name())).collect()
    }
}

impl StopRule {
    fn is_unsure(&self, figure: &Estimate) -> bool {
        (figure.high - figure.low) / 2.0 > self.half_width * figure.median.abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Outcome, Side};
    use crate::workload::{Cell, Workload};

    fn plan() -> Plan {
        let text = "
            name = \"t\"\ntitle = \"t\"
            candidates = [\"unix\", \"floor\"]\ncompare = [\"unix/floor\"]
            factors = { size = [\"64\", \"1K\"] }
            measure = { rounds = 3, most-rounds = 5, half-width = 0.1 }
            [[workload]]\nkind = \"stream\"";
        let file = super::super::PlanFile::parse("t", text).unwrap_or_else(|error| panic!("{error}"));
        file.plan(false, 1, [0, 0])
    }

    fn sample(round: u32, cell: Cell, candidate: &str, bytes: u64) -> Sample {
        let side = Side {
            bytes,
            span_ns: 1_000_000_000,
            ..Side::default()
        };
        Sample::of_test(round, candidate, cell, Outcome::of_both(side))
    }

    /// Both candidates change alike; at one size the ratio changes too.
    fn samples(plan: &Plan, rounds: u32) -> Vec<Sample> {
        let rounds = 0..rounds;
        let of_round = |round: u32| {
            let speed = u64::from(round) + 10;
            let [steady, unsteady] = [plan.cells[0], plan.cells[1]];
            [
                sample(round, steady, "unix", 2 * speed),
                sample(round, steady, "floor", speed),
                sample(round, unsteady, "unix", 2 * speed.pow(3)),
                sample(round, unsteady, "floor", speed),
            ]
        };
        rounds.flat_map(of_round).collect()
    }

    #[test]
    fn only_cells_with_uncertain_ratios_are_measured_again() {
        let plan = plan();
        assert_eq!(plan.most_rounds(), 5);
        assert_eq!(
            plan.wanted_in(2, &[]),
            [true, true],
            "all rounds that the plan has"
        );
        let samples = samples(&plan, 4);
        assert_eq!(plan.wanted_in(3, &samples), [false, true]);
        // Samples of later rounds do not matter: an interrupted run resumes as it would have
        // continued.
        assert_eq!(plan.wanted_in(3, &samples), plan.wanted_in(3, &samples[..12]));
    }

    #[test]
    fn figures_without_comparisons_must_be_certain() {
        let mut plan = plan();
        plan.comparisons.clear();
        let samples = samples(&plan, 3);
        assert_eq!(plan.wanted_in(3, &samples), [false, true]);
    }

    #[test]
    fn unmeasurable_cell_is_not_tried_again() {
        assert_eq!(plan().wanted_in(3, &[]), [false, false]);
    }

    #[test]
    fn workloads_of_another_kind_do_not_count() {
        let plan = plan();
        let other = Cell::from(Workload::Bulk);
        let strange = [sample(0, other, "unix", 1), sample(1, other, "unix", 9)];
        assert_eq!(plan.wanted_in(3, &strange), [false, false]);
    }
}
