//! Nodes on a fabric of message queues, in one process.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use toehold_socket::{Node, NodeConfig, Placement, TcpListener, TcpStream};

use crate::support::{config, connect_to, pattern, within};

/// A node of the fabric at 10.0.0.`host`.
pub(crate) fn join(fabric: &Path, name: &str, host: u8) -> Node {
    let config = NodeConfig::new(fabric, name)
        .ipv4([10, 0, 0, host], 24)
        .connections(1024)
        .payload_memory(64 << 20)
        .drain(Duration::from_millis(100));
    Node::join(config).expect("a node")
}

/// Two nodes of the fabric, driven only by threads that are in a call.
pub(crate) fn join_pair(fabric: &Path) -> [Node; 2] {
    [("a", 1), ("b", 2)].map(|(name, host)| join_inline(fabric, name, host, Duration::from_millis(100)))
}

fn join_inline(fabric: &Path, name: &str, host: u8, drain: Duration) -> Node {
    let config = NodeConfig::new(fabric, name).ipv4([10, 0, 0, host], 24);
    let config = config.payload_memory(64 << 20).drain(drain);
    Node::join(config.placement(Placement::Inline)).expect("a node")
}

#[test]
fn two_nodes_and_a_stream() {
    within(60, || {
        let fabric = tempfile::tempdir().unwrap();
        let (a, b) = (join(fabric.path(), "a", 1), join(fabric.path(), "b", 2));
        let listener = TcpListener::bind(&a, "10.0.0.1:0").unwrap();
        let (mut client, mut server) = connect_to(&b, &listener);
        let data = pattern(20 << 20);
        std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(&data).unwrap());
            let mut got = vec![0; data.len()];
            server.read_exact(&mut got).unwrap();
            assert!(got == data);
        });
        let segments = a.counters().unwrap().tcp_segments_received;
        assert!(segments < 2000, "{segments} frames for 20 MiB: no super-frames");
    });
}

#[test]
fn many_nodes() {
    within(60, || {
        let fabric = tempfile::tempdir().unwrap();
        let nodes: Vec<_> = (1..=5)
            .map(|host| join(fabric.path(), &format!("n{host}"), host))
            .collect();
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:80").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for stream in listener.incoming().take(4) {
                    let mut stream = stream.unwrap();
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    stream.write_all(&byte).unwrap();
                    // Until the peer has closed.
                    assert_eq!(stream.read(&mut byte).unwrap(), 0);
                }
            });
            for node in &nodes[1..] {
                let mut stream = TcpStream::connect(node, "10.0.0.1:80").unwrap();
                stream.write_all(b"x").unwrap();
                stream.read_exact(&mut [0; 1]).unwrap();
            }
        });
    });
}

#[test]
fn a_node_that_ends_delivers_first() {
    within(60, || {
        let fabric = tempfile::tempdir().unwrap();
        let a = join(fabric.path(), "a", 1);
        let listener = TcpListener::bind(&a, "10.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let path = fabric.path().to_owned();
        let sender = std::thread::spawn(move || {
            let b = Node::join(
                NodeConfig::new(path, "b")
                    .ipv4([10, 0, 0, 2], 24)
                    .drain(Duration::from_secs(20)),
            )
            .unwrap();
            let mut stream = TcpStream::connect(&b, addr).unwrap();
            stream.write_all(&pattern(900_000)).unwrap();
        });
        let (mut stream, _) = listener.accept().unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert!(got == pattern(900_000));
        sender.join().unwrap();
    });
}

#[test]
fn a_node_that_does_not_wait_has_delivered_what_is_in_the_ring() {
    within(60, || {
        let fabric = tempfile::tempdir().unwrap();
        let (a, b) = (
            join_inline(fabric.path(), "a", 1, Duration::from_millis(100)),
            join_inline(fabric.path(), "b", 2, Duration::ZERO),
        );
        let listener = TcpListener::bind(&a, "10.0.0.1:0").unwrap();
        let (mut client, mut server) = connect_to(&b, &listener);
        let data = pattern(10_000);
        client.write_all(&data).unwrap();
        // No program takes the data, so they and the end of the stream stay in the ring. Behind
        // them is the reset of a node that has no time.
        drop(client);
        drop(b);
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert!(got == data);
    });
}

#[test]
fn a_node_without_a_fabric() {
    let node = Node::join(config("alone", 1)).unwrap();
    let error = TcpStream::connect_timeout(&node, &"10.0.0.2:80".parse().unwrap(), Duration::from_millis(50));
    assert!(error.is_err());
    assert!(!node.drive(Some(Duration::ZERO)).unwrap());
    assert!(!node.drive(Some(Duration::from_millis(5))).unwrap());
    assert_eq!(node.name(), "alone");
}

/// A shard looks at its frames beforehand when it has thousands of connections.
#[test]
fn thousands_of_connections_speak_at_once() {
    const COUNT: usize = 2500;
    within(120, || {
        let fabric = tempfile::tempdir().unwrap();
        let nodes = join_pair(fabric.path());
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
        let mut streams: Vec<_> = (0..COUNT).map(|_| connect_to(&nodes[1], &listener)).collect();
        for round in 0..3u32 {
            for (number, (client, server)) in (0u32..).zip(&mut streams) {
                client.write_all(&(number << 8 | round).to_be_bytes()).unwrap();
                server
                    .write_all(&(number << 8 | round | 0x80).to_be_bytes())
                    .unwrap();
            }
            for (number, (client, server)) in (0u32..).zip(&mut streams) {
                let mut word = [0; 4];
                server.read_exact(&mut word).unwrap();
                assert_eq!(u32::from_be_bytes(word), number << 8 | round);
                client.read_exact(&mut word).unwrap();
                assert_eq!(u32::from_be_bytes(word), number << 8 | round | 0x80);
            }
        }
    });
}
