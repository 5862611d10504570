//! Runs the commands about nodes like a user: real engine processes, in fabrics of the test.

mod bridges;
mod capture;
mod crowds;
mod demux;
mod ethernet;
mod kernel;
#[path = "../programs/library.rs"]
mod library;
mod output;
mod peers;
mod programs;
mod queues;
mod segments;
mod support;
mod uplinks;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use toehold_node::control::{Connection, ControlError};
use toehold_node::fabric::Fabric;
use toehold_socket::{Keepalive, Node, TcpListener, TcpStream};

use crate::support::{Fabrics, PATIENCE, eventually, text, wait_for_end};

#[test]
fn nodes_start_and_end() {
    let fabrics = Fabrics::new();
    let started = fabrics.list("up web db --json");
    assert_eq!(started[0]["ipv4"], "10.77.0.1/16");
    assert_eq!(started[1]["ipv6"], "fd77::2/64");
    let running = fabrics.list("ps --json");
    let names: Vec<_> = running
        .as_array()
        .unwrap()
        .iter()
        .map(|line| &line["node"]["name"])
        .collect();
    assert_eq!(names, ["db", "web"]);
    for line in running.as_array().unwrap() {
        assert_eq!(line["fabric"], "default");
        assert_eq!(line["status"]["node"], line["node"]);
        assert_eq!(line["status"]["stack"]["connections_bound"], 65536);
        assert_eq!(line["status"]["processes"], Value::Array(Vec::new()));
    }
    let peers = |line: &Value| line["status"]["stack"]["peers"] == 1;
    eventually("their meeting", || {
        fabrics.list("ps --json").as_array().unwrap().iter().all(peers)
    });
    let table = fabrics.succeeds("ps");
    assert!(
        table.contains("10.77.0.2/16") && table.contains("adaptive"),
        "{table}"
    );
    let engines = ["web", "db"].map(|node| fabrics.engine(node));
    fabrics.succeeds("down web db");
    assert_eq!(fabrics.files(), [""; 0]);
    for engine in engines {
        wait_for_end(engine);
    }
    assert_eq!(fabrics.list("ps --json"), Value::Array(Vec::new()));
    assert!(text(&fabrics.run("ps").stderr).contains("toehold up NODE"));
}

#[test]
fn engine_process_has_own_session() {
    let fabrics = Fabrics::new();
    fabrics.succeeds("up web");
    let engine = fabrics.engine("web");
    assert_eq!(rustix::process::getsid(Some(engine)).unwrap(), engine);
    let link = |name: &str| fs::read_link(format!("/proc/{}/{name}", engine.as_raw_nonzero())).unwrap();
    for descriptor in ["fd/0", "fd/1", "fd/2"] {
        assert_eq!(link(descriptor), PathBuf::from("/dev/null"));
    }
    assert_eq!(link("cwd"), PathBuf::from("/"));
}

#[test]
fn running_or_invalid_name_is_refused() {
    let fabrics = Fabrics::new();
    fabrics.succeeds("up web");
    let said = fabrics.fails("up web");
    assert!(said.contains("is running in this fabric"), "{said}");
    for bad in [".web", "a/b", "wéb"] {
        let said = fabrics.fails(&format!("up {bad}"));
        assert!(said.contains("a node's name has"), "{said}");
    }
    for begun in [
        "device toe9 --netns= --ipv4 10.77.9.9/16",
        "uplink other --interface toe9 --netns=",
    ] {
        let said = fabrics.fails(begun);
        assert!(said.contains("--netns <NAMESPACE>"), "{said}");
    }
    // A node that fails does not prevent the others from running.
    let output = fabrics.run("up web db --json");
    assert_eq!(output.status.code(), Some(1));
    let started = support::list_in(serde_json::from_slice(&output.stdout).unwrap());
    assert_eq!(
        (&started[0]["name"], started.as_array().unwrap().len()),
        (&"db".into(), 1)
    );
    // The same name in another fabric is another node.
    fabrics.succeeds("up --fabric other web");
    assert_eq!(fabrics.list("ps --json").as_array().unwrap().len(), 3);
    assert_eq!(
        fabrics.list("ps --fabric other --json").as_array().unwrap().len(),
        1
    );
    fabrics.succeeds("down --fabric other --all");
    assert!(!fabrics.0.path().join("other").exists());
    fabrics.succeeds("up --fabric other web");
    fabrics.succeeds("down --fabric other --all");
}

#[test]
fn files_of_killed_engine_are_removed_by_next_command() {
    let fabrics = Fabrics::new();
    fabrics.succeeds("up web db");
    for node in ["web", "db"] {
        let engine = fabrics.engine(node);
        kill_process(engine, Signal::KILL).unwrap();
        wait_for_end(engine);
    }
    assert_eq!(fabrics.files().len(), 6);
    let up = fabrics.list("up db --json");
    assert_eq!(up[0]["ipv4"], "10.77.0.1/16");
    let engine = fabrics.engine("db");
    kill_process(engine, Signal::KILL).unwrap();
    wait_for_end(engine);
    assert_eq!(fabrics.list("ps --json"), Value::Array(Vec::new()));
    assert_eq!(fabrics.files(), [""; 0]);
    assert!(fabrics.fails("down db").contains("no node named db"));
}

#[test]
fn signal_ends_node_orderly() {
    let fabrics = Fabrics::new();
    fabrics.succeeds("up web");
    let engine = fabrics.engine("web");
    kill_process(engine, Signal::TERM).unwrap();
    wait_for_end(engine);
    assert_eq!(fabrics.files(), [""; 0]);
}

#[test]
fn node_with_shards_is_one_node() {
    let fabrics = Fabrics::new();
    assert!(fabrics.fails("up web --shards 17").contains("shards"));
    fabrics.succeeds("up web --shards 3 --direct no");
    fabrics.succeeds("up db --shards 2");
    let line = fabrics.list("ps --json");
    let shards = |line: &Value| line["status"]["stack"]["shards"].as_u64();
    assert_eq!([shards(&line[0]), shards(&line[1])], [Some(2), Some(3)]);
    let fabric = Fabric::open(fabrics.0.path().join("default").to_str().unwrap()).unwrap();
    let (web, db) = (
        Node::attach(&fabric, "web").unwrap(),
        Node::attach(&fabric, "db").unwrap(),
    );
    let listener = TcpListener::bind(&web, "10.77.0.1:80").unwrap();
    let streams: Vec<_> = (0..24)
        .map(|_| {
            let client = TcpStream::connect(&db, "10.77.0.1:80").unwrap();
            (client, listener.accept().unwrap().0)
        })
        .collect();
    let peers = |line: &Value| line["status"]["stack"]["peers"] == 1;
    let both = fabrics.list("ps --json");
    assert!(both.as_array().unwrap().iter().all(peers), "{both}");
    let sockets = fabrics.succeeds("sockets web");
    for shard in ["shard:0", "shard:1", "shard:2"] {
        // A listener, and some of the connections.
        assert!(sockets.matches(shard).count() > 1, "{sockets}");
    }
    let text = fabrics.succeeds("stat web");
    assert!(
        text.contains("3 shards") && text.contains("24 of 65535 connections, 1 listeners"),
        "{text}"
    );
    let metrics = fabrics.succeeds("stat web --prometheus");
    let opened = |shard: u8| {
        let name =
            format!("toehold_tcp_passive_opens_total{{fabric=\"default\",node=\"web\",shard=\"{shard}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.and_then(|value| value.parse::<u64>().ok()).unwrap()
    };
    assert_eq!([0, 1, 2].map(opened).iter().sum::<u64>(), 24);
    drop(streams);
    fabrics.succeeds("placement web engine");
    // A killed engine leaves a socket for each shard; an ended one leaves none.
    let engine = fabrics.engine("web");
    kill_process(engine, Signal::KILL).unwrap();
    wait_for_end(engine);
    assert!(fabrics.files().contains(&"web#2.sock".to_owned()));
    fabrics.succeeds("ps");
    let left = |name: &String| name.starts_with("web");
    assert!(!fabrics.files().iter().any(left), "{:?}", fabrics.files());
    fabrics.succeeds("down db");
    assert_eq!(fabrics.files(), [""; 0]);
}

#[test]
fn node_in_foreground_is_this_process() {
    let fabrics = Fabrics::new();
    for signal in [Signal::INT, Signal::HUP] {
        let mut command = fabrics.command("up web --foreground");
        let mut node = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("10.77.0.1/16")));
        assert_eq!(fabrics.engine("web"), Pid::from_child(&node));
        kill_process(Pid::from_child(&node), signal).unwrap();
        assert!(node.wait().unwrap().success());
        assert_eq!(fabrics.files(), [""; 0]);
    }
    assert!(fabrics.fails("up a b --foreground").contains("only one node"));
}

#[test]
fn settings_come_from_command_line_and_environment() {
    let fabrics = Fabrics::new();
    let up = |line: &str| {
        let mut command = fabrics.command(line);
        command
            .env("TOEHOLD_MTU", "9000")
            .env("TOEHOLD_CONNECTIONS", "77");
        assert!(command.output().unwrap().status.success());
    };
    // A default given on the command line takes precedence over the variable.
    up("up web --mtu 1500 --payload-memory 64M --placement engine --mac 02:00:00:00:00:07");
    up("up db --ipv4 10.77.3.1/16");
    let nodes = fabrics.list("ps --json");
    let (db, web) = (&nodes[0], &nodes[1]);
    assert_eq!(
        (&db["node"]["mtu"], &web["node"]["mtu"]),
        (&9000.into(), &1500.into())
    );
    assert_eq!(db["node"]["ipv6"], "fd77::301/64");
    assert_eq!(web["node"]["mac"], "02:00:00:00:00:07");
    let stack = &web["status"]["stack"];
    assert_eq!(stack["connections_bound"], 77);
    assert_eq!(stack["payload_bound"], 64 << 20);
    assert_eq!(stack["placement"], "engine");
    assert!(fabrics.fails("up x --mtu 9").contains("choose 68 to 65521"));
    assert!(
        fabrics
            .fails("up x y --ipv4 10.77.0.9/16")
            .contains("cannot have one address")
    );
    assert!(
        fabrics
            .fails("up x --ipv4 10.77.3.1/8")
            .contains("node db has the address")
    );
}

#[test]
fn first_node_sets_networks_of_fabric() {
    let fabrics = Fabrics::new();
    let started = fabrics.list("up a b --network 192.168.7.0/24 --json");
    assert_eq!(started[1]["ipv4"], "192.168.7.2/24");
    let said = fabrics.fails("up c --network 10.0.0.0/8");
    assert!(said.contains("192.168.7.0/24"), "{said}");
}

#[test]
fn node_answers_and_obeys_commands() {
    let fabrics = Fabrics::new();
    fabrics.succeeds("up web");
    fabrics.succeeds("placement web inline");
    assert_eq!(
        fabrics.json("stat web --json")["status"]["stack"]["placement"],
        "inline"
    );
    assert!(
        fabrics
            .fails("placement web sideways")
            .contains("inline, engine, adaptive")
    );
    let shown = fabrics.succeeds("stat web --interval 1ms");
    assert!(
        shown.contains("% of a core now") && shown.contains("128.0 MiB"),
        "{shown}"
    );
    let metrics = fabrics.succeeds("stat web --prometheus");
    assert!(metrics.contains("toehold_connections_bound{fabric=\"default\",node=\"web\"} 65536"));
    assert_eq!(fabrics.list("sockets web --json"), Value::Array(Vec::new()));
    assert!(fabrics.succeeds("sockets web").starts_with("State"));
    for command in ["sockets", "stat", "down"] {
        let said = fabrics.fails(&format!("{command} db"));
        assert!(said.contains("no node named db runs"), "{said}");
    }
    let said = fabrics.fails("stat --fabric none web");
    assert!(said.contains("there is no fabric none"), "{said}");
}

#[test]
fn fabric_can_be_directory() {
    let fabrics = Fabrics::new();
    let run = |line: &str| {
        let output = fabrics
            .command(line)
            .current_dir(fabrics.0.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    run("up --fabric ./here/lab web");
    assert!(fabrics.0.path().join("here/lab/web.ctl").exists());
    let listed = run("ps --fabric here/lab/ --json");
    assert!(listed.contains("\"name\": \"web\""), "{listed}");
    run("down --fabric ./here/lab web");
}

#[test]
fn engine_process_writes_to_log() {
    let fabrics = Fabrics::new();
    let log = fabrics.0.path().join("log");
    fabrics.succeeds(&format!("up web --log {}", log.display()));
    let link = format!("/proc/{}/fd/2", fabrics.engine("web").as_raw_nonzero());
    assert_eq!(fs::read_link(link).unwrap(), log);
    let said = fabrics.fails("up db --log /proc/none");
    assert!(said.contains("cannot write the log /proc/none"), "{said}");
}

/// The listening socket stays readable while no client can be accepted.
#[test]
fn node_without_descriptors_serves_its_programs_and_recovers() {
    let fabrics = Fabrics::new();
    let program = fabrics.command("up web");
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 120; exec \"$0\" up web"]);
    limited.arg(program.get_program()).stdin(Stdio::null());
    limited.env("TOEHOLD_RUNTIME_DIR", fabrics.0.path());
    assert!(limited.output().unwrap().status.success());
    let directory = fabrics.0.path().join("default");
    let fabric = Fabric::open(directory.to_str().unwrap()).unwrap();
    let connect = || Connection::open(&fabric, "web").unwrap().timeout(PATIENCE);
    let mut crowd: Vec<_> = (0..100).map(|_| connect()).collect();
    for _ in 0..10 {
        crowd[0].status().unwrap();
    }
    let unserved = crowd.pop().unwrap().timeout(Duration::from_millis(20)).status();
    assert!(
        matches!(unserved, Err(ControlError::TimedOut { .. })),
        "{unserved:?}"
    );
    drop(crowd);
    connect().status().unwrap();
}

/// Regression: an engine that had taken the last descriptor could not report, and `up` waited for it.
#[test]
fn engine_with_too_few_descriptors_is_refused_at_once() {
    let fabrics = Fabrics::new();
    let mut refused = 0;
    for limit in (16..120).step_by(4) {
        let program = fabrics.command("up web");
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" up web")]);
        limited.arg(program.get_program()).stdin(Stdio::null());
        limited.env("TOEHOLD_RUNTIME_DIR", fabrics.0.path());
        let output = limited.output().unwrap();
        if output.status.success() {
            fabrics.succeeds("down web");
            continue;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("ulimit -n"), "{limit}: {said}");
        refused += 1;
    }
    assert!(refused > 10, "{refused} are refused");
}

/// Two programs, played by this process, on nodes whose engines are separate processes.
#[test]
fn activity_of_programs_is_visible() {
    let fabrics = Fabrics::new();
    fabrics.succeeds("up web db --direct no");
    let fabric = Fabric::open(fabrics.0.path().join("default").to_str().unwrap()).unwrap();
    let (web, db) = (
        Node::attach(&fabric, "web").unwrap(),
        Node::attach(&fabric, "db").unwrap(),
    );
    let listener = TcpListener::bind(&web, "10.77.0.1:80").unwrap();
    let mut client = TcpStream::connect(&db, "10.77.0.1:80").unwrap();
    client.set_keepalive(Some(Keepalive::default())).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"to be read later").unwrap();
    server.read_exact(&mut [0; 6]).unwrap();

    let me = std::process::id();
    let listed = fabrics.list("sockets web --json");
    let of_state = |state: &str| {
        let mut all = listed.as_array().unwrap().iter();
        all.find(|socket| socket["state"] == state)
            .unwrap_or_else(|| panic!("no {state} in {listed}"))
    };
    assert_eq!(of_state("LISTEN")["local"], "10.77.0.1:80");
    let connection = of_state("ESTAB");
    assert_eq!(connection["remote"], client.local_addr().unwrap().to_string());
    assert_eq!(connection["receive_queue"], 10);
    assert_eq!(connection["tcp"]["bytes_received"], 16);
    assert_eq!(
        (&connection["pid"], &of_state("LISTEN")["pid"]),
        (&me.into(), &me.into())
    );
    let shown = fabrics.succeeds("sockets web");
    assert!(shown.contains("\nESTAB          10      0"), "{shown}");

    // No data are in flight: the running timer is the program's.
    let shown = fabrics.succeeds("sockets db");
    assert!(shown.contains(" timer:(keepalive,119min,0)\n"), "{shown}");
    assert!(shown.contains(" rto:") && shown.contains(" rtt:"), "{shown}");
    let listed = fabrics.list("sockets db --json");
    assert_eq!(listed[0]["timers"][0]["kind"], "keepalive");

    let status = &fabrics.json("stat web --json")["status"];
    assert_eq!(status["processes"][0]["pid"], me);
    assert_eq!(status["stack"]["connections"], 1);
    assert_eq!(status["stack"]["listeners"], 1);
    let counters = fabrics.json("stat db --json")["counters"].clone();
    let opens = |counter: &&Value| counter["name"] == "tcp_active_opens";
    assert_eq!(
        counters.as_array().unwrap().iter().find(opens).unwrap()["value"],
        1
    );
    let processes = |line: &Value| line["status"]["processes"].as_array().unwrap().len();
    let running = || {
        fabrics
            .list("ps --json")
            .as_array()
            .unwrap()
            .iter()
            .map(processes)
            .collect::<Vec<_>>()
    };
    assert_eq!(running(), [1, 1]);
    drop(client);
    assert_eq!(server.read(&mut [0; 16]).unwrap(), 10);
    assert_eq!(server.read(&mut [0; 16]).unwrap(), 0);
    drop(server);
    // The side that closed first leaves a TIME-WAIT record without a process.
    eventually("the connection's end", || {
        let listed = fabrics.list("sockets db --json");
        listed[0]["state"] == "TIME-WAIT" && listed[0]["pid"] == Value::Null
    });
    let shown = fabrics.succeeds("sockets db");
    assert!(
        shown.contains("sec,0)\n") && shown.contains(" timer:(timewait,"),
        "{shown}"
    );
    drop((listener, web, db));
    eventually("the programs' leave", || running() == [0, 0]);
}
