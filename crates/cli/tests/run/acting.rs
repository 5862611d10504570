//! Programs that use a node, and the completion of their actions.

use std::io::{Read, Write};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process};
use toehold_node::fabric::Fabric;
use toehold_node::usage::{Counter, Usage};
use toehold_socket::{Node, TcpListener, TcpStream};

use crate::support::{Fabrics, eventually};
use crate::{Started, is_running, running, wait_until_gone};

/// The action of the program.
const ACT: &str = "TOEHOLD_TEST_ACT";

/// More than a connection's buffers, and less than those of reader and writer together.
const BYTES: usize = 1_200_000;

/// The command that runs this file as a program: its name and the arguments for the action.
fn actor() -> Vec<String> {
    let this = std::env::current_exe().unwrap();
    let arguments = ["--exact", "acting::act", "--nocapture", "-q"];
    let this = this.to_str().unwrap().to_owned();
    std::iter::once(this)
        .chain(arguments.map(str::to_owned))
        .collect()
}

fn acting(fabrics: &Fabrics, options: &str, what: &str) -> Command {
    let actor = actor();
    let actor: Vec<&str> = actor.iter().map(String::as_str).collect();
    let mut command = running(fabrics, options, &actor);
    command.env(ACT, what);
    command
}

fn of_environment() -> (Fabric, String) {
    let fabric = std::env::var("TOEHOLD_FABRIC").unwrap();
    let node = std::env::var("TOEHOLD_NODE").unwrap();
    (Fabric::existing(&fabric).unwrap(), node)
}

/// Not a test of its own: the programs of the tests below.
#[test]
fn act() {
    let Ok(act) = std::env::var(ACT) else { return };
    match act.as_str() {
        "write" => {
            let (fabric, node) = of_environment();
            let node = Node::attach(&fabric, &node).unwrap();
            let mut stream = TcpStream::connect(&node, "10.77.0.1:80").unwrap();
            stream.write_all(&vec![7; BYTES]).unwrap();
            // Neither closed nor dropped.
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        "stay" => {
            let (fabric, node) = of_environment();
            let _node = Node::attach(&fabric, &node).unwrap();
            println!("attached");
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
        }
        "count" => {
            let path = std::env::var_os("TOEHOLD_STATS").unwrap();
            let usage = Usage::open(path.as_ref()).unwrap();
            usage.add(Counter::Connected, 3);
            usage.add(Counter::BytesSent, 1 << 40);
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        other => panic!("what is {other}?"),
    }
}

#[test]
fn data_of_killed_program_are_delivered_at_end_of_node() {
    let fabrics = Fabrics::new();
    fabrics.succeeds("up server");
    let path = fabrics.0.path().join("default");
    let fabric = Fabric::existing(path.to_str().unwrap()).unwrap();
    let server = Node::attach(&fabric, "server").unwrap();
    let listener = TcpListener::bind(&server, "10.77.0.1:80").unwrap();
    let mut program = acting(&fabrics, "--node client --drain 60s", "write")
        .spawn()
        .unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    // The rest is read only after its death.
    program.wait().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), BYTES);
    eventually("the node's end", || !is_running(&fabrics, "client"));
}

#[test]
fn attached_program_with_closed_keeper_keeps_its_node() {
    let fabrics = Fabrics::new();
    let mut command = {
        let actor = actor().join(" ");
        let script = format!("exec 100>&-; exec {actor}");
        running(&fabrics, "--node web", &["bash", "-c", &script])
    };
    command.env(ACT, "stay").stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped());
    let mut program = Started::new(command);
    while !program.line.contains("attached") {
        program.line.clear();
        std::io::BufRead::read_line(&mut program.output, &mut program.line).unwrap();
    }
    let node = &fabrics.json("stat web --json")["status"];
    assert_eq!(node["processes"][0]["pid"], program.child.id());
    program.finish();
    wait_until_gone(&fabrics);
}

#[test]
fn counts_of_killed_program_are_reported() {
    let fabrics = Fabrics::new();
    let file = fabrics.0.path().join("stats.json");
    let option = format!("--stats={}", file.display());
    let mut program = acting(&fabrics, &option, "count").spawn().unwrap();
    let pid = Pid::from_child(&program);
    let ended = program.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&ended),
        Some(9),
        "{pid:?}"
    );
    let told: serde_json::Value = serde_json::from_str(&crate::read(&file)).unwrap();
    let counters = &told["counters"];
    assert_eq!(counters["connected"], 3);
    assert_eq!(counters["bytes_sent"], 1_u64 << 40);
    assert_eq!(counters["accepted"], 0);
    let shown = acting(&fabrics, "--stats --node x", "count").output().unwrap();
    let shown = crate::text(&shown.stderr);
    assert!(
        shown.contains("on node x") && shown.contains("1099511627776"),
        "{shown}"
    );
}
