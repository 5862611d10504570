//! `ethernet`: kernel interfaces whose frames Toehold carries.

use super::{Comparison, Limit, Options, Plan, Wanted};
use crate::workload::{Cell, Workload};

/// Default sizes of messages.
pub const SIZES: [&str; 6] = ["64", "256", "1K", "4K", "16K", "64K"];

/// Sizes of messages in the short form.
pub const QUICK_SIZES: [&str; 2] = ["64", "1K"];

/// The compared pairs of candidates, if both are measured.
const COMPARISONS: [(&str, &str); 10] = [
    ("ethom", "kernel-veth"),
    ("ethos", "kernel-veth"),
    ("ethom", "ethos"),
    ("relay", "kernel-veth"),
    ("ethom", "relay"),
    ("relay", "ethos"),
    ("toehold-to-kernel", "kernel-to-kernel"),
    ("kernel-to-toehold", "kernel-to-kernel"),
    ("toehold-to-kernel-9000", "kernel-to-kernel-9000"),
    ("kernel-to-toehold-9000", "kernel-to-kernel-9000"),
];

/// The targets of ratios.
const WANTED: [(&str, &str, Limit); 10] = [
    (
        "latency_64B/ethom/kernel-veth",
        "latency over queues, to veth",
        Limit::AtMost(2.0),
    ),
    (
        "latency_64B/ethom/ethos",
        "latency over queues, to UDP",
        Limit::AtMost(0.7),
    ),
    (
        "bandwidth_latency_64B/ethom/ethos",
        "64 B at a time over queues, to UDP",
        Limit::AtLeast(1.5),
    ),
    (
        "stream/ethom/kernel-veth",
        "bulk over queues, to veth",
        Limit::AtLeast(0.8),
    ),
    (
        "stream_64B/ethom/ethos",
        "64 B writes over queues, to UDP",
        Limit::AtLeast(1.5),
    ),
    (
        "stream_1K/ethom/ethos",
        "1 KB writes over queues, to UDP",
        Limit::AtLeast(1.5),
    ),
    (
        "stream/toehold-to-kernel/kernel-to-kernel",
        "bulk from our TCP to the kernel's",
        Limit::AtLeast(0.9),
    ),
    (
        "stream/kernel-to-toehold/kernel-to-kernel",
        "bulk from the kernel's TCP to ours",
        Limit::AtLeast(0.9),
    ),
    (
        "stream/toehold-to-kernel-9000/kernel-to-kernel-9000",
        "the first at MTU 9000",
        Limit::AtLeast(0.9),
    ),
    (
        "stream/kernel-to-toehold-9000/kernel-to-kernel-9000",
        "the second at MTU 9000",
        Limit::AtLeast(0.9),
    ),
];

/// The plan: each size as ping-pong and as stream, a bulk stream, connections.
pub fn plan(options: Options) -> Plan {
    let ping_pong = options.sizes.iter().map(|&size| Workload::PingPong { size });
    let stream = options.sizes.iter().map(|&size| Workload::Stream { size });
    let cells = ping_pong
        .chain(stream)
        .chain([Workload::Bulk, Workload::Connect])
        .map(Cell::from)
        .collect();
    let wanted = WANTED.iter().map(|&(figure, about, limit)| Wanted {
        figure: figure.into(),
        about: about.into(),
        limit,
    });
    Plan {
        experiment: "ethernet".into(),
        title: "Kernel TCP over interfaces whose frames Toehold carries".into(),
        cells,
        comparisons: Comparison::among(&options.candidates, &COMPARISONS),
        wanted: wanted.collect(),
        show: vec!["bandwidth".into()],
        paper: None,
        stop: None,
        candidates: options.candidates,
        rounds: options.rounds,
        deployments: std::collections::BTreeMap::new(),
        seed: options.seed,
        settings: options.settings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Settings;
    use crate::testbed;

    #[test]
    fn plan_of_all_interfaces_measures_all_targets() {
        let names = testbed::ETHERNETS
            .iter()
            .map(|candidate| candidate.name.to_owned());
        let plan = plan(Options {
            sizes: QUICK_SIZES.iter().map(|size| size.parse().unwrap()).collect(),
            candidates: names.collect(),
            rounds: 1,
            seed: 1,
            settings: Settings {
                warm_up_ms: 1,
                span_ms: 1,
                patience_ms: 1,
                cores: [0, 0],
                congestion: "reno".into(),
                trace: None,
                far: None,
            },
        });
        assert_eq!(plan.check(testbed::ETHERNETS), Ok(()));
        assert_eq!(plan.comparisons.len(), COMPARISONS.len());
        let workloads: Vec<_> = plan.cells.iter().map(Cell::name).collect();
        for wanted in &plan.wanted {
            let [workload, candidate, baseline] = wanted.figure.split('/').collect::<Vec<_>>()[..] else {
                panic!("{}", wanted.figure);
            };
            let workload = workload.strip_prefix("bandwidth_").unwrap_or(workload);
            assert!(workloads.iter().any(|name| name == workload), "{workload}");
            let compared = |comparison: &Comparison| {
                (&*comparison.candidate, &*comparison.baseline) == (candidate, baseline)
            };
            assert!(plan.comparisons.iter().any(compared), "{}", wanted.figure);
        }
    }
}
