//! Signals that tell of what happens to a connection.

use crate::{Place, alike, free_port};

/// A signal ends what the server does until there is something to read: at a connection that it
/// has accepted, and at one that it has made to whoever asked.
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

/// No signal came: gdb's server was not to be interrupted.
#[test]
#[ignore = "needs python3"]
fn who_owns_a_connection_is_signalled() {
    alike(1, |place: &Place| {
        let [port, other] = [place.port, free_port()].map(|port| port.to_string());
        let server = place.serve(&["python3", "-c", SERVER, &port, &other]);
        let said = place.says(&["python3", "-c", CLIENT, place.address(), &port, &other]);
        (said, server.wait())
    });
}
