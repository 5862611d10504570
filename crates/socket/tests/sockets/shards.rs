//! Nodes of this process with several shards.

use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::time::Duration;

use toehold_socket::{Node, NodeConfig, NodeError, Placement, TcpListener, TcpStream};

use crate::support::{config, connect_to, pattern, within};

fn join(fabric: &Path, host: u8, shards: u8, placement: Placement) -> Node {
    let config = NodeConfig::new(fabric, format!("n{host}"))
        .ipv4([10, 0, 0, host], 24)
        .connections(1024)
        .payload_memory(64 << 20)
        .placement(placement)
        .shards(shards)
        .drain(Duration::from_millis(500));
    Node::join(config).expect("a node")
}

#[test]
fn streams_between_nodes_with_different_numbers_of_shards() {
    within(120, || {
        for (placement, counts) in [
            (Placement::Adaptive, [1, 3]),
            (Placement::Inline, [3, 2]),
            (Placement::Engine, [2, 1]),
        ] {
            let fabric = tempfile::tempdir().unwrap();
            let server = join(fabric.path(), 1, counts[0], placement);
            let client = join(fabric.path(), 2, counts[1], placement);
            let listener = TcpListener::bind(&server, "10.0.0.1:0").unwrap();
            let data = pattern(1 << 20);
            std::thread::scope(|scope| {
                for _ in 0..6 {
                    scope.spawn(|| {
                        let (mut here, mut there) = connect_to(&client, &listener);
                        std::thread::scope(|scope| {
                            scope.spawn(|| {
                                here.write_all(&data).unwrap();
                                // Inline, a shard is driven by the threads that use its
                                // connections.
                                here.read_exact(&mut [0]).unwrap();
                            });
                            let mut got = vec![0; data.len()];
                            there.read_exact(&mut got).unwrap();
                            assert!(got == data);
                            there.write_all(&[0]).unwrap();
                        });
                    });
                }
            });
            assert_eq!(server.stack_info().unwrap().shards, counts[0]);
            assert_eq!(server.counters().unwrap().tcp_resets_sent, 0);
        }
    });
}

#[test]
fn what_was_written_is_delivered_by_all_shards_at_the_end() {
    within(60, || {
        let fabric = tempfile::tempdir().unwrap();
        let server = join(fabric.path(), 1, 1, Placement::Adaptive);
        let client = join(fabric.path(), 2, 4, Placement::Adaptive);
        let listener = TcpListener::bind(&server, "10.0.0.1:80").unwrap();
        let threads = (0..8).map(|_| {
            let client = client.clone();
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(&client, "10.0.0.1:80").unwrap();
                stream.write_all(&pattern(200_000)).unwrap();
            })
        });
        threads
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        drop(client);
        for _ in 0..8 {
            let mut got = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
            assert!(got == pattern(200_000));
        }
    });
}

#[test]
fn a_node_of_no_fabric_has_shards_as_well() {
    within(60, || {
        let node = Node::join(config("alone", 1).shards(3)).unwrap();
        let listener = TcpListener::bind(&node, "10.0.0.1:80").unwrap();
        for _ in 0..4 {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut here, mut there) = connect_to(&node, &listener);
                    here.write_all(b"oneself").unwrap();
                    let mut bytes = [0; 7];
                    there.read_exact(&mut bytes).unwrap();
                    assert_eq!(&bytes, b"oneself");
                });
            });
        }
        // No peer comes: a call that waits for all shards ends in time.
        assert!(!node.drive(Some(Duration::from_millis(20))).unwrap());
    });
}

#[test]
fn shards_that_cannot_be_are_refused() {
    for shards in [0, 17] {
        let error = Node::join(config("a", 1).shards(shards)).unwrap_err();
        assert!(error.to_string().contains("the number of shards"), "{error}");
    }
    let pair = Node::in_process_pair([config("a", 1).shards(2), config("b", 2)]);
    assert!(matches!(pair, Err(NodeError::OneQueue)));
    let error: std::io::Error = pair.unwrap_err().into();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let directory = tempfile::tempdir().unwrap();
    let capture = directory.path().join("frames.pcapng");
    let node = Node::join(config("a", 1).shards(2).capture(&capture));
    assert!(matches!(node, Err(NodeError::OneCapture)));
}
