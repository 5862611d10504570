//! Workloads without another side: TPC/A's users, and the cost of finding their connections.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de::Error};
use toehold_demux_lab::DemuxStrategy;
use toehold_demux_lab::set_up::{MOST, PACKETS};

use super::{Metric, Quantity, Workload};
use crate::samples::Side;

/// Most users: each is a connection of a table.
const MOST_USERS: u32 = 1 << 20;

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

    /// Its approximate duration alone.
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

/// A strategy in text form.
pub(super) mod strategy {
    use super::*;

    pub(in crate::workload) fn serialize<S: Serializer>(
        strategy: &DemuxStrategy,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(strategy)
    }

    pub(in crate::workload) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<DemuxStrategy, D::Error> {
        let text = String::deserialize(deserializer)?;
        let strategy = text.parse();
        strategy.map_err(|error| D::Error::custom(format!("`{text}` is {error}")))
    }
}

/// A valid number of users.
pub(super) fn users<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        users @ 2..=MOST_USERS => Ok(users),
        other => Err(D::Error::custom(format!(
            "{other} users: there can be 2 to {MOST_USERS}"
        ))),
    }
}

/// A valid number of connections from one client to one server.
pub(super) fn opened<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        connections @ 1..=MOST => Ok(connections),
        other => Err(D::Error::custom(format!(
            "{other} connections: there can be 1 to {MOST}"
        ))),
    }
}

/// At least one.
pub(super) fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        0 => Err(D::Error::custom("0 is too few")),
        some => Ok(some),
    }
}
