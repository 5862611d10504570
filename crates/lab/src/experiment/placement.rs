//! `placement`: what it costs where a node's stack runs.

use super::{Comparison, Options, Plan};
use crate::workload::Workload;

/// Sizes of messages in a ping-pong unless told otherwise.
pub const SIZES: [&str; 3] = ["64", "1K", "64K"];

/// The size of the short form.
pub const QUICK_SIZES: [&str; 1] = ["64"];

/// What is compared with what, as far as both are measured: attaching with having the
/// stack for oneself, an engine with none, and everything with the kernel.
const COMPARISONS: [(&str, &str); 6] = [
    ("inline", "private"),
    ("adaptive", "inline"),
    ("engine", "inline"),
    ("inline", "kernel-veth"),
    ("adaptive", "kernel-veth"),
    ("engine", "kernel-veth"),
];

/// The plan: each size as ping-pong, a wake-up, a bulk stream, connections.
pub fn plan(options: Options) -> Plan {
    let ping_pong = options.sizes.iter().map(|&size| Workload::PingPong { size });
    let workloads = ping_pong
        .chain([Workload::WakeUp, Workload::Bulk, Workload::Connect])
        .collect();
    let present = |name: &str| options.candidates.iter().any(|candidate| candidate == name);
    let comparisons = COMPARISONS
        .iter()
        .filter(|(candidate, baseline)| present(candidate) && present(baseline))
        .map(|&(candidate, baseline)| Comparison {
            candidate: candidate.into(),
            baseline: baseline.into(),
        })
        .collect();
    Plan {
        experiment: "placement".into(),
        title: "Where a node's stack runs: programs of two nodes of one machine".into(),
        workloads,
        comparisons,
        candidates: options.candidates,
        rounds: options.rounds,
        seed: options.seed,
        settings: options.settings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Settings;
    use crate::testbed;

    fn plan_of(candidates: Vec<String>) -> Plan {
        plan(Options {
            sizes: SIZES.iter().map(|size| size.parse().unwrap()).collect(),
            candidates,
            rounds: 1,
            seed: 1,
            settings: Settings {
                warm_up_ms: 1,
                span_ms: 1,
                patience_ms: 1,
                cores: [0, 0],
                congestion: "reno".into(),
            },
        })
    }

    #[test]
    fn all_placements_make_a_plan_with_every_comparison() {
        let names = testbed::PLACEMENTS.iter().map(|candidate| candidate.name);
        let plan = plan_of(names.map(str::to_owned).collect());
        assert_eq!(plan.check(testbed::PLACEMENTS), Ok(()));
        assert_eq!(plan.comparisons.len(), COMPARISONS.len());
    }

    #[test]
    fn nothing_is_compared_with_what_is_not_measured() {
        let plan = plan_of(vec!["private".into(), "adaptive".into(), "kernel-veth".into()]);
        let [only] = &plan.comparisons[..] else {
            panic!("{:?}", plan.comparisons);
        };
        assert_eq!((&*only.candidate, &*only.baseline), ("adaptive", "kernel-veth"));
    }
}
