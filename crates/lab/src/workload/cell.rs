//! A cell of a plan: the workload of the two sides, and its path.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::kind::Workload;
use super::quantity::Metric;
use crate::samples::Side;

/// A workload on a path. Its serialized form has the workload's own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// The workload of the two sides.
    #[serde(flatten)]
    pub workload: Workload,
    /// Largest IP packet of the path, in bytes; `None` means each candidate's default.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mtu: Option<u16>,
}

/// A cell's value of each factor, by the factor's name: sizes in bytes, α in hundredths, all others
/// as counts.
pub type Factors = BTreeMap<String, u64>;

impl Cell {
    /// Stable name, the first part of its metrics' names: the workload's, and the MTU if it is
    /// given, as in `latency_64B_mtu1500`.
    pub fn name(&self) -> String {
        self.named(self.workload.name())
    }

    /// Title for people.
    pub fn title(&self) -> String {
        match self.mtu {
            Some(mtu) => format!("{}, MTU {mtu}", self.workload.title()),
            None => self.workload.title(),
        }
    }

    /// The cell's value of each factor, which charts use as axes.
    pub fn factors(&self) -> Factors {
        let mut factors = self.workload.factors();
        if let Some(mtu) = self.mtu {
            factors.insert("mtu".into(), mtu.into());
        }
        factors
    }

    /// The figures of one measurement, the main one first. Their names, labels and order depend on
    /// the cell only.
    pub fn metrics(&self, client: &Side, server: &Side) -> Vec<Metric> {
        let metrics = self.workload.metrics(client, server);
        let named = |metric: Metric| Metric {
            name: self.named(metric.name),
            ..metric
        };
        metrics.into_iter().map(named).collect()
    }

    /// Names of the figures, in order.
    pub fn metric_names(&self) -> Vec<String> {
        let nothing = Side::default();
        let metrics = self.metrics(&nothing, &nothing);
        metrics.into_iter().map(|metric| metric.name).collect()
    }

    fn named(&self, name: String) -> String {
        match self.mtu {
            Some(mtu) => format!("{name}_mtu{mtu}"),
            None => name,
        }
    }
}

impl From<Workload> for Cell {
    fn from(workload: Workload) -> Self {
        Self { workload, mtu: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_serializes_as_workload_and_mtu() {
        let size = "1K".parse().unwrap();
        let cell = Cell {
            workload: Workload::PingPong { size },
            mtu: Some(9000),
        };
        let text = serde_json::to_string(&cell).unwrap();
        assert_eq!(text, r#"{"kind":"ping-pong","size":"1K","mtu":9000}"#);
        assert_eq!(serde_json::from_str::<Cell>(&text).unwrap(), cell);
        assert_eq!(cell.name(), "latency_1K_mtu9000");
        assert_eq!(cell.metric_names()[1], "latency_p99_1K_mtu9000");
        let factors: Vec<_> = cell.factors().into_iter().collect();
        assert_eq!(factors, [("mtu".into(), 9000), ("size".into(), 1024)]);

        let plain = Cell::from(Workload::Bulk);
        let text = serde_json::to_string(&plain).unwrap();
        assert_eq!(text, r#"{"kind":"bulk"}"#);
        assert_eq!(serde_json::from_str::<Cell>(&text).unwrap(), plain);
        assert_eq!((plain.name(), plain.factors().len()), ("stream".into(), 0));
    }
}
