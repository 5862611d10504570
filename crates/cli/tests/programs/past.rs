//! Programs that make system calls with their own instructions. The library handles instructions in
//! the program itself. In other libraries they wait for the kernel's descriptors, and see no event
//! of the node alone.

use rustix::process::Signal;

use crate::{Place, alike, alike_over_tcp};

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

/// Runs a server that makes its calls itself, for a number of clients, and a client that acts on
/// the connections.
fn dispatched(does: &str, clients: u64) {
    alike(clients, |place: &Place| {
        let program = place.compile("cc", "dispatched", include_str!("dispatched.c"));
        let port = place.port.to_string();
        let server = place.serve(&[&program, "serve", &port, &clients.to_string()]);
        let said = place.says(&[&program, does, place.address(), &port]);
        (said, server.wait())
    });
}

/// Regression: its connections went to the kernel, where they reached no host.
#[test]
#[ignore = "needs cc"]
fn program_with_own_system_calls_is_on_node_with_all_threads() {
    dispatched("ask", 3);
}

/// Signals, processes and threads that it creates in this way work as usual.
#[test]
#[ignore = "needs cc"]
fn program_with_own_system_calls_gets_results_of_kernel() {
    dispatched("rest", 3);
}

/// Regression: they registered connections of the node with the kernel while another thread was
/// scanning the program.
#[test]
#[ignore = "needs cc"]
fn calls_of_older_threads_are_dispatched() {
    alike(0, |place: &Place| {
        let program = place.compile("cc -DLARGE", "dispatched", include_str!("dispatched.c"));
        let said = place.says(&[&program, "late"]);
        place.connections_of_client(8);
        said
    });
}

/// The output of a client of a server that waits in one way for connections and in another for
/// data.
fn serve(way: &str) {
    alike(3, |place: &Place| {
        let program = place.compile("cc", "past", include_str!("past.c"));
        let client = place.file("client.py", CLIENT);
        let server = place.serve(&[&program, way, &place.port.to_string()]);
        let said = place.says(&["python3", &client, place.address(), &place.port.to_string()]);
        (said, server.end(Signal::TERM))
    });
}

/// Regression: its clients were connected, and waited forever.
#[test]
#[ignore = "needs cc, python3"]
fn server_waiting_for_connections_past_library_gets_those_of_node() {
    serve("polled");
}

/// Regression: descriptors registered through libc counted as waited for.
#[test]
#[ignore = "needs cc, python3"]
fn server_registering_with_libc_and_waiting_past_it_gets_those_of_node() {
    serve("registered");
}

/// Regression: it waited in the library for data that it had told the kernel not to wait for.
#[test]
#[ignore = "needs cc, python3"]
fn server_waiting_for_data_past_library_gets_those_of_node() {
    serve("accepted");
}

/// Regression: the engine accepted all of them, for a program that might wait past the library.
#[test]
#[ignore = "needs python3"]
fn listener_without_accept_becomes_full() {
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

/// Regression: a server never saw connections that waited for room if their client ended meanwhile.
#[test]
#[ignore = "needs python3"]
fn connection_of_ended_client_is_accepted_later() {
    const ENDS: &str = "
import os, socket, time
listener = socket.create_server(('127.0.0.1', 0), backlog=5)
if os.fork() == 0:
    held = [socket.create_connection(listener.getsockname()) for _ in range(12)]
    os._exit(0)
time.sleep(0.4)
listener.settimeout(20)
print('accepted', len([listener.accept()[0] for _ in range(12)]))
";
    alike(0, |place: &Place| {
        let said = place.says(&["python3", "-c", ENDS]);
        place.connections_of_client(12);
        said
    });
}

/// Regression: a listener with an immediate accept did not count as waited for. Its backlog held
/// twice as many. Over TCP: as many direct connections wait beside them.
#[test]
#[ignore = "needs python3"]
fn listener_after_accept_has_only_its_own_backlog() {
    const FILLS: &str = "
import socket, time
listener = socket.create_server(('127.0.0.1', 0), backlog=4)
held = [socket.create_connection(listener.getsockname())]
held.append(listener.accept()[0])
time.sleep(0.5)
try:
    for _ in range(60): held.append(socket.create_connection(listener.getsockname(), timeout=2))
except TimeoutError:
    print('full', len(held))
";
    alike_over_tcp(0, |place: &Place| {
        let said = place.says(&["python3", "-c", FILLS]);
        place.connections_of_client(6);
        said
    });
}
