//! Programs that make calls by instructions of their own. Those in the program itself are the library's to
//! answer; by others they wait for the kernel's descriptors, and are told of nothing that is only the node's.

use rustix::process::Signal;

use crate::{Place, alike};

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

/// Has a program that makes its calls itself serve so many connections, and one that does something with them.
fn dispatched(does: &str, clients: u64) {
    alike(clients, |place: &Place| {
        let program = place.compile("cc", "dispatched", include_str!("dispatched.c"));
        let port = place.port.to_string();
        let server = place.serve(&[&program, "serve", &port, &clients.to_string()]);
        let said = place.says(&[&program, does, place.address(), &port]);
        (said, server.wait())
    });
}

/// Its connections were the kernel's, where it reached nobody.
#[test]
#[ignore = "needs cc"]
fn a_program_that_makes_its_calls_itself_is_on_the_node_with_all_its_threads() {
    dispatched("ask", 3);
}

/// Signals, processes and threads that it makes so are as ever.
#[test]
#[ignore = "needs cc"]
fn a_program_that_makes_all_its_calls_itself_has_them_done_as_by_the_kernel() {
    dispatched("rest", 3);
}

/// They registered connections of the node's with the kernel while another thread had the program looked at.
#[test]
#[ignore = "needs cc"]
fn threads_that_had_begun_before_have_their_calls_dispatched() {
    alike(0, |place: &Place| {
        let program = place.compile("cc -DLARGE", "dispatched", include_str!("dispatched.c"));
        let said = place.says(&[&program, "late"]);
        place.connections_of_client(8);
        said
    });
}

/// What a client sees of a server that waits in one way for connections and in one for bytes.
fn serve(way: &str) {
    alike(3, |place: &Place| {
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

/// Those that waited for room were never seen by their server if their client ended meanwhile.
#[test]
#[ignore = "needs python3"]
fn who_has_ended_before_there_was_room_is_accepted() {
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

/// One that was accepted from at once did not count as one that is waited for: its backlog held
/// twice as many.
#[test]
#[ignore = "needs python3"]
fn a_listener_that_was_accepted_from_has_its_own_backlog_alone() {
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
    alike(0, |place: &Place| {
        let said = place.says(&["python3", "-c", FILLS]);
        place.connections_of_client(6);
        said
    });
}
