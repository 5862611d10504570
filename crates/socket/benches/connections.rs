//! What it costs to open and close a connection: on nodes of this process, and on
//! nodes that it has attached to, whose connections have descriptors.
//!
//! A client connects, reads to the end of the stream, and closes; the server accepts
//! and closes. Both are threads of this process; rounds of both kinds take turns.

use std::io::Read;
use std::net::SocketAddr;
use std::time::Instant;

use toehold_node::engine::{Engine, Seat, StackHost};
use toehold_node::settings::NodeSettings;
use toehold_socket::{Fabric, Node, NodeConfig, TcpListener, TcpStream};

const ROUNDS: usize = 10;
const CONNECTIONS: u32 = 2_000;

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let fabric = || Fabric::open(directory.path().to_str().unwrap()).unwrap();
    let start = |name: &str| {
        let seat = Seat {
            fabric: fabric(),
            node: name.to_owned(),
            settings: NodeSettings::default(),
            networks: Vec::new(),
        };
        Engine::start(seat, StackHost::host).unwrap()
    };
    let engines = [start("server"), start("client")];
    let attached = ["server", "client"].map(|name| Node::attach(&fabric(), name).unwrap());
    let attached_addr = SocketAddr::from((engines[0].record().ipv4.addr(), 7));

    let private_fabric = tempfile::tempdir().unwrap();
    let join = |name: &str, last| {
        let config = NodeConfig::new(private_fabric.path(), name).ipv4([10, 0, 0, last], 24);
        Node::join(config).unwrap()
    };
    let private = [join("server", 1), join("client", 2)];
    let private_addr = SocketAddr::from(([10, 0, 0, 1], 7));

    let kinds = [
        ("private ", &private, private_addr),
        ("attached", &attached, attached_addr),
    ];
    let mut taken = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        for (kind, (_, nodes, addr)) in kinds.iter().enumerate() {
            taken[kind].push(round(nodes, *addr));
        }
    }
    for ((name, _, _), mut taken) in kinds.into_iter().zip(taken) {
        taken.sort_by(f64::total_cmp);
        let (least, median) = (taken[0], taken[ROUNDS / 2]);
        println!("{name}: {median:.2} µs a connection, the fastest round {least:.2}");
    }
}

/// Microseconds a connection.
fn round([server, client]: &[Node; 2], addr: SocketAddr) -> f64 {
    let listener = TcpListener::bind(server, addr).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..CONNECTIONS {
                drop(listener.accept().unwrap());
            }
        });
        let began = Instant::now();
        for _ in 0..CONNECTIONS {
            let mut stream = TcpStream::connect(client, addr).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        }
        began.elapsed().as_secs_f64() * 1e6 / f64::from(CONNECTIONS)
    })
}
