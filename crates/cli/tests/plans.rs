//! Plans in files, as users list, carry out, interrupt, resume and compare them.

#[path = "programs/library.rs"]
mod library;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Long enough for any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const TINY: &str = r#"
name = "mine/tiny"
title = "A tiny one"
candidates = ["unix", "kernel-loopback"]
compare = ["unix/kernel-loopback"]
show = ["interrupts"]

[factors]
size = ["64", "1K"]

[[workload]]
kind = "ping-pong"

[[workload]]
kind = "stream"
quick = false

[measure]
rounds = 25
warm-up-ms = 1
span-ms = 2

[quick.measure]
rounds = 1
warm-up-ms = 1
span-ms = 2

[paper]
section = "1"

[[paper.says]]
text = "half of it"
figure = "latency_64B/unix/kernel-loopback"
value = 0.5
unit = "ratio"
"#;

/// A directory with the plan and the results.
struct Place(TempDir);

impl Place {
    fn with(plan: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::write(place.plan(), plan).unwrap();
        place
    }

    fn plan(&self) -> PathBuf {
        self.0.path().join("tiny.toml")
    }

    fn results(&self) -> PathBuf {
        self.0.path().join("results")
    }

    fn sweep(&self, more: &[&str]) -> Command {
        let mut command = toehold(&["sweep"]);
        command
            .arg(self.plan())
            .args(more)
            .env("TOEHOLD_RESULTS", self.results());
        command
    }

    /// All runs, the first one first.
    fn runs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.results()).into_iter().flatten().flatten();
        let mut runs: Vec<_> = entries.map(|entry| entry.path()).collect();
        runs.sort();
        runs
    }
}

fn toehold(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toehold"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|error| panic!("{error} in {}", String::from_utf8_lossy(bytes)))
}

fn succeeded(output: Output) -> Output {
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

fn samples(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("samples.jsonl")).unwrap_or_default();
    text.lines().map(|line| json(line.as_bytes())).collect()
}

#[test]
fn plans_are_listed_with_papers_and_durations() {
    let rows = json(&succeeded(toehold(&["list", "--json"]).output().unwrap()).stdout);
    let rows = rows["plans"].as_array().unwrap();
    let named = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    for name in [
        "toe/fig3",
        "toe/fig4",
        "toe/fig5a",
        "toe/fig5b",
        "toe/fig6a",
        "toe/fig6b",
        "ethom/fig5",
        "demux/fig9",
    ] {
        let row = named(name);
        let [quick, full] = ["quick_ns", "full_ns"].map(|time| row[time].as_u64().unwrap());
        assert!(
            0 < quick && quick < full && full < 20 * 60 * 1_000_000_000,
            "{row}"
        );
        assert!(row["section"].as_str().unwrap().contains("figure"), "{row}");
    }
    assert_eq!(named("toe/fig3")["needs"][0]["package"], "iproute2");
    let listed = text(&succeeded(toehold(&["list"]).output().unwrap()).stdout);
    assert!(listed.contains("toe/fig5b") && listed.contains("ip"), "{listed}");
}

#[test]
fn own_plan_is_measured_with_its_factors() {
    let place = Place::with(TINY);
    let output = succeeded(place.sweep(&["--quick", "--json"]).output().unwrap());
    let report = json(&output.stdout);
    assert_eq!(
        (&report["complete"], &report["plan"]["experiment"]),
        (&true.into(), &"mine/tiny".into())
    );
    assert_eq!(report["plan"]["paper"]["says"][0]["value"], 0.5);
    let latency = &report["metrics"]["latency_1K"];
    assert_eq!(latency["factors"], serde_json::json!({"size": 1024}));
    assert_eq!(
        (&latency["kind"], &latency["part"]),
        (&"ping-pong".into(), &"".into())
    );
    assert!(
        latency["values"]["unix"]["median"]
            .as_f64()
            .is_some_and(|ns| ns > 0.0)
    );
    let interrupts = &report["metrics"]["interrupts_latency_1K"];
    assert_eq!(interrupts["detail"], false, "the plan is about them");
    let [run] = &place.runs()[..] else {
        panic!("{:?}", place.runs());
    };
    assert!(run.to_str().unwrap().ends_with("-mine-tiny"));
    let samples = samples(run);
    assert_eq!(samples.len(), 4);
    assert_eq!(
        samples[0]["factors"]["size"],
        samples[0]["cell"]["size"].as_str().map_or(0, |size| match size {
            "64B" => 64,
            _ => 1024,
        })
    );
    // A completed run is not resumed.
    succeeded(place.sweep(&["--quick"]).output().unwrap());
    assert_eq!(place.runs().len(), 2);
}

/// A short run of a plan of the demux paper; its seed determines all counts.
fn of_demux_paper(name: &str) -> (TempDir, Value) {
    let results = tempfile::tempdir().unwrap();
    let mut command = toehold(&["reproduce", name, "--quick", "--seed", "1", "--json", "--out"]);
    let output = succeeded(command.arg(results.path()).output().unwrap());
    let report = json(&output.stdout);
    assert_eq!(report["failures"], Value::Array(Vec::new()));
    (results, report)
}

/// Checks that every ratio of a pair is 1 within `to`, and that there are `count` ratios.
#[track_caller]
fn agree(report: &Value, pair: &str, to: f64, count: usize) {
    let ratios = report["ratios"].as_object().unwrap();
    let of_pair: Vec<_> = ratios
        .iter()
        .filter(|(name, _)| name.ends_with(pair) && !name.contains("_ns_"))
        .filter(|(name, _)| {
            ["examined_", "entered_", "setup_"]
                .iter()
                .any(|kind| name.starts_with(kind))
        })
        .collect();
    assert_eq!(of_pair.len(), count, "{of_pair:?}");
    for (name, ratio) in of_pair {
        let ratio = ratio["median"].as_f64().unwrap();
        assert!((ratio - 1.0).abs() < to, "{name}: {ratio}");
    }
}

#[test]
fn counts_match_numbers_of_demux_paper() {
    let (_results, report) = of_demux_paper("demux/section3");
    agree(&report, "/simulation/model", 0.01, 8);
    agree(&report, "/measured/simulation", 0.02, 8);
    let value = |metric: &str, candidate: &str| {
        let value = &report["metrics"][metric]["values"][candidate]["median"];
        value
            .as_f64()
            .unwrap_or_else(|| panic!("no {metric} of {candidate}"))
    };
    // The paper's printed number, and the corrected one.
    for (metric, printed, corrected) in [
        ("examined_bsd_200ms_2000", 1000.99975, 1000.99975),
        ("examined_move-to-front_2000ms_2000", 904.4, 905.4),
        ("entry_examined_move-to-front_200ms_2000", 1018.9, 1019.9),
        ("acknowledgement_examined_move-to-front_200ms_2000", 78.4, 79.4),
        ("examined_sequent:19_200ms_2000", 52.98, 53.47),
        ("examined_sequent:51_200ms_2000", 18.28, 18.67),
        ("hits_examined_sequent:51_200ms_2000", 0.217, 0.217),
    ] {
        for (candidate, expected) in [("printed", printed), ("corrected", corrected)] {
            let found = value(metric, candidate);
            assert!(
                (found / expected - 1.0).abs() < 2e-3,
                "{metric}, {candidate}: {found}"
            );
        }
    }
    assert!(value("examined_ns_flow-table_200ms_2000", "measured") > 0.0);
    // Ratios of metrics that the other side lacks.
    assert!(report["metrics"]["interrupts_examined_bsd_200ms_2000"].is_null());
}

#[test]
fn costs_of_two_stacks_match_demux_paper() {
    let (_results, report) = of_demux_paper("demux/section4");
    agree(&report, "/measured/simulation", 0.02, 10);
    agree(&report, "/measured/printed", 0.02, 4);
    let took = &report["metrics"]["setup_ns_bsd_3600"]["values"]["measured"]["median"];
    assert!(took.as_f64().unwrap() > 0.0);
}

#[test]
fn entered_transactions_match_demux_paper() {
    let (_results, report) = of_demux_paper("demux/fig4");
    agree(&report, "/simulation/printed", 0.02, 5);
}

#[test]
fn picture_has_curve_equations_simulation_and_measurement_of_demux_paper() {
    let (results, report) = of_demux_paper("demux/fig9");
    // With few users, a hash key changes chains by more than that.
    agree(&report, "_2000/simulation/model", 0.01, 7);
    agree(&report, "_2000/measured/simulation", 0.02, 7);
    let run = fs::read_dir(results.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    assert_eq!(
        samples(&run).len(),
        (10 * 4 + 4 * 3) * 5,
        "no equation for two strategies"
    );
    let pictures = results.path().join("pictures");
    let mut command = toehold(&["report", "--svg"]);
    succeeded(command.arg(&pictures).arg(&run).output().unwrap());
    let picture = "demux-fig9-look-up-sequent-19-response-ms-200.svg";
    let picture = fs::read_to_string(pictures.join(picture)).unwrap();
    for series in ["printed", "model", "simulation", "measured", "paper: measured"] {
        assert!(
            picture.lines().any(|line| line.trim() == series),
            "no {series} in it"
        );
    }
    let together = fs::read_to_string(pictures.join("demux-fig9-look-up-all-pcbs.svg")).unwrap();
    for series in [
        "bsd: printed",
        "move-to-front, R = 200 ms: model",
        "flow-table: measured",
    ] {
        assert!(
            together.lines().any(|line| line.trim() == series),
            "no {series} in it"
        );
    }
}

#[test]
fn interrupted_run_is_resumed() {
    let place = Place::with(TINY);
    let mut child = place
        .sweep(&[])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while place.runs().first().is_none_or(|run| samples(run).len() < 3) {
        assert!(Instant::now() < deadline, "no samples are saved");
        assert!(child.try_wait().unwrap().is_none(), "it was over at once");
        std::thread::sleep(Duration::from_millis(5));
    }
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let run = &place.runs()[0];
    let before = samples(run);
    let report = |name: &str| json(&fs::read(run.join(name)).unwrap());
    assert_eq!(report("report.json")["complete"], false);

    let output = succeeded(place.sweep(&["--json"]).output().unwrap());
    let said = text(&output.stderr);
    assert!(
        said.contains("going on with") && said.contains(run.to_str().unwrap()),
        "{said}"
    );
    assert_eq!(place.runs().len(), 1, "no other run was begun");
    let after = samples(run);
    assert_eq!(after[..before.len()], before);
    // Two sizes as ping-pong and two as stream, two candidates, 25 rounds.
    assert_eq!(after.len(), 4 * 2 * 25);
    let key = |sample: &Value| {
        (
            sample["round"].to_string(),
            sample["name"].to_string(),
            sample["candidate"].to_string(),
        )
    };
    let mut keys: Vec<_> = after.iter().map(key).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), after.len(), "nothing is measured twice");
    let complete = json(&output.stdout);
    assert_eq!(complete["complete"], true);
    assert_eq!(
        complete["plan"]["seed"],
        report("run.json")["plan"]["seed"],
        "in the order it had"
    );

    let again = place
        .sweep(&["--resume", run.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(!again.status.success());
    assert!(
        text(&again.stderr).contains("come to its end"),
        "{}",
        text(&again.stderr)
    );
}

#[test]
fn malformed_plan_is_reported_with_its_line() {
    let place = Place::with(&TINY.replace("kind = \"stream\"", "kind = \"torrent\""));
    let output = place.sweep(&[]).output().unwrap();
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(
        said.contains("tiny.toml:15: there is no workload `torrent`; there are ping-pong"),
        "{said}"
    );
    assert!(place.runs().is_empty());
    let unknown = toehold(&["reproduce", "toe/fig99"]).output().unwrap();
    assert!(text(&unknown.stderr).contains("`toehold list` shows them"));
}

#[test]
fn runs_are_compared_by_figure() {
    let place = Place::with(TINY);
    for _ in 0..2 {
        succeeded(place.sweep(&["--quick"]).output().unwrap());
    }
    let [before, after] = &place.runs()[..] else {
        panic!("{:?}", place.runs());
    };
    let compare = |more: &[&str]| {
        let arguments = ["compare", before.to_str().unwrap(), after.to_str().unwrap()];
        succeeded(toehold(&[&arguments[..], more].concat()).output().unwrap()).stdout
    };
    let changes = json(&compare(&["--json"]));
    let [before_ratios, after_ratios] = [before, after].map(|run| {
        let mut report = json(&fs::read(run.join("report.json")).unwrap());
        report["ratios"].take()
    });
    let names = before_ratios.as_object().unwrap().keys();
    let ratios = names.filter(|name| after_ratios.get(name).is_some()).count();
    assert!(ratios >= 2 && changes["ratios"]["of"] == ratios, "{changes}");
    let cells = changes["cells"].as_array().unwrap();
    let latency = cells
        .iter()
        .find(|cell| cell["metric"] == "latency_64B" && cell["candidate"] == "unix");
    let ratio = &latency.unwrap()["ratio"];
    let [low, median, high] = ["low", "median", "high"].map(|end| ratio[end].as_f64().unwrap());
    assert!(0.0 < low && low <= median && median <= high, "{ratio}");
    assert_eq!(changes["only_before"], serde_json::json!([]));
    let shown = text(&compare(&["--all"]));
    assert!(
        shown.contains("A: mine/tiny")
            && shown.contains("latency_64B")
            && shown.contains(&format!(" of {ratios} ratios (")),
        "{shown}"
    );
    let missing = toehold(&["compare", "/nowhere", before.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(text(&missing.stderr).contains("cannot read /nowhere"));
}

/// Measures every cell of a plan, each with a few requests or messages, over a node and the kernel.
fn is_measured_on_nodes(name: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../experiments/{name}.toml"));
    let plan = fs::read_to_string(file).unwrap();
    let (before, after) = plan.split_once("[quick.measure]").unwrap();
    let (_, after) = after.split_once("[paper]").unwrap();
    let measure = "rounds = 1\nwarm-up-ms = 1\nspan-ms = 100\npatience-ms = 30000";
    let plan = format!("{before}[quick.measure]\n{measure}\n[paper]{after}");
    let place = Place::with(&plan);
    let mut sweep = place.sweep(&["--quick", "--json"]);
    let output = sweep.env("TOEHOLD_LIBRARY", &*library::LIBRARY).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["failures"], Value::Array(Vec::new()));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let cells = report["plan"]["cells"].as_array().unwrap().len();
    for candidate in ["adaptive", "kernel-veth"] {
        assert_eq!(report["candidates"][candidate]["measured"], cells);
    }
}

#[test]
#[ignore = "needs root, namespaces, ip, apache2, nginx"]
fn web_servers_with_one_file_are_measured_on_nodes() {
    is_measured_on_nodes("toe/fig8a");
}

#[test]
#[ignore = "needs root, namespaces, ip, apache2, nginx"]
fn web_servers_with_zipf_files_are_measured_on_nodes() {
    is_measured_on_nodes("toe/fig8b");
}

#[test]
#[ignore = "needs root, namespaces, tun, ip, mpirun.openmpi, mpicc.openmpi, mpiexec.mpich, mpicc.mpich"]
fn mpi_ranks_are_measured_on_nodes() {
    is_measured_on_nodes("toe/fig7");
}
