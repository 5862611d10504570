//! Python programs: descriptors passed between processes, and the waiting calls of its libraries.

use rustix::process::Signal;

use crate::{Place, alike, alike_directly, noise};

#[test]
#[ignore = "needs python3, curl"]
fn python_serves_files() {
    alike(2, |place| {
        place.file("www/file", noise(5_000_000));
        let port = place.port.to_string();
        let server = place.serve(&["python3", "-m", "http.server", "-d", "www", &port]);
        let got = place.gets(&["curl", "-sS", &place.url("file")]);
        let missing = place.ask(&["curl", "-sSf", &place.url("nothing")]).status;
        (got == noise(5_000_000), missing, server.end(Signal::TERM))
    });
}

const ECHO: &str = "
import asyncio, sys
async def serve(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, '0.0.0.0', int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
";

const ASKING: &str = "
import asyncio, hashlib, sys
async def ask(number):
    reader, writer = await asyncio.open_connection(sys.argv[1], int(sys.argv[2]))
    sent = bytes([number]) * 300_000
    async def send():
        writer.write(sent)
        await writer.drain()
        writer.write_eof()
    sending = asyncio.create_task(send())
    got = await reader.read()
    await sending
    writer.close()
    return got == sent
async def main():
    print(await asyncio.gather(*(ask(number) for number in range(30))))
asyncio.run(main())
";

#[test]
#[ignore = "needs python3"]
fn asyncio_echoes_on_many_connections_at_once() {
    alike(30, |place| {
        let port = place.port.to_string();
        let server = place.serve(&["python3", "-c", ECHO, &port]);
        let said = place.says(&["python3", "-c", ASKING, place.address(), &port]);
        (said, server.end(Signal::TERM))
    });
}

/// Regression: it had lost the name of its node before the first use.
#[test]
#[ignore = "needs python3"]
fn program_with_cleared_environment_is_on_its_node() {
    const CLEARS: &str = "
import os, socket, sys
os.environ.clear()
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    connection.sendall(b'bytes')
    print(connection.recv(5, socket.MSG_WAITALL))
";
    alike(1, |place| {
        let port = place.port.to_string();
        let server = place.serve(&["python3", "-c", ECHO, &port]);
        let said = place.says(&["python3", "-c", CLEARS, place.address(), &port]);
        (said, server.end(Signal::TERM))
    });
}

/// Runs a received command with the connection as its output.
const HANDING_OVER: &str = "
import socketserver, subprocess, sys
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        command = self.rfile.readline().decode()
        subprocess.run(['sh', '-c', command], stdout=self.connection, check=True)
        seen = subprocess.check_output(['sh', '-c', 'echo piped'])
        self.wfile.write(seen)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
Server(('0.0.0.0', int(sys.argv[1])), Handler).serve_forever()
";

const ONE_LINE: &str = "
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
connection.sendall(sys.argv[3].encode() + b'\\n')
while data := connection.recv(65536): sys.stdout.write(data.decode())
";

#[test]
#[ignore = "needs python3"]
fn started_programs_write_to_connection() {
    alike(2, hand_over);
}

/// Regression: what a program had buffered until its exit was not sent.
#[test]
#[ignore = "needs python3"]
fn started_programs_write_to_direct_connection() {
    alike_directly(2, hand_over);
}

fn hand_over(place: &Place) -> impl PartialEq + std::fmt::Debug + use<> {
    let port = place.port.to_string();
    let server = place.serve(&["python3", "-c", HANDING_OVER, &port]);
    let ask = |line: &str| place.says(&["python3", "-c", ONE_LINE, place.address(), &port, line]);
    let said = [ask("echo one; /bin/echo two"), ask("seq 20000")];
    (said, server.end(Signal::TERM))
}

/// One process accepts connections and others serve them: over a Unix socket, and inherited by a
/// child.
const PASSING: &str = "
import multiprocessing, os, socket, sys
def serve(queue):
    connection = queue.get()
    connection.sendall(b'passed ' + connection.recv(100))
    connection.close()
def main():
    multiprocessing.set_start_method(sys.argv[2])
    queue = multiprocessing.Queue()
    listener = socket.create_server(('0.0.0.0', int(sys.argv[1])))
    worker = multiprocessing.Process(target=serve, args=(queue,))
    worker.start()
    connection, _ = listener.accept()
    queue.put(connection)
    worker.join()
    connection.close()
    connection, _ = listener.accept()
    child = os.fork()
    if child == 0:
        connection.sendall(b'inherited ' + connection.recv(100))
        os._exit(0)
    connection.close()
    sys.exit(os.waitpid(child, 0)[1] + worker.exitcode)
if __name__ == '__main__': main()
";

fn pass_connections(method: &str) {
    alike(2, |place| {
        let port = place.port.to_string();
        let script = place.file("passing.py", PASSING);
        let server = place.serve(&["python3", &script, &port, method]);
        let ask = |line: &str| place.says(&["python3", "-c", ONE_LINE, place.address(), &port, line]);
        let said = [ask("one"), ask("two")];
        (said, server.wait())
    });
}

#[test]
#[ignore = "needs python3"]
fn connections_are_passed_to_a_forked_worker() {
    pass_connections("fork");
}

#[test]
#[ignore = "needs python3"]
fn connections_are_passed_to_a_spawned_worker() {
    pass_connections("spawn");
}

/// Three workers receive a socket of their parent, by fork or in a message. The parent has bound
/// it, and may have called `listen`. They report whether their listener still blocks.
const SHARING: &str = "
import os, signal, socket, sys
port, listens, way = int(sys.argv[1]), sys.argv[2] == 'listening', sys.argv[3]
shared = socket.socket()
shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
shared.bind(('0.0.0.0', port))
if listens: shared.listen(100)
def serve(listener):
    if not listens: listener.listen(100)
    while True:
        connection, _ = listener.accept()
        command = connection.recv(10)
        connection.sendall(b'served' if os.get_blocking(listener.fileno()) else b'does not wait')
        connection.close()
        if command == b'end': os._exit(0)
workers = []
for _ in range(3):
    near, far = socket.socketpair()
    worker = os.fork()
    if worker == 0 and way == 'forked': serve(shared)
    if worker == 0:
        shared.close()
        _, descriptors, _, _ = socket.recv_fds(far, 1, 1)
        serve(socket.socket(fileno=descriptors[0]))
    if way == 'sent': socket.send_fds(near, [b'x'], [shared.fileno()])
    workers.append(worker)
# Those that were sent it are the last to have it.
if way == 'sent': shared.close()
def end(*_):
    for worker in workers:
        try: os.kill(worker, signal.SIGKILL)
        except ProcessLookupError: pass
    os._exit(0)
signal.signal(signal.SIGTERM, end)
while True: signal.pause()
";

/// Many requests one after another; then one of the workers ends, and many requests again.
const MANY: &str = "
import socket, sys
def ask(command):
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 30) as connection:
        connection.sendall(command)
        return connection.recv(100)
print({ask(b'serve') for _ in range(40)}, ask(b'end'), {ask(b'serve') for _ in range(40)})
";

fn share_listener(state: &str, way: &str) {
    alike(81, |place| {
        let port = place.port.to_string();
        let server = place.serve(&["python3", "-c", SHARING, &port, state, way]);
        let said = place.says(&["python3", "-c", MANY, place.address(), &port]);
        (said, server.end(Signal::TERM))
    });
}

/// Regression: one worker alone had the node's connections, and no process had them after its end.
#[test]
#[ignore = "needs python3"]
fn forked_workers_listen_on_socket_bound_by_parent() {
    share_listener("bound", "forked");
}

#[test]
#[ignore = "needs python3"]
fn workers_listen_on_received_bound_socket() {
    share_listener("bound", "sent");
}

#[test]
#[ignore = "needs python3"]
fn forked_workers_accept_from_listener_of_parent() {
    share_listener("listening", "forked");
}

/// Regression: their calls of accept returned EAGAIN, and their clients waited forever.
#[test]
#[ignore = "needs python3"]
fn workers_accept_from_received_listener() {
    share_listener("listening", "sent");
}

/// Regression: a sender that had accepted before kept half of the new connections. A sender that
/// closed its listener reset the waiting ones.
#[test]
#[ignore = "needs python3"]
fn received_listener_has_all_new_and_waiting_connections() {
    const SENDS: &str = "
import os, socket
for accepted, closes, waiting in ((a, c, w) for a in (0, 1) for c in (0, 1) for w in (0, 6)):
    listener = socket.create_server(('127.0.0.1', 0), backlog=64)
    at = listener.getsockname()
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        listener.close()
        _, received, _, _ = socket.recv_fds(theirs, 10, 1)
        listener = socket.socket(fileno=received[0])
        theirs.send(b'ready')
        for _ in range(6):
            connection, peer = listener.accept()
            connection.send(str(peer[1]).encode())
            connection.close()
        os._exit(0)
    theirs.close()
    for _ in range(accepted):
        held = socket.create_connection(at)
        listener.accept()[0].close()
    clients = [socket.create_connection(at) for _ in range(waiting)]
    socket.send_fds(ours, [b'!'], [listener.fileno()])
    if closes:
        listener.close()
    ours.recv(10)
    clients += [socket.create_connection(at) for _ in range(6 - waiting)]
    for client in clients:
        client.settimeout(20)
    said = [int(client.recv(10)) == client.getsockname()[1] for client in clients]
    os.wait()
    print(accepted, closes, waiting, said)
";
    alike(0, |place| {
        let said = place.says(&["python3", "-c", SENDS]);
        // While no process waits for the connections of a sent listener, they belong to the kernel.
        place.connections_of_client(24);
        said
    });
}

/// Regression: the engine closed it a little later, and clients that connected meanwhile were not
/// refused.
#[test]
#[ignore = "needs python3"]
fn listener_closed_by_last_child_is_closed() {
    const CLOSES: &str = "
import os, signal, socket, sys, time
engine = int(sys.argv[1])
stopped, stops = os.pipe()
if os.fork() == 0:
    os.read(stopped, 1)
    time.sleep(0.02)
    if engine: os.kill(engine, signal.SIGCONT)
    os._exit(0)
listener = socket.create_server(('127.0.0.1', 0))
at = listener.getsockname()
ours, theirs = socket.socketpair()
if os.fork() == 0:
    theirs.recv(1)
    if engine: os.kill(engine, signal.SIGSTOP)
    os.write(stops, b'.')
    listener.close()
    theirs.send(b'.')
    os._exit(0)
# What a connection takes from the engine is there by then.
other = socket.create_server(('127.0.0.1', 0))
held = socket.create_connection(other.getsockname())
listener.close()
ours.send(b'.')
ours.recv(1)
print(socket.socket().connect_ex(at), os.wait()[1], os.wait()[1])
";
    alike(0, |place| {
        let engine = place.nodes.as_ref().map(|nodes| nodes.engine("client"));
        let engine = engine.map_or(0, |engine| engine.as_raw_nonzero().get());
        place.says(&["python3", "-c", CLOSES, &engine.to_string()])
    });
}

/// Regression: TIME-WAIT records at the server prevented every other connection of the restarted
/// node, for up to a minute.
#[test]
#[ignore = "needs python3"]
fn client_of_restarted_node_connects_again() {
    const SERVER: &str = "
import socket, sys
listener = socket.create_server(('0.0.0.0', int(sys.argv[1])), backlog=100)
while True:
    connection, _ = listener.accept()
    connection.sendall(b'first to close')
    connection.close()
";
    const CLIENT: &str = "
import socket, sys
for _ in range(400):
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as connection:
        assert connection.recv(100) == b'first to close' and connection.recv(1) == b''
print('all were served')
";
    alike(400, |place| {
        let port = place.port.to_string();
        let server = place.serve(&["python3", "-c", SERVER, &port]);
        let ask = || place.says(&["python3", "-c", CLIENT, place.address(), &port]);
        let before = ask();
        if let Some(fabrics) = &place.nodes {
            fabrics.succeeds("down client");
            fabrics.succeeds("up client --ipv4 10.77.0.2/16");
        }
        (before, ask(), server.end(Signal::TERM))
    });
}
