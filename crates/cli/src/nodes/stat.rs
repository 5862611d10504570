//! `toehold stat`: shows a node's status and counters.

use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use toehold_node::control::{Connection, Counter, NodeStatus};
use toehold_node::fabric::Role;

use super::{Within, bytes, positive_span, short, table, unaccelerated, uplink_status};
use crate::json;

/// Show a node's status and counters
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold stat web
  toehold stat web --interval 1s
  toehold stat web --all --json | jq '.counters[] | select(.name == \"tcp_retransmits\")'
  toehold stat web --prometheus > /var/lib/node_exporter/toehold-web.prom")]
pub(crate) struct Arguments {
    /// Name of the node
    node: String,

    #[command(flatten)]
    within: Within,

    /// Sample twice, this far apart, and show rates as well
    #[arg(long, value_name = "SPAN", value_parser = positive_span)]
    interval: Option<Duration>,

    /// Show counters that are zero as well
    #[arg(long)]
    all: bool,

    /// Print JSON with all counters
    #[arg(long)]
    json: bool,

    /// Print Prometheus's text format with all counters
    #[arg(long, conflicts_with_all = ["json", "interval"])]
    prometheus: bool,

    #[command(flatten)]
    wide: table::Wide,
}

/// A node at one moment.
#[derive(Debug, Serialize)]
struct Sample {
    status: NodeStatus,
    counters: Vec<Counter>,
}

/// A counter, with its growth.
#[derive(Debug, Serialize)]
struct Figure {
    #[serde(flatten)]
    counter: Counter,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Report {
    status: NodeStatus,
    /// Share of a processor that the engine process used between the samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<f64>,
    counters: Vec<Figure>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut node = arguments.within.connect(&arguments.node)?;
    let mut sample = look(&mut node)?;
    let mut before = None;
    if let Some(interval) = arguments.interval {
        node.wait_for_end(interval)?;
        before = Some(std::mem::replace(&mut sample, look(&mut node)?));
    }
    if arguments.prometheus {
        write!(
            std::io::stdout(),
            "{}",
            prometheus(&sample, &arguments.within.fabric)
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = compare(sample, before.as_ref());
    if arguments.json {
        json::print("toehold/stat/1", &report)?;
    } else {
        show(&report, arguments)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn look(node: &mut Connection) -> Result<Sample> {
    Ok(Sample {
        status: unaccelerated::with_those_seen(node.status()?),
        counters: node.counters()?,
    })
}

fn compare(now: Sample, before: Option<&Sample>) -> Report {
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
    Report {
        cpu: used.zip(span).map(|(used, span)| used.as_secs_f64() / span),
        counters: now.counters.into_iter().enumerate().map(figure).collect(),
        status: now.status,
    }
}

fn show(report: &Report, arguments: &Arguments) -> std::io::Result<()> {
    write!(std::io::stdout(), "{}", summary(report))?;
    let shown = |figure: &&Figure| arguments.all || figure.counter.value > 0;
    let figures = together(&report.counters);
    let figures: Vec<_> = figures.iter().filter(shown).collect();
    if figures.is_empty() {
        return Ok(());
    }
    let mut table = table::new(&["counter", "what", "value", "per second"], 2)
        .optional(&["what"])
        .wide(arguments.wide);
    for figure in figures {
        let rate = figure
            .per_second
            .map_or_else(String::new, |rate| format!("{rate:.1}"));
        let counter = &figure.counter;
        table.add_row([
            counter.name.as_str(),
            &counter.doc,
            &counter.value.to_string(),
            &rate,
        ]);
    }
    writeln!(std::io::stdout(), "{table}")?;
    Ok(())
}

/// The sums of all shards' counters.
fn together(figures: &[Figure]) -> Vec<Figure> {
    let mut sums: Vec<Figure> = Vec::new();
    for figure in figures {
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

fn summary(report: &Report) -> String {
    let NodeStatus {
        node,
        cpu_time,
        uptime,
        processes,
        stack,
        ..
    } = &report.status;
    let cpu = report
        .cpu
        .map_or_else(String::new, |cpu| format!(", {:.1} % of a core now", cpu * 100.0));
    if node.role != Role::Node {
        return uplink_status::summary(&report.status, &cpu);
    }
    let mut text = format!(
        "{}: {}, {}, {}, MTU {}\n",
        node.name, node.ipv4, node.ipv6, node.mac, node.mtu
    );
    let _ = writeln!(
        text,
        "engine process {}, up {}, used {:.2} s of processor time{cpu}; placement {}{}",
        node.pid,
        short(*uptime),
        cpu_time.as_secs_f64(),
        stack.placement,
        match stack.shards {
            0 | 1 => String::new(),
            shards => format!(", {shards} shards"),
        }
    );
    let _ = writeln!(
        text,
        "{} of {} connections{}, {} listeners, {} of {} payload memory, {} peers{}{}",
        stack.connections,
        stack.connections_bound,
        match stack.relays {
            0 => String::new(),
            relays => format!(", {relays} of them carried for programs that cannot use the node"),
        },
        stack.listeners,
        bytes(stack.payload_used),
        bytes(stack.payload_bound),
        stack.peers,
        match stack.peer_memory {
            0 => String::new(),
            memory => format!(" with {} of rings", bytes(memory)),
        },
        if stack.capturing { ", capturing" } else { "" }
    );
    if let Some(kernel) = &stack.kernel {
        let _ = writeln!(text, "beside the kernel, over {kernel}");
    }
    for warning in uplink_status::warnings(&report.status) {
        let _ = writeln!(text, "{warning}");
    }
    for remark in unaccelerated::remarks(&report.status) {
        let _ = writeln!(text, "{remark}");
    }
    for process in processes {
        let _ = writeln!(
            text,
            "process {}: pid {} {}",
            process.process, process.pid, process.command
        );
    }
    text
}

/// Formats a sample for Prometheus: <https://prometheus.io/docs/instrumenting/exposition_formats/>
fn prometheus(sample: &Sample, fabric: &str) -> String {
    let mut text = String::new();
    let node = format!(
        "fabric=\"{}\",node=\"{}\"",
        escaped(fabric),
        sample.status.node.name
    );
    let mut metrics = |name: &str, kind: &str, doc: &str, values: &[(Option<u16>, f64)]| {
        let doc = doc.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = write!(
            text,
            "# HELP toehold_{name} {doc}\n# TYPE toehold_{name} {kind}\n"
        );
        for (shard, value) in values {
            let shard = shard.map_or_else(String::new, |shard| format!(",shard=\"{shard}\""));
            let _ = writeln!(text, "toehold_{name}{{{node}{shard}}} {value}");
        }
    };
    for (index, counter) in sample.counters.iter().enumerate() {
        let same = |other: &&Counter| other.name == counter.name;
        if sample.counters[..index].iter().any(|other| same(&other)) {
            continue;
        }
        // The values of all shards together.
        let values = sample.counters.iter().filter(same);
        let values: Vec<_> = values.map(|one| (one.shard, one.value as f64)).collect();
        metrics(
            &format!("{}_total", counter.name),
            "counter",
            &counter.doc,
            &values,
        );
    }
    let mut metric =
        |name: &str, kind: &str, doc: &str, value: f64| metrics(name, kind, doc, &[(None, value)]);
    let status = &sample.status;
    let stack = &status.stack;
    let cpu = status.cpu_time.as_secs_f64();
    metric(
        "cpu_seconds_total",
        "counter",
        "Processor time the engine process has used.",
        cpu,
    );
    for (name, doc, value) in [
        (
            "uptime_seconds",
            "Time since the engine process began.",
            status.uptime.as_secs_f64(),
        ),
        (
            "processes",
            "Processes that are attached.",
            status.processes.len() as f64,
        ),
        ("peers", "Peers whose frames reach the node.", stack.peers.into()),
        (
            "peer_memory_bytes",
            "Memory that the rings to peers take up.",
            stack.peer_memory as f64,
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
            stack.payload_used as f64,
        ),
        (
            "payload_memory_bound_bytes",
            "Payload memory.",
            stack.payload_bound as f64,
        ),
    ] {
        metric(name, "gauge", doc, value);
    }
    text
}

/// Escapes the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(uptime: u64, value: u64) -> Sample {
        let node = serde_json::json!({
            "name": "web", "mac": "02:00:00:00:00:01", "ipv4": "10.77.0.1/16", "ipv6": "fd77::1/64",
            "mtu": 1500, "pid": 7, "started": 0
        });
        Sample {
            status: NodeStatus {
                node: serde_json::from_value(node).unwrap(),
                cpu_time: Duration::from_secs(uptime / 4),
                uptime: Duration::from_secs(uptime),
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

    #[test]
    fn rates_come_from_two_samples() {
        let report = compare(sample(20, 700), Some(&sample(12, 300)));
        assert_eq!(
            (report.counters[0].per_second, report.cpu),
            (Some(50.0), Some(0.25))
        );
        let report = compare(sample(20, 700), None);
        assert_eq!((report.counters[0].per_second, report.cpu), (None, None));
        // Another engine process, whose counters started at zero.
        let report = compare(sample(20, 100), Some(&sample(12, 300)));
        assert_eq!(report.counters[0].per_second, Some(0.0));
    }

    #[test]
    fn counters_of_shards_are_separate_or_summed() {
        let mut sharded = sample(8, 5);
        for (shard, value) in [(0, 5), (1, 7)] {
            sharded.counters.push(Counter {
                name: "frames_received".into(),
                value,
                doc: "Received.".into(),
                shard: Some(shard),
            });
        }
        let text = prometheus(&sharded, "default");
        let expected = "# HELP toehold_frames_received_total Received.\n\
            # TYPE toehold_frames_received_total counter\n\
            toehold_frames_received_total{fabric=\"default\",node=\"web\",shard=\"0\"} 5\n\
            toehold_frames_received_total{fabric=\"default\",node=\"web\",shard=\"1\"} 7\n";
        assert!(text.contains(expected), "{text}");
        let sums = together(&compare(sharded, None).counters);
        let sums: Vec<_> = sums
            .iter()
            .map(|sum| (&*sum.counter.name, sum.counter.value))
            .collect();
        assert_eq!(sums, [("frames_sent", 5), ("frames_received", 12)]);
    }

    #[test]
    fn prometheus_output_has_its_format() {
        let text = prometheus(&sample(8, 5), "a\"b");
        let expected = "# HELP toehold_frames_sent_total Frames \\\\ sent.\n\
            # TYPE toehold_frames_sent_total counter\n\
            toehold_frames_sent_total{fabric=\"a\\\"b\",node=\"web\"} 5\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("toehold_cpu_seconds_total{fabric=\"a\\\"b\",node=\"web\"} 2\n"));
    }
}
