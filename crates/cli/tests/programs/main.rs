//! Unmodified programs on nodes of the test.
//!
//! Each test runs the same scene over the kernel and over two nodes, and compares the results. The
//! kernel does not have the address of the nodes' side, and the nodes' counters tell the number of
//! connections. A connection of the kernel therefore cannot pass for an offloaded one.

mod calls;
mod channels;
mod checked;
mod handed;
mod library;
mod limits;
mod lives;
mod measures;
mod mpi;
mod names;
mod past;
mod processes;
mod record;
mod rights;
mod scribbled;
mod servers;
mod shown;
mod signalled;
mod stopped;
mod stores;
mod streams;
#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../nodes/support.rs"]
mod support;
mod web;
mod workers;

use std::fs;
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;

use crate::library::LIBRARY;
use crate::record::Record;
use crate::support::{Fabrics, PATIENCE, eventually, text};

/// Most seconds for a program before it counts as hanging.
const LIMIT: &str = "120";

/// The place of programs: over the kernel, or on two nodes, `server` and `client`.
struct Place {
    /// The programs' files.
    files: TempDir,
    nodes: Option<Fabrics>,
    port: u16,
    _record: Option<Record>,
}

/// Runs a scene over the kernel and on nodes, which must have opened at least `connections`
/// connections, and compares the results.
fn alike<T: PartialEq + std::fmt::Debug>(connections: u64, scene: impl Fn(&Place) -> T) {
    alike_on("up server client", connections, scene);
}

/// Runs a scene over the kernel and on nodes without direct connections, and compares the results.
fn alike_over_tcp<T: PartialEq + std::fmt::Debug>(connections: u64, scene: impl Fn(&Place) -> T) {
    alike_on("up server client --direct no", connections, scene);
}

fn alike_on<T: PartialEq + std::fmt::Debug>(up: &str, connections: u64, scene: impl Fn(&Place) -> T) {
    let kernel = Place::new(None);
    let over_kernel = scene(&kernel);
    let place = Place::on_nodes(up);
    let over_nodes = scene(&place);
    assert_eq!(over_nodes, over_kernel, "on nodes, and over the kernel");
    place.check(connections);
}

/// Runs a scene over the kernel and on nodes with direct connections, and compares the results.
/// The nodes must have opened at least `connections` direct ones.
fn alike_directly<T: PartialEq + std::fmt::Debug>(connections: u64, scene: impl Fn(&Place) -> T) {
    let kernel = Place::new(None);
    let over_kernel = scene(&kernel);
    let place = Place::on_nodes("up server client --direct yes");
    let over_nodes = scene(&place);
    assert_eq!(over_nodes, over_kernel, "directly, and over the kernel");
    let fabrics = place.nodes.as_ref().expect("it is on nodes");
    let opened = |node: &str| counter(&fabrics.json(&format!("stat {node} --json")), "direct_opened");
    let opened = opened("client") + opened("server");
    assert!(opened >= connections, "{opened} direct connections");
}

impl Place {
    /// The place on nodes that a command starts.
    fn on_nodes(up: &str) -> Place {
        let nodes = Fabrics::new();
        nodes.succeeds(up);
        Place::new(Some(nodes))
    }

    fn new(nodes: Option<Fabrics>) -> Place {
        let files = tempfile::Builder::new()
            .prefix("toehold-programs-")
            .tempdir()
            .unwrap();
        // Servers that drop their privileges must reach them.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(files.path(), mode).unwrap();
        let port = free_port();
        let _record = nodes.is_some().then_some(Record);
        Place {
            files,
            nodes,
            port,
            _record,
        }
    }

    /// The server's address.
    fn address(&self) -> &'static str {
        match self.nodes {
            Some(_) => "10.77.0.1",
            None => "127.0.0.1",
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}:{}/{path}", self.address(), self.port)
    }

    fn path(&self, name: &str) -> String {
        self.files.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file and returns its path.
    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Compiles a C program by a command like `cc -static` and returns its path.
    fn compile(&self, compiler: &str, name: &str, source: &str) -> String {
        let (source, program) = (self.file(&format!("{name}.c"), source), self.path(name));
        let mut words = compiler.split(' ');
        let mut cc = Command::new(words.next().unwrap_or_default());
        cc.args(words)
            .args(["-O1", "-Wall", "-pthread", "-o", &program, &source]);
        let done = cc.output().unwrap_or_else(|error| panic!("{compiler}: {error}"));
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        program
    }

    /// A program on one of the nodes, or over the kernel.
    fn command(&self, node: &str, words: &[&str]) -> Command {
        let mut command = match &self.nodes {
            Some(fabrics) => {
                let mut command = fabrics.command("run --quiet --node");
                command.arg(node).arg("--").args(words);
                command.env("TOEHOLD_LIBRARY", &*LIBRARY);
                command
            }
            None => {
                let mut command = Command::new(words[0]);
                command.args(&words[1..]);
                command
            }
        };
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        command.env_remove("LD_PRELOAD").env_remove("TOEHOLD_NODE");
        command.current_dir(self.files.path()).stdin(Stdio::null());
        command
    }

    /// Starts a server, and waits until it listens.
    fn serve(&self, words: &[&str]) -> Server {
        self.serve_at(self.port, "server", words)
    }

    /// Starts a server at another port, under another name, for tests with several servers.
    fn serve_at(&self, port: u16, name: &str, words: &[&str]) -> Server {
        let log = fs::File::create(self.path(&format!("{name}.log"))).unwrap();
        let mut command = self.command("server", words);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        // All processes that it starts end with it, even if the test fails.
        let server = Server(command.process_group(0).spawn().unwrap());
        self.await_listener(port);
        server
    }

    fn await_listener(&self, port: u16) {
        eventually("a listener", || match &self.nodes {
            Some(nodes) => listens(&nodes.list("sockets server --json"), port),
            // Binding the port would prevent the server from doing so.
            None => kernel_listens(port),
        });
    }

    /// Runs a client that must end, with any status.
    fn ask(&self, words: &[&str]) -> Output {
        let limited = ["timeout", "--kill-after=5", LIMIT].iter().chain(words);
        let output = output(&mut self.command("client", &limited.copied().collect::<Vec<_>>()));
        assert_ne!(output.status.code(), Some(124), "{words:?} hangs; {}", self.log());
        output
    }

    /// Runs a client that must succeed, and returns its standard output.
    fn gets(&self, words: &[&str]) -> Vec<u8> {
        let output = self.ask(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{words:?}: {} {said}{}",
            output.status,
            self.log()
        );
        output.stdout
    }

    fn says(&self, words: &[&str]) -> String {
        text(&self.gets(words))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("server.log")).unwrap_or_default()
    }

    /// Checks that the client's node had connections with itself, at the loopback address.
    fn connections_of_client(&self, number: u64) {
        let Some(fabrics) = &self.nodes else { return };
        let status = fabrics.json("stat client --json");
        let opened = opened(&status);
        assert!(opened >= number, "{opened} connections");
    }

    /// Checks that the nodes had the connections, and that none of their resources stay in use.
    fn check(self, connections: u64) {
        let Some(fabrics) = self.nodes else { return };
        for (node, is_server) in [("client", false), ("server", true)] {
            let status = fabrics.json(&format!("stat {node} --json"));
            let counted = if is_server {
                accepted(&status)
            } else {
                opened(&status)
            };
            assert!(counted >= connections, "{node}: {counted} connections");
            assert_eq!(counter(&status, "node_resets"), 0);
        }
        // Programs that have ended leave no socket open.
        eventually("the end of all programs", || {
            let open = |node: &str| fabrics.list(&format!("sockets {node} --json"));
            ["server", "client"].iter().all(|node| all_is_over(&open(node)))
        });
        fabrics.succeeds("down --all");
        assert_eq!(fabrics.files(), [""; 0]);
    }
}

/// Connections that a node's programs have opened, direct ones and those over TCP.
fn opened(status: &Value) -> u64 {
    counter(status, "tcp_active_opens") + counter(status, "direct_opened")
}

/// Connections that were opened to a node's programs, direct ones and those over TCP.
fn accepted(status: &Value) -> u64 {
    counter(status, "tcp_passive_opens") + counter(status, "direct_accepted")
}

/// The output of a program and of the processes it leaves behind. The test fails if one of them
/// never ends.
fn output(command: &mut Command) -> Output {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (said, heard) = mpsc::channel();
    let hear = |which: usize, mut from: Box<dyn Read + Send>| {
        let said = said.clone();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            let _ = said.send((which, bytes));
        });
    };
    hear(0, Box::new(child.stdout.take().unwrap()));
    hear(1, Box::new(child.stderr.take().unwrap()));
    let status = child.wait().unwrap();
    let mut both = [Vec::new(), Vec::new()];
    for _ in 0..both.len() {
        match heard.recv_timeout(PATIENCE) {
            Ok((which, bytes)) => both[which] = bytes,
            Err(_) => panic!("{status}, and what it has started does not end"),
        }
    }
    let [stdout, stderr] = both;
    Output {
        status,
        stdout,
        stderr,
    }
}

/// A serving program. It ends with the test, together with the processes it has started.
struct Server(Child);

impl Server {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The exit status of the server after a signal.
    fn end(self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.wait()
    }

    fn wait(mut self) -> ExitStatus {
        support::wait_for_end(self.pid());
        self.0.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The group may be empty.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// A free port.
fn free_port() -> u16 {
    // Below the ephemeral ports of the kernel and of nodes.
    static NEXT: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(0);
    let base = 10_000 + (std::process::id() % 1_000) as u16 * 20;
    loop {
        let port = base + NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let free = TcpListener::bind(("0.0.0.0", port)).is_ok() && UdpSocket::bind(("0.0.0.0", port)).is_ok();
        if free {
            return port;
        }
    }
}

fn listens(sockets: &Value, port: u16) -> bool {
    let at = format!(":{port}");
    sockets.as_array().unwrap().iter().any(|socket| {
        socket["state"] == "LISTEN" && socket["local"].as_str().is_some_and(|local| local.ends_with(&at))
    })
}

/// Whether a socket of the kernel listens at a port; it is not connected to.
fn kernel_listens(port: u16) -> bool {
    let at = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let table = fs::read_to_string(table).unwrap_or_default();
        table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let local = words.next().is_some_and(|local| local.ends_with(&at));
            local && words.nth(1) == Some("0A")
        })
    })
}

fn all_is_over(sockets: &Value) -> bool {
    let mut states = sockets.as_array().unwrap().iter();
    states.all(|socket| socket["state"] == "TIME-WAIT")
}

/// The sum of a counter over all shards of a node.
fn counter(status: &Value, name: &str) -> u64 {
    let counters = status["counters"].as_array().unwrap();
    let found = counters.iter().filter(|counter| counter["name"] == name);
    found.map(|counter| counter["value"].as_u64().unwrap()).sum()
}

/// Bytes in which a missing, repeated or misplaced piece shows.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(length).collect()
}
