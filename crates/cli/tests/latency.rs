//! Messages that are followed through the kernel, as users measure and report them. No timing
//! assertions: a busy machine's layouts need not close.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use toehold_trace::kernel::tracefs::Tracefs;

/// Long enough for any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const CANDIDATES: [&str; 2] = ["kernel-loopback", "kernel-veth"];

const TINY: [&str; 6] = ["bench", "latency", "--rounds", "1", "--trips", "50"];

fn toehold(results: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toehold"));
    command
        .args(arguments)
        .env("TOEHOLD_RESULTS", results)
        .stdin(Stdio::null());
    command
}

/// Standard output of a command that succeeds.
fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The instances of the trace that processes of Toehold made, by name.
fn instances() -> BTreeSet<String> {
    let entries = fs::read_dir(Tracefs::found().unwrap().instances()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("toehold-")).collect()
}

/// Checks the layouts of a report in JSON.
fn check_layouts(report: &Value) {
    let layouts = report["layouts"].as_array().unwrap();
    let named: Vec<_> = layouts
        .iter()
        .map(|layout| layout["candidate"].as_str().unwrap())
        .collect();
    assert_eq!(named, CANDIDATES, "{report:#}");
    for layout in layouts {
        assert_eq!(layout["workload"], "layout_64B");
        assert_eq!(layout["losses"]["malformed_lines"], 0, "{layout:#}");
        let verdict = layout["verdict"].as_str().unwrap();
        assert_eq!(
            layout["closes"].as_bool().unwrap(),
            !verdict.starts_with("does not close"),
            "{verdict}"
        );
        let untraced = &layout["untraced"];
        let times = ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"];
        let times: Vec<_> = times
            .iter()
            .map(|name| untraced[name].as_u64().unwrap())
            .collect();
        assert!(times[0] > 0 && times.is_sorted(), "{times:?}");
        let stages = layout["account"]["stages"].as_array().unwrap();
        let names: Vec<_> = stages
            .iter()
            .map(|stage| stage["stage"].as_str().unwrap())
            .collect();
        for stage in ["kernel.send", "kernel.tcp", "kernel.copy.out", "program"] {
            assert!(names.contains(&stage), "{stage} in {names:?}");
        }
        let shares: f64 = stages.iter().map(|stage| stage["share"].as_f64().unwrap()).sum();
        // A stage that no counted message passed is left out, and may have had a cost.
        assert!((shares - 1.0).abs() < 0.05, "{shares}");
    }
    assert!(report["ratios"]["layout_64B/kernel-veth/kernel-loopback"]["median"].is_f64());
}

#[test]
#[ignore = "needs root, ip"]
fn bench_latency_shows_the_stages_of_both_candidates() {
    let results = tempfile::tempdir().unwrap();
    let file = results.path().join("latency.json");
    let more = ["--json", file.to_str().unwrap()];
    let output = toehold(results.path(), &[&TINY[..], &more].concat())
        .output()
        .unwrap();
    let table = text(&output);
    for part in [
        "kernel.send",
        "all stages",
        "closing error",
        "kernel-veth (ns)",
        "Limits of this layout",
    ] {
        assert!(table.contains(part), "{part} in {table}");
    }
    // A single round never closes.
    assert!(table.contains("does not close: too few rounds"), "{table}");
    let report: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["schema"], "toehold/report/1");
    check_layouts(&report);
}

#[test]
#[ignore = "needs root, ip"]
fn plan_with_layout_keeps_raw_messages_and_is_reported() {
    let place = tempfile::tempdir().unwrap();
    let plan = place.path().join("layout.toml");
    let content = format!(
        "name = \"mine/layout\"\ntitle = \"T\"\ncandidates = {CANDIDATES:?}\n\
         compare = [\"kernel-veth/kernel-loopback\"]\n[[workload]]\nkind = \"layout\"\nsize = 64\ntrips = 20\n\
         [measure]\nrounds = 2\nwarm-up-ms = 1\npatience-ms = 60000\n"
    );
    fs::write(&plan, content).unwrap();
    let results = place.path().join("results");
    let sweep = ["sweep", plan.to_str().unwrap(), "--json"];
    let report = text(&toehold(&results, &sweep).output().unwrap());
    check_layouts(&serde_json::from_str(&report).unwrap());
    let run = fs::read_dir(&results).unwrap().next().unwrap().unwrap().path();
    let samples = fs::read_to_string(run.join("samples.jsonl")).unwrap();
    assert_eq!(samples.lines().count(), 4);
    for sample in samples.lines() {
        let sample: Value = serde_json::from_str(sample).unwrap();
        let blocks = sample["client"]["followed"]["blocks"].as_array().unwrap();
        assert_eq!(blocks.len(), 8);
        assert!(
            blocks
                .iter()
                .all(|block| block["round_trips_ns"].as_array().unwrap().len() == 20)
        );
        assert!(
            blocks
                .iter()
                .any(|block| !block["messages"].as_array().unwrap().is_empty())
        );
    }
    let mut report = toehold(&results, &["report", "--markdown", "-"]);
    let markdown = text(&report.arg(&run).output().unwrap());
    assert!(
        markdown.contains("Where the time of a message of 64B goes"),
        "{markdown}"
    );
}

#[test]
#[ignore = "needs root, setpriv, ip"]
fn user_without_the_right_to_trace_gets_the_reason_and_other_figures() {
    let results = tempfile::tempdir().unwrap();
    // Another user must be able to write there, and to run the command.
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(results.path(), permissions).unwrap();
    let program = results.path().join("toehold");
    fs::copy(env!("CARGO_BIN_EXE_toehold"), &program).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(TINY)
        .args(["--candidates", "kernel-loopback", "--json"])
        .env("TOEHOLD_RESULTS", results.path().join("results"))
        .env("HOME", results.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let report: Value = serde_json::from_str(&text(&output)).unwrap();
    let reason = report["candidates"]["kernel-loopback"]["unavailable"]
        .as_str()
        .unwrap();
    assert!(
        reason.contains("cannot be followed") && reason.contains("root"),
        "{reason}"
    );
    assert!(report["layouts"].is_null());
    let untraced = &report["metrics"]["latency_64B"]["values"]["kernel-loopback"]["median"];
    assert!(untraced.is_f64(), "{report:#}");
}

#[test]
#[ignore = "needs root"]
fn killed_measurement_leaves_no_instance_of_the_trace() {
    let results = tempfile::tempdir().unwrap();
    let before = instances();
    let long = ["bench", "latency", "--rounds", "100", "--trips", "2000"];
    let mut command = toehold(results.path(), &long);
    command.args(["--candidates", "kernel-loopback"]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut own = BTreeSet::new();
    while own.is_empty() {
        assert!(Instant::now() < deadline, "no instance");
        assert!(child.try_wait().unwrap().is_none(), "it was over at once");
        own = instances().difference(&before).cloned().collect();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while instances().iter().any(|name| own.contains(name)) {
        assert!(Instant::now() < deadline, "left: {own:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
