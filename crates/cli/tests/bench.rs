//! Runs the command like a user: real processes, tiny counts, no timing assertions.

#[path = "programs/library.rs"]
mod library;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Long enough for any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn toehold(results: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toehold"));
    command
        .args(arguments)
        .env("TOEHOLD_RESULTS", results)
        .stdin(Stdio::null());
    command
}

/// One size, one round, a few milliseconds each.
const TINY: [&str; 8] = [
    "bench", "sockets", "--sizes", "64", "--rounds", "1", "--span", "3",
];

fn tiny(results: &Path, more: &[&str]) -> Output {
    toehold(results, &[&TINY[..], more].concat()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|error| panic!("{error} in {}", String::from_utf8_lossy(bytes)))
}

/// The only run in a directory of results.
fn only_run(results: &TempDir) -> PathBuf {
    let mut runs = fs::read_dir(results.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let run = runs.next().expect("no run");
    assert!(runs.next().is_none(), "more than one run");
    run
}

fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect::<Vec<_>>();
    names.sort();
    names
}

#[test]
fn run_prints_tables_and_saves_samples_and_report() {
    let results = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("result.json");
    let more = [
        "--candidates",
        "kernel-loopback,unix,floor",
        "--json",
        file.to_str().unwrap(),
    ];
    let output = tiny(results.path(), &more);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    for part in ["one way, p50 (µs)", "throughput (Gb/s)", "unix /"] {
        assert!(stdout.contains(part), "{part} in {stdout}");
    }
    assert!(
        !stdout.contains('\x1b') && !stderr.contains('\x1b'),
        "no terminal, no colours"
    );

    let run = only_run(&results);
    assert!(stderr.contains(run.to_str().unwrap()), "{stderr}");
    assert_eq!(files(&run), ["report.json", "run.json", "samples.jsonl"]);
    let report = json(&fs::read(&file).unwrap());
    assert_eq!(report, json(&fs::read(run.join("report.json")).unwrap()));
    assert_eq!(report["complete"], true);
    for name in ["latency_64B", "stream_64B", "stream", "connect"] {
        let ratio = &report["ratios"][format!("{name}/unix/kernel-loopback")];
        assert!(
            ratio["median"].as_f64().is_some_and(|median| median > 0.0),
            "{name}: {ratio}"
        );
        assert_eq!(ratio["runs"], 1);
    }
    assert!(
        report["ratios"]["connect/floor/kernel-loopback"].is_null(),
        "the floor has no connections"
    );
    let samples = fs::read_to_string(run.join("samples.jsonl")).unwrap();
    // A ping-pong, two streams and connections for each of three candidates; the floor has no
    // connections.
    assert_eq!(samples.lines().count(), 3 * 4 - 1);
}

#[test]
fn json_on_standard_output_is_only_json() {
    let results = tempfile::tempdir().unwrap();
    let output = tiny(results.path(), &["--candidates", "unix", "--json"]);
    assert!(output.status.success());
    let report = json(&output.stdout);
    assert_eq!(report["plan"]["settings"]["congestion"], "reno");
    assert!(
        report["metrics"]["latency_64B"]["values"]["unix"]["median"]
            .as_f64()
            .is_some()
    );
}

/// Uses a directory whose path is longer than any socket name.
#[test]
fn run_with_long_results_path_measures_toehold() {
    let results = tempfile::tempdir().unwrap();
    let deep = results.path().join("deep-".repeat(30));
    let output = tiny(&deep, &["--candidates", "toehold,unix", "--json"]);
    let report = json(&output.stdout);
    assert!(output.status.success(), "{}", report["failures"]);
    for name in ["latency_64B", "stream_64B", "stream", "connect"] {
        let ratio = &report["ratios"][format!("{name}/toehold/unix")]["median"];
        assert!(ratio.as_f64().is_some_and(|ratio| ratio > 0.0), "{name}: {ratio}");
    }
}

/// Standalone figures are among the ratios, and the targets are listed.
#[test]
fn part_of_experiment_can_be_measured() {
    let results = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| {
        let arguments = [
            "bench",
            "placement",
            "--quick",
            "--rounds",
            "1",
            "--only",
            "ack,idle",
        ];
        let candidates = ["--candidates", "adaptive,kernel-veth"];
        toehold(results.path(), &[&arguments[..], &candidates, more].concat())
            .output()
            .unwrap()
    };
    let output = run(&["--json"]);
    let report = json(&output.stdout);
    assert!(output.status.success(), "{}", report["failures"]);
    for name in ["ack_ms", "ack_p99_ms", "ack_max_ms", "idle", "idle_16"] {
        let figure = &report["ratios"][format!("{name}/adaptive")]["median"];
        assert!(
            figure.as_f64().is_some_and(|figure| figure > 0.0),
            "{name}: {figure}"
        );
    }
    assert!(report["ratios"]["idle/adaptive/kernel-veth"].is_null());
    assert!(report["metrics"]["latency_64B"].is_null(), "it was not asked for");
    assert_eq!(report["plan"]["wanted"][0]["at-most"], 2.0);

    let text = text(&run(&[]).stdout);
    for part in ["What is wanted", "ack_ms/adaptive", "≤ 2"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn same_seed_gives_same_order() {
    let order = |seed: &str| {
        let results = tempfile::tempdir().unwrap();
        let output = tiny(
            results.path(),
            &["--candidates", "unix,kernel-loopback", "--seed", seed],
        );
        assert!(output.status.success());
        let samples = fs::read_to_string(only_run(&results).join("samples.jsonl")).unwrap();
        let name = |line: &str| {
            let sample = json(line.as_bytes());
            format!(
                "{}/{}",
                sample["name"].as_str().unwrap(),
                sample["candidate"].as_str().unwrap()
            )
        };
        samples.lines().map(name).collect::<Vec<_>>()
    };
    assert_eq!(order("1"), order("1"));
}

/// If the pair cannot be created, [`missing_privilege_is_reported_and_rest_goes_on`] is the
/// relevant test.
#[test]
fn veth_pair_is_created_and_removed() {
    let results = tempfile::tempdir().unwrap();
    let output = tiny(
        results.path(),
        &["--candidates", "kernel-veth,kernel-veth-spinning", "--json"],
    );
    let report = json(&output.stdout);
    for name in ["kernel-veth", "kernel-veth-spinning"] {
        let fate = &report["candidates"][name];
        assert_eq!(fate["failed"], 0, "{}", report["failures"]);
        let unavailable = fate["unavailable"].as_str();
        assert!(
            fate["measured"] == 4 || unavailable.is_some_and(|reason| !reason.is_empty()),
            "{fate}"
        );
    }
    assert!(!Path::new("/sys/class/net/toe0").exists());
}

/// Runs in a user namespace that must not create namespaces.
#[test]
fn missing_privilege_is_reported_and_rest_goes_on() {
    let results = tempfile::tempdir().unwrap();
    let script = "echo 0 > /proc/sys/user/max_net_namespaces && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        script,
        "sh",
        env!("CARGO_BIN_EXE_toehold"),
    ]);
    command
        .args(TINY)
        .args(["--candidates", "kernel-veth,unix", "--json"]);
    let Ok(output) = command.env("TOEHOLD_RESULTS", results.path()).output() else {
        eprintln!("skipped: there is no `unshare` tool here");
        return;
    };
    let stderr = text(&output.stderr);
    if stderr.contains("unshare:") || stderr.contains("max_net_namespaces") && output.stdout.is_empty() {
        eprintln!("skipped: no user namespaces here: {stderr}");
        return;
    }
    assert!(output.status.success(), "{stderr}");
    let report = json(&output.stdout);
    let reason = report["candidates"]["kernel-veth"]["unavailable"]
        .as_str()
        .unwrap();
    assert!(reason.contains("run as root"), "{reason}");
    assert!(
        stderr.contains("kernel-veth is left out: cannot make a network namespace"),
        "{stderr}"
    );
    assert_eq!(report["candidates"]["unix"]["measured"], 4);
    assert_eq!(report["complete"], true);
}

#[test]
fn ctrl_c_keeps_samples_and_leaves_no_process() {
    let results = tempfile::tempdir().unwrap();
    let (child, mark) = start_long_run(&results);
    kill(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(text(&output.stdout).contains("the run was interrupted"));
    let run = only_run(&results);
    assert_eq!(files(&run), ["report.json", "run.json", "samples.jsonl"]);
    assert_eq!(
        json(&fs::read(run.join("report.json")).unwrap())["complete"],
        false
    );
    assert_all_gone(&mark);
}

#[test]
fn killed_run_ends_its_processes() {
    let results = tempfile::tempdir().unwrap();
    let (mut child, mark) = start_long_run(&results);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_all_gone(&mark);
    let samples = fs::read_to_string(only_run(&results).join("samples.jsonl")).unwrap();
    assert!(samples.lines().count() >= 3, "what was measured is saved");
}

/// A very long run, in its fourth measurement at least, and the mark in the environment of all its
/// processes.
fn start_long_run(results: &TempDir) -> (Child, String) {
    let mark = format!("TOEHOLD_TEST_MARK={}", results.path().display());
    let (name, value) = mark.split_once('=').unwrap();
    let arguments = [
        "bench", "sockets", "--rounds", "1000", "--span", "3", "--sizes", "64,1M",
    ];
    let mut command = toehold(results.path(), &arguments);
    let child = command
        .env(name, value)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("samples are saved", || {
        let runs = fs::read_dir(results.path()).into_iter().flatten().flatten();
        let samples = runs.filter_map(|run| fs::read_to_string(run.path().join("samples.jsonl")).ok());
        samples.map(|text| text.lines().count()).sum::<usize>() >= 3
    });
    assert!(
        marked(&mark).len() > 1,
        "the processes of candidates can be found by their mark"
    );
    (child, mark)
}

fn kill(child: &Child, signal: &str) {
    assert!(
        Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
}

fn assert_all_gone(mark: &str) {
    wait_until("all processes are gone", || marked(mark).is_empty());
}

/// Processes with the mark in their environment.
fn marked(mark: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_mark = |process: &u32| {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        environment
            .split(|&byte| byte == 0)
            .any(|variable| variable == mark.as_bytes())
    };
    numbers.filter(has_mark).collect()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn invalid_arguments_are_explained_before_run() {
    let results = tempfile::tempdir().unwrap();
    for (arguments, explanation) in [
        (&["--sizes", "0"][..], "is not a message size"),
        (&["--candidates", "tcp"], "kernel-veth"),
        (&["--candidates", "unix,unix"], "twice"),
        (&["--sizes", "64,64"], "twice"),
        (&["--cores", "0,4095"], "may not run on core 4095"),
        (&["--json", "/nowhere/result.json"], "choose another FILE"),
        (&["--json", "/proc/result.json"], "choose another FILE"),
        (&["--out", "/proc/nowhere"], "--out"),
        (&["--rounds", "0"], "1..=1000"),
    ] {
        let output = toehold(results.path(), &[&["bench", "sockets"], arguments].concat())
            .output()
            .unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(explanation), "{arguments:?}: {stderr}");
    }
    assert_eq!(files(results.path()), [""; 0]);
}

#[test]
fn help_and_version_are_printed() {
    let say = |arguments: &[&str]| {
        let output = toehold(Path::new("/nowhere"), arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        text(&output.stdout)
    };
    assert!(say(&["--help"]).contains("toehold bench sockets --quick"));
    let help = say(&["bench", "sockets", "--help"]);
    for part in ["Examples:", "--quick", "kernel-veth-spinning", "Exit status"] {
        assert!(help.contains(part), "{part} in {help}");
    }
    assert!(
        !say(&["--help"]).contains("lab-side"),
        "what is not for people is hidden"
    );
    assert!(say(&["version"]).starts_with(&format!("toehold {}", env!("CARGO_PKG_VERSION"))));
    let build = json(say(&["version", "--json"]).as_bytes());
    assert!(build["commit"].as_str().is_some_and(|commit| !commit.is_empty()));
}

#[test]
fn demux_strategies_are_counted_and_timed() {
    let results = TempDir::new().unwrap();
    let line = "bench demux --quick --connections 64 --traffic tpca,churn --rounds 1 --json";
    let arguments: Vec<_> = line.split(' ').collect();
    let output = toehold(results.path(), &arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&output.stdout);
    let bsd = &report["section_3"][0];
    assert_eq!(bsd["equation"], 1000.99975);
    assert!(
        (990.0..1012.0).contains(&bsd["simulated"].as_f64().unwrap()),
        "{bsd}"
    );
    let named = |name| {
        let times = report["times"].as_array().unwrap();
        times.iter().filter(|times| times["candidate"] == name).count()
    };
    assert_eq!(
        [
            named("flow-table"),
            named("std HashMap"),
            named("floor: two lines")
        ],
        [2, 2, 1]
    );
    // The ratio of ours to another strategy, under a stable name.
    let ratio = &report["ratios"]["tpca_64/flow-table/bsd"];
    assert_eq!(ratio["runs"], 1, "{ratio}");
    assert!(ratio["median"].as_f64().is_some_and(|median| median > 0.0));
    assert!(report["ratios"]["churn_64/flow-table/std HashMap"]["median"].is_number());
    let threads = report["threads"].as_array().unwrap();
    assert_eq!(
        (
            threads[0]["connections"].as_u64(),
            threads[0]["candidate"].as_str()
        ),
        (Some(64), Some("flow-table"))
    );
    assert_eq!(
        threads[0]["both_ns"].as_array().unwrap().len(),
        2,
        "a round of each"
    );
    // Each round is saved.
    let mut runs = results.path().read_dir().unwrap();
    let run = runs.next().unwrap().unwrap().path();
    let lines = std::fs::read_to_string(run.join("samples.jsonl")).unwrap();
    let of_table = lines.lines().map(|line| json(line.as_bytes()));
    let of_table = of_table.filter(|sample| sample["candidate"] == "flow-table" && sample["ns"].is_f64());
    assert_eq!(of_table.count(), 2 + 3);
    assert_eq!(json(&std::fs::read(run.join("report.json")).unwrap()), report);
    // It was measured, or it is reported as missing.
    let rte_hash = "DPDK rte_hash";
    match report["missing"][rte_hash].as_str() {
        None => assert_eq!(named(rte_hash), 2),
        Some(why) => assert!(named(rte_hash) == 0 && why.contains("librte-hash23"), "{why}"),
    }
}

#[test]
#[ignore = "needs root, namespaces, ip, sockperf"]
fn programs_bench_saves_samples_and_report() {
    // Loads the library now, since its runner is started elsewhere.
    let _ = &*library::LIBRARY;
    let results = tempfile::tempdir().unwrap();
    let words = "bench programs --rows sockperf_p50 --rounds 2 --span 1 --json";
    let words: Vec<_> = words.split(' ').collect();
    let output = toehold(results.path(), &words).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run = only_run(&results);
    assert_eq!(files(&run), ["report.json", "samples.jsonl"]);
    let report = json(&fs::read(run.join("report.json")).unwrap());
    assert_eq!(report, json(&output.stdout));
    let samples = fs::read_to_string(run.join("samples.jsonl")).unwrap();
    let samples: Vec<_> = samples.lines().map(|line| json(line.as_bytes())).collect();
    assert_eq!(samples.len(), 4, "{samples:?}");
    for way in ["kernel", "toehold"] {
        let of_way = samples.iter().filter(|sample| sample["way"] == way);
        let figures: Vec<_> = of_way.map(|sample| sample["figure"].as_f64().unwrap()).collect();
        let [low, high] = ["low", "high"].map(|end| report["rows"][0][way][end].as_f64().unwrap());
        assert_eq!(figures.len(), 2);
        assert!(
            figures.contains(&low) && figures.contains(&high),
            "{way}: {figures:?}, {low} to {high}"
        );
    }
    let said = samples
        .iter()
        .all(|sample| sample["output"].as_str().unwrap().contains("Summary: Latency"));
    assert!(said, "{samples:?}");
}
