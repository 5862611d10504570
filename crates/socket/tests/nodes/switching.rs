//! Where a node's stack runs is changed again and again while traffic flows: every byte
//! arrives, once and in its place.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use toehold_node::Placement;
use toehold_node::control::Connection;
use toehold_socket::{TcpListener, TcpStream};

use crate::support::{Random, World, assert_empty, assert_nothing_dropped, fabric, pattern, resets, within};

/// A prime: no whole number of segments, buffers or blocks is as long.
const PERIOD: usize = 65_521;

/// Most bytes of a write or read.
const WRITE: usize = 100_000;

/// What a stream carries from any place in its period on, for the length of a write.
fn content() -> Vec<u8> {
    let mut content = pattern(PERIOD);
    content.extend_from_within(..);
    content.extend_from_within(..WRITE);
    content
}

/// Writes of any length until `ended`; gives the number of bytes.
fn send(mut stream: &TcpStream, seed: u64, ended: &AtomicBool) -> usize {
    let (content, mut random) = (content(), Random::new(seed));
    let mut sent = 0;
    while !ended.load(Acquire) {
        let len = 1 + random.below(WRITE as u64) as usize;
        let from = sent % PERIOD;
        stream.write_all(&content[from..from + len]).unwrap();
        sent += len;
    }
    stream.shutdown(Shutdown::Write).unwrap();
    sent
}

/// Reads of any length to the end; gives the number of bytes.
fn receive(mut stream: &TcpStream, seed: u64) -> usize {
    let (content, mut random) = (content(), Random::new(seed));
    let mut buffer = vec![0; WRITE];
    let mut received = 0;
    loop {
        let room = 1 + random.below(WRITE as u64) as usize;
        let n = stream.read(&mut buffer[..room]).unwrap();
        if n == 0 {
            return received;
        }
        let from = received % PERIOD;
        assert!(
            buffer[..n] == content[from..from + n],
            "other bytes at {received}"
        );
        received += n;
    }
}

/// Numbers there and back, one at a time; gives how many.
fn play(mut stream: &TcpStream, ended: &AtomicBool) -> u64 {
    let mut number = 0_u64;
    while !ended.load(Acquire) {
        number += 1;
        stream.write_all(&number.to_le_bytes()).unwrap();
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(u64::from_le_bytes(answer), number);
    }
    stream.shutdown(Shutdown::Write).unwrap();
    number
}

fn echo(mut stream: &TcpStream) -> u64 {
    let mut number = 0;
    let mut message = [0; 8];
    while stream.read_exact(&mut message).is_ok() {
        number += 1;
        assert_eq!(u64::from_le_bytes(message), number, "lost, or twice");
        stream.write_all(&message).unwrap();
    }
    number
}

/// Changes a node's placement `times` times, at any moment.
fn change(path: &Path, node: &str, times: u32, seed: u64) {
    let mut engine = Connection::open(&fabric(path), node).unwrap();
    let mut random = Random::new(seed);
    for _ in 0..times {
        let placement = Placement::ALL[random.below(3) as usize];
        engine.set_placement(placement).unwrap();
        std::thread::sleep(Duration::from_micros(random.below(2000)));
    }
}

fn placements_change(times: u32, seed: u64) {
    println!("seed {seed}");
    let nodes = ["server", "client"];
    let world = World::new(&nodes, Placement::Adaptive);
    let (server, client) = (world.attach("server"), world.attach("client"));
    let listener = TcpListener::bind(&server, (world.address(0), 0)).unwrap();
    let connect = || {
        let near = TcpStream::connect(&client, listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    };
    let ((playing, echoing), (sending, receiving), (taking, giving)) = (connect(), connect(), connect());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let played = scope.spawn(|| play(&playing, &ended));
        let echoed = scope.spawn(|| echo(&echoing));
        let sent = scope.spawn(|| send(&sending, seed, &ended));
        let received = scope.spawn(|| receive(&receiving, !seed));
        let given = scope.spawn(|| send(&giving, seed + 1, &ended));
        let taken = scope.spawn(|| receive(&taking, !seed - 1));
        let changes = nodes.map(|node| {
            let path = world.path();
            scope.spawn(move || change(path, node, times, seed + node.len() as u64))
        });
        for changes in changes {
            changes.join().unwrap();
        }
        ended.store(true, Release);
        assert_eq!(played.join().unwrap(), echoed.join().unwrap());
        assert_eq!(sent.join().unwrap(), received.join().unwrap());
        assert_eq!(given.join().unwrap(), taken.join().unwrap());
    });
    assert_nothing_dropped(world.path(), &nodes);
    drop([playing, echoing, sending, receiving, taking, giving]);
    drop(listener);
    for node in nodes {
        assert_eq!(resets(world.path(), node), 0);
        // What became of the connections is not left to the placement it ended with.
        let mut engine = Connection::open(&fabric(world.path()), node).unwrap();
        engine.set_placement(Placement::Adaptive).unwrap();
    }
    assert_empty(world.path(), "client");
}

#[test]
fn nothing_is_lost_while_placements_change() {
    within(300, || placements_change(60, 1));
}

#[test]
#[ignore = "slow: placements are changed a thousand times, five times over"]
fn nothing_is_lost_while_placements_change_a_thousand_times() {
    for seed in 2..7 {
        within(600, move || placements_change(1000, seed));
    }
}
