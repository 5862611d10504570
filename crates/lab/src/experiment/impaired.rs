//! `impaired`: streams over paths that lose, delay, repeat and reorder frames.

use super::{Comparison, Limit, Options, Plan, Wanted};
use crate::workload::{Cell, Faults, Workload};

/// The least share of the kernel-to-kernel rate that a pair with Toehold's TCP must reach.
const WANTED: f64 = 0.8;

/// The compared pairs of candidates, if both are measured.
const COMPARISONS: [(&str, &str); 2] = [
    ("toehold-to-kernel", "kernel-to-kernel"),
    ("kernel-to-toehold", "kernel-to-kernel"),
];

/// Loss in a thousand frames, and delay in milliseconds, of the paths. Those of the short form come
/// first.
const PATHS: [(u16, u16); 7] = [(10, 20), (0, 200), (1, 20), (30, 5), (100, 5), (10, 0), (1, 200)];
const QUICK_PATHS: usize = 2;

/// The plan: a stream over each path.
pub fn plan(options: Options, quick: bool) -> Plan {
    let workloads: Vec<_> = paths(quick)
        .into_iter()
        .map(|faults| Workload::Impaired { faults })
        .collect();
    let comparisons = Comparison::among(&options.candidates, &COMPARISONS);
    let wanted = workloads.iter().flat_map(|workload| {
        let figure = |comparison: &Comparison| {
            let Comparison { candidate, baseline } = comparison;
            Wanted {
                figure: format!("{}/{candidate}/{baseline}", workload.name()),
                about: format!("{candidate}, {}", workload.title()),
                limit: Limit::AtLeast(WANTED),
            }
        };
        comparisons.iter().map(figure).collect::<Vec<_>>()
    });
    Plan {
        experiment: "impaired".into(),
        title: "Streams over paths with faults".into(),
        wanted: wanted.collect(),
        show: Vec::new(),
        paper: None,
        stop: None,
        cells: workloads.into_iter().map(Cell::from).collect(),
        comparisons,
        candidates: options.candidates,
        rounds: options.rounds,
        deployments: std::collections::BTreeMap::new(),
        seed: options.seed,
        settings: options.settings,
    }
}

fn paths(quick: bool) -> Vec<Faults> {
    let with_loss = |&(loss_per_mille, delay_ms): &(u16, u16)| Faults {
        loss_per_mille,
        delay_ms,
        ..Faults::default()
    };
    if quick {
        return PATHS[..QUICK_PATHS].iter().map(with_loss).collect();
    }
    let others = [
        Faults {
            duplicate_per_mille: 50,
            delay_ms: 20,
            ..Faults::default()
        },
        Faults {
            reorder_per_mille: 50,
            delay_ms: 20,
            ..Faults::default()
        },
    ];
    PATHS.iter().map(with_loss).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Settings;
    use crate::testbed;

    #[test]
    fn plan_of_every_path_has_targets_for_both_directions() {
        for quick in [false, true] {
            let names = testbed::MIXED.iter().map(|candidate| candidate.name.to_owned());
            let plan = plan(
                Options {
                    sizes: Vec::new(),
                    candidates: names.collect(),
                    rounds: 1,
                    seed: 1,
                    settings: Settings {
                        warm_up_ms: 1,
                        span_ms: 1,
                        patience_ms: 1,
                        cores: [0, 0],
                        congestion: "cubic".into(),
                        trace: None,
                        far: None,
                    },
                },
                quick,
            );
            assert_eq!(plan.check(testbed::MIXED), Ok(()));
            assert_eq!(plan.wanted.len(), 2 * plan.cells.len());
            assert_eq!(
                plan.wanted[0].figure,
                "impaired_1%_20ms/toehold-to-kernel/kernel-to-kernel"
            );
        }
    }
}
