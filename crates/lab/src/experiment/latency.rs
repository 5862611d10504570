//! `latency`: where the time of a message goes.

use super::{Comparison, Options, Plan};
use crate::workload::{Cell, Workload};

/// Default sizes of messages.
pub const SIZES: [&str; 1] = ["64"];

/// The plan: for each size a ping-pong that is followed, and one that is not.
///
/// The latter has processes in which nothing is ever traced. It remains if tracing is not permitted.
pub fn plan(options: Options, trips: u32) -> Plan {
    let sizes = options.sizes.iter();
    let cells = sizes.flat_map(|&size| [Workload::Layout { size, trips }, Workload::PingPong { size }]);
    Plan {
        experiment: "latency".into(),
        title: "Where the time of a message goes".into(),
        cells: cells.map(Cell::from).collect(),
        comparisons: Comparison::among(&options.candidates, &[("kernel-veth", "kernel-loopback")]),
        wanted: Vec::new(),
        show: Vec::new(),
        paper: None,
        stop: None,
        candidates: options.candidates,
        rounds: options.rounds,
        seed: options.seed,
        settings: options.settings,
        deployments: std::collections::BTreeMap::new(),
    }
}
