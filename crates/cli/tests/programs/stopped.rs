//! A program is stopped, or gets little processor time, while it runs its node's stack. Other
//! programs of the node continue.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::Fabrics;
use crate::{Place, Server, counter};

/// Echoes the data of each connection.
const ECHO: &str = "
import socket, sys, threading
listener = socket.create_server(('0.0.0.0', int(sys.argv[1])))
def echo(peer):
    while got := peer.recv(65536): peer.sendall(got)
while True: threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
";

/// Calls the stack as often as it can, so that it holds the lease for much of its time.
const BUSY: &str = "
import socket, sys
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
peer.sendall(b'x')
peer.recv(1)
print('busy', flush=True)
while True: peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
";

/// Holds conversations. Each must end within the client's timeout, which is much longer than a
/// conversation takes.
const ASK: &str = "
import socket, sys
for _ in range(int(sys.argv[3])):
    peer = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
    peer.sendall(b'x')
    assert peer.recv(1) == b'x'
    peer.close()
print('done')
";

/// The state of a program's first thread, in the form of `proc(5)`.
fn state(program: &Server) -> char {
    let stat = fs::read_to_string(format!("/proc/{}/stat", program.pid().as_raw_nonzero())).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.chars().next().unwrap()
}

/// A server of the node, and another program that holds the lease for much of its time.
fn busy_beside_server() -> (Place, Server, Server) {
    let nodes = Fabrics::new();
    nodes.succeeds("up server client");
    let place = Place::new(Some(nodes));
    let port = place.port.to_string();
    let echo = place.serve(&["python3", "-c", ECHO, &port]);
    let busy = start_busy(&place);
    (place, echo, busy)
}

/// Starts a program that holds the lease for much of its time, and waits until it does.
fn start_busy(place: &Place) -> Server {
    let port = place.port.to_string();
    let mut command = place.command("server", &["python3", "-c", BUSY, place.address(), &port]);
    command.stdout(fs::File::create(place.path("busy")).unwrap());
    command.stderr(fs::File::create(place.path("busy.errors")).unwrap());
    let busy = Server(command.process_group(0).spawn().unwrap());
    crate::support::eventually("a busy program", || {
        fs::read_to_string(place.path("busy")).unwrap() == "busy\n"
    });
    busy
}

fn ask(place: &Place, times: u32) -> String {
    let (port, times) = (place.port.to_string(), times.to_string());
    place.says(&["python3", "-c", ASK, place.address(), &port, &times])
}

/// The program stays stopped until its neighbour has answered. An answer in time shows that the
/// neighbour did not wait for it.
fn stopped_program_keeps_no_neighbour_waiting(signal: Signal) {
    let (place, _echo, busy) = busy_beside_server();
    for round in 0..12 {
        busy.signal(signal);
        assert_eq!(ask(&place, 2), "done\n", "round {round}");
        assert_eq!(state(&busy), 'T', "round {round}");
        busy.signal(Signal::CONT);
        assert_eq!(ask(&place, 1), "done\n", "round {round}");
        assert_ne!(state(&busy), 'T', "round {round}");
    }
    let status = place.nodes.as_ref().unwrap().json("stat server --json");
    assert_eq!(counter(&status, "node_resets"), 0);
}

#[test]
fn neighbour_of_program_stopped_by_sigstop_answers() {
    stopped_program_keeps_no_neighbour_waiting(Signal::STOP);
}

#[test]
fn neighbour_of_program_stopped_by_terminal_answers() {
    stopped_program_keeps_no_neighbour_waiting(Signal::TSTP);
}

/// A waiting program drives its node for others too, or sleeps at the link for them.
#[test]
fn neighbour_of_stopped_program_that_waits_answers() {
    let nodes = Fabrics::new();
    nodes.succeeds("up server client");
    let place = Place::new(Some(nodes));
    let port = place.port.to_string();
    let _echo = place.serve(&["python3", "-c", ECHO, &port]);
    let other = crate::free_port();
    let waiting = place.serve_at(other, "waiting", &["python3", "-c", ECHO, &other.to_string()]);
    for round in 0..12 {
        assert_eq!(ask(&place, 1), "done\n", "round {round}");
        waiting.signal(Signal::STOP);
        assert_eq!(ask(&place, 2), "done\n", "round {round}");
        assert_eq!(state(&waiting), 'T', "round {round}");
        waiting.signal(Signal::CONT);
    }
}

/// Echoes like `ECHO`, and listens again after a restart of its node.
const ECHO_AGAIN: &str = "
import socket, sys, threading, time
def echo(peer):
    try:
        while got := peer.recv(65536): peer.sendall(got)
    except OSError: pass
while True:
    try:
        listener = socket.create_server(('0.0.0.0', int(sys.argv[1])))
        while True: threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
    except OSError: time.sleep(0.01)
";

/// Retries until it receives one answer.
const ASK_UNTIL_ANSWERED: &str = "
import socket, sys
while True:
    try:
        peer = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
        peer.sendall(b'x')
        if peer.recv(1) == b'x': break
    except OSError: pass
print('done')
";

/// Stops a program as a debugger does, until the next line of input, again and again.
const DEBUGGER: &str = "
import ctypes, os, sys
SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
pid = int(sys.argv[1])
while sys.stdin.readline():
    for request in SEIZE, INTERRUPT:
        if libc.ptrace(request, pid, None, None): sys.exit(os.strerror(ctypes.get_errno()))
    os.waitpid(pid, WALL)
    print('stopped', flush=True)
    sys.stdin.readline()
    libc.ptrace(DETACH, pid, None, None)
    print('gone', flush=True)
";

/// The node may be reset by that: the debugger holds the program until the neighbour has been
/// answered.
#[test]
fn neighbour_of_program_under_debugger_answers_in_the_end() {
    let nodes = Fabrics::new();
    nodes.succeeds("up server client");
    let place = Place::new(Some(nodes));
    let port = place.port.to_string();
    let _echo = place.serve(&["python3", "-c", ECHO_AGAIN, &port]);
    for round in 0..4 {
        let again = ["python3", "-c", ASK_UNTIL_ANSWERED, place.address(), &port];
        assert_eq!(place.says(&again), "done\n", "round {round}");
        let mut busy = start_busy(&place);
        let pid = busy.pid().as_raw_nonzero().to_string();
        let mut debugger = Command::new("python3")
            .args(["-c", DEBUGGER, &pid])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = BufReader::new(debugger.stdout.take().unwrap());
        let mut tell = debugger.stdin.take().unwrap();
        let mut hear = |word: &str| {
            tell.write_all(b"\n").unwrap();
            let mut line = String::new();
            told.read_line(&mut line).unwrap();
            assert_eq!(line.trim(), word);
        };
        hear("stopped");
        assert_eq!(place.says(&again), "done\n", "round {round}");
        hear("gone");
        drop(tell);
        assert!(debugger.wait().unwrap().success());
        // It continues, or has learnt that the node is gone.
        if let Some(status) = busy.0.try_wait().unwrap() {
            assert_eq!(status.signal(), None, "round {round}");
        }
    }
}

/// A cgroup, removed when this is dropped.
struct Group(String);

impl Group {
    /// Creates a group in the first of two directories that has a given file. `None` if neither has
    /// it, or the system forbids it.
    fn make(places: [(&str, &str); 2]) -> Option<(Group, String)> {
        let name = format!("toehold-test-{}-{}", std::process::id(), crate::free_port());
        for (at, file) in places {
            let group = Group(format!("{at}/{name}"));
            let file = format!("{}/{file}", group.0);
            if fs::create_dir(&group.0).is_ok() && Path::new(&file).exists() {
                return Some((group, file));
            }
        }
        None
    }

    /// A group with a tenth of a processor. `None` if the system has no `cpu` controller here, or
    /// forbids it.
    fn tenth() -> Option<Group> {
        let (group, limit) = Group::make([
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us"),
            ("/sys/fs/cgroup", "cpu.max"),
        ])?;
        fs::write(limit, "10000").ok()?;
        Some(group)
    }

    fn take(&self, program: &Server) {
        fs::write(
            format!("{}/cgroup.procs", self.0),
            program.pid().as_raw_nonzero().to_string(),
        )
        .unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let until = std::time::Instant::now() + crate::support::PATIENCE;
        // It can be removed once its last process has ended.
        while Path::new(&self.0).exists()
            && fs::remove_dir(&self.0).is_err()
            && std::time::Instant::now() < until
        {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// A cgroup that can be frozen.
struct Freezer {
    group: Group,
    state: String,
    /// The words that freeze and thaw the group; the next field reports a frozen group.
    words: [&'static str; 2],
    frozen: [&'static str; 2],
}

impl Freezer {
    /// Creates a group. `None` if the system has no freezer here, or forbids it.
    fn new() -> Option<Freezer> {
        let v1 = ("/sys/fs/cgroup/freezer", "freezer.state");
        if let Some((group, state)) = Group::make([v1, v1]) {
            return Some(Freezer {
                group,
                state,
                words: ["FROZEN", "THAWED"],
                frozen: ["freezer.state", "FROZEN"],
            });
        }
        let (group, state) = Group::make([
            ("/sys/fs/cgroup", "cgroup.freeze"),
            ("/sys/fs/cgroup/unified", "cgroup.freeze"),
        ])?;
        Some(Freezer {
            group,
            state,
            words: ["1", "0"],
            frozen: ["cgroup.events", "frozen 1"],
        })
    }

    /// Returns when no thread of the group runs any more.
    fn freeze(&self) {
        fs::write(&self.state, self.words[0]).unwrap();
        let [file, word] = self.frozen;
        let file = format!("{}/{file}", self.group.0);
        crate::support::eventually("a frozen group", || {
            fs::read_to_string(&file).unwrap().contains(word)
        });
    }

    fn thaw(&self) {
        fs::write(&self.state, self.words[1]).unwrap();
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        // A frozen process cannot end.
        let _ = fs::write(&self.state, self.words[1]);
    }
}

/// The node may be reset by that. The program is frozen until the neighbour has been answered.
#[test]
#[ignore = "needs root"] // for a cgroup
fn neighbour_of_program_frozen_by_cgroup_answers_in_the_end() {
    let Some(freezer) = Freezer::new() else {
        eprintln!("SKIPPED: there is no freezer, or no right to use it");
        return;
    };
    let nodes = Fabrics::new();
    nodes.succeeds("up server client");
    let place = Place::new(Some(nodes));
    let port = place.port.to_string();
    let _echo = place.serve(&["python3", "-c", ECHO_AGAIN, &port]);
    for round in 0..4 {
        let again = ["python3", "-c", ASK_UNTIL_ANSWERED, place.address(), &port];
        assert_eq!(place.says(&again), "done\n", "round {round}");
        let mut busy = start_busy(&place);
        freezer.group.take(&busy);
        freezer.freeze();
        assert_eq!(place.says(&again), "done\n", "round {round}");
        assert!(busy.0.try_wait().unwrap().is_none(), "it is frozen");
        freezer.thaw();
        assert_eq!(place.says(&again), "done\n", "round {round}");
        // It continues, or has learnt that the node is gone.
        if let Some(status) = busy.0.try_wait().unwrap() {
            assert_eq!(status.signal(), None, "round {round}");
        }
    }
}

/// Exchanges bytes and checks the connection: limited processes lose no data.
#[test]
#[ignore = "needs root"] // for a cgroup with a quota
fn program_with_quota_and_neighbour_exchange_bytes() {
    let Some(quota) = Group::tenth() else {
        eprintln!("SKIPPED: there is no `cpu` controller, or no right to use it");
        return;
    };
    let (place, echo, busy) = busy_beside_server();
    quota.take(&busy);
    assert_eq!(ask(&place, 200), "done\n");
    quota.take(&echo);
    assert_eq!(ask(&place, 20), "done\n");
    let status = place.nodes.as_ref().unwrap().json("stat server --json");
    assert_eq!(counter(&status, "node_resets"), 0);
    drop((busy, echo));
    drop(quota);
}
