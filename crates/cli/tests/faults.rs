//! The laboratory with faults: of the disk, of results, of readers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

const TINY: &str = r#"
name = "mine/tiny"
title = "A tiny one"
candidates = ["unix", "kernel-loopback"]
compare = ["unix/kernel-loopback"]

[[workload]]
kind = "ping-pong"
size = ["64", "1K"]

[measure]
rounds = 2
warm-up-ms = 1
span-ms = 2
"#;

fn toehold(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toehold"));
    command
        .args(arguments)
        .current_dir(place)
        .env("TOEHOLD_RESULTS", place.join("results"))
        .stdin(Stdio::null());
    command
}

/// A directory with a plan and its runs.
fn with_plan() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("tiny.toml"), TINY).unwrap();
    place
}

fn sweep(place: &TempDir) -> Command {
    toehold(place.path(), &["sweep", "tiny.toml", "--fresh"])
}

fn runs(place: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.path().join("results")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// A pipe whose reader is closed.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn run_without_terminal_completes() {
    let place = with_plan();
    let status = sweep(&place).stdout(unread()).stderr(unread()).status().unwrap();
    assert!(status.success(), "{status}");
    assert!(runs(&place)[0].join("report.json").is_file());
}

#[test]
fn list_with_closed_reader_is_no_error() {
    let place = with_plan();
    for arguments in [&["list"][..], &["list", "--json"]] {
        let output = toehold(place.path(), arguments)
            .stdout(unread())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }
}

#[test]
fn interrupted_runs_are_compared_by_common_figures() {
    let place = with_plan();
    assert!(sweep(&place).output().unwrap().status.success());
    let run = &runs(&place)[0];
    let report = fs::read(run.join("report.json")).unwrap();
    fs::rename(run.join("report.json"), place.path().join("whole.json")).unwrap();
    let run = run.to_str().unwrap();
    let compared = toehold(place.path(), &["compare", run, "whole.json"]);
    let output = { compared }.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        shown.contains("A: mine/tiny") && shown.contains(", interrupted, "),
        "{shown}"
    );
    assert!(shown.contains("nothing changed beyond noise"), "{shown}");

    // The format of an older version.
    let report = String::from_utf8(report).unwrap();
    let older = report.replacen("\"format\": 2", "\"format\": 1", 1);
    assert_ne!(older, report);
    fs::write(place.path().join("older.json"), older).unwrap();
    let output = toehold(place.path(), &["compare", run, "older.json"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(
        said(&output).contains("older.json has format 1"),
        "{}",
        said(&output)
    );
}

#[test]
fn empty_or_binary_results_are_reported() {
    let place = with_plan();
    assert!(sweep(&place).output().unwrap().status.success());
    let run = &runs(&place)[0];
    let reported = |run: &Path| {
        let arguments = ["report", run.to_str().unwrap(), "--markdown", "-"];
        toehold(place.path(), &arguments).output().unwrap()
    };
    fs::write(run.join("samples.jsonl"), [0xff, b'\n', 0]).unwrap();
    let output = reported(run);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && shown.contains("line 1 of samples.jsonl"),
        "{shown}"
    );
    fs::write(run.join("samples.jsonl"), "").unwrap();
    assert!(reported(run).status.success());
    fs::write(run.join("run.json"), "").unwrap();
    let output = reported(run);
    assert!(!output.status.success());
    assert!(
        said(&output).contains("run.json is not a valid file of a run"),
        "{}",
        said(&output)
    );
}
