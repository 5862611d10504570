//! Signals about events of a connection or a listener.

use crate::{Place, alike, free_port};

/// Waits for data by a signal: on a connection that it has accepted, and on one that it has opened
/// to the client.
const SERVER: &str = "
import fcntl, os, signal, socket, sys
come, _ = os.pipe()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO, signal.SIGUSR1])
def own(connection, number=0):
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETSIG, number)
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
def read(connection, wanted):
    # Signals come of room for bytes to send, too.
    got = b''
    while len(got) < 5:
        assert signal.sigtimedwait([wanted], 60), 'no signal'
        try: got += connection.recv(100)
        except BlockingIOError: pass
    return got
listener = socket.create_server(('0.0.0.0', int(sys.argv[1])))
accepted, (asker, _) = listener.accept()
own(accepted)
accepted.sendall(b'ready')
got = read(accepted, signal.SIGIO)
made = socket.socket()
fcntl.fcntl(made, fcntl.F_SETOWN, os.getpid())
fcntl.fcntl(made, fcntl.F_SETSIG, signal.SIGUSR1)
fcntl.fcntl(made, fcntl.F_SETFL, os.O_ASYNC)
made.connect((asker, int(sys.argv[2])))
flags = fcntl.fcntl(made, fcntl.F_GETFL) & (os.O_ASYNC | os.O_NONBLOCK) == os.O_ASYNC
made.sendall(b'ready')
made.setblocking(False)
accepted.sendall(got + read(made, signal.SIGUSR1) + str(flags).encode())
";

const CLIENT: &str = "
import socket, sys
listener = socket.create_server(('0.0.0.0', int(sys.argv[3])))
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    assert connection.recv(5) == b'ready'
    connection.sendall(b'first')
    back, _ = listener.accept()
    assert back.recv(5) == b'ready'
    back.sendall(b'after')
    print(connection.recv(100))
";

/// Regression: no signal arrived, so that gdb's server could not be interrupted.
#[test]
#[ignore = "needs python3"]
fn owner_of_connection_is_signalled() {
    alike(1, |place: &Place| {
        let [port, other] = [place.port, free_port()].map(|port| port.to_string());
        let server = place.serve(&["python3", "-c", SERVER, &port, &other]);
        let said = place.says(&["python3", "-c", CLIENT, place.address(), &port, &other]);
        (said, server.wait())
    });
}

/// A server that receives signals about urgent data, for every way to name the receiver. Each `!`
/// arrives after its request.
const TOLD_OF_URGENT: &str = "
import fcntl, os, select, signal, socket, struct, sys, threading, time
F_SETOWN_EX, F_GETOWN_EX, FIOSETOWN, SIOCSPGRP = 15, 16, 0x8901, 0x8902
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG])
def comes(): return signal.sigtimedwait([signal.SIGURG], 60) is not None
def stays_away(): return signal.sigtimedwait([signal.SIGURG], 0.2) is None
def ask(connection): connection.sendall(b'?')
def byte(connection):
    poll = select.poll()
    poll.register(connection, select.POLLPRI)
    poll.poll(60000)
    got = connection.recv(1, socket.MSG_OOB)
    try: return got, connection.recv(100, socket.MSG_DONTWAIT)
    except BlockingIOError: return got
listener = socket.create_server(('0.0.0.0', int(sys.argv[1])))
connection, (asker, _) = listener.accept()
said = []
ask(connection)
said.append(['nobody', byte(connection), stays_away()])
ways = {
    'process': lambda: fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid()),
    'group': lambda: fcntl.fcntl(connection, fcntl.F_SETOWN, -os.getpgrp()),
    'thread': lambda: fcntl.fcntl(connection, F_SETOWN_EX, struct.pack('ii', 0, threading.get_native_id())),
    'FIOSETOWN': lambda: fcntl.ioctl(connection, FIOSETOWN, struct.pack('i', os.getpid())),
    'SIOCSPGRP': lambda: fcntl.ioctl(connection, SIOCSPGRP, struct.pack('i', -os.getpgrp())),
}
for way, own in ways.items():
    own()
    for _ in range(2):
        ask(connection)
        said.append([way, comes(), byte(connection), stays_away()])
fcntl.fcntl(connection, fcntl.F_SETOWN, 0)
ask(connection)
said.append(['nobody again', byte(connection), stays_away()])
# Whom it was told of before.
connection.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
ask(connection)
said.append(['in line', connection.recv(100), comes()])
# It is in no call at all, and then in one that goes on.
came = []
def handle(*_): came.append(connection.recv(1, socket.MSG_OOB))
connection.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 0)
signal.signal(signal.SIGURG, handle)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGURG])
for does in 'computes', 'reads':
    del came[:]
    ask(connection)
    got = connection.recv(100) if does == 'reads' else b''
    until = time.monotonic() + 60
    while not came and time.monotonic() < until: pass
    said.append([does, got, came[:]])
# A child that is another's.
made = socket.socket()
signal.signal(signal.SIGURG, lambda *_: os._exit(7))
ready, tell = os.pipe()
child = os.fork()
if child == 0:
    # What comes before Python is ready in the child, it forgets.
    os.write(tell, b'.')
    for _ in range(600): time.sleep(0.1)
    os._exit(1)
os.read(ready, 1)
fcntl.fcntl(made, fcntl.F_SETOWN, child)
made.connect((asker, int(sys.argv[2])))
ask(made)
said.append(['child', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])])
print(said)
";

const SENDS_URGENT: &str = "
import socket, sys
listener = socket.create_server(('0.0.0.0', int(sys.argv[3])))
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    asked = 0
    while connection.recv(1):
        asked += 1
        connection.send(b'!', socket.MSG_OOB)
        if asked == 15: break
    connection.send(b'on')
    back, _ = listener.accept()
    assert back.recv(1) == b'?'
    back.send(b'!', socket.MSG_OOB)
    print(asked, connection.recv(1))
";

/// Servers of Telnet and FTP receive interrupts in this way.
#[test]
#[ignore = "needs python3"]
fn owner_of_connection_is_signalled_about_urgent_data() {
    alike(1, |place: &Place| {
        let [port, other] = [place.port, free_port()].map(|port| port.to_string());
        let server = place.serve(&["python3", "-c", TOLD_OF_URGENT, &port, &other]);
        let said = place.says(&["python3", "-c", SENDS_URGENT, place.address(), &port, &other]);
        (said, server.wait(), place.log())
    });
}

/// Receives a signal for each event: a connection at the listener, data, and urgent data.
const TOLD_ALL: &str = "
import fcntl, os, select, signal, socket, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO, signal.SIGURG, signal.SIGUSR1])
def own(one, number=0):
    fcntl.fcntl(one, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(one, fcntl.F_SETSIG, number)
    fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
def told(number): return signal.sigtimedwait([number], 60) is not None
said = []
early = socket.socket()
early.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
early.bind(('0.0.0.0', int(sys.argv[1])))
own(early)
early.listen()
late = socket.create_server(('0.0.0.0', int(sys.argv[2])))
own(late, signal.SIGUSR1)
for listener, number in (early, signal.SIGIO), (late, signal.SIGUSR1), (early, signal.SIGIO):
    said.append(told(number))
    connection, (address, _) = listener.accept()
    said.append(address == connection.getpeername()[0])
    try: listener.accept()
    except BlockingIOError as error: said.append(type(error).__name__)
    connection.setblocking(True)
    said.append(connection.recv(100))
    connection.sendall(b'so')
connection.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 0)
own(connection)
connection.sendall(b'?')
said.append([told(signal.SIGURG), told(signal.SIGIO), connection.recv(1, socket.MSG_OOB)])
print(said)
";

const TELLS_ALL: &str = "
import socket, sys
said = []
for port in sys.argv[2], sys.argv[3], sys.argv[2]:
    connection = socket.create_connection((sys.argv[1], int(port)))
    connection.sendall(b'bytes')
    said.append(connection.recv(2))
said.append(connection.recv(1))
connection.send(b'!', socket.MSG_OOB)
print(said)
";

/// Regression: connections of a node waited at the listener without a signal.
#[test]
#[ignore = "needs python3"]
fn owner_of_listener_is_signalled() {
    alike(3, |place: &Place| {
        let [port, other] = [place.port, free_port()].map(|port| port.to_string());
        let server = place.serve(&["python3", "-c", TOLD_ALL, &port, &other]);
        place.await_listener(other.parse().unwrap());
        let said = place.says(&["python3", "-c", TELLS_ALL, place.address(), &port, &other]);
        (said, server.wait(), place.log())
    });
}
