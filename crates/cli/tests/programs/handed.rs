//! Connections of programs that cannot use the node: programs behind seccomp filters, and programs
//! without the library.

use std::io::Read;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::{eventually, text};
use crate::{Place, alike, noise};

const LENGTH: usize = 3_000_000;

/// Compiles a program for a place and returns its path.
fn compiled(place: &Place, source: &str, options: &[&str]) -> String {
    let source = place.file("program.c", source);
    let program = place.path("program");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-o", &program, &source]).args(options);
    assert!(compiler.status().unwrap().success());
    program
}

/// Two concurrent conversations, each of which echoes its input.
const TALK: &str = "
import hashlib, socket, sys, threading
sent = open('sent', 'rb').read()
peers = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(2)]
def say(peer):
    peer.sendall(sent)
    peer.shutdown(socket.SHUT_WR)
def hear(peer, number):
    got = b''
    while more := peer.recv(65536): got += more
    said[number] = hashlib.sha256(got).hexdigest()
said = [None, None]
threads = [threading.Thread(target=say, args=[peer]) for peer in peers]
threads += [threading.Thread(target=hear, args=[peer, number]) for number, peer in enumerate(peers)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(said)
";

fn behind_a_filter(more: &[&str]) {
    alike(2, |place| {
        let program = compiled(place, include_str!("filtered.c"), &[]);
        place.file("sent", noise(LENGTH));
        let port = place.port.to_string();
        let server = place.serve(&[&[&*program, &port], more].concat());
        let said = place.says(&["python3", "-c", TALK, place.address(), &port]);
        (said, server.wait())
    });
}

#[test]
#[ignore = "needs cc, python3"]
fn program_behind_filter_has_its_connections() {
    behind_a_filter(&[]);
}

#[test]
#[ignore = "needs cc, python3"]
fn program_with_filter_by_number_has_its_connections() {
    behind_a_filter(&["by number"]);
}

/// Successive connections, each of which receives its addresses and an echo of its data.
const ASK: &str = "
import hashlib, socket, sys, threading
sent = open('sent', 'rb').read()
for _ in range(int(sys.argv[3])):
    peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    file = peer.makefile('rb')
    name = lambda end: '%s:%d' % end
    told = file.readline().decode().split()
    here, there = name(peer.getsockname()), name(peer.getpeername())
    print(told == [here, here, there] or (told, here, there))
    threading.Thread(target=lambda: (peer.sendall(sent), peer.shutdown(socket.SHUT_WR))).start()
    print(hashlib.sha256(file.read()).hexdigest())
    peer.close()
peer = socket.socket()
print(peer.connect_ex((sys.argv[1], int(sys.argv[2]))) != 0)
";

/// Regression: its listeners received connections of the kernel only. libc's accept used another
/// system call, which killed the program.
#[test]
#[ignore = "needs cc, python3"]
fn program_behind_filter_listens() {
    alike(3, |place| {
        let program = compiled(place, include_str!("listens.c"), &[]);
        place.file("sent", noise(LENGTH));
        let port = place.port.to_string();
        let server = place.serve(&[&program, &port, "3"]);
        let said = place.says(&["python3", "-c", ASK, place.address(), &port, "3"]);
        (said, server.wait())
    });
}

/// Standard input and output are one connection.
const ECHO: &str = "
#include <unistd.h>
int main(void) {
    char bytes[4096];
    ssize_t got;
    while ((got = read(0, bytes, sizeof bytes)) > 0)
        for (ssize_t sent = 0, some; sent < got; sent += some)
            if ((some = write(1, bytes + sent, got - sent)) < 0) return 1;
    return got < 0;
}
";

/// Starts programs with environments that have all of the node's variables except the library.
const WITHOUT_LIBRARY: &str = "
import os, socket, subprocess, sys
listener = socket.create_server(('127.0.0.1', 0))
def talk(start):
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
    far.settimeout(20)
    started = start(near)
    near.close()
    far.sendall(b'hello')
    far.shutdown(socket.SHUT_WR)
    print(far.makefile('rb').read(), started.wait() if hasattr(started, 'wait') else os.waitpid(started, 0)[1])
poor = {name: value for name, value in os.environ.items() if name != 'LD_PRELOAD'}
def spawn(near):
    duplicates = [(os.POSIX_SPAWN_DUP2, near.fileno(), number) for number in (0, 1)]
    return os.posix_spawn(sys.argv[1], [sys.argv[1]], poor, file_actions=duplicates)
def run(words, env):
    return lambda near: subprocess.Popen(words, stdin=near, stdout=near, env=env)
talk(run(sys.argv[1:2], poor))
talk(run(sys.argv[1:2], dict(poor, LD_PRELOAD='')))
talk(run(sys.argv[1:2], {}))
talk(run(['env', '-u', 'LD_PRELOAD', sys.argv[1]], None))
talk(spawn)
os.environ.pop('LD_PRELOAD', None)
talk(run(['sh', '-c', sys.argv[1]], None))
talk(run(sys.argv[1:2], None))
";

/// Regression: their output was lost, and they read nothing (inetd of OpenBSD).
#[test]
#[ignore = "needs cc, python3"]
fn programs_without_library_have_inherited_connections() {
    alike(0, |place| {
        let echo = place.compile("cc", "echo", ECHO);
        let said = place.says(&["python3", "-c", WITHOUT_LIBRARY, &echo]);
        place.connections_of_client(7);
        said
    });
}

/// Hands two connections to programs, and keeps the second one for a while.
const HAND_OVER: &str = "
import os, socket, subprocess, sys
listener = socket.create_server(('0.0.0.0', int(sys.argv[2])))
peers = [listener.accept()[0] for _ in range(2)]
peers[0].sendall(b'before ')
first = subprocess.Popen([sys.argv[1]], stdin=peers[0], stdout=peers[0])
peers[1].sendall(b'before ')
duplicates = [(os.POSIX_SPAWN_DUP2, peers[1].fileno(), number) for number in (0, 1)]
second = os.posix_spawn(sys.argv[1], [sys.argv[1]], os.environ, file_actions=duplicates)
print([peer.getpeername() == peer.getsockname() for peer in peers])
print(first.wait(), os.waitpid(second, 0)[1])
peers[1].sendall(b'and after')
for peer in peers: peer.close()
";

#[test]
#[ignore = "needs cc, python3"]
fn static_program_has_inherited_connections() {
    alike(2, |place| {
        let program = compiled(place, ECHO, &["-static"]);
        place.file("sent", noise(LENGTH));
        let port = place.port.to_string();
        let server = place.serve(&["python3", "-c", HAND_OVER, &program, &port]);
        let said = place.says(&["python3", "-c", TALK, place.address(), &port]);
        (said, server.wait(), place.log())
    });
}

/// Gives one of two connections away until its input ends.
const GIVES: &str = "
import socket, subprocess, sys
listener = socket.create_server(('127.0.0.1', 0))
pairs = [(socket.create_connection(listener.getsockname()), listener.accept()[0]) for _ in range(2)]
subprocess.Popen([sys.argv[1]], stdin=pairs[0][1], stdout=pairs[0][1])
pairs[0][1].close()
print('given', flush=True)
sys.stdin.read()
";

#[test]
#[ignore = "needs cc, python3"]
fn relayed_connections_are_counted() {
    let place = crate::lives::place();
    let Some(nodes) = &place.nodes else { return };
    let program = compiled(&place, ECHO, &["-static"]);
    let mut command = place.command("client", &["python3", "-c", GIVES, &program]);
    let mut gives = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 6];
    gives.stdout.take().unwrap().read_exact(&mut said).unwrap();
    let relays = || nodes.json("stat client --json")["status"]["stack"]["relays"].clone();
    assert_eq!(relays(), 1);
    let shown = nodes.succeeds("stat client");
    assert!(
        shown.contains(", 1 of them carried for programs that cannot use the node"),
        "{shown}"
    );
    drop(gives.stdin.take());
    assert!(gives.wait().unwrap().success());
    eventually("no relay", || relays() == 0);
    assert!(!nodes.succeeds("stat client").contains("carried"));
}

/// A thread waits for a connection of the node's alone when another one adds a pipe.
const ADDS: &str = "
import os, select, socket, sys, threading
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
epoll = select.epoll()
epoll.register(peer, select.EPOLLIN)
told = []
waiting = threading.Thread(target=lambda: told.extend(epoll.poll(30)))
waiting.start()
waiting.join(0.3)
reader, writer = os.pipe()
epoll.register(reader, select.EPOLLIN)
waiting.join(0.3)
os.write(writer, b'x')
waiting.join()
print([number == reader for number, _ in told])
";

#[test]
#[ignore = "needs python3, ncat"]
fn epoll_wait_sees_kernel_fd_added_meanwhile() {
    alike(1, |place| {
        let port = place.port.to_string();
        let server = place.serve(&["ncat", "-l", "-k", "0.0.0.0", &port]);
        let said = place.says(&["python3", "-c", ADDS, place.address(), &port]);
        (said, server.end(Signal::TERM))
    });
}

const BINDS: &str = "
import os, socket, sys
bound = socket.socket()
bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
bound.bind(('0.0.0.0', int(sys.argv[1])))
bound.set_inheritable(True)
os.execvp('python3', ['python3', 'listens.py', str(bound.fileno())])
";

const LISTENS: &str = "
import socket, sys
listener = socket.socket(fileno=int(sys.argv[1]))
listener.listen(5)
peer, name = listener.accept()
with peer.makefile('rb') as file:
    peer.sendall(file.readline().upper() + repr(name == peer.getpeername()).encode())
";

/// Regression: it listened with the kernel only, and the node refused its clients.
#[test]
#[ignore = "needs python3"]
fn program_listens_on_socket_bound_by_another() {
    alike(1, |place| {
        place.file("listens.py", LISTENS);
        let port = place.port.to_string();
        let server = place.serve(&["python3", "-c", BINDS, &port]);
        let ask = "
import socket, sys
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
peer.sendall(b'who is there\\n')
print(peer.makefile('rb').read())
";
        let said = place.says(&["python3", "-c", ask, place.address(), &port]);
        (said, server.wait())
    });
}

/// Six successive servers. Each sends its listener to the next, which listens on it and reports
/// that, and then closes it.
const RELOADS: &str = "
import os, select, socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(('0.0.0.0', int(sys.argv[1])))
listener.listen(64)

def answer(number):
    peer = listener.accept()[0]
    peer.sendall(b'%d' % number)
    peer.close()

for number in range(5):
    ours, theirs = socket.socketpair()
    if child := os.fork():
        for _ in range(20):
            answer(number)
        socket.send_fds(ours, [b'x'], [listener.fileno()])
        while ours not in (ready := select.select([listener, ours], [], [])[0]):
            answer(number)
        listener.close()
        os.waitpid(child, 0)
        os._exit(0)
    listener.close()
    _, descriptors, _, _ = socket.recv_fds(theirs, 1, 1)
    listener = socket.socket(fileno=descriptors[0])
    listener.listen(64)
    theirs.send(b'l')
sys.stdout.close()
while True:
    peer = listener.accept()[0]
    peer.sendall(b'5')
    if peer.recv(1):
        break
";

/// Regression: a client on another node was refused while one server took over from another
/// (haproxy's reload).
#[test]
#[ignore = "needs python3"]
fn client_during_handover_of_listener_is_not_refused() {
    alike(1, |place| {
        let port = place.port.to_string();
        let server = place.serve(&["python3", "-c", RELOADS, &port]);
        let ask = "
import socket, sys
servers, errors = set(), []
while b'5' not in servers:
    try:
        peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
        servers.add(peer.recv(9))
        if b'5' in servers:
            peer.sendall(b'.')
    except OSError as error:
        errors.append(str(error))
print(sorted(servers), errors)
";
        let said = place.says(&["python3", "-c", ask, place.address(), &port]);
        (said, server.wait())
    });
}

/// The flags of its standard input.
const SAYS_FLAGS: &str = "
#include <fcntl.h>
#include <stdio.h>
int main(void) { printf(\"%x\\n\", fcntl(0, F_GETFL)); return 0; }
";

/// Regression: a socket that one process created and another connected was connected by the kernel,
/// which does not reach the nodes. The other process had received it by a message (pure-ftpd in
/// active mode) or by `exec`.
#[test]
#[ignore = "needs python3"]
fn socket_of_other_process_connects_on_node() {
    const SERVER: &str = "
import socket, sys
listener = socket.create_server(('0.0.0.0', int(sys.argv[1])))
while True:
    client, at = listener.accept()
    client.sendall(b'%d' % (at[1] == int(client.recv(9))))
    client.close()
";
    const CLIENT: &str = "
import os, socket, sys
to = sys.argv[1], int(sys.argv[2])
def made(binds):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 40000)
    if binds: one.bind(('', 0))
    return one
def uses(number):
    with socket.socket(fileno=number) as one:
        bound = one.getsockname()[1]
        one.connect(to)
        options = [one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF), one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)]
        one.sendall(b'%d' % one.getsockname()[1])
        print(bound in (0, one.getsockname()[1]), options, one.recv(9), flush=True)
if len(sys.argv) > 3:
    uses(int(sys.argv[3]))
    sys.exit()
for binds in (False, True):
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        uses(socket.recv_fds(theirs, 9, 1)[1][0])
        os._exit(0)
    one = made(binds)
    socket.send_fds(ours, [b'x'], [one.fileno()])
    one.close()
    os.waitpid(child, 0)
    one = made(binds)
    os.set_inheritable(one.fileno(), True)
    if os.fork() == 0: os.execvp('python3', ['python3', sys.argv[0], *sys.argv[1:3], str(one.fileno())])
    one.close()
    os.wait()
";
    alike(4, |place| {
        let (server, client) = (place.file("server.py", SERVER), place.file("client.py", CLIENT));
        let port = place.port.to_string();
        let server = place.serve(&["python3", &server, &port]);
        let said = place.says(&["python3", &client, place.address(), &port]);
        (said, server.end(Signal::TERM))
    });
}

#[test]
#[ignore = "needs cc, python3"]
fn static_program_has_listener_unchanged() {
    const STARTS: &str = "
import os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
listener.set_inheritable(True)
actions = [(os.POSIX_SPAWN_DUP2, listener.fileno(), 0)]
print(os.waitpid(os.posix_spawn(sys.argv[1], [sys.argv[1]], os.environ, file_actions=actions), 0)[1])
";
    alike(0, |place| {
        let program = compiled(place, SAYS_FLAGS, &["-static"]);
        place.says(&["python3", "-c", STARTS, &program])
    });
}

/// Starts programs that inherit its listener. One makes no call. The other accepts first a client
/// of this program, and then its own.
const OUTSIDE: &str = "
import fcntl, os, socket, subprocess, sys, threading, time
listener = socket.create_server(('127.0.0.1', 0))
listener.set_inheritable(True)
def flags(): return fcntl.fcntl(listener, fcntl.F_GETFL) & (os.O_NONBLOCK | os.O_ASYNC)
def connect(): ends.append(socket.create_connection(listener.getsockname()))
ends = []
def start(script):
    number = str(listener.fileno())
    done = subprocess.run(sys.argv[1:] + ['python3', '-c', script, number], close_fds=False, stdout=subprocess.PIPE)
    print(done.returncode, done.stdout, flags())
start('')
later = threading.Timer(1, connect)
later.start()
start('''
import os, socket, sys, threading
listener = socket.socket(fileno=int(sys.argv[1]))
print(os.get_blocking(listener.fileno()), listener.accept()[0].getpeername()[0])
later = threading.Timer(0.2, lambda: socket.create_connection(listener.getsockname()).send(b\"x\"))
later.start()
print(listener.accept()[0].recv(1))
''')
later.join()
later = threading.Timer(0.2, connect)
later.start()
name = listener.accept()[1]
later.join()
print(name == ends[-1].getsockname())
";

/// Regression: its listener never waited again.
#[test]
#[ignore = "needs python3"]
fn listener_inherited_outside_of_node_is_unchanged() {
    alike(0, |place| {
        let on_node = place.command("client", &["env"]);
        let mut outside = Command::new("python3");
        outside.args(["-c", OUTSIDE]).arg(on_node.get_program());
        outside.args(on_node.get_args());
        for (name, value) in on_node.get_envs() {
            match value {
                Some(value) => outside.env(name, value),
                None => outside.env_remove(name),
            };
        }
        let said = outside.output().unwrap();
        assert!(said.status.success(), "{said:?}");
        place.connections_of_client(1);
        text(&said.stdout)
    });
}

/// Starts a program that inherits its listener before the first accept, and reports the callers.
const LATE: &str = "
import socket, subprocess, sys, time
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(('0.0.0.0', int(sys.argv[1])))
listener.listen(5)
listener.set_inheritable(True)
subprocess.run(['true'], close_fds=False)
# The engine takes who has waited so long for a program that may not wait on the node.
time.sleep(0.5)
for _ in range(2):
    peer, name = listener.accept()
    peer.sendall(('%s:%d' % name).encode())
    peer.close()
";

/// Regression: callers seemed to be at 127.0.0.1, since only the program started last learnt their
/// addresses.
#[test]
#[ignore = "needs python3"]
fn accept_on_shared_listener_returns_address_of_caller() {
    alike(2, |place| {
        let port = place.port.to_string();
        let server = place.serve(&["python3", "-c", LATE, &port]);
        let ask = "
import socket, sys
for _ in range(2):
    peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    print(peer.recv(99).decode() == '%s:%d' % peer.getsockname())
";
        let said = place.says(&["python3", "-c", ask, place.address(), &port]);
        (said, server.wait())
    });
}

/// A server whose workers begin with an empty environment, and its client.
const CLEARED: &str = "
import ctypes, os, select, socket, sys
libc = ctypes.CDLL(None)
listener = socket.create_server(('127.0.0.1', 0))
listener.set_inheritable(True)
select.select([listener], [], [], 0.1)
accepts = '''
import socket, sys
socket.socket(fileno=int(sys.argv[1])).accept()[0].sendall(b'hello')
'''
if os.fork() == 0:
    libc.clearenv()
    words = [b'python3', b'-c', accepts.encode(), str(listener.fileno()).encode(), None]
    libc.execv(sys.executable.encode(), (ctypes.c_char_p * len(words))(*words))
peer = socket.create_connection(listener.getsockname(), timeout=20)
print(peer.makefile('rb').read(), os.wait()[1])
";

/// Regression: it lacked the library and received no connections (Dovecot's login processes).
#[test]
#[ignore = "needs python3"]
fn program_without_environment_has_listener_of_parent() {
    alike(0, |place| place.says(&["python3", "-c", CLEARED]));
}
