//! Lifetimes of nodes that `toehold run` has started.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Fabrics, eventually, text, wait_for_end};
use crate::{Started, WAYS, is_running, read, shell, start, wait_until_gone};

#[test]
fn nodes_without_name_get_distinct_names() {
    let fabrics = Fabrics::new();
    let starting: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| start(&fabrics, "", "echo $TOEHOLD_NODE; cat")))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut names: Vec<_> = starting.iter().map(|program| program.line.clone()).collect();
    names.sort();
    assert_eq!(names, ["sh", "sh-2", "sh-3", "sh-4"]);
    let nodes = fabrics.list("ps --json");
    let mut addresses: Vec<_> = nodes
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["node"]["ipv4"].as_str().unwrap().to_owned())
        .collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 4);
    starting.into_iter().for_each(|program| drop(program.finish()));
    wait_until_gone(&fabrics);
}

#[test]
fn shared_node_ends_with_its_last_program() {
    let fabrics = Fabrics::new();
    let mut programs: Vec<Started> = std::thread::scope(|scope| {
        let threads: Vec<_> = WAYS
            .iter()
            .chain(&WAYS)
            .map(|way| {
                let options = format!("--node web {way}");
                let fabrics = &fabrics;
                scope.spawn(move || start(fabrics, &options, "echo $TOEHOLD_NODE; cat"))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(programs.iter().all(|program| program.line == "web"));
    let engine = fabrics.engine("web");
    assert_eq!(fabrics.list("ps --json").as_array().unwrap().len(), 1);
    while programs.len() > 1 {
        drop(programs.pop().unwrap().finish());
        // Its engine answers.
        fabrics.succeeds("stat web");
    }
    drop(programs.pop().unwrap().finish());
    wait_for_end(engine);
    assert_eq!(fabrics.files(), [""; 0]);
}

#[test]
fn node_with_name_of_ending_node_starts() {
    let fabrics = Fabrics::new();
    for _ in 0..10 {
        // The former node is about to end.
        let said = shell(&fabrics, "--node web", "echo $TOEHOLD_NODE");
        assert_eq!(text(&said.stdout), "web\n", "{}", text(&said.stderr));
    }
}

#[test]
fn existing_node_stays() {
    let fabrics = Fabrics::new();
    fabrics.succeeds("up web");
    let engine = fabrics.engine("web");
    for way in WAYS {
        let options = format!("--node web {way}");
        assert!(shell(&fabrics, &options, "exit 0").status.success());
    }
    fabrics.succeeds("stat web");
    assert_eq!(fabrics.engine("web"), engine);
}

#[test]
fn killed_program_ends_its_node() {
    let fabrics = Fabrics::new();
    let mut program = start(&fabrics, "--node web", "echo; exec cat");
    assert!(is_running(&fabrics, "web"));
    program.child.kill().unwrap();
    assert_eq!(program.child.wait().unwrap().signal(), Some(9));
    wait_until_gone(&fabrics);
}

#[test]
fn program_with_killed_parent_keeps_its_node() {
    let fabrics = Fabrics::new();
    let mut program = start(&fabrics, "--node web --stats", "echo $$; exec cat");
    let engine = fabrics.engine("web");
    let input = program.child.stdin.take();
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    fabrics.succeeds("stat web");
    let left = Pid::from_raw(program.line.parse().unwrap()).unwrap();
    drop(input);
    wait_for_end(left);
    wait_for_end(engine);
    assert_eq!(fabrics.files(), [""; 0]);
}

#[test]
fn daemon_keeps_node_of_its_program() {
    let fabrics = Fabrics::new();
    for way in WAYS {
        let note = fabrics.0.path().join("pid");
        let script = format!(
            "setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000' >/dev/null 2>&1 &",
            note.display()
        );
        let ended = shell(&fabrics, &format!("--node web {way}"), &script);
        assert!(ended.status.success());
        eventually("the daemon", || note.exists());
        fabrics.succeeds("stat web");
        let daemon = Pid::from_raw(read(&note).trim().parse().unwrap()).unwrap();
        kill_process(daemon, Signal::KILL).unwrap();
        wait_until_gone(&fabrics);
        fs::remove_file(note).unwrap();
    }
}

#[test]
fn node_started_by_program_does_not_keep_its_node() {
    let fabrics = Fabrics::new();
    let toehold = env!("CARGO_BIN_EXE_toehold");
    let script = format!("{toehold} up other; exec 9</dev/null; {toehold} run --node inner -- true");
    let ended = shell(&fabrics, "--node web", &script);
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    eventually("the nodes' end", || {
        !is_running(&fabrics, "web") && !is_running(&fabrics, "inner")
    });
    let engine = fabrics.engine("other");
    let environment = fs::read(format!("/proc/{}/environ", engine.as_raw_nonzero())).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    for variable in ["TOEHOLD_NODE=", "LD_PRELOAD="] {
        assert!(!environment.contains(variable), "{environment}");
    }
}

#[test]
fn node_ended_by_command_ends_before_its_program() {
    let fabrics = Fabrics::new();
    let program = start(&fabrics, "--node web", "echo; cat");
    fabrics.succeeds("down web");
    assert!(!is_running(&fabrics, "web"));
    assert_eq!(program.finish().1, Some(0));
}

#[test]
fn settings_apply_to_started_node() {
    let fabrics = Fabrics::new();
    let program = start(
        &fabrics,
        "--node web --ipv4 10.77.3.1/16 --placement engine",
        "echo; cat",
    );
    let node = &fabrics.list("ps --json")[0];
    assert_eq!(node["node"]["ipv4"], Value::from("10.77.3.1/16"));
    assert_eq!(node["status"]["stack"]["placement"], "engine");
    // A program that joins the node cannot change its settings.
    assert!(
        shell(&fabrics, "--node web --placement inline", "exit 0")
            .status
            .success()
    );
    assert_eq!(
        fabrics.list("ps --json")[0]["status"]["stack"]["placement"],
        "engine"
    );
    drop(program.finish());
}
