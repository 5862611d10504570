//! What happens while the program is away.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use toehold_socket::{TcpListener, TcpStream};

use crate::support::{connect, pair, pattern, within};

#[test]
fn what_was_written_arrives_though_its_writer_is_gone() {
    within(30, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        // More than may be in flight at first.
        let data = pattern(1 << 20);
        client.write_all(&data).unwrap();
        let mut got = vec![0; data.len()];
        server.read_exact(&mut got).unwrap();
        assert!(got == data);
        // Queued behind what is not acknowledged, and then closed.
        client.write_all(&data).unwrap();
        drop(client);
        server.read_exact(&mut got).unwrap();
        assert!(got == data);
        assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
    });
}

#[test]
fn connections_are_made_while_the_listener_computes() {
    within(30, || {
        let nodes = pair();
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let streams: Vec<_> = (0..3)
            .map(|_| TcpStream::connect(&nodes[1], addr).unwrap())
            .collect();
        for stream in &streams {
            let (_, peer) = listener.accept().unwrap();
            assert_eq!(peer, stream.local_addr().unwrap());
        }
    });
}

#[test]
fn calls_go_on_as_before_after_the_engine_has_sat_down() {
    within(30, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        for round in 0..20_u8 {
            // Long enough for both engines, short enough for neither, in turn.
            std::thread::sleep(Duration::from_millis(if round % 2 == 0 { 25 } else { 1 }));
            let before = Instant::now();
            for byte in 0..100 {
                client.write_all(&[byte]).unwrap();
                let mut got = [0];
                server.read_exact(&mut got).unwrap();
                assert_eq!(got[0], byte);
                server.write_all(&got).unwrap();
                client.read_exact(&mut got).unwrap();
            }
            assert!(before.elapsed() < Duration::from_secs(5));
        }
    });
}

#[test]
fn the_engine_comes_back_after_a_long_wait_of_the_program() {
    within(30, || {
        let nodes = pair();
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
        let (mut client, mut server) = connect(&nodes);
        let waiting = std::thread::spawn(move || {
            server.read_exact(&mut [0; 1]).unwrap();
            server
        });
        // Long enough for the engine to rest.
        std::thread::sleep(Duration::from_millis(100));
        client.write_all(b"x").unwrap();
        let _server = waiting.join().unwrap();
        // No thread is in a call on the other node any more.
        TcpStream::connect(&nodes[1], listener.local_addr().unwrap()).unwrap();
    });
}
