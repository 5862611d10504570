use super::*;
use crate::experiment::{Options, Settings, sockets};
use crate::samples::{Counts, CpuUse, Side};
use crate::workload::{Better, Cell, Quantity};

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

/// A ping-pong of two sizes. The candidates are named with their round trips in nanoseconds.
fn run_of_ping_pongs(round_trips: &[(&str, [u64; 2])]) -> Saved {
    let mut samples = Vec::new();
    for (place, size) in ["64", "1K"].iter().enumerate() {
        let workload = Workload::PingPong {
            size: size.parse().unwrap(),
        };
        for round in 0..3 {
            let of_round = round_trips.iter();
            samples.extend(of_round.map(|(name, ns)| measured(round, name, workload, 100, ns[place])));
        }
    }
    let names: Vec<_> = round_trips.iter().map(|(name, _)| *name).collect();
    saved_of(&names, samples)
}

/// The findings of a run as "candidate baseline: difference place, …".
fn findings_of(run: &Saved) -> Vec<String> {
    let panels = figure::panels(&run.report, &run.samples);
    let line = |finding: finding::Finding| {
        let (candidate, baseline) = finding.compared.unwrap();
        let ours = finding.ours.into_iter();
        let ours = ours.map(|ours| format!("{} {}", ours.text, ours.place.unwrap()));
        format!("{candidate} {baseline}: {}", ours.collect::<Vec<_>>().join(", "))
    };
    findings::findings(&run.report, &panels)
        .into_iter()
        .map(line)
        .collect()
}

#[test]
fn findings_have_every_comparison_and_losses_first() {
    let run = run_of_ping_pongs(&[
        ("toehold", [100, 100]),
        ("kernel-veth", [1000, 1000]),
        ("floor", [500, 4000]),
    ]);
    assert_eq!(
        findings_of(&run),
        [
            "floor kernel-veth: 4.00× higher 1K, 2.00× lower 64B",
            "toehold kernel-veth: 10.0× lower 1K, 10.0× lower 64B",
            "toehold floor: 40.0× lower 1K, 5.00× lower 64B",
        ]
    );
    let run = run_of_ping_pongs(&[("toehold", [100, 300]), ("kernel-veth", [200, 200])]);
    assert_eq!(
        findings_of(&run),
        ["toehold kernel-veth: 1.50× higher 1K, 2.00× lower 64B"]
    );
}

#[test]
fn sure_loss_is_shown_where_another_place_has_a_worse_uncertain_median() {
    let mut samples = Vec::new();
    for (size, ours) in [("64", [500, 3000, 4000]), ("1K", [1200; 3])] {
        let workload = Workload::PingPong {
            size: size.parse().unwrap(),
        };
        for (round, ns) in (0..3).zip(ours) {
            samples.push(measured(round, "toehold", workload, 100, ns));
            samples.push(measured(round, "kernel-veth", workload, 100, 1000));
        }
    }
    let run = saved_of(&["toehold", "kernel-veth"], samples);
    assert_eq!(
        findings_of(&run),
        ["toehold kernel-veth: 20 % higher 1K, no sure difference, 3.00× 64B"]
    );
}

#[test]
fn text_has_every_comparison_and_losses_before_ratios() {
    let run = run_of_ping_pongs(&[
        ("toehold", [100, 100]),
        ("kernel-veth", [1000, 1000]),
        ("floor", [500, 4000]),
    ]);
    let shown = text(&run.report, Look::default());
    let losses = shown.find("Losses: where a candidate is surely worse").unwrap();
    let ratios = shown.find("Ratios: median of the rounds'").unwrap();
    assert!(losses < ratios, "{shown}");
    let lost = &shown[losses..ratios];
    assert!(
        lost.contains("4.00× higher [4.00–4.00]") && lost.contains("1K"),
        "{shown}"
    );
    assert!(lost.contains("floor") && !lost.contains("toehold"), "{shown}");

    let run = run_of_ping_pongs(&[("toehold", [100, 100]), ("kernel-veth", [1000, 1000])]);
    let shown = text(&run.report, Look::default());
    assert!(
        !shown.contains("Losses") && shown.contains("toehold /"),
        "{shown}"
    );
}

#[test]
fn text_with_more_comparisons_than_columns_has_further_tables() {
    let names: Vec<_> = (1..=8).map(|number| format!("other{number}")).collect();
    let mut trips: Vec<_> = names.iter().map(|name| (name.as_str(), [1000, 1000])).collect();
    trips.push(("toehold", [100, 100]));
    let run = run_of_ping_pongs(&trips);
    let mut plan = run.report.header.plan.clone();
    plan.comparisons = names
        .iter()
        .map(|name| crate::experiment::Comparison {
            candidate: name.clone(),
            baseline: "toehold".into(),
        })
        .collect();
    let report = Report::new(
        Header::now(plan),
        &run.samples,
        Duration::from_secs(3),
        true,
        MachineUse::default(),
        Path::new("/results"),
    );
    let shown = text(&report, Look::default());
    let after = &shown[shown.find("Ratios: ").unwrap()..];
    for name in &names {
        assert!(after.contains(&format!("{name} /")), "{name} in {shown}");
    }
    assert_eq!(after.matches("Ratios: ").count(), 1, "{shown}");
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
