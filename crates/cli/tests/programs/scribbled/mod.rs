//! Another program overwrites the memory of the programs' node. Calls may fail, and connections may
//! be lost. But no program is killed by a signal, hangs, or receives a message on its standard
//! error.

mod servers;

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};

use rustix::process::Signal;

use crate::support::{Fabrics, eventually, text};
use crate::{Place, Server, listens};

const SCRIBBLE: &str = include_str!("scribble.py");

/// Echoes its input, with threads or a poll. It retries failed calls.
const SERVER: &str = "
import selectors, socket, sys, threading, time
def echo(peer):
    try:
        while got := peer.recv(65536): peer.sendall(got)
    except OSError: pass
    peer.close()
def by_threads(listener):
    while True: threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
def by_poll(listener):
    told = selectors.DefaultSelector()
    told.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in told.select():
            if key.fileobj is listener:
                told.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            try:
                got = key.fileobj.recv(65536)
                key.fileobj.sendall(got)
            except OSError: got = b''
            if not got:
                told.unregister(key.fileobj)
                key.fileobj.close()
while True:
    try:
        listener = socket.create_server(('0.0.0.0', int(sys.argv[2])))
        {'threads': by_threads, 'poll': by_poll}[sys.argv[1]](listener)
    except OSError: time.sleep(0.01)
";

/// Exchanges data with the server for some time. It retries failed calls.
const CLIENT: &str = "
import random, socket, sys, time
began = time.time()
while time.time() - began < float(sys.argv[3]):
    try:
        peer = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
        for _ in range(100):
            sent = random.randbytes(random.randint(1, 20000))
            peer.sendall(sent)
            left = len(sent)
            while left:
                got = peer.recv(65536)
                if not got: raise OSError
                left -= len(got)
            if sys.argv[4:]: print(sys.argv.pop(), flush=True)
        peer.close()
    except OSError: time.sleep(0.01)
";

/// A program with its standard error in a file.
struct Heard {
    server: Server,
    errors: String,
    output: String,
}

impl Heard {
    fn start(place: &Place, node: &str, name: &str, words: &[&str]) -> Heard {
        let [errors, output] = ["errors", "output"].map(|kind| place.path(&format!("{name}.{kind}")));
        let mut command = place.command(node, words);
        command.stderr(fs::File::create(&errors).unwrap());
        command.stdout(fs::File::create(&output).unwrap());
        let server = Server(command.process_group(0).spawn().unwrap());
        Heard {
            server,
            errors,
            output,
        }
    }

    fn child(&mut self) -> &mut Child {
        &mut self.server.0
    }

    /// Ends the program if it still runs, and checks how it ended.
    fn check(mut self, what: &str) {
        let ended = self.child().try_wait().unwrap();
        let status = match ended {
            Some(status) => status,
            None => self.server.end(Signal::TERM),
        };
        let expected = ended.is_none().then_some(Signal::TERM.as_raw());
        let errors = fs::read_to_string(&self.errors).unwrap();
        assert_eq!(errors, "", "{what}");
        assert!(
            status.signal().is_none() || status.signal() == expected,
            "{what}: {status}"
        );
    }
}

fn scribbled_programs_end_by_no_signal(how: &str, server: &str, seeds: std::ops::Range<u32>) {
    let nodes = Fabrics::new();
    let place = Place::new(Some(nodes));
    let nodes = place.nodes.as_ref().unwrap();
    let (scribble, serve) = (
        place.file("scribble.py", SCRIBBLE),
        place.file("server.py", SERVER),
    );
    let port = place.port.to_string();
    for seed in seeds {
        let what = format!("{how}, {server}, seed {seed}");
        nodes.succeeds("up server client");
        let words = ["python3", &serve, server, &port];
        let first = Heard::start(&place, "server", "server", &words);
        eventually("a listener", || {
            listens(&nodes.list("sockets server --json"), place.port)
        });
        let talk = ["python3", "-c", CLIENT, place.address(), &port, "3", "talks"];
        let mut neighbour = Heard::start(&place, "server", "neighbour", &talk);
        let mut client = Heard::start(&place, "client", "client", &talk);
        eventually("a conversation", || {
            fs::read_to_string(&client.output).unwrap() == "talks\n"
        });
        let pid = first.server.pid().as_raw_nonzero().to_string();
        let mut scribbling = Command::new("timeout");
        scribbling.args(["60", "python3", &scribble, &pid, "3000", &seed.to_string(), how]);
        let done = scribbling.output().unwrap();
        assert!(done.status.success(), "{what}: {}", text(&done.stderr));
        for program in [&mut neighbour, &mut client] {
            eventually("the end of a program", || {
                program.child().try_wait().unwrap().is_some()
            });
        }
        neighbour.check(&format!("{what}: beside"));
        client.check(&format!("{what}: client"));
        first.check(&format!("{what}: server"));
        nodes.succeeds("down --all");
    }
}

#[test]
fn scribbled_bytes_end_no_threads_server_by_signal() {
    scribbled_programs_end_by_no_signal("bytes", "threads", 0..3);
}

#[test]
fn scribbled_bytes_end_no_poll_server_by_signal() {
    scribbled_programs_end_by_no_signal("bytes", "poll", 10..13);
}

#[test]
fn flipped_bits_end_no_server_by_signal() {
    scribbled_programs_end_by_no_signal("bits", "threads", 20..22);
    scribbled_programs_end_by_no_signal("bits", "poll", 30..32);
}

#[test]
#[ignore = "slow: 200 nodes"]
fn scribbled_memory_ends_no_program_by_signal() {
    for (at, how) in [(100, "bytes"), (200, "bits")] {
        scribbled_programs_end_by_no_signal(how, "threads", at..at + 50);
        scribbled_programs_end_by_no_signal(how, "poll", at + 50..at + 100);
    }
}
