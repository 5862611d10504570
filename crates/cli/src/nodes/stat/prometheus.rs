//! A node's sample in Prometheus's text format, version 0.0.4:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>
//!
//! The node exporter reads this version from files. A counter's name has the suffix `_total` in all
//! of its lines.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use toehold_node::control::Counter;

use super::change::NodeSample;

/// The beginning of every metric's name.
const PREFIX: &str = "toehold";

/// Formats a sample of a node of `fabric`.
///
/// # Errors
///
/// If the library cannot format a value.
pub(super) fn text(sample: NodeSample, fabric: &str) -> Result<String, fmt::Error> {
    let labels = [
        ("fabric", fabric.to_owned()),
        ("node", sample.status.node.name.to_string()),
    ];
    let labels = labels.map(|(name, value)| (name.into(), value.into()));
    let mut registry = Registry::with_prefix_and_labels(PREFIX, labels.into_iter());
    registry.register_collector(Box::new(sample));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    Ok(text)
}

impl Collector for NodeSample {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (index, counter) in self.counters.iter().enumerate() {
            let same = |other: &&Counter| other.name == counter.name;
            if self.counters[..index].iter().any(|other| same(&other)) {
                continue;
            }
            let mut family =
                encoder.encode_descriptor(&counter.name, &counter.doc, None, MetricType::Counter)?;
            // The values of all shards together.
            for one in self.counters.iter().filter(same) {
                let labels: Vec<_> = one.shard.map(|shard| ("shard", shard)).into_iter().collect();
                ConstCounter::new(one.value).encode(family.encode_family(&labels)?)?;
            }
        }
        let cpu = ConstCounter::new(self.status.cpu_time.as_secs_f64());
        let doc = "Processor time the engine process has used.";
        cpu.encode(encoder.encode_descriptor("cpu_seconds", doc, None, cpu.metric_type())?)?;
        let uptime = ConstGauge::new(self.status.uptime.as_secs_f64());
        let doc = "Time since the engine process began.";
        uptime.encode(encoder.encode_descriptor("uptime_seconds", doc, None, uptime.metric_type())?)?;
        for (name, doc, value) in gauges(self) {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, doc, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

/// The names, descriptions and values of a node's gauges that count.
fn gauges(sample: &NodeSample) -> [(&'static str, &'static str, u64); 8] {
    let stack = &sample.status.stack;
    let processes = sample.status.processes.len() as u64;
    [
        ("processes", "Processes that are attached.", processes),
        ("peers", "Peers whose frames reach the node.", stack.peers.into()),
        (
            "peer_memory_bytes",
            "Memory that the rings to peers take up.",
            stack.peer_memory,
        ),
        ("connections", "Connections.", stack.connections.into()),
        (
            "connections_bound",
            "Most connections.",
            stack.connections_bound.into(),
        ),
        ("listeners", "Listeners.", stack.listeners.into()),
        (
            "payload_memory_bytes",
            "Payload memory in use.",
            stack.payload_used,
        ),
        (
            "payload_memory_bound_bytes",
            "Payload memory.",
            stack.payload_bound,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::stat::change::tests::{sample, sharded};

    #[test]
    fn counters_of_shards_are_separate() {
        let text = text(sharded(sample(8, 5)), "default").unwrap();
        let expected = "# HELP toehold_frames_received_total Received.\n\
            # TYPE toehold_frames_received_total counter\n\
            toehold_frames_received_total{fabric=\"default\",node=\"web\",shard=\"0\"} 5\n\
            toehold_frames_received_total{fabric=\"default\",node=\"web\",shard=\"1\"} 7\n";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn prometheus_output_has_its_format() {
        let text = text(sample(8, 5), "a\"b").unwrap();
        let expected = "# HELP toehold_frames_sent_total Frames \\\\ sent.\n\
            # TYPE toehold_frames_sent_total counter\n\
            toehold_frames_sent_total{fabric=\"a\\\"b\",node=\"web\"} 5\n\
            # HELP toehold_cpu_seconds_total Processor time the engine process has used.\n\
            # TYPE toehold_cpu_seconds_total counter\n\
            toehold_cpu_seconds_total{fabric=\"a\\\"b\",node=\"web\"} 2.0\n\
            # HELP toehold_uptime_seconds Time since the engine process began.\n\
            # TYPE toehold_uptime_seconds gauge\n\
            toehold_uptime_seconds{fabric=\"a\\\"b\",node=\"web\"} 8.0\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(!text.contains("# EOF"), "that is OpenMetrics: {text}");
    }

    #[test]
    fn every_metric_has_type_of_its_name() {
        let text = text(sharded(sample(8, 5)), "default").unwrap();
        let types = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE toehold_"));
        let types: Vec<_> = types.map(|line| line.split_once(' ').unwrap()).collect();
        assert_eq!(types.len(), 3 + 9);
        for (name, kind) in types {
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} {kind}");
            let line = format!("\ntoehold_{name}{{");
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}
