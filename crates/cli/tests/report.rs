//! The findings of runs, as a user asks for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn toehold(results: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toehold"));
    command
        .args(arguments)
        .env("TOEHOLD_RESULTS", results)
        .current_dir(results);
    command.stdin(Stdio::null()).output().unwrap()
}

/// A directory of results with a run of two candidates.
fn with_a_run() -> (TempDir, PathBuf) {
    let results = tempfile::tempdir().unwrap();
    let tiny = [
        "bench",
        "sockets",
        "--sizes",
        "64",
        "--rounds",
        "1",
        "--span",
        "3",
        "--candidates",
        "unix,floor",
    ];
    let output = toehold(results.path(), &tiny);
    assert!(output.status.success(), "{}", said(&output));
    let mut entries = fs::read_dir(results.path()).unwrap();
    let run = entries.next().unwrap().unwrap().path();
    (results, run)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn latest_run_becomes_page_and_other_forms() {
    let (results, run) = with_a_run();
    let output = toehold(results.path(), &["report"]);
    assert!(output.status.success(), "{}", said(&output));
    let page = results.path().join("report.html");
    assert!(
        said(&output).contains("report.html"),
        "where it is: {}",
        said(&output)
    );
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("<td><b>floor</b> against unix</td>") && text.contains("echarts"));

    // Also interrupted runs; only the requested forms are written.
    fs::remove_file(run.join("report.json")).unwrap();
    fs::remove_file(&page).unwrap();
    let run = run.to_str().unwrap();
    let output = toehold(
        results.path(),
        &["report", run, "--markdown", "-", "--svg", "slides"],
    );
    assert!(output.status.success(), "{}", said(&output));
    let markdown = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(markdown.contains("floor against unix: **"), "{markdown}");
    assert!(markdown.contains("the run was interrupted"), "{markdown}");
    assert!(results.path().join("slides/sockets-ping-pong.svg").is_file());
    assert!(!page.exists());
}

#[test]
fn failed_report_says_what_to_do() {
    let results = tempfile::tempdir().unwrap();
    let fails = |arguments: &[&str]| {
        let output = toehold(results.path(), arguments);
        assert!(!output.status.success());
        said(&output)
    };
    assert!(fails(&["report"]).contains("measure something first"));
    assert!(fails(&["report", "nothing"]).contains("is not a run"));
    let (other, run) = with_a_run();
    let run = run.to_str().unwrap();
    assert!(fails(&["report", run, "--out", "."]).contains("name another file"));
    assert!(fails(&["report", run, "--out", "no/such/place.html"]).contains("cannot write"));
    drop(other);
}
