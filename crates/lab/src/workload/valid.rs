//! Fields of workloads that are checked when a plan is read.

use serde::{Deserialize, Deserializer, Serializer, de::Error};
use toehold_demux_lab::DemuxStrategy;
use toehold_demux_lab::set_up::MOST;
use toehold_trace::kernel::MOST_TRIPS;

/// Fewest round trips of a block: a median needs some.
const LEAST_TRIPS: u32 = 10;

/// Most users: each is a connection of a table.
const MOST_USERS: u32 = 1 << 20;

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

/// A valid number of round trips of a block.
pub(super) fn trips<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        trips @ LEAST_TRIPS..=MOST_TRIPS => Ok(trips),
        other => Err(D::Error::custom(format!(
            "{other} round trips: a block can have {LEAST_TRIPS} to {MOST_TRIPS}"
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
