use super::*;
use crate::experiment::{Options, Settings, sockets};
use crate::samples::{Counts, CpuUse, Side};
use crate::workload::Cell;

fn plan() -> Plan {
    sockets::plan(Options {
        sizes: vec!["64".parse().unwrap(), "1K".parse().unwrap()],
        candidates: ["toehold", "kernel-veth", "floor", "missing"]
            .map(String::from)
            .into(),
        rounds: 3,
        seed: 7,
        settings: Settings {
            warm_up_ms: 1,
            span_ms: 100,
            patience_ms: 1,
            cores: [0, 1],
            congestion: "reno".into(),
            trace: None,
            far: None,
        },
    })
}

fn sample(round: u32, candidate: &str, workload: Workload, outcome: Outcome) -> Sample {
    Sample::of_test(round, candidate, Cell::from(workload), outcome)
}

/// A side that moved 1000 messages of `size` bytes in `span_ms`, with full use of a processor.
fn side(size: u64, span_ms: u64, round_trip_ns: u64) -> Side {
    Side {
        messages: 1000,
        bytes: 1000 * size,
        span_ns: span_ms * 1_000_000,
        cpu: CpuUse {
            user_ns: span_ms * 600_000,
            system_ns: span_ms * 400_000,
            ..CpuUse::default()
        },
        total_bytes: 0,
        durations: Some(Counts(vec![
            (round_trip_ns, 990),
            (10 * round_trip_ns, 9),
            (100 * round_trip_ns, 1),
        ])),
        ..Side::default()
    }
}

fn measured(round: u32, candidate: &str, workload: Workload, span_ms: u64, round_trip_ns: u64) -> Sample {
    let side = side(1024, span_ms, round_trip_ns);
    sample(round, candidate, workload, Outcome::of_both(side))
}

/// Each round is slower than the one before, for all candidates alike.
pub(super) fn samples() -> Vec<Sample> {
    let size = "64".parse().unwrap();
    let mut samples = Vec::new();
    for round in 0..3 {
        let slow = u64::from(round) + 1;
        for (candidate, factor) in [("toehold", 1), ("kernel-veth", 10)] {
            let latency = Workload::PingPong { size };
            samples.push(measured(round, candidate, latency, 100, 1000 * factor * slow));
            samples.push(measured(round, candidate, Workload::Bulk, 2 * factor * slow, 1));
            samples.push(measured(
                round,
                candidate,
                Workload::Connect,
                5 * factor * slow,
                1,
            ));
        }
    }
    let reason = "no answer in time".to_owned();
    let output = (1..=9).map(|line| format!("line {line}\n")).collect();
    samples.push(sample(
        1,
        "floor",
        Workload::Bulk,
        Outcome::Failed { reason, output },
    ));
    for reason in ["install it", "not with that MTU", "install it"] {
        let reason = reason.to_owned();
        samples.push(sample(
            0,
            "missing",
            Workload::Bulk,
            Outcome::Unavailable { reason },
        ));
    }
    samples
}

pub(super) fn report() -> Report {
    let machine = MachineUse {
        busy_s: 4.0,
        own_s: 1.0,
        ..MachineUse::default()
    };
    let took = Duration::from_secs(3);
    Report::new(
        Header::now(plan()),
        &samples(),
        took,
        true,
        machine,
        Path::new("/results"),
    )
}

/// The run, read back.
pub(super) fn saved() -> Saved {
    Saved {
        samples: samples(),
        ..saved_as(report())
    }
}

/// A run of these candidates with these samples, and with their cells.
pub(super) fn saved_of(candidates: &[&str], samples: Vec<Sample>) -> Saved {
    let mut plan = plan();
    plan.candidates = candidates.iter().map(|name| (*name).to_owned()).collect();
    plan.cells = samples.iter().map(|sample| sample.cell).collect();
    plan.cells.dedup();
    let used = MachineUse::default();
    let took = Duration::from_secs(3);
    let report = Report::new(
        Header::now(plan),
        &samples,
        took,
        true,
        used,
        Path::new("/results"),
    );
    Saved {
        samples,
        ..saved_as(report)
    }
}

fn saved_as(report: Report) -> Saved {
    Saved {
        report,
        samples: Vec::new(),
        damage: Vec::new(),
        files: vec![RawFile {
            name: "samples.jsonl",
            bytes: b"{}\n".to_vec(),
        }],
    }
}

#[test]
fn ratios_have_stable_names_and_are_computed_by_round() {
    let report = report();
    let names = report.ratios.keys().map(String::as_str).collect::<Vec<_>>();
    for name in [
        "latency_64B",
        "latency_p99_64B",
        "latency_p999_64B",
        "cpu_client_latency_64B",
        "stream",
        "connect",
    ] {
        assert!(
            names.contains(&format!("{name}/toehold/kernel-veth").as_str()),
            "{name} in {names:?}"
        );
    }
    assert!(
        !names.iter().any(|name| name.contains("floor")),
        "without figures there is no ratio"
    );
    // Every round has the same ratio, although the machine became three times slower.
    for (name, ratio) in [("latency_64B", 0.1), ("stream", 10.0), ("connect", 10.0)] {
        let estimate = report.ratios[&format!("{name}/toehold/kernel-veth")];
        assert_eq!(estimate.runs, 3);
        for value in [estimate.low, estimate.median, estimate.high] {
            assert!((value - ratio).abs() < 1e-9, "{name}: {estimate:?}");
        }
    }
}

#[test]
fn figures_have_their_units() {
    let report = report();
    let check = |name: &str, median: f64, unit: Quantity, better: Better| {
        let figures = &report.metrics[name];
        let found = figures.values["toehold"].median;
        assert!((found / median - 1.0).abs() < 1e-9, "{name}: {found}");
        assert_eq!((figures.unit, figures.better), (unit, better), "{name}");
    };
    // Round trips of 2 µs, one in a hundred ten times that, one in a thousand a hundred times.
    check("latency_64B", 1000.0, Quantity::Time, Better::Lower);
    check("latency_p99_64B", 1000.0, Quantity::Time, Better::Lower);
    check("latency_p999_64B", 10_000.0, Quantity::Time, Better::Lower);
    // 0.1 s of processor time for 1000 messages.
    check(
        "cpu_server_latency_64B",
        0.1,
        Quantity::CpuPerThousand,
        Better::Lower,
    );
    // 1 024 000 bytes in 4 ms, and 4 ms of processor time for them.
    check("stream", 2_048_000_000.0, Quantity::Throughput, Better::Higher);
    check(
        "cpu_client_stream",
        3.90625,
        Quantity::CpuPerGigabyte,
        Better::Lower,
    );
    check("connect", 100_000.0, Quantity::Rate, Better::Higher);
}

#[test]
fn report_round_trips_through_json() {
    let report = report();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.json");
    report.save(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let read: Report = serde_json::from_str(&text).unwrap();
    assert_eq!(read.ratios, report.ratios);
    assert_eq!(read.metrics, report.metrics);
    assert_eq!(read.header.plan, report.header.plan);
    assert_eq!(read.failures, report.failures);
    assert_eq!(read.candidates, report.candidates);
}

/// Other programs read this file, so that its structure is fixed.
#[test]
fn structure_of_json_is_stable() {
    let value = serde_json::to_value(report()).unwrap();
    assert_eq!(value["format"], 2);
    let ratio = value["ratios"]["latency_64B/toehold/kernel-veth"]
        .as_object()
        .unwrap();
    assert_eq!(
        ratio.keys().collect::<Vec<_>>(),
        ["high", "low", "median", "runs"]
    );
    assert_eq!(ratio["runs"], 3);
    assert_eq!(value["metrics"]["stream"]["unit"], "bit/s");
    assert_eq!(value["metrics"]["stream"]["better"], "higher");
    assert_eq!(value["metrics"]["latency_64B"]["unit"], "ns");
    assert_eq!(
        value["plan"]["cells"][0],
        serde_json::json!({"kind": "ping-pong", "size": "64B"})
    );
    assert_eq!(
        value["candidates"]["missing"]["unavailable"],
        "install it; not with that MTU"
    );
    assert_eq!(value["candidates"]["floor"]["failed"], 1);
    for fact in ["cpu", "cores", "kernel", "governor", "huge_pages", "clock_ns"] {
        assert!(value["host"].get(fact).is_some(), "{fact}");
    }
    for fact in ["version", "commit", "dirty", "profile"] {
        assert!(value["build"].get(fact).is_some(), "{fact}");
    }
    for fact in ["steal_s", "busy_s", "own_s", "softirq_s"] {
        assert!(value["machine"].get(fact).is_some(), "{fact}");
    }
}

#[test]
fn text_has_units_missing_candidates_and_doubts() {
    let text = text(&report(), Look::default());
    assert!(!text.contains('\x1b'), "no colours unless asked");
    for part in [
        "one way, p50 (µs)",
        "throughput (Gb/s)",
        "toehold /",
        "0.100 [0.100–0.100]",
        "missing was not measured: install it; not with that MTU",
        "floor failed at stream in round 2: no answer in time\n    line 5",
        "other programs used 50 % of the machine",
    ] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    assert!(!text.contains("line 4"), "the last lines only");
    let coloured = super::text(
        &report(),
        Look {
            width: Some(80),
            colours: true,
        },
    );
    assert!(coloured.contains("\x1b["));
    let width = |line: &str| console::measure_text_width(line);
    assert!(
        coloured
            .lines()
            .filter(|line| line.contains('─'))
            .all(|line| width(line) <= 80),
        "{coloured}"
    );
}

#[test]
fn change_of_machine_during_run_is_a_doubt() {
    let size = "64".parse().unwrap();
    let run = |round_trips: [u64; 3]| {
        let rounds = (0..3).zip(round_trips);
        let sample = |(round, ns)| measured(round, "floor", Workload::PingPong { size }, 100, ns);
        let samples = rounds.map(sample).collect::<Vec<_>>();
        let machine = MachineUse::default();
        Report::new(
            Header::now(plan()),
            &samples,
            Duration::from_secs(3),
            true,
            machine,
            Path::new("/"),
        )
        .doubts()
    };
    let about_hop = |doubts: Vec<String>| doubts.iter().any(|doubt| doubt.contains("from 80 to 260 ns"));
    assert!(about_hop(run([160, 340, 520])));
    assert!(
        !run([340, 350, 360])
            .iter()
            .any(|doubt| doubt.contains("bare hop"))
    );
}

#[test]
fn run_without_figures_is_a_report() {
    let report = Report::new(
        Header::now(plan()),
        &[],
        Duration::ZERO,
        false,
        MachineUse::default(),
        Path::new("/results"),
    );
    assert!(report.ratios.is_empty() && report.metrics.is_empty());
    assert!(text(&report, Look::default()).contains("interrupted"));
}
