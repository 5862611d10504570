//! Costs of traffic other than time: processor time by kind, interrupts, context switches.
//!
//! They are in the files of reports, and in charts; tables for a terminal leave them out.

use super::kind::Workload;
use super::quantity::{Metric, Quantity};
use crate::samples::{Machine, Side};

impl Workload {
    /// The costs, of both sides together unless stated otherwise. Workloads without messages have
    /// none.
    pub(super) fn costs(&self, client: &Side, server: &Side) -> Vec<Metric> {
        // The use of several workers is not counted by side.
        if self.is_about_nodes() || self.is_alone() || self.is_of_workers() || self.is_of_deployments() {
            return Vec::new();
        }
        let messages = client.messages.max(server.messages) as f64;
        let per_thousand = |ns: u64| ns as f64 / 1e9 / (messages / 1000.0);
        let both = |part: fn(&Side) -> u64| part(client) + part(server);
        let machine = client.machine.as_deref();
        let counted = |part: fn(&Machine) -> u64| machine.map_or(f64::NAN, |it| part(it) as f64);
        let softirq_s = counted(|machine| machine.softirq_ns) / 1e9;
        let retransmits = client.retransmits.iter().chain(&server.retransmits);
        let retransmits = retransmits.copied().reduce(|one, other| one + other);
        let cost = |part, label, quantity, value| Metric {
            detail: true,
            ..self.other(part, label, quantity, value)
        };
        let time = Quantity::CpuPerThousand;
        vec![
            cost(
                "share_client",
                "of a core, client and engine",
                Quantity::Share,
                share(client),
            ),
            cost(
                "share_server",
                "of a core, server and engine",
                Quantity::Share,
                share(server),
            ),
            cost(
                "user",
                "CPU, programs",
                time,
                per_thousand(both(|side| side.cpu.user_ns)),
            ),
            cost(
                "system",
                "CPU, kernel for programs",
                time,
                per_thousand(both(|side| side.cpu.system_ns)),
            ),
            cost(
                "engine",
                "CPU, engines",
                time,
                per_thousand(both(|side| side.engine_ns)),
            ),
            cost(
                "softirq",
                "CPU, software interrupts",
                time,
                softirq_s / (messages / 1000.0),
            ),
            cost(
                "interrupts",
                "interrupts",
                Quantity::PerMessage,
                counted(|it| it.interrupts) / messages,
            ),
            cost(
                "interrupt_rate",
                "interrupts",
                Quantity::Interrupts,
                counted(|it| it.interrupts) / (client.span_ns as f64 / 1e9),
            ),
            cost(
                "switches",
                "context switches",
                Quantity::PerMessage,
                counted(|it| it.switches) / messages,
            ),
            cost(
                "retransmits",
                "segments sent again",
                Quantity::PerMessage,
                retransmits.map_or(f64::NAN, |count| count as f64 / messages),
            ),
        ]
    }
}

/// The share of one core used by the side's processes and engines.
fn share(side: &Side) -> f64 {
    (side.cpu.total_ns() + side.engine_ns) as f64 / side.span_ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::CpuUse;

    #[test]
    fn costs_are_sums_of_both_sides_per_message() {
        let side = Side {
            messages: 1000,
            span_ns: 1_000_000,
            cpu: CpuUse {
                user_ns: 300_000,
                system_ns: 200_000,
                ..CpuUse::default()
            },
            engine_ns: 100_000,
            machine: Some(Box::new(Machine {
                interrupts: 500,
                switches: 2000,
                softirq_ns: 40_000,
            })),
            retransmits: Some(1),
            ..Side::default()
        };
        let size = "64".parse().unwrap();
        let workload = Workload::PingPong { size };
        let costs = workload.costs(&side, &side);
        let value = |name: &str| costs.iter().find(|metric| metric.part == name).unwrap().value;
        assert_eq!(value("share_client"), 0.6);
        assert_eq!(
            (value("user"), value("engine"), value("softirq")),
            (0.0006, 0.0002, 0.00004)
        );
        assert_eq!((value("interrupts"), value("switches")), (0.5, 2.0));
        assert_eq!(value("retransmits"), 0.002);
        let unknown = workload.costs(&Side::default(), &Side::default());
        assert!(
            unknown
                .iter()
                .all(|metric| metric.detail && !metric.value.is_finite() || metric.value == 0.0)
        );
    }
}
