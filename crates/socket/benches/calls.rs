//! What a call costs before and after TCP does its part.
//!
//! `cargo bench -p toehold-socket --bench calls`: nanoseconds a call, of one thread that is alone
//! on the node. How long messages take from program to program is for the laboratory to say.

use std::hint::black_box;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use toehold_socket::{Node, NodeConfig, Placement, TcpListener, TcpStream};

const CALLS: usize = 1000;
const SIZE: usize = 64;

/// Nanoseconds for each of `count`: the best of many, since everything else on
/// the machine only ever adds.
fn time(name: &str, count: usize, mut prepare: impl FnMut(), mut work: impl FnMut()) {
    let once = |_| {
        prepare();
        let start = Instant::now();
        (0..count).for_each(|_| work());
        start.elapsed().as_nanos() as f64 / count as f64
    };
    let best = (0..50).map(once).fold(f64::MAX, f64::min);
    println!("{name:40} {best:7.1} ns");
}

fn main() {
    let config = |name, host| {
        let config = NodeConfig::alone(name).ipv4([10, 0, 0, host], 24).connections(64);
        config.placement(Placement::Inline).drain(Duration::ZERO)
    };
    let nodes = Node::in_process_pair([config("a", 1), config("b", 2)]).expect("two nodes");
    let listener = TcpListener::bind(&nodes[0], "10.0.0.1:80").expect("a listener");
    let (client, server) = std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().expect("a connection").0);
        (
            TcpStream::connect(&nodes[1], "10.0.0.1:80").expect("a stream"),
            accepted.join().unwrap(),
        )
    });
    let mut bytes = [0; SIZE];
    time(
        "a look at the clock",
        CALLS,
        || (),
        || {
            black_box(Instant::now());
        },
    );
    time("nodelay", CALLS, || (), || drop(black_box(client.nodelay())));

    client.set_nonblocking(true).unwrap();
    time(
        "read, non-blocking, nothing there",
        CALLS,
        || (),
        || drop(black_box((&client).read(&mut bytes))),
    );
    client.set_nonblocking(false).unwrap();

    let fill = || {
        (&client).write_all(&[0; CALLS * SIZE]).unwrap();
        while server.readable_bytes().unwrap() < CALLS * SIZE {
            nodes[0].drive(Some(Duration::from_millis(1))).unwrap();
            nodes[1].drive(Some(Duration::ZERO)).unwrap();
        }
    };
    time("read of 64 bytes that are there", CALLS, fill, || {
        (&server).read_exact(black_box(&mut bytes)).unwrap();
    });

    // Fewer bytes than a segment has: nothing is sent.
    const CORKED: usize = 20;
    let mut drain = vec![0; CORKED * SIZE];
    let mut first = true;
    let flush = || {
        client.set_cork(false).unwrap();
        if !std::mem::take(&mut first) {
            (&server).read_exact(&mut drain).unwrap();
        }
        while client.unacknowledged_bytes().unwrap() > 0 {
            nodes[0].drive(Some(Duration::from_millis(5))).unwrap();
            nodes[1].drive(Some(Duration::ZERO)).unwrap();
        }
        client.set_cork(true).unwrap();
    };
    time("write of 64 bytes that are not sent yet", CORKED, flush, || {
        (&client).write_all(&[0; SIZE]).unwrap();
    });
}
