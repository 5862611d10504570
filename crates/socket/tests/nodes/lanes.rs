//! Bytes that go without the lease: along the lanes of channels.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::Duration;

use toehold_node::control::Connection;
use toehold_node::{AttachedNode, Placement};
use toehold_socket::{Node, SendOptions, TcpListener, TcpStream};

use crate::programs::echo;
use crate::shared::again_under_the_engine;
use crate::support::{
    Random, World, assert_empty, assert_nothing_dropped, attach, eventually, fabric, pattern, serve_echoes,
    within,
};

/// Long enough for a connection to get a channel.
const LONG: usize = 20_000;

/// A connection with a channel between two nodes, and its other end.
fn connect(client: &Node, server: &Node, world: &World) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(server, (world.address(0), 0)).unwrap();
    let mut stream = TcpStream::connect(client, listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    stream.write_all(&pattern(LONG)).unwrap();
    let mut bytes = vec![0; LONG];
    peer.read_exact(&mut bytes).unwrap();
    assert!(bytes == pattern(LONG));
    (stream, peer)
}

#[test]
fn a_write_returns_while_another_process_has_the_lease() {
    within(60, || {
        let world = World::new(&["server", "client"], Placement::default());
        let (server, client) = (world.attach("server"), world.attach("client"));
        let (mut stream, mut peer) = connect(&client, &server, &world);
        let holder = AttachedNode::attach(&fabric(world.path()), "client").unwrap();
        let guard = holder.shards().unwrap().get(0).enter().unwrap();
        // It would never end if it had to have the lease.
        stream.write_all(b"left for the holder").unwrap();
        drop(guard);
        let mut bytes = [0; 19];
        peer.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"left for the holder");
    });
}

/// A send that found its room taken was told as if there were nothing to send, which `sendfile`
/// takes for the file's end.
#[test]
fn room_that_another_thread_took_is_not_the_end_of_what_is_sent() {
    const EACH: usize = 16 << 20;
    within(60, || {
        let world = World::new(&["server", "client"], Placement::default());
        let (server, client) = (world.attach("server"), world.attach("client"));
        let (stream, mut peer) = connect(&client, &server, &world);
        let send = |len: usize| {
            let sent = stream.send_in_place(len, |places| {
                places.iter_mut().for_each(|place| place.fill(7));
                Ok(places.iter().map(|place| place.len()).sum())
            });
            sent.unwrap().unwrap_or_else(|| {
                let few = [7; 1000];
                let few = [IoSlice::new(&few[..len.min(1000)])];
                stream.send_with(&few, SendOptions::default()).unwrap()
            })
        };
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut done = 0;
                    while done < EACH {
                        let sent = send(EACH - done);
                        assert!(sent > 0, "nothing sent after {done}");
                        done += sent;
                    }
                });
            }
            let mut bytes = vec![0; 1 << 16];
            let mut got = 0;
            while got < 3 * EACH {
                let len = peer.read(&mut bytes).unwrap();
                assert!(len > 0 && bytes[..len].iter().all(|&byte| byte == 7));
                got += len;
            }
            assert_eq!(got, 3 * EACH);
        });
    });
}

#[test]
fn what_has_come_is_read_while_another_process_has_the_lease() {
    within(60, || {
        let world = World::new(&["server", "client"], Placement::default());
        let (server, client) = (world.attach("server"), world.attach("client"));
        let (mut stream, mut peer) = connect(&client, &server, &world);
        peer.write_all(&pattern(LONG)).unwrap();
        eventually("it does not come", || {
            client.drive(Some(Duration::ZERO)).unwrap();
            let bytes = stream.readable_bytes().unwrap();
            (bytes == LONG).then_some(()).ok_or(bytes)
        });
        let holder = AttachedNode::attach(&fabric(world.path()), "client").unwrap();
        let guard = holder.shards().unwrap().get(0).enter().unwrap();
        let mut bytes = vec![0; LONG];
        stream.read_exact(&mut bytes[..100]).unwrap();
        stream.read_exact(&mut bytes[100..]).unwrap();
        assert!(bytes == pattern(LONG));
        drop(guard);
        assert_eq!(stream.readable_bytes().unwrap(), 0);
    });
}

#[test]
fn a_read_ends_in_time_under_the_engine_while_another_process_has_the_lease() {
    within(60, || {
        let world = World::new(&["server", "client"], Placement::Engine);
        let (server, client) = (world.attach("server"), world.attach("client"));
        let (mut stream, mut peer) = connect(&client, &server, &world);
        let holder = AttachedNode::attach(&fabric(world.path()), "client").unwrap();
        let guard = holder.shards().unwrap().get(0).enter().unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        // These would never end if they had to have the lease.
        let timed_out = stream.read(&mut [0]).unwrap_err();
        stream.set_nonblocking(true).unwrap();
        let refused = stream.read(&mut [0]).unwrap_err();
        assert_eq!(
            [timed_out.kind(), refused.kind()],
            [ErrorKind::WouldBlock, ErrorKind::WouldBlock]
        );
        stream.write_all(b"left for the engine").unwrap();
        drop(guard);
        let mut bytes = [0; 19];
        peer.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"left for the engine");
    });
}

/// Sends what a seed determines, in pieces of any length, and checks what comes back.
fn exchange(node: &Node, peer: SocketAddr, seed: u64, (stop, exchanged): (&AtomicBool, &AtomicU64)) {
    let mut stream = TcpStream::connect(node, peer).unwrap();
    let mut random = Random::new(seed);
    let data = pattern(1 << 18);
    while !stop.load(Relaxed) {
        let longest = if random.below(4) == 0 {
            data.len() as u64
        } else {
            2000
        };
        let start = random.below(1000) as usize;
        let len = 1 + random.below(longest - 1000) as usize;
        echo(&mut stream, &data[start..start + len]).unwrap();
        exchanged.fetch_add(len as u64, Relaxed);
    }
}

/// Threads of two processes on one node, each with a connection of its own.
fn threads_exchange(path: &Path, peer: SocketAddr, rounds: impl FnOnce()) {
    let (stop, exchanged) = (AtomicBool::new(false), AtomicU64::new(0));
    let nodes = [attach(path, "client"), attach(path, "client")];
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (node, ends) = (&nodes[seed as usize % 2], (&stop, &exchanged));
            scope.spawn(move || exchange(node, peer, seed, ends));
        }
        rounds();
        eventually("too little comes back", || {
            let bytes = exchanged.load(Relaxed);
            (bytes > 4 << 20).then_some(()).ok_or(bytes)
        });
        stop.store(true, Relaxed);
    });
}

fn streams_stay_whole(placement: Placement, switches: usize) {
    let world = World::new(&["server", "client"], placement);
    let path = world.path();
    let server = world.attach("server");
    let peer = serve_echoes(&server, world.address(0));
    let mut random = Random::new(5);
    threads_exchange(path, peer, || {
        let mut controls = ["server", "client"].map(|node| Connection::open(&fabric(path), node).unwrap());
        for _ in 0..switches {
            let to = Placement::ALL[random.below(3) as usize];
            let control = &mut controls[random.below(2) as usize];
            control.set_placement(to).unwrap();
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
        }
    });
    assert_empty(path, "client");
    assert_nothing_dropped(path, &["server", "client"]);
}

#[test]
fn streams_of_several_threads_stay_whole_while_they_compete_for_the_lease() {
    within(120, || streams_stay_whole(Placement::default(), 0));
}

#[test]
fn streams_stay_whole_while_placements_change() {
    within(120, || streams_stay_whole(Placement::Engine, 100));
}

#[test]
#[ignore = "slow: placements change ten thousand times"]
fn streams_stay_whole_while_placements_change_ten_thousand_times() {
    within(1200, || streams_stay_whole(Placement::Engine, 10_000));
}

/// A thread waits on a lane while the engine's driver leaves it to the programs.
#[test]
fn who_waits_for_the_engine_is_told_when_it_does_not_drive_any_more() {
    within(60, || {
        let world = World::new(&["server", "client"], Placement::Engine);
        let (server, client) = (world.attach("server"), world.attach("client"));
        let (mut stream, mut peer) = connect(&client, &server, &world);
        let mut control = Connection::open(&fabric(world.path()), "client").unwrap();
        for round in 0..50_u8 {
            let reader = std::thread::spawn(move || {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                assert_eq!(byte, [round]);
                stream
            });
            let [to, back] = [Placement::Inline, Placement::Engine];
            control.set_placement(to).unwrap();
            peer.write_all(&[round]).unwrap();
            stream = reader.join().unwrap();
            control.set_placement(back).unwrap();
        }
    });
}

/// Runs the tests of behaviour that must not depend on the driver once more under the engine.
#[test]
fn all_this_is_so_under_the_engine() {
    again_under_the_engine(&[
        "descriptors::",
        "forks::",
        "killed::",
        "engine_killed::",
        "lingering::",
        "sharing::",
    ]);
}
