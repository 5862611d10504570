//! Spans in JSON: integers, in fields whose names end with `_ns`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Writes a span in nanoseconds; one of more than 584 years is written as that.
pub(super) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

/// Reads a span in nanoseconds.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_nanos)
}
