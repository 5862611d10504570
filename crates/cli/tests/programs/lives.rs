//! Programs whose node is killed and restarted. Their connections are lost; new connections and
//! listeners belong to the new node.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Fabrics, eventually, wait_for_end};
use crate::{LIMIT, Place, accepted, counter};

/// Accepts connections, echoes a message on each, and keeps them. It prints each peer and each
/// connection's end.
const SERVER: &str = "
import errno, os, select, socket, sys
listener = socket.create_server(('0.0.0.0', int(sys.argv[2])))
def tell(what): print(what, flush=True)
def accept():
    peer, address = listener.accept()
    tell(address[0])
    word = peer.recv(5)
    peer.sendall(word)
    if word == b'leave': sys.exit(0)
    return peer
def look(peer):
    try: came = peer.recv(5)
    except OSError as error: came = errno.errorcode[error.errno]
    tell(came)
    peer.close()
peers = {}
def seen(number, told):
    if number == listener.fileno():
        peer = accept()
        peers[peer.fileno()] = peer
        return peer
    told.unregister(number)
    look(peers.pop(number))
how = sys.argv[1]
if how == 'fork': os.fork()
if how in ('accept', 'fork'):
    while True: peers[accept()] = True
if how == 'select':
    while True:
        for one in select.select([listener, *peers], [], [])[0]:
            if one is listener: peers[accept()] = True
            else:
                del peers[one]
                look(one)
told = select.poll() if how == 'poll' else select.epoll()
edge = select.EPOLLET if how == 'edge' else 0
told.register(listener, select.POLLIN)
while True:
    for number, _ in told.poll():
        if peer := seen(number, told): told.register(peer, select.POLLIN | edge)
";

/// Obeys its input: exchanges a word, or reads the last connection once more.
const CLIENT: &str = "
import errno, socket, sys
while word := sys.stdin.readline().strip():
    try:
        if word != 'look':
            last = socket.create_connection((sys.argv[1], int(sys.argv[2])))
            last.sendall(word.encode())
        print(last.recv(5).decode(), flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
";

/// The setting of nodes that have direct connections.
const DIRECT: &str = "--direct yes";

struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn start(place: &Place) -> Client {
        let port = place.port.to_string();
        let words = ["timeout", LIMIT, "python3", "-c", CLIENT, place.address(), &port];
        let mut command = place.command("client", &words);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Client {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn says(&mut self, what: &str) -> String {
        writeln!(self.input, "{what}").unwrap();
        let mut said = String::new();
        self.output.read_line(&mut said).unwrap();
        said.trim_end().to_owned()
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Two nodes, without the check that results equal those over the kernel.
pub(crate) fn place() -> Place {
    place_with("")
}

/// The place whose nodes have settings, as `up` takes them.
fn place_with(settings: &str) -> Place {
    let nodes = Fabrics::new();
    nodes.succeeds(&format!("up server client {settings}"));
    Place {
        nodes: Some(nodes),
        ..Place::new(None)
    }
}

fn kill(nodes: &Fabrics, node: &str) {
    let engine = nodes.engine(node);
    kill_process(engine, Signal::KILL).unwrap();
    wait_for_end(engine);
}

/// A server whose node is killed listens on the next one, in all of its processes, several times.
fn server(how: &str, tells_of_loss: bool, settings: &str) {
    let place = place_with(settings);
    let Some(nodes) = &place.nodes else { return };
    let server = place.serve(&["python3", "-c", SERVER, how, &place.port.to_string()]);
    let mut client = Client::start(&place);
    assert_eq!(client.says("hello"), "hello");
    kill(nodes, "server");
    assert_eq!(client.says("look"), "ECONNRESET");
    if tells_of_loss {
        eventually("an error", || place.log().contains("ENETDOWN"));
    }
    nodes.succeeds(&format!("up server {settings}"));
    place.await_listener(place.port);
    assert_eq!(client.says("hello"), "hello");
    let opened = accepted(&nodes.json("stat server --json"));
    assert_eq!(opened, 1, "{}", place.log());
    assert_eq!(client.says("leave"), "leave");
    client.end();
    if how != "fork" {
        // Regression: a thread that waited during the kill ended later by a signal.
        assert!(server.wait().success(), "{}", place.log());
    }
}

#[test]
#[ignore = "needs python3"]
fn server_in_accept_listens_on_restarted_node() {
    server("accept", false, "");
}

#[test]
#[ignore = "needs python3"]
fn server_in_poll_listens_on_restarted_node() {
    server("poll", true, "");
}

#[test]
#[ignore = "needs python3"]
fn server_in_select_listens_on_restarted_node() {
    server("select", true, "");
}

#[test]
#[ignore = "needs python3"]
fn server_in_epoll_listens_on_restarted_node() {
    server("level", true, "");
}

#[test]
#[ignore = "needs python3"]
fn server_in_edge_triggered_epoll_listens_on_restarted_node() {
    server("edge", true, "");
}

/// Regression: its listener was not made anew.
#[test]
#[ignore = "needs python3"]
fn server_listens_on_restarted_node_for_direct_connections() {
    server("accept", false, DIRECT);
    server("edge", true, DIRECT);
}

/// All processes share one listener.
#[test]
#[ignore = "needs python3"]
fn all_processes_of_server_listen_on_restarted_node() {
    server("fork", false, "");
}

/// Regression: a program failed forever, although its node was back.
#[test]
#[ignore = "needs python3"]
fn client_connects_from_restarted_node() {
    client_of_restarted_node("");
}

/// Regression: the end of its own node was the end of the stream to it.
#[test]
#[ignore = "needs python3"]
fn client_connects_directly_from_restarted_node() {
    client_of_restarted_node(DIRECT);
}

fn client_of_restarted_node(settings: &str) {
    let place = place_with(settings);
    let Some(nodes) = &place.nodes else { return };
    let _server = place.serve(&["python3", "-c", SERVER, "level", &place.port.to_string()]);
    let mut client = Client::start(&place);
    assert_eq!(client.says("hello"), "hello");
    kill(nodes, "client");
    assert_eq!(client.says("look"), "ENETDOWN");
    assert_eq!(client.says("hello"), "ENETDOWN");
    // The next node may have another address.
    nodes.succeeds(&format!("up client --ipv4 10.77.3.3/16 {settings}"));
    let mut said = String::new();
    while said != "hello" {
        assert!(["", "ENETDOWN"].contains(&said.as_str()), "{said}");
        said = client.says("hello");
    }
    assert!(place.log().contains("10.77.3.3"), "{}", place.log());
    // A node that ended normally is gone likewise.
    nodes.succeeds("down client");
    assert_eq!(client.says("look"), "ENETDOWN");
    nodes.succeeds(&format!("up client {settings}"));
    while client.says("hello") != "hello" {}
    client.end();
}

/// Connects to a node at either of its addresses, to its own node, and to itself.
const CONNECTS: &str = "
import errno, socket
listener = socket.create_server(('127.0.0.1', 0))
for to in ('10.77.0.1', 7), ('fd77::1', 7), ('10.77.0.2', 7), listener.getsockname():
    try:
        socket.create_connection(to, 5)
        print('connected')
    except OSError as error:
        print(errno.errorcode[error.errno])
";

/// Regression: these connections went to the kernel, which routed them to other hosts.
#[test]
#[ignore = "needs python3"]
fn program_without_node_reaches_no_other_host_at_fabric_addresses() {
    let toehold = env!("CARGO_BIN_EXE_toehold");
    for before in [
        "ulimit -n 150",
        "$0 down client >/dev/null",
        "$0 down --all >/dev/null",
    ] {
        let place = place();
        let line = format!("{before} && python3 -c \"$1\"");
        let said = place.says(&["sh", "-c", &line, toehold, CONNECTS]);
        assert_eq!(said, "ENETDOWN\nENETDOWN\nENETDOWN\nconnected\n", "{before}");
    }
}

/// Closes all descriptors, as daemons do, and continues as another program without a connection.
const DAEMON: &str = "
import os, sys
os.closerange(3, 4096)
if os.fork(): os._exit(0)
os.setsid()
for number in range(256):
    try: os.close(number)
    except OSError: pass
os.open('/dev/null', os.O_RDWR), os.dup(0), os.dup(0)
os.closerange(3, 4096)
open(sys.argv[1] + '.new', 'w').write(str(os.getpid()))
os.rename(sys.argv[1] + '.new', sys.argv[1])
os.execvp('sleep', ['sleep', '1000'])
";

#[test]
#[ignore = "needs python3"]
fn daemon_with_closed_fds_keeps_its_node() {
    let place = place();
    let Some(nodes) = &place.nodes else { return };
    let note = place.path("daemon");
    let mut starting = place.command("another", &["python3", "-c", DAEMON, &note]);
    assert!(starting.status().unwrap().success());
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    eventually("the daemon", || !read(&note).is_empty());
    let daemon = read(&note).parse::<i32>().unwrap();
    eventually("the daemon's program", || {
        read(&format!("/proc/{daemon}/comm")).trim() == "sleep"
    });
    nodes.succeeds("stat another");
    kill_process(Pid::from_raw(daemon).unwrap(), Signal::KILL).unwrap();
    let is_there = || nodes.list("ps --json").to_string().contains("another");
    eventually("the node's end", || !is_there());
}

/// The program has replaced the descriptor that keeps its node.
#[test]
#[ignore = "needs python3"]
fn reused_keeper_fd_is_closed_on_request() {
    let script = "
import os
os.dup2(0, 100)
os.execvp('python3', ['python3', '-c', 'import os; os.close(100)'])";
    let place = place();
    let ended = place
        .command("another", &["python3", "-c", script])
        .output()
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

/// Clients that exchange data all the time end in one way, one after the other. A connection of
/// another program on the same node must not be affected.
const ENDING: &str = "
import os, random, signal, socket, sys, threading, time
how = sys.argv[1]
signal.signal(signal.SIGINT, signal.SIG_DFL)
listener = socket.create_server(('127.0.0.1', 0))
address = listener.getsockname()
if not os.fork():
    while True:
        peer, _ = listener.accept()
        if not os.fork():
            try:
                while bytes := peer.recv(4096): peer.sendall(bytes)
            finally: os._exit(0)
        peer.close()
def talk():
    with socket.create_connection(address) as client:
        while True:
            client.sendall(b'x' * 100)
            client.recv(4096)
other = socket.create_connection(address)
for _ in range(60):
    client = os.fork()
    if not client:
        if how.startswith('SIG'): talk()
        threading.Thread(target=talk, daemon=True).start()
        time.sleep(0.01 + random.random() / 50)
        if how == 'exec': os.execvp('true', ['true'])
        os._exit(0)
    if how.startswith('SIG'):
        time.sleep(0.01 + random.random() / 50)
        os.kill(client, getattr(signal, how))
    status = os.waitpid(client, 0)[1]
    assert os.WTERMSIG(status) == (getattr(signal, how) if how.startswith('SIG') else 0), status
    other.sendall(b'still')
    assert other.recv(10) == b'still'
print('as before', flush=True)
os.killpg(0, signal.SIGTERM)
";

fn ends(how: &str) {
    let place = place();
    let Some(nodes) = &place.nodes else { return };
    let mut command = place.command("client", &["setsid", "-w", "python3", "-c", ENDING, how]);
    let ended = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "as before\n", "{ended:?}");
    let status = nodes.json("stat client --json");
    assert_eq!(counter(&status, "node_resets"), 0);
    assert!(accepted(&status) > 20);
}

#[test]
#[ignore = "needs python3"]
fn terminated_busy_client_does_not_disturb_node() {
    ends("SIGTERM");
}

#[test]
#[ignore = "needs python3"]
fn killed_busy_client_does_not_disturb_node() {
    ends("SIGKILL");
}

#[test]
#[ignore = "needs python3"]
fn interrupted_busy_client_does_not_disturb_node() {
    ends("SIGINT");
}

#[test]
#[ignore = "needs python3"]
fn client_ending_with_busy_thread_does_not_disturb_node() {
    ends("exit");
}

#[test]
#[ignore = "needs python3"]
fn exec_with_busy_thread_does_not_disturb_node() {
    ends("exec");
}
