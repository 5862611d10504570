//! Memory of other nodes that a node maps: its rings with them, and payload for it.

use std::os::unix::process::CommandExt;

use crate::support::{Fabrics, eventually};
use crate::{LIMIT, Place, Server, output};

/// Sends a secret, more than once, to each peer that asks for it, and a greeting to the others.
const SERVER: &str = "
import socket, sys
listener = socket.create_server(('0.0.0.0', int(sys.argv[1])))
peers = []
while True:
    peer, _ = listener.accept()
    secret = peer.recv(6) == b'secret'
    peer.sendall((b'PLANTED-' + b'SECRET' + b'-' * 2000) * 100 if secret else b'a greeting' * 1000)
    print('said', secret, flush=True)
    peers.append(peer)
";

/// Asks for the secret, and reads none of it.
const CLIENT: &str = "
import socket, sys, time
server = socket.create_connection((sys.argv[1], int(sys.argv[2])))
server.sendall(b'secret')
time.sleep(1000)
";

/// Greets the server, and searches all its mapped memory files for data to others. Prints the
/// numbers of secrets and of own greetings found, and the owners of the files.
const SPY: &str = "
import socket, sys
server = socket.create_connection((sys.argv[1], int(sys.argv[2])))
server.sendall(b'hello!')
assert server.recv(1) == b'a'
found, own, names = 0, 0, set()
for line in open('/proc/self/maps'):
    if 'memfd:toehold' not in line or ' r' not in line: continue
    names.add(line.split()[5])
    first, last = (int(end, 16) for end in line.split()[0].split('-'))
    with open('/proc/self/mem', 'rb', buffering=0) as memory:
        memory.seek(first)
        while (left := last - memory.tell()) > 0:
            piece = memory.read(min(left, 1 << 20))
            found += piece.count(b'PLANTED-' + b'SECRET')
            own += piece.count(b'a greeting')
print(found, own > 500, *sorted(names))
";

#[test]
#[ignore = "needs python3"]
fn node_maps_only_its_rings_and_payload_of_others() {
    let nodes = Fabrics::new();
    nodes.succeeds("up server client third --direct yes");
    let place = Place {
        nodes: Some(nodes),
        ..Place::new(None)
    };
    let port = place.port.to_string();
    let server = place.serve(&["python3", "-c", SERVER, &port]);
    let words = ["timeout", LIMIT, "python3", "-c", CLIENT, place.address(), &port];
    let mut client = place.command("client", &words);
    let client = Server(client.process_group(0).spawn().unwrap());
    eventually("the secret", || place.log().contains("said True"));
    let words = ["timeout", LIMIT, "python3", "-c", SPY, place.address(), &port];
    let said = output(&mut place.command("third", &words));
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said = String::from_utf8(said.stdout).unwrap();
    assert_eq!(
        said.split_whitespace().collect::<Vec<_>>(),
        [
            "0",
            "True",
            "/memfd:toehold-directory",
            "/memfd:toehold-ends",
            "/memfd:toehold-half",
            "/memfd:toehold-journal",
            "/memfd:toehold-mq",
            "/memfd:toehold-payload",
            "/memfd:toehold-signals",
            "/memfd:toehold-third"
        ]
    );
    drop((client, server));
}
