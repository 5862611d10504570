//! The results of theory, as a user asks for them.

use std::process::Command;

use serde_json::Value;

fn toehold(line: &str) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_toehold"))
        .args(line.split_whitespace())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn example_of_paper_is_computed() {
    let (done, said, _) = toehold("model demux --users 2000 --chains 19");
    assert!(done);
    for figure in [
        "1001.0", "1018.9", "548.6", "904.4", "886.0", "53.63", "52.98", "53.47", "1263.6",
    ] {
        assert!(said.contains(figure), "{figure} in\n{said}");
    }
}

#[test]
fn json_has_every_digit() {
    let (done, said, _) = toehold("model demux --response-time 0.2 --json");
    assert!(done);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["models"].as_array().unwrap().len(), 1);
    assert_eq!(report["models"][0]["bsd"], 1000.99975);
    assert_eq!(report["figure_9"][4]["users"], 10_000.0);
}

#[test]
fn invalid_arguments_are_refused() {
    for line in [
        "--users 0",
        "--chains 0",
        "--rate 0",
        "--response-time -1",
        "--rate inf",
    ] {
        let (done, _, said) = toehold(&format!("model demux {line}"));
        assert!(!done && !said.is_empty(), "{line}");
    }
}

#[test]
fn output_with_closed_reader_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_toehold"))
        .args(["model", "demux"])
        .stdout(writer)
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
