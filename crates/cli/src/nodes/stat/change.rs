//! A node at one moment, and its change between two.

use serde::Serialize;
use toehold_node::control::{Counter, NodeStatus};

/// A node at one moment.
#[derive(Debug, Serialize)]
pub(super) struct NodeSample {
    pub(super) status: NodeStatus,
    pub(super) counters: Vec<Counter>,
}

/// A counter, with its growth.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    #[serde(flatten)]
    pub(super) counter: Counter,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) per_second: Option<f64>,
}

/// A node, and its change since an earlier sample.
#[derive(Debug, Serialize)]
pub(super) struct NodeChange {
    pub(super) status: NodeStatus,
    /// Share of a processor that the engine process used between the samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu: Option<f64>,
    pub(super) counters: Vec<Figure>,
}

impl NodeChange {
    /// The state `now`, with the growth since `before`.
    pub(super) fn between(before: Option<&NodeSample>, now: NodeSample) -> Self {
        let span = before.map(|before| (now.status.uptime - before.status.uptime).as_secs_f64());
        let span = span.filter(|span| *span > 0.0);
        let figure = |(index, counter): (usize, Counter)| {
            let was = before.and_then(|before| before.counters.get(index));
            let was = was.filter(|was| was.name == counter.name);
            let grown = was.map(|was| counter.value.saturating_sub(was.value) as f64);
            Figure {
                per_second: grown.zip(span).map(|(grown, span)| grown / span),
                counter,
            }
        };
        let used = before.map(|before| now.status.cpu_time.saturating_sub(before.status.cpu_time));
        Self {
            cpu: used.zip(span).map(|(used, span)| used.as_secs_f64() / span),
            counters: now.counters.into_iter().enumerate().map(figure).collect(),
            status: now.status,
        }
    }

    /// The sums of all shards' counters.
    pub(super) fn sums(&self) -> Vec<Figure> {
        let mut sums: Vec<Figure> = Vec::new();
        for figure in &self.counters {
            let same = |sum: &&mut Figure| sum.counter.name == figure.counter.name;
            match sums.iter_mut().find(same) {
                Some(sum) => {
                    sum.counter.value += figure.counter.value;
                    let rates = sum.per_second.zip(figure.per_second);
                    sum.per_second = rates.map(|(sum, one)| sum + one);
                }
                None => sums.push(Figure {
                    counter: Counter {
                        shard: None,
                        ..figure.counter.clone()
                    },
                    per_second: figure.per_second,
                }),
            }
        }
        sums
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A node that is up for `uptime` seconds, with one counter.
    pub(in super::super) fn sample(uptime: u64, value: u64) -> NodeSample {
        let node = serde_json::json!({
            "name": "web", "mac": "02:00:00:00:00:01", "ipv4": "10.77.0.1/16", "ipv6": "fd77::1/64",
            "mtu": 1500, "pid": 7, "started": 0
        });
        NodeSample {
            status: NodeStatus {
                node: serde_json::from_value(node).unwrap(),
                cpu_time: std::time::Duration::from_secs(uptime / 4),
                uptime: std::time::Duration::from_secs(uptime),
                processes: Vec::new(),
                unaccelerated: Vec::new(),
                unaccelerated_beyond: 0,
                keepers: Vec::new(),
                stack: toehold_node::control::StackStatus::default(),
            },
            counters: vec![Counter {
                name: "frames_sent".into(),
                value,
                doc: "Frames \\ sent.".into(),
                shard: None,
            }],
        }
    }

    /// The sample with a counter that two shards have.
    pub(in super::super) fn sharded(mut sample: NodeSample) -> NodeSample {
        for (shard, value) in [(0, 5), (1, 7)] {
            sample.counters.push(Counter {
                name: "frames_received".into(),
                value,
                doc: "Received.".into(),
                shard: Some(shard),
            });
        }
        sample
    }

    #[test]
    fn rates_come_from_two_samples() {
        let change = NodeChange::between(Some(&sample(12, 300)), sample(20, 700));
        assert_eq!(
            (change.counters[0].per_second, change.cpu),
            (Some(50.0), Some(0.25))
        );
        let change = NodeChange::between(None, sample(20, 700));
        assert_eq!((change.counters[0].per_second, change.cpu), (None, None));
        // Another engine process, whose counters started at zero.
        let change = NodeChange::between(Some(&sample(12, 300)), sample(20, 100));
        assert_eq!(change.counters[0].per_second, Some(0.0));
    }

    #[test]
    fn counters_of_shards_are_summed() {
        let sums = NodeChange::between(None, sharded(sample(8, 5))).sums();
        let sums: Vec<_> = sums
            .iter()
            .map(|sum| (&*sum.counter.name, sum.counter.value))
            .collect();
        assert_eq!(sums, [("frames_sent", 5), ("frames_received", 12)]);
    }
}
