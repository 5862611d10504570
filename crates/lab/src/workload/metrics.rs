//! From what two sides counted to figures with a stable name and a unit.

use serde::{Deserialize, Serialize};

use super::Workload;
use crate::samples::Side;

/// What a figure measures; decides its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Quantity {
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Time,
    /// Bits a second.
    #[serde(rename = "bit/s")]
    Throughput,
    /// Events a second.
    #[serde(rename = "1/s")]
    Rate,
    /// Processor seconds for 1000 messages or connections.
    #[serde(rename = "s/1000")]
    CpuPerThousand,
    /// Processor seconds for 10⁹ bytes.
    #[serde(rename = "s/GB")]
    CpuPerGigabyte,
}

/// Which way a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
}

impl Quantity {
    /// Which way it is better.
    pub fn better(self) -> Better {
        match self {
            Self::Throughput | Self::Rate => Better::Higher,
            Self::Time | Self::CpuPerThousand | Self::CpuPerGigabyte => Better::Lower,
        }
    }
}

/// One figure of one measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Stable name, such as `latency_64B` or `cpu_server_stream_1K`.
    pub name: String,
    /// For people, within its workload: `one way, p50`.
    pub label: &'static str,
    /// What it measures.
    pub quantity: Quantity,
    /// Whether it is the workload's main figure, which has the workload's name.
    pub main: bool,
    /// The figure; no number if it could not be made.
    pub value: f64,
}

impl Workload {
    /// The figures of one measurement, the main one first. Their names, labels and
    /// order depend on the workload only.
    pub fn metrics(&self, client: &Side, server: &Side) -> Vec<Metric> {
        match self {
            Self::PingPong { .. } | Self::WakeUp => self.latency(client, server),
            Self::Stream { .. } | Self::Bulk => self.throughput(client, server),
            Self::Connect => self.connections(client, server),
        }
    }

    /// Names of the figures, in order.
    pub fn metric_names(&self) -> Vec<String> {
        let nothing = Side::default();
        self.metrics(&nothing, &nothing)
            .into_iter()
            .map(|metric| metric.name)
            .collect()
    }

    fn latency(&self, client: &Side, server: &Side) -> Vec<Metric> {
        let one_way = |quantile| quantile_ns(client, quantile) / 2.0;
        vec![
            self.main("one way, p50", Quantity::Time, one_way(0.5)),
            self.other("p99", "one way, p99", Quantity::Time, one_way(0.99)),
            self.other("p999", "one way, p99.9", Quantity::Time, one_way(0.999)),
            self.other(
                "cpu_client",
                "CPU, client",
                Quantity::CpuPerThousand,
                per_thousand(client),
            ),
            self.other(
                "cpu_server",
                "CPU, server",
                Quantity::CpuPerThousand,
                per_thousand(server),
            ),
        ]
    }

    fn throughput(&self, client: &Side, server: &Side) -> Vec<Metric> {
        // What has arrived counts, not what has been written.
        let rate_bps = server.bytes as f64 * 8.0 / (server.span_ns as f64 / 1e9);
        vec![
            self.main("throughput", Quantity::Throughput, rate_bps),
            self.other(
                "cpu_client",
                "CPU, sender",
                Quantity::CpuPerGigabyte,
                per_gigabyte(client),
            ),
            self.other(
                "cpu_server",
                "CPU, receiver",
                Quantity::CpuPerGigabyte,
                per_gigabyte(server),
            ),
            self.other(
                "cpu_messages_client",
                "CPU, sender",
                Quantity::CpuPerThousand,
                per_thousand(client),
            ),
            self.other(
                "cpu_messages_server",
                "CPU, receiver",
                Quantity::CpuPerThousand,
                per_thousand(server),
            ),
        ]
    }

    fn connections(&self, client: &Side, server: &Side) -> Vec<Metric> {
        let rate = client.messages as f64 / (client.span_ns as f64 / 1e9);
        vec![
            self.main("set up and torn down", Quantity::Rate, rate),
            self.other("p50", "each, p50", Quantity::Time, quantile_ns(client, 0.5)),
            self.other("p99", "each, p99", Quantity::Time, quantile_ns(client, 0.99)),
            self.other(
                "cpu_client",
                "CPU, client",
                Quantity::CpuPerThousand,
                per_thousand(client),
            ),
            self.other(
                "cpu_server",
                "CPU, server",
                Quantity::CpuPerThousand,
                per_thousand(server),
            ),
        ]
    }

    fn main(&self, label: &'static str, quantity: Quantity, value: f64) -> Metric {
        Metric {
            name: self.name(),
            label,
            quantity,
            main: true,
            value,
        }
    }

    /// A quantile's name goes behind the workload's kind, as in `latency_p99_64B`;
    /// any other before its name, as in `cpu_client_latency_64B`.
    fn other(&self, what: &str, label: &'static str, quantity: Quantity, value: f64) -> Metric {
        let name = self.name();
        let name = match (quantity, name.split_once('_')) {
            (Quantity::Time, Some((kind, size))) => format!("{kind}_{what}_{size}"),
            (Quantity::Time, None) => format!("{name}_{what}"),
            _ => format!("{what}_{name}"),
        };
        Metric {
            name,
            label,
            quantity,
            main: false,
            value,
        }
    }
}

fn quantile_ns(side: &Side, quantile: f64) -> f64 {
    let found = side
        .durations
        .as_ref()
        .and_then(|durations| durations.quantile_ns(quantile));
    found.map_or(f64::NAN, |duration| duration as f64)
}

fn per_thousand(side: &Side) -> f64 {
    seconds(side) / (side.messages as f64 / 1000.0)
}

fn per_gigabyte(side: &Side) -> f64 {
    seconds(side) / (side.bytes as f64 / 1e9)
}

fn seconds(side: &Side) -> f64 {
    side.cpu.total_ns() as f64 / 1e9
}
