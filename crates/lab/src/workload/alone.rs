//! Workloads without another side: TPC/A's users, and the cost of finding their connections.

use std::time::Duration;

use toehold_demux_lab::DemuxStrategy;
use toehold_demux_lab::set_up::PACKETS;

use super::kind::Workload;
use super::quantity::{Metric, Quantity};
use crate::samples::Side;

/// Nanoseconds per examined PCB, at worst.
const EXAMINED_NS: u64 = 2;

/// Least cost of a segment, in examined PCBs.
const LEAST: u32 = 50;

impl Workload {
    /// Whether one process runs it alone. Other workloads have two sides.
    pub fn is_alone(&self) -> bool {
        matches!(
            self,
            Self::LookUp { .. } | Self::Entries { .. } | Self::SetUp { .. }
        )
    }

    /// The workload's approximate duration if it runs alone.
    pub(super) fn length_alone(&self) -> Duration {
        let (strategy, users, segments) = match self {
            // Ten for each user until lists are in order.
            Self::LookUp {
                strategy,
                users,
                lookups,
                ..
            } => (strategy, *users, 10 * u64::from(*users) + 2 * u64::from(*lookups)),
            Self::SetUp {
                strategy,
                connections,
            } => (strategy, *connections, u64::from(2 * PACKETS * connections)),
            _ => return Duration::from_millis(50),
        };
        let chains = match strategy {
            DemuxStrategy::Bsd | DemuxStrategy::MoveToFront => 1,
            DemuxStrategy::Sequent { chains } | DemuxStrategy::HashedMoveToFront { chains } => *chains,
            DemuxStrategy::FlowTable => users,
        };
        let examined = segments * u64::from((users / 2 / chains.max(1)).max(LEAST));
        Duration::from_nanos(examined * EXAMINED_NS)
    }

    /// The results of one process.
    pub(super) fn found(&self, side: &Side) -> Vec<Metric> {
        let value = |part: &str| side.values.get(part).copied().unwrap_or(f64::NAN);
        if let Self::Entries { .. } = self {
            return vec![self.main("users who enter, and precede", Quantity::Pcbs, value(""))];
        }
        let other = |part, label, quantity| self.other(part, label, quantity, value(part));
        if let Self::SetUp { .. } = self {
            return vec![
                self.main("PCBs examined for packets", Quantity::Pcbs, value("")),
                other("ports", "PCBs examined to find free ports", Quantity::Pcbs),
                other("ns", "first SYN to last SYN-ACK", Quantity::Time),
            ];
        }
        vec![
            self.main("PCBs examined", Quantity::Pcbs, value("")),
            other("entry", "PCBs examined, entries", Quantity::Pcbs),
            other(
                "acknowledgement",
                "PCBs examined, acknowledgements",
                Quantity::Pcbs,
            ),
            other("hits", "acknowledgements that a cache answers", Quantity::Hits),
            other("ns", "a look-up", Quantity::Time),
        ]
    }
}
