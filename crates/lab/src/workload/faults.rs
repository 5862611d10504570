//! The faults of a path.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use toehold_link::impair::{ImpairSettings, Impairments};

/// Additional delay of a frame that others overtake, in nanoseconds.
const REORDER_DELAY_NS: u64 = 2_000_000;

/// Most frames in a direction of the path: its queue.
pub(crate) const QUEUE: usize = 8192;

/// Round trips for which a sender continues after its measurement. The receiver's measurement begins
/// at most this much later. Its first read of the clock comes after three rounds of slow start. Its
/// warm-up ends with a round, and the first byte travels for half a round trip.
const OVERLAP_ROUNDS: u64 = 5;

/// The faults of each frame, equal in both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Frames lost, in a thousand.
    pub loss_per_mille: u16,
    /// Frames repeated, in a thousand.
    pub duplicate_per_mille: u16,
    /// Frames overtaken by others, in a thousand.
    pub reorder_per_mille: u16,
    /// Delay of a frame, in milliseconds.
    pub delay_ms: u16,
}

impl Faults {
    /// Stable name: `1%_20ms`, `0%_20ms_duplicate_5%`.
    pub(super) fn name(&self) -> String {
        let mut name = format!("{}_{}ms", percent(self.loss_per_mille), self.delay_ms);
        for (what, per_mille) in [
            ("duplicate", self.duplicate_per_mille),
            ("reorder", self.reorder_per_mille),
        ] {
            if per_mille != 0 {
                name.push_str(&format!("_{what}_{}", percent(per_mille)));
            }
        }
        name
    }

    /// Title for people.
    pub(super) fn title(&self) -> String {
        let parts = [
            (self.loss_per_mille, "lost"),
            (self.duplicate_per_mille, "twice"),
            (self.reorder_per_mille, "late"),
        ];
        let parts = parts.into_iter().filter(|(per_mille, _)| *per_mille != 0);
        let mut title = format!("{} ms each way", self.delay_ms);
        for (per_mille, what) in parts {
            title.push_str(&format!(", {} {what}", percent(per_mille)));
        }
        title
    }

    /// Time for which a stream continues after the sender's measurement, so that the receiver's ends
    /// during traffic. A measurement that ended with the stream would include a burst more than
    /// round trips.
    pub(super) fn overlap(&self) -> Duration {
        Duration::from_millis(2 * OVERLAP_ROUNDS * u64::from(self.delay_ms))
    }

    /// The settings of a path with these faults, by a seed.
    pub(crate) fn settings(&self, seed: u64) -> ImpairSettings {
        let probability = |per_mille| f64::from(per_mille) / 1000.0;
        let each_way = Impairments {
            loss: probability(self.loss_per_mille),
            duplicate: probability(self.duplicate_per_mille),
            reorder: probability(self.reorder_per_mille),
            reorder_delay_ns: REORDER_DELAY_NS,
            delay_ns: u64::from(self.delay_ms) * 1_000_000,
            limit: QUEUE,
            ..Impairments::default()
        };
        ImpairSettings {
            seed,
            transmit: each_way,
            receive: each_way,
            ..ImpairSettings::default()
        }
    }
}

/// A percentage: `1%`, `0.1%`.
fn percent(per_mille: u16) -> String {
    format!("{}%", f64::from(per_mille) / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_faults() {
        let faults = Faults {
            loss_per_mille: 1,
            delay_ms: 20,
            ..Faults::default()
        };
        assert_eq!(faults.name(), "0.1%_20ms");
        assert_eq!(faults.title(), "20 ms each way, 0.1% lost");
        let faults = Faults {
            reorder_per_mille: 50,
            ..Faults::default()
        };
        assert_eq!(faults.name(), "0%_0ms_reorder_5%");
    }

    #[test]
    fn path_without_faults_has_no_settings() {
        assert!(Faults::default().settings(1).transmit.is_none());
        let faults = Faults {
            loss_per_mille: 10,
            ..Faults::default()
        };
        assert_eq!(faults.settings(1).receive.loss, 0.01);
    }
}
