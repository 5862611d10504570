//! `sockets`: stream sockets as a program sees them, for several stacks.

use super::{Comparison, Options, Plan};
use crate::workload::{Cell, Workload};

/// Default sizes of messages.
pub const SIZES: [&str; 10] = ["1", "16", "64", "256", "1K", "4K", "16K", "64K", "256K", "1M"];

/// Sizes of messages in the short form.
pub const QUICK_SIZES: [&str; 3] = ["64", "1K", "64K"];

/// The baseline of all comparisons; without it, the first remaining candidate.
const USUAL_BASELINE: &str = "kernel-veth";

/// Toehold's candidates: direct connections, and TCP.
const SUBJECTS: [&str; 2] = ["direct", "toehold"];

/// The plan: each size as ping-pong and as stream, a bulk stream, connections.
pub fn plan(options: Options) -> Plan {
    let ping_pong = options.sizes.iter().map(|&size| Workload::PingPong { size });
    let stream = options.sizes.iter().map(|&size| Workload::Stream { size });
    let cells = ping_pong
        .chain(stream)
        .chain([Workload::Bulk, Workload::Connect])
        .map(Cell::from)
        .collect();
    Plan {
        experiment: "sockets".into(),
        title: "Stream sockets between two processes of one machine".into(),
        cells,
        comparisons: comparisons(&options.candidates),
        wanted: Vec::new(),
        show: Vec::new(),
        paper: None,
        stop: None,
        candidates: options.candidates,
        rounds: options.rounds,
        deployments: std::collections::BTreeMap::new(),
        seed: options.seed,
        settings: options.settings,
    }
}

/// Compares Toehold's direct connections and its TCP with everything, then everything else with the
/// kernel.
fn comparisons(candidates: &[String]) -> Vec<Comparison> {
    let against = |candidate: &str, baseline: &str| Comparison {
        candidate: candidate.into(),
        baseline: baseline.into(),
    };
    let is_subject = |name: &&String| SUBJECTS.contains(&name.as_str());
    let (subjects, others): (Vec<_>, Vec<_>) = candidates.iter().partition(is_subject);
    let mut comparisons = Vec::new();
    for subject in &subjects {
        comparisons.extend(others.iter().map(|other| against(subject, other)));
    }
    if let [first, second] = subjects[..] {
        comparisons.push(against(first, second));
    }
    let usual = others.iter().find(|name| name.as_str() == USUAL_BASELINE);
    if let Some(baseline) = usual.or(others.first()) {
        let rest = others.iter().filter(|name| name != &baseline);
        comparisons.extend(rest.map(|other| against(other, baseline)));
    }
    comparisons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Size;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn comparisons_are_toehold_with_all_and_others_with_kernel() {
        let text = |candidates: &[&str]| {
            let comparisons = comparisons(&names(candidates));
            comparisons
                .iter()
                .map(|c| format!("{}/{}", c.candidate, c.baseline))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            text(&["toehold", "kernel-veth", "unix"]),
            ["toehold/kernel-veth", "toehold/unix", "unix/kernel-veth"]
        );
        assert_eq!(
            text(&["direct", "toehold", "unix"]),
            ["direct/unix", "toehold/unix", "direct/toehold"]
        );
        assert_eq!(text(&["unix", "kernel-veth"]), ["unix/kernel-veth"]);
        assert_eq!(text(&["unix", "floor"]), ["floor/unix"]);
        assert_eq!(text(&["toehold"]), [""; 0]);
    }

    #[test]
    fn default_sizes_parse() {
        for text in SIZES.iter().chain(&QUICK_SIZES) {
            text.parse::<Size>().unwrap();
        }
    }
}
