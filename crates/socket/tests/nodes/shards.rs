//! Nodes with several shards: whatever their numbers are, programs see one node.

mod polls;

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use toehold_node::Placement;
use toehold_node::control::{Connection, SocketState, SocketStatus};
use toehold_socket::{ConnectOptions, Events, Interest, Node, Poll, TcpListener, TcpStream, Token};

use crate::programs::echo;
use crate::roles::{Program, address, node, say, wait};
use crate::support::{
    World, assert_empty, assert_nothing_dropped, eventually, fabric, pattern, serve_echoes, start_sharded,
    status, within,
};

fn sockets(path: &Path, node: &str, state: SocketState) -> Vec<SocketStatus> {
    let sockets = Connection::open(&fabric(path), node).unwrap().sockets().unwrap();
    sockets
        .into_iter()
        .filter(|socket| socket.state == state)
        .collect()
}

/// The shards in which a node has connections.
fn used(path: &Path, node: &str) -> BTreeSet<u16> {
    let connections = sockets(path, node, SocketState::Estab);
    connections.iter().map(|socket| socket.shard).collect()
}

fn connect(node: &Node, to: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count)
        .map(|_| TcpStream::connect(node, to).unwrap())
        .collect()
}

/// Several threads of the client's, each with several connections.
fn many_threads(world: &World, server: &Node, client: &Node) {
    let to = serve_echoes(server, world.address(0));
    let data = pattern(5000);
    let threads = 4;
    let streams: Vec<Vec<TcpStream>> = std::thread::scope(|scope| {
        let each = || {
            let mut streams = connect(client, to, 16);
            for _ in 0..5 {
                streams.iter_mut().for_each(|stream| echo(stream, &data).unwrap());
            }
            streams
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(each)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let shards = server.stack_info().unwrap().shards;
    assert_eq!(used(world.path(), "server"), (0..shards.into()).collect());
    for (name, node) in [("server", server), ("client", client)] {
        assert_eq!(node.counters().unwrap().tcp_resets_sent, 0, "{name}");
    }
    assert_nothing_dropped(world.path(), &["server", "client"]);
    drop(streams);
}

#[test]
fn threads_echo_whatever_the_numbers_of_shards() {
    within(120, || {
        for counts in [[1, 3], [3, 1], [2, 2], [4, 2]] {
            let nodes = [("server", counts[0]), ("client", counts[1])];
            let world = World::sharded(&nodes, Placement::Adaptive);
            let (server, client) = (world.attach("server"), world.attach("client"));
            assert_eq!(status(world.path(), "server").stack.shards, counts[0]);
            many_threads(&world, &server, &client);
            drop(client);
            assert_empty(world.path(), "client");
        }
    });
}

#[test]
fn threads_echo_wherever_the_stacks_run() {
    within(120, || {
        for placement in [Placement::Inline, Placement::Engine] {
            let world = World::sharded(&[("server", 2), ("client", 3)], placement);
            many_threads(&world, &world.attach("server"), &world.attach("client"));
        }
    });
}

#[test]
fn one_thread_accepts_what_comes_to_any_shard() {
    within(60, || {
        let world = World::sharded(&[("server", 4), ("client", 1)], Placement::Adaptive);
        let (server, client) = (world.attach("server"), world.attach("client"));
        let listener = TcpListener::bind(&server, (world.address(0), 0)).unwrap();
        let to = listener.local_addr().unwrap();
        for nonblocking in [false, true] {
            let streams = connect(&client, to, 60);
            listener.set_nonblocking(nonblocking).unwrap();
            let accepted: Vec<TcpStream> = (0..60)
                .map(|_| {
                    eventually("a connection is not accepted", || {
                        listener.accept().map(|(stream, _)| stream)
                    })
                })
                .collect();
            assert_eq!(used(world.path(), "server").len(), 4);
            let ours: BTreeSet<_> = streams
                .iter()
                .map(|stream| stream.local_addr().unwrap())
                .collect();
            let theirs: BTreeSet<_> = accepted
                .iter()
                .map(|stream| stream.peer_addr().unwrap())
                .collect();
            assert_eq!(ours, theirs);
        }
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        // A listener is in every shard, and closed in all of them.
        assert_eq!(sockets(world.path(), "server", SocketState::Listen).len(), 4);
        drop((listener, server));
        assert_empty(world.path(), "server");
        let refused = TcpStream::connect(&client, to).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

fn one_at_a_time(placement: Placement) {
    let world = World::sharded(&[("server", 3), ("client", 2)], placement);
    let (server, client) = (world.attach("server"), world.attach("client"));
    let listener = TcpListener::bind(&server, (world.address(0), 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Ok((mut stream, _)) = listener.accept() {
                    if stop.load(Relaxed) {
                        return;
                    }
                    let mut bytes = [0; 100];
                    let len = stream.read(&mut bytes).unwrap();
                    stream.write_all(&bytes[..len]).unwrap();
                }
            });
        }
        for round in 0..60 {
            let mut stream = TcpStream::connect(&client, to).unwrap();
            echo(&mut stream, &pattern(100)).unwrap();
            if round % 20 == 0 {
                // Long enough for all of them to sleep.
                std::thread::sleep(Duration::from_millis(300));
            }
        }
        stop.store(true, Relaxed);
        connect(&client, to, 4);
    });
    drop((listener, server));
    if placement != Placement::Inline {
        // Otherwise no thread is left that would hear the ends of the last ones.
        assert_empty(world.path(), "server");
    }
}

#[test]
fn several_threads_wait_for_the_same_connections() {
    within(120, || {
        for placement in [Placement::Adaptive, Placement::Inline, Placement::Engine] {
            one_at_a_time(placement);
        }
    });
}

#[test]
fn ports_are_the_nodes_and_not_the_shards() {
    within(60, || {
        let world = World::sharded(&[("server", 1), ("client", 3)], Placement::Adaptive);
        let (server, client) = (world.attach("server"), world.attach("client"));
        let to = serve_echoes(&server, world.address(0));
        // Whichever shard a port is of, it can be had, once.
        for port in 2000..2020 {
            let options = ConnectOptions {
                local: Some(SocketAddr::from(([0, 0, 0, 0], port))),
                ..ConnectOptions::default()
            };
            let mut stream = TcpStream::connect_with(&client, &to, &options).unwrap();
            echo(&mut stream, &pattern(100)).unwrap();
            assert_eq!(stream.local_addr().unwrap().port(), port);
            let taken = TcpStream::connect_with(&client, &to, &options).unwrap_err();
            assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        }
        let own = world.address(1);
        for _ in 0..20 {
            let listener = TcpListener::bind(&client, (own, 80)).unwrap();
            let second = world.attach("client");
            let taken = TcpListener::bind(&second, (own, 80)).unwrap_err();
            assert_eq!(taken.kind(), ErrorKind::AddrInUse);
            drop(listener);
        }
        // A connection of the node with itself.
        let listener = TcpListener::bind(&client, (own, 0)).unwrap();
        let mut here = TcpStream::connect(&client, listener.local_addr().unwrap()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        here.write_all(b"oneself").unwrap();
        let mut bytes = [0; 7];
        there.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"oneself");
    });
}

#[test]
fn descriptors_name_listeners_and_connections_of_any_shard() {
    within(60, || {
        let world = World::sharded(&[("server", 3), ("client", 2)], Placement::Adaptive);
        let (server, client) = (world.attach("server"), world.attach("client"));
        let listener = TcpListener::bind(&server, (world.address(0), 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let descriptor = listener.into_fd().unwrap();
        let other = world.attach("server");
        let listener = TcpListener::from_fd(&other, descriptor).unwrap();
        assert_eq!(listener.local_addr().unwrap(), to);
        let mut streams = connect(&client, to, 12);
        for stream in &mut streams {
            stream.write_all(b"hello").unwrap();
        }
        for _ in 0..12 {
            // Not in the order in which they came, if they came to different shards.
            let (accepted, _) = listener.accept().unwrap();
            let descriptor = accepted.into_fd().unwrap();
            let mut accepted = TcpStream::from_fd(&server, descriptor).unwrap();
            let mut bytes = [0; 5];
            accepted.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"hello");
        }
        let stream = connect(&client, to, 1).remove(0);
        let no_listener = TcpListener::from_fd(&client, stream.into_fd().unwrap()).unwrap_err();
        assert_eq!(no_listener.kind(), ErrorKind::InvalidInput);
        drop((streams, listener, other, server));
        assert_empty(world.path(), "server");
    });
}

#[test]
fn children_of_a_program_accept_from_all_shards() {
    within(60, || {
        let world = World::sharded(&[("server", 3), ("client", 2)], Placement::Adaptive);
        let mut server = Program::start("children-accept", &world);
        server.hear();
        let client = world.attach("client");
        let mut pids = BTreeSet::new();
        for _ in 0..5 {
            let mut streams = connect(&client, (world.address(0), 7).into(), 3);
            for stream in &mut streams {
                let mut pid = [0; 4];
                stream.read_exact(&mut pid).unwrap();
                pids.insert(pid);
            }
        }
        assert_eq!(pids.len(), 3);
        server.finish();
        assert_empty(world.path(), "server");
    });
}

/// Accepts half of what comes, and waits for its end.
pub(crate) fn accept_some_and_wait() {
    let node = node("server");
    let listener = TcpListener::bind(&node, address(7)).unwrap();
    say("ready");
    let streams: Vec<_> = (0..10).map(|_| listener.accept().unwrap()).collect();
    let mut poll = Poll::new(&node).unwrap();
    let interest = Interest::READABLE;
    poll.registry().register(&listener, Token(0), interest).unwrap();
    for (stream, _) in &streams {
        poll.registry().register(stream, Token(1), interest).unwrap();
    }
    std::thread::spawn(move || poll.poll(&mut Events::with_capacity(1), None));
    say("accepted");
    wait();
}

#[test]
fn what_a_killed_program_had_in_any_shard_is_closed() {
    within(60, || {
        let world = World::sharded(&[("server", 3), ("client", 3)], Placement::Adaptive);
        let client = world.attach("client");
        for _ in 0..5 {
            let mut server = Program::start("accepts-some", &world);
            server.hear();
            let streams = connect(&client, (world.address(0), 7).into(), 20);
            server.hear();
            server.kill();
            for mut stream in streams {
                // Closed if it was accepted, and reset if it was not.
                let end = stream.read(&mut [0]);
                assert!(
                    matches!(end, Ok(0))
                        || end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
                );
            }
            assert_empty(world.path(), "server");
        }
    });
}

#[test]
fn placements_change_while_all_shards_are_busy() {
    within(120, || {
        let world = World::sharded(&[("server", 2), ("client", 2)], Placement::Adaptive);
        let (server, client) = (world.attach("server"), world.attach("client"));
        let to = serve_echoes(&server, world.address(0));
        let stop = AtomicBool::new(false);
        let data = pattern(3000);
        let echoes: usize = std::thread::scope(|scope| {
            let busy: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let mut streams = connect(&client, to, 3);
                        let mut echoes = 0;
                        while !stop.load(Relaxed) {
                            for stream in &mut streams {
                                echo(stream, &data).unwrap();
                                echoes += 1;
                            }
                        }
                        echoes
                    })
                })
                .collect();
            for round in 0..12 {
                let placement = Placement::ALL[round % 3];
                for node in ["server", "client"] {
                    let mut node = Connection::open(&fabric(world.path()), node).unwrap();
                    node.set_placement(placement).unwrap();
                }
                // A new one, for which a thread waits in accept.
                echo(&mut connect(&client, to, 1)[0], &data).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
            stop.store(true, Relaxed);
            busy.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(echoes > 100, "{echoes}");
        assert_nothing_dropped(world.path(), &["server", "client"]);
    });
}

#[test]
fn a_node_comes_back_with_another_number_of_shards() {
    within(60, || {
        let world = World::sharded(&[("client", 2)], Placement::Adaptive);
        let client = world.attach("client");
        for shards in [3, 1, 4] {
            let engine = start_sharded(world.path(), "server", Placement::Adaptive, shards);
            let server = world.attach("server");
            let to = serve_echoes(&server, engine.record().ipv4.addr());
            let mut streams = connect(&client, to, 60);
            for stream in &mut streams {
                echo(stream, &pattern(1000)).unwrap();
            }
            assert_eq!(used(world.path(), "server").len(), usize::from(shards));
            drop(engine);
            for stream in &mut streams {
                assert!(echo(stream, b"gone").is_err());
            }
        }
    });
}
