//! Reading and writing.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;

use toehold_socket::{Node, NodeConfig, TcpListener, TcpStream};

use crate::support::{config, connect, connect_to, pair, pattern, within};

/// What a node sends to itself waits in its payload memory, which may hold less than the
/// largest frame.
#[test]
fn big_writes_of_a_node_to_itself_in_little_memory() {
    for blocks in [16, 17, 20, 32] {
        within(60, move || {
            let node = Node::join(config("little", 1).payload_memory(blocks << 14)).unwrap();
            let listener = TcpListener::bind(&node, "10.0.0.1:0").unwrap();
            let (mut stream, mut other) = connect_to(&node, &listener);
            let data = pattern(3 << 20);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    stream.write_all(&data).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                });
                let mut received = Vec::new();
                other.read_to_end(&mut received).unwrap();
                assert!(received == data, "{blocks} blocks");
            });
        });
    }
}

#[test]
fn a_message_and_its_answer() {
    within(20, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        let mut buf = [0; 64];
        for size in [1, 2, 63, 64] {
            client.write_all(&pattern(size)).unwrap();
            assert_eq!(server.read(&mut buf).unwrap(), size);
            server.write_all(&buf[..size]).unwrap();
            assert_eq!(client.read(&mut buf).unwrap(), size);
            assert_eq!(buf[..size], pattern(size));
        }
        assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
        assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
    });
}

#[test]
fn over_ipv6_too() {
    within(20, || {
        let nodes = pair();
        let listener = TcpListener::bind(&nodes[0], "[fd00::1]:80").unwrap();
        let (mut client, mut server) = connect_to(&nodes[1], &listener);
        client.write_all(b"six").unwrap();
        let mut buf = [0; 3];
        server.read_exact(&mut buf).unwrap();
        assert_eq!(&buf, b"six");
        assert!(client.peer_addr().unwrap().is_ipv6());
    });
}

#[test]
fn a_stream_of_megabytes_both_ways_at_once() {
    within(60, || {
        let nodes = pair();
        let (client, server) = connect(&nodes);
        let data = pattern(8 << 20);
        std::thread::scope(|scope| {
            for stream in [&client, &server] {
                scope.spawn(|| {
                    (&mut &*stream).write_all(&data).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                });
                scope.spawn(|| {
                    let mut got = Vec::new();
                    (&mut &*stream).read_to_end(&mut got).unwrap();
                    assert!(got == data, "{} of {} bytes, or others", got.len(), data.len());
                });
            }
        });
        assert_eq!(client.info().unwrap().bytes_received, 8 << 20);
    });
}

#[test]
fn a_node_can_talk_to_itself() {
    within(20, || {
        let node = Node::join(config("alone", 9)).unwrap();
        let listener = TcpListener::bind(&node, "127.0.0.1:0").unwrap();
        // One thread: the node carries its own frames.
        let mut client = TcpStream::connect(&node, listener.local_addr().unwrap()).unwrap();
        let (mut server, peer) = listener.accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        client.write_all(&pattern(100_000)).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert!(got == pattern(100_000));
    });
}

#[test]
fn a_node_refuses_its_own_connection_to_a_closed_port() {
    within(20, || {
        let node = Node::join(config("alone", 9)).unwrap();
        for closed in ["127.0.0.1:9", "10.0.0.9:9", "[::1]:9", "[fd00::9]:9"] {
            let error = TcpStream::connect(&node, closed).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{closed}");
        }
    });
}

#[test]
fn half_close() {
    within(20, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        client.write_all(b"request").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
        let mut request = String::new();
        server.read_to_string(&mut request).unwrap();
        assert_eq!(request, "request");
        // The end stays the end.
        assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
        server.write_all(b"answer").unwrap();
        drop(server);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
    });
}

#[test]
fn shutting_down_reading_ends_reading_at_once() {
    within(20, || {
        let nodes = pair();
        let (client, server) = connect(&nodes);
        let reader = std::thread::spawn({
            let mut client = client.try_clone().unwrap();
            move || client.read(&mut [0; 10]).unwrap()
        });
        client.shutdown(Shutdown::Read).unwrap();
        assert_eq!(reader.join().unwrap(), 0);
        // The other direction is as before.
        (&mut &client).write_all(b"x").unwrap();
        assert_eq!((&mut &server).read(&mut [0; 10]).unwrap(), 1);
    });
}

#[test]
fn peeking_takes_nothing() {
    within(20, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        client.write_all(b"abcdef").unwrap();
        let mut buf = [0; 4];
        assert_eq!(server.peek(&mut buf).unwrap(), 4);
        assert_eq!(server.peek(&mut buf[..2]).unwrap(), 2);
        assert_eq!(&buf, b"abcd");
        let mut all = [0; 6];
        server.read_exact(&mut all).unwrap();
        assert_eq!(&all, b"abcdef");
        drop(client);
        assert_eq!(server.peek(&mut buf).unwrap(), 0);
    });
}

#[test]
fn vectored_calls_keep_the_order() {
    within(20, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        let parts: [&[u8]; 5] = [b"", b"one", b"", b"two", b"three"];
        let sent = client.write_vectored(&parts.map(IoSlice::new)).unwrap();
        assert_eq!(sent, 11);
        let (mut a, mut b, mut c) = ([0; 2], [0; 0], [0; 20]);
        let mut bufs = [
            IoSliceMut::new(&mut a),
            IoSliceMut::new(&mut b),
            IoSliceMut::new(&mut c),
        ];
        assert_eq!(server.read_vectored(&mut bufs).unwrap(), 11);
        assert_eq!((&a, &c[..9]), (b"on", &b"etwothree"[..]));
        // What has no room in one segment arrives all the same.
        let big = [pattern(200_000), pattern(3), pattern(1_500_000)];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let slices: Vec<IoSlice<'_>> = big.iter().map(|part| IoSlice::new(part)).collect();
                assert_eq!(client.write_vectored(&slices).unwrap(), 1_700_003);
            });
            let mut got = vec![0; 1_700_003];
            server.read_exact(&mut got).unwrap();
            assert!(got == big.concat());
        });
    });
}

#[test]
fn nothing_is_nothing() {
    within(20, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        assert_eq!(client.write(&[]).unwrap(), 0);
        assert_eq!(client.write_vectored(&[]).unwrap(), 0);
        assert_eq!(server.read(&mut []).unwrap(), 0);
        assert_eq!(server.read_vectored(&mut []).unwrap(), 0);
    });
}

#[test]
fn a_write_larger_than_all_buffers_waits_for_its_reader() {
    within(30, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        let data = pattern(5 << 20);
        std::thread::scope(|scope| {
            // As with the kernel, a blocking write is complete when it returns.
            scope.spawn(|| assert_eq!(client.write(&data).unwrap(), data.len()));
            let mut got = vec![0; data.len()];
            server.read_exact(&mut got).unwrap();
            assert!(got == data);
        });
    });
}

/// The write ended at a piece's end when it used the room that it had without the lease. Then the
/// writer waited for room that it had not asked for.
#[test]
fn a_long_write_goes_on_however_its_pieces_fit() {
    within(60, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        let data = pattern(1 << 20);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..64 {
                    client.write_all(&data).unwrap();
                }
            });
            let mut got = vec![0; data.len()];
            for _ in 0..64 {
                server.read_exact(&mut got).unwrap();
                assert!(got == data);
            }
        });
    });
}

#[test]
fn a_capture_and_a_bad_link() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.pcapng");
        let impair = toehold_socket::ImpairSettings {
            seed: 7,
            transmit: toehold_socket::Impairments {
                loss: 0.02,
                reorder: 0.02,
                ..Default::default()
            },
            ..Default::default()
        };
        let bad = |config: NodeConfig| config.impair(impair).tcp(|tcp| tcp.syn_retries = 10);
        let nodes = Node::in_process_pair([bad(config("a", 1)).capture(&file), bad(config("b", 2))]).unwrap();
        let (mut client, mut server) = connect(&nodes);
        let data = pattern(500_000);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                client.write_all(&data).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
            });
            let mut got = Vec::new();
            server.read_to_end(&mut got).unwrap();
            assert!(got == data);
            server.shutdown(Shutdown::Write).unwrap();
            // The other side may need what this one has to repeat.
            while !writer.is_finished() {
                nodes[0].drive(Some(std::time::Duration::from_millis(5))).unwrap();
            }
        });
        drop((client, server, nodes));
        let recorded = std::fs::metadata(&file).unwrap().len();
        assert!(recorded > 500_000, "{recorded} bytes recorded");
    });
}
