//! Real servers whose node's memory is overwritten, and a neighbour node that keeps its connection.

use std::fs;
use std::process::Command;

use rustix::process::Pid;

use super::{Heard, SCRIBBLE};
use crate::support::{Fabrics, eventually, text};
use crate::web::{nginx_with, write_files};
use crate::{Place, Server, counter, free_port, listens};

/// Echoes its input forever.
const WITNESSED: &str = "
import socket, sys
listener = socket.create_server(('0.0.0.0', int(sys.argv[1])))
peer = listener.accept()[0]
while got := peer.recv(65536): peer.sendall(got)
";

/// Keeps one connection until a file exists. Neither the connection nor a byte of it may be lost.
const WITNESS: &str = "
import os, random, socket, sys
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)
while not os.path.exists(sys.argv[3]):
    sent = random.randbytes(random.randint(1, 20000))
    peer.sendall(sent)
    got = b''
    while len(got) < len(sent):
        more = peer.recv(65536)
        assert more
        got += more
    assert got == sent
print('unharmed')
";

/// Sends a request to a server until a file exists. It retries failed calls.
const ASKS: &str = "
import os, socket, sys, time
while not os.path.exists(sys.argv[4]):
    try:
        peer = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
        peer.sendall(sys.argv[3].encode().decode('unicode_escape').encode())
        peer.recv(65536)
        peer.close()
    except OSError: time.sleep(0.01)
";

/// A server, and its clients.
struct Subject {
    start: fn(&Place) -> Server,
    /// A request for it, as Python writes bytes.
    request: &'static str,
    /// A program that succeeds if the answer is right.
    ask: fn(&Place) -> Vec<String>,
    /// The log in which it reports how its processes ended.
    log: &'static str,
}

/// Overwrites the memory of the server's node, through each of its processes, while a client sends
/// requests. The server answers in the end, and the neighbour node is unaffected.
fn scribbled_server_harms_no_neighbour(seed: u32, subject: &Subject) {
    let place = Place::new(Some(Fabrics::new()));
    let nodes = place.nodes.as_ref().unwrap();
    let scribble = place.file("scribble.py", SCRIBBLE);
    let over = place.path("over");
    write_files(&place);
    nodes.succeeds("up server client neighbour");
    let (port, other) = (place.port.to_string(), free_port());
    let witnessed = ["python3", "-c", WITNESSED, &other.to_string()];
    let _witnessed = Heard::start(&place, "neighbour", "witnessed", &witnessed);
    eventually("a listener", || {
        listens(&nodes.list("sockets neighbour --json"), other)
    });
    let witness = ["python3", "-c", WITNESS, "10.77.0.3", &other.to_string(), &over];
    let mut witness = Heard::start(&place, "client", "witness", &witness);
    let mut server = (subject.start)(&place);
    let asks = [
        "python3",
        "-c",
        ASKS,
        place.address(),
        &port,
        subject.request,
        &over,
    ];
    let mut asking = Heard::start(&place, "client", "asking", &asks);
    eventually("a process that maps the node's memory", || {
        !processes(server.pid()).is_empty()
    });

    for process in processes(server.pid()) {
        let mut scribbling = Command::new("timeout");
        scribbling.args([
            "60",
            "python3",
            &scribble,
            &process,
            "2000",
            &seed.to_string(),
            "bytes",
        ]);
        let done = scribbling.output().unwrap();
        let said = text(&done.stderr);
        let is_gone = said.contains("No such file or directory");
        assert!(done.status.success() || is_gone, "seed {seed}: {said}");
    }
    let ask = (subject.ask)(&place);
    let limited = ["timeout", "20"]
        .into_iter()
        .chain(ask.iter().map(String::as_str));
    let limited: Vec<&str> = limited.collect();
    // The node may detect the damage late or never. It is restarted, and the server continues.
    nodes.succeeds("down server");
    nodes.succeeds("up server");
    eventually("an answer", || {
        place
            .command("client", &limited)
            .output()
            .unwrap()
            .status
            .success()
    });
    fs::write(&over, "").unwrap();
    for program in [&mut witness, &mut asking] {
        let ended = program.child().wait().unwrap();
        assert!(ended.success(), "seed {seed}: {ended}");
    }
    witness.check("the witness");
    asking.check("the client");
    for node in ["client", "neighbour"] {
        let status = nodes.json(&format!("stat {node} --json"));
        assert_eq!(counter(&status, "node_resets"), 0, "{node}, seed {seed}");
    }
    let log = fs::read_to_string(place.path(subject.log)).unwrap();
    assert_eq!(server.0.try_wait().unwrap(), None, "seed {seed}: {log}");
    assert!(!log.contains("exited on signal"), "seed {seed}: {log}");
}

/// The processes of a server that map the memory of a node.
fn processes(first: Pid) -> Vec<String> {
    let pid = first.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let all = [pid.to_string()]
        .into_iter()
        .chain(children.split_whitespace().map(str::to_owned));
    let maps = |pid: &String| {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        maps.lines()
            .any(|line| line.contains(" rw-s ") && line.contains("/memfd:toehold-server"))
    };
    all.filter(maps).collect()
}

#[test]
#[ignore = "needs nginx, curl, python3"]
fn scribbled_memory_of_nginx_ends_no_worker_and_harms_no_neighbour() {
    let nginx = Subject {
        // Workers of another user may not attach to the restarted node.
        start: |place| nginx_with(place, &["-g", "user root;"]),
        request: "GET /1k HTTP/1.0\\r\\n\\r\\n",
        ask: |place| {
            ["curl", "-sSf", "-o", "/dev/null", &place.url("1k")]
                .map(str::to_owned)
                .to_vec()
        },
        log: "error.log",
    };
    for seed in 300..303 {
        scribbled_server_harms_no_neighbour(seed, &nginx);
    }
}

#[test]
#[ignore = "needs redis-server, redis-cli, python3"]
fn scribbled_memory_of_redis_ends_no_process_and_harms_no_neighbour() {
    let redis = Subject {
        start: |place| {
            let port = place.port.to_string();
            place.serve(&[
                "redis-server",
                "--port",
                &port,
                "--protected-mode",
                "no",
                "--save",
                "",
            ])
        },
        request: "PING\\r\\n",
        ask: |place| {
            let port = place.port.to_string();
            [
                "redis-cli",
                "-e",
                "-h",
                place.address(),
                "-p",
                &port,
                "SET",
                "key",
                "value",
            ]
            .map(str::to_owned)
            .to_vec()
        },
        log: "server.log",
    };
    for seed in 320..323 {
        scribbled_server_harms_no_neighbour(seed, &redis);
    }
}
