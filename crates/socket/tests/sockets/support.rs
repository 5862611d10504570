//! Nodes and streams for tests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use toehold_socket::{Node, NodeConfig, Placement, TcpListener, TcpStream};

use crate::shared::PLACEMENT;
pub(crate) use crate::shared::{pattern, within};

/// A small node at 10.0.0.`host` and fd00::`host`.
pub(crate) fn config(name: &str, host: u8) -> NodeConfig {
    NodeConfig::alone(name)
        .ipv4([10, 0, 0, host], 24)
        .ipv6([0xfd00, 0, 0, 0, 0, 0, 0, host.into()], 64)
        .connections(4096)
        .payload_memory(64 << 20)
        .drain(Duration::from_millis(100))
        .placement(placement())
}

fn placement() -> Placement {
    let name = std::env::var(PLACEMENT);
    name.map_or(Placement::default(), |name| name.parse().unwrap())
}

/// Two nodes with a cable between them, 10.0.0.1 and 10.0.0.2.
pub(crate) fn pair() -> [Node; 2] {
    Node::in_process_pair([config("a", 1), config("b", 2)]).expect("two nodes")
}

/// Two nodes for tests that look at what one call has left for the next. No engine drives them
/// while calls are made.
pub(crate) fn stepwise_pair() -> [Node; 2] {
    let placement = match placement() {
        Placement::Engine => Placement::Adaptive,
        other => other,
    };
    let configs = [config("a", 1), config("b", 2)].map(|config| config.placement(placement));
    Node::in_process_pair(configs).expect("two nodes")
}

/// Two nodes with a cable between them, driven only by threads that are in a call.
pub(crate) fn inline_pair() -> [Node; 2] {
    let configs = [config("a", 1), config("b", 2)].map(|config| config.placement(Placement::Inline));
    Node::in_process_pair(configs).expect("two nodes")
}

/// A connection from the second node to the first.
pub(crate) fn connect(nodes: &[Node; 2]) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").expect("a listener");
    connect_to(&nodes[1], &listener)
}

/// A connection to a listener, and its other end.
pub(crate) fn connect_to(node: &Node, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().expect("a connection").0);
        let stream = TcpStream::connect(node, addr).expect("a stream");
        (stream, accepted.join().unwrap())
    })
}

/// Drives a node in the background while something is done.
pub(crate) fn driven<T>(node: &Node, test: impl FnOnce() -> T) -> T {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                node.drive(Some(Duration::from_millis(2))).unwrap();
            }
        });
        test()
    })
}
