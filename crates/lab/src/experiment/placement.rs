//! `placement`: the costs of the placements of a node's stack.

use toehold_node::Placement;

use super::{Comparison, Limit, Options, Plan, Wanted};
use crate::size::SizeError;
use crate::workload::{Cell, Workload};

/// Default sizes of messages in a ping-pong.
pub const SIZES: [&str; 3] = ["64", "1K", "64K"];

/// The size of the short form.
pub const QUICK_SIZES: [&str; 1] = ["64"];

/// Kinds of workloads: the beginnings of their figures' names.
pub const KINDS: [&str; 9] = [
    "latency",
    "wakeup",
    "stream",
    "connect",
    "ack",
    "idle",
    "pingpong",
    "availability",
    "pause",
];

/// The compared pairs of candidates, if both are measured. Attaching is compared with a private
/// stack, an engine with none, and everything with the kernel.
const COMPARISONS: [(&str, &str); 6] = [
    ("inline", "private"),
    ("adaptive", "inline"),
    ("engine", "inline"),
    ("inline", "kernel-veth"),
    ("adaptive", "kernel-veth"),
    ("engine", "kernel-veth"),
];

/// The depth of measurements without rounds and spans.
#[derive(Debug, Clone, Copy)]
pub struct Depth {
    /// Messages that arrive while their receiver computes.
    acknowledgements: u32,
    /// Idle time, in milliseconds.
    idle_ms: u64,
    /// Sizes of writes to a receiver that shares its core with a computing loop.
    availability: &'static [&'static str],
    /// Changes of the placement on either side.
    changes: u32,
}

impl Depth {
    /// The full depth.
    pub const FULL: Self = Self {
        acknowledgements: 100,
        idle_ms: 2000,
        availability: &["1K", "64K"],
        changes: 1000,
    };
    /// The short form.
    pub const QUICK: Self = Self {
        acknowledgements: 25,
        idle_ms: 300,
        availability: &["64K"],
        changes: 200,
    };
}

/// Pairs of nodes that share two cores.
const CROWD: u8 = 8;

/// The size of their messages.
const CROWD_SIZE: &str = "64";

/// The targets of figures; a name that ends in a slash covers all placements.
const WANTED: [(&str, &str, Limit); 6] = [
    (
        "ack_ms/adaptive",
        "ms until acknowledged while the receiver computes, median",
        Limit::AtMost(2.0),
    ),
    ("ack_p99_ms/adaptive", "the same, 99 %", Limit::AtMost(2.0)),
    ("idle/", "cores that an idle node uses", Limit::AtMost(0.01)),
    ("idle_16/", "cores that 16 idle nodes use", Limit::AtMost(0.05)),
    (
        "pingpong_16/adaptive/kernel-veth",
        "messages of 16 nodes on two cores, to the kernel's",
        Limit::AtLeast(2.0),
    ),
    (
        "pause_ms/adaptive",
        "ms of the longest pause while placements change",
        Limit::AtMost(10.0),
    ),
];

/// The plan: each size as ping-pong, a wake-up, a bulk stream, and connections. Then the costs of
/// acknowledgements, of idle nodes, of many nodes, of sharing a core, and of changing the
/// placement.
pub fn plan(options: Options, depth: &Depth) -> Result<Plan, SizeError> {
    let ping_pong = options.sizes.iter().map(|&size| Workload::PingPong { size });
    let idle = |pairs| Workload::Idle {
        pairs,
        span_ms: depth.idle_ms,
    };
    let crowd = Workload::Crowd {
        pairs: CROWD,
        size: CROWD_SIZE.parse()?,
    };
    let sizes = depth.availability.iter().map(|size| size.parse());
    let availability = sizes.map(|size| Ok(Workload::Availability { size: size? }));
    let switching = [false, true].map(|still| Workload::Switching {
        times: depth.changes,
        still,
    });
    let acknowledgement = Workload::Acknowledgement {
        times: depth.acknowledgements,
    };
    let cells = ping_pong
        .chain([Workload::WakeUp, Workload::Bulk, Workload::Connect])
        .chain([acknowledgement, idle(1), idle(CROWD), crowd])
        .chain(availability.collect::<Result<Vec<_>, _>>()?)
        .chain(switching)
        .map(Cell::from)
        .collect();
    Ok(Plan {
        experiment: "placement".into(),
        title: "Where a node's stack runs: programs of two nodes of one machine".into(),
        cells,
        comparisons: Comparison::among(&options.candidates, &COMPARISONS),
        wanted: WANTED.iter().flat_map(wanted).collect(),
        show: Vec::new(),
        paper: None,
        stop: None,
        candidates: options.candidates,
        rounds: options.rounds,
        deployments: std::collections::BTreeMap::new(),
        seed: options.seed,
        settings: options.settings,
    })
}

fn wanted(&(figure, about, limit): &(&str, &str, Limit)) -> Vec<Wanted> {
    let of = |figure: String| Wanted {
        figure,
        about: about.into(),
        limit,
    };
    match figure.ends_with('/') {
        true => Placement::ALL
            .map(|placement| of(format!("{figure}{placement}")))
            .into(),
        false => vec![of(figure.into())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Settings;
    use crate::testbed;

    fn plan_of(candidates: Vec<String>) -> Plan {
        let options = Options {
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
                trace: None,
                far: None,
            },
        };
        plan(options, &Depth::QUICK).unwrap()
    }

    #[test]
    fn plan_of_all_placements_has_every_comparison() {
        let names = testbed::PLACEMENTS.iter().map(|candidate| candidate.name);
        let plan = plan_of(names.map(str::to_owned).collect());
        assert_eq!(plan.check(testbed::PLACEMENTS), Ok(()));
        assert_eq!(plan.comparisons.len(), COMPARISONS.len());
    }

    #[test]
    fn comparison_with_unmeasured_candidate_is_omitted() {
        let plan = plan_of(vec!["private".into(), "adaptive".into(), "kernel-veth".into()]);
        let [only] = &plan.comparisons[..] else {
            panic!("{:?}", plan.comparisons);
        };
        assert_eq!((&*only.candidate, &*only.baseline), ("adaptive", "kernel-veth"));
    }
}
