//! Programs that make some of their calls past the library, by system calls of their own. They
//! wait for the kernel's descriptors, and are told of nothing that is only the node's.

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::eventually;
use crate::{Place, alike, free_port};

const CLIENT: &str = "
import socket, sys
sent = bytes(range(256)) * 2000
for _ in range(3):
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
        stream = connection.makefile('rb')
        knows_me = stream.readline().decode().split() == [str(end) for end in connection.getsockname()]
        got = b''
        for start in range(0, len(sent), 51200):
            connection.sendall(sent[start:start + 51200])
            got += stream.read(51200)
        connection.shutdown(socket.SHUT_WR)
        print(knows_me, got == sent, stream.read())
";

/// What a client sees of a server that waits in one way for connections and in one for bytes.
fn serve(way: &str) {
    alike(3, |place: &Place| {
        place.file("call.h", include_str!("call.h"));
        let program = place.compile("cc", "past", include_str!("past.c"));
        let client = place.file("client.py", CLIENT);
        let server = place.serve(&[&program, way, &place.port.to_string()]);
        let said = place.says(&["python3", &client, place.address(), &place.port.to_string()]);
        (said, server.end(Signal::TERM))
    });
}

/// Its clients were connected, and waited for ever.
#[test]
#[ignore = "needs cc, python3"]
fn a_server_that_waits_for_connections_past_the_library_gets_the_nodes() {
    serve("polled");
}

/// What it registers through libc counted as waited for.
#[test]
#[ignore = "needs cc, python3"]
fn a_server_that_registers_with_libc_and_waits_past_it_gets_the_nodes() {
    serve("registered");
}

/// It waited in the library for bytes that it had asked the kernel not to wait for.
#[test]
#[ignore = "needs cc, python3"]
fn a_server_that_waits_for_bytes_past_the_library_gets_the_nodes() {
    serve("accepted");
}

/// The engine took all of them, for a program that might wait past the library.
#[test]
#[ignore = "needs python3"]
fn a_listener_that_nobody_accepts_from_is_full_at_last() {
    const SERVER: &str = "
import socket, sys, time
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(('0.0.0.0', int(sys.argv[1])))
listener.listen(4)
time.sleep(1000)
";
    const CLIENT: &str = "
import socket, sys
held = []
try:
    for _ in range(60): held.append(socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2))
except TimeoutError:
    print('full', len(held) > 4)
";
    alike(5, |place: &Place| {
        let (server, client) = (place.file("server.py", SERVER), place.file("client.py", CLIENT));
        let server = place.serve(&["python3", &server, &place.port.to_string()]);
        let said = place.says(&["python3", &client, place.address(), &place.port.to_string()]);
        (said, server.end(Signal::TERM))
    });
}

/// It says how much is wanted of it, and takes its time.
const ANSWERS: &str = "
import socket, sys, time
listener = socket.create_server(('0.0.0.0', int(sys.argv[1])))
for _ in range(3):
    connection, _ = listener.accept()
    size = int(connection.makefile().readline())
    time.sleep(0.3)
    connection.sendall(bytes(range(256)) * (size // 256 + 1))
    connection.close()
";

/// Bun's `fetch` waits so, and never got an answer.
#[test]
#[ignore = "needs cc, python3"]
fn a_client_that_registers_with_libc_and_waits_past_it_is_told() {
    alike(3, |place: &Place| {
        place.file("call.h", include_str!("call.h"));
        let program = place.compile("cc", "asks", include_str!("asks.c"));
        let [port, nobodys] = [place.port, free_port()].map(|port| port.to_string());
        let server = place.serve(&["python3", "-c", ANSWERS, &port]);
        let said = place.says(&[&program, place.address(), &port, &nobodys]);
        (said, server.wait())
    });
}

/// It registers two connections, of which one comes before it has waited for the first time.
const REGISTERS: &str = "
import select, socket, sys, time
waits = sys.argv[3] == 'waits'
epoll = select.epoll()
connections = []
for late in range(2):
    connections.append(socket.create_connection((sys.argv[1], int(sys.argv[2]))))
    epoll.register(connections[-1], select.EPOLLIN)
    if waits: epoll.poll(0)
# Longer than the engine looks on.
time.sleep(1.5)
print('ready', flush=True)
sys.stdin.read()
";

const HOLDS: &str = "
import socket, sys
listener = socket.create_server(('0.0.0.0', int(sys.argv[1])))
while True: held = listener.accept(), locals().get('held')
";

/// One that computes does not lose its connections to the engine.
#[test]
#[ignore = "needs python3"]
fn connections_of_who_has_waited_are_not_carried() {
    let place = crate::lives::place();
    let Some(nodes) = &place.nodes else { return };
    let port = place.port.to_string();
    let _server = place.serve(&["python3", "-c", HOLDS, &port]);
    let relays = || nodes.json("stat client --json")["status"]["stack"]["relays"].clone();
    for (way, carried) in [("waits", 0), ("does not", 2)] {
        let mut command = place.command(
            "client",
            &["python3", "-c", REGISTERS, place.address(), &port, way],
        );
        let mut program = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 6];
        program.stdout.take().unwrap().read_exact(&mut said).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(relays(), carried, "{way}");
        drop(program.stdin.take());
        assert!(program.wait().unwrap().success());
        eventually("no relay", || relays() == 0);
    }
}
