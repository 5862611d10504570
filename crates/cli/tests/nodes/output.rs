//! Output of commands for people and for programs: documents of JSON, help, and output that cannot
//! be written.

use std::fs::{self, File};

use serde_json::Value;

use crate::library::LIBRARY;
use crate::support::{Fabrics, text};

/// Fails if a document has a duration other than an integer in a field that ends with `_ns`.
fn check_spans(document: &Value, path: &str) {
    match document {
        Value::Object(fields) => {
            assert!(
                !(fields.contains_key("secs") && fields.contains_key("nanos")),
                "{path} is a span"
            );
            for (name, value) in fields {
                let is_span = name.ends_with("_ns");
                assert!(!is_span || value.is_u64(), "{path}.{name} is {value}");
                assert!(
                    !name.ends_with("_s") && !name.ends_with("_secs"),
                    "{path}.{name} is in seconds"
                );
                check_spans(value, &format!("{path}.{name}"));
            }
        }
        Value::Array(values) => values.iter().for_each(|value| check_spans(value, path)),
        _ => {}
    }
}

#[test]
fn json_of_every_command_names_its_schema_and_spans_in_ns() {
    let fabrics = Fabrics::new();
    let stats = fabrics.0.path().join("stats").display().to_string();
    let capture = fabrics.0.path().join("web.pcapng").display().to_string();
    let mut seen = Vec::new();
    let mut check = |command: &str, document: Value| {
        check_spans(&document, command);
        seen.push(document["schema"].as_str().unwrap_or(command).to_owned());
    };
    for command in [
        "version --json",
        "list --json",
        "model demux --json",
        "up web --json",
        "ps --json",
        "stat web --json",
        "sockets web --json",
        &format!("capture web -w {capture} --duration 10ms --json"),
    ] {
        check(command, fabrics.json(command));
    }
    let mut program = fabrics.command(&format!("run --quiet --node web --stats={stats} -- true"));
    let ended = program.env("TOEHOLD_LIBRARY", &*LIBRARY).output().unwrap();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    check(
        "run --stats",
        serde_json::from_slice(&fs::read(&stats).unwrap()).unwrap(),
    );
    let names = [
        "version",
        "list",
        "model-demux",
        "up",
        "ps",
        "stat",
        "sockets",
        "capture",
        "run",
    ];
    assert_eq!(seen, names.map(|name| format!("toehold/{name}/1")));
    let documented = include_str!("../../../../docs/json.md");
    for name in seen {
        assert!(
            documented.contains(&format!("`{name}`")),
            "docs/json.md does not list {name}"
        );
    }
}

#[test]
fn help_of_a_command_is_shown_by_help_and_by_its_option() {
    let fabrics = Fabrics::new();
    assert_eq!(fabrics.succeeds("help ps"), fabrics.succeeds("ps --help"));
    assert!(fabrics.succeeds("help").contains("Examples:"));
}

#[test]
fn output_that_cannot_be_written_ends_a_command_with_an_error() {
    let fabrics = Fabrics::new();
    fabrics.succeeds("up web");
    for line in [
        "ps",
        "ps --json",
        "stat web",
        "stat web --prometheus",
        "sockets web",
        "list",
        "version",
        "help",
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = fabrics.command(line);
        let output = command.stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}: {}", text(&output.stderr));
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = fabrics
        .command("capture web -w - --duration 3s")
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("No space left"),
        "{}",
        text(&output.stderr)
    );
}
