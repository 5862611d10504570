//! What it costs to open and close a connection. One is on a node of this process, and one on a
//! node that it has attached to, whose connections have descriptors.
//!
//! `cargo bench -p toehold-socket --bench connections`: nanoseconds for a connection of a node with
//! itself. One thread, alone on the node, opens and closes both ends. Both kinds take turns.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use toehold_node::engine::{Engine, Lifetime, Seat, StackHost};
use toehold_node::settings::NodeSettings;
use toehold_socket::{Fabric, Node, NodeConfig, Placement, TcpListener, TcpStream};

const ROUNDS: usize = 200;
const CONNECTIONS: u32 = 200;

fn main() {
    let directory = tempfile::tempdir().expect("a directory");
    let fabric = || Fabric::open(directory.path().to_str().expect("a path")).expect("a fabric");
    let seat = Seat {
        fabric: fabric(),
        node: "attached".to_owned(),
        settings: NodeSettings {
            placement: Placement::Inline,
            ..NodeSettings::default()
        },
        networks: Vec::new(),
        lifetime: Lifetime::UntilTold,
    };
    let engine = Engine::start(seat, StackHost::host).expect("an engine");
    let attached = Node::attach(&fabric(), "attached").expect("a node");
    let attached_addr = SocketAddr::from((engine.record().ipv4.addr(), 7));

    let config = NodeConfig::alone("private").ipv4([10, 0, 0, 1], 24);
    let config = config.placement(Placement::Inline).drain(Duration::ZERO);
    let private = Node::join(config).expect("a node");
    let private_addr = SocketAddr::from(([10, 0, 0, 1], 7));

    let kinds = [
        ("private", private, private_addr),
        ("attached", attached, attached_addr),
    ];
    let listeners = [0, 1].map(|kind| {
        let (_, node, addr) = &kinds[kind];
        TcpListener::bind(node, addr).expect("a listener")
    });
    let mut taken = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        for ((taken, (_, node, addr)), listener) in taken.iter_mut().zip(&kinds).zip(&listeners) {
            taken.push(round(node, listener, *addr));
        }
    }
    for ((name, _, _), taken) in kinds.iter().zip(taken) {
        let best = taken.into_iter().fold(f64::MAX, f64::min);
        println!("{name:40} {best:7.1} ns");
    }
}

/// Nanoseconds a connection.
fn round(node: &Node, listener: &TcpListener, addr: SocketAddr) -> f64 {
    let began = Instant::now();
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(node, addr).expect("a connection");
        let accepted = listener.accept().expect("a connection");
        drop((stream, accepted));
    }
    began.elapsed().as_nanos() as f64 / f64::from(CONNECTIONS)
}
