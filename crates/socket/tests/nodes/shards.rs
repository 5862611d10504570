//! Nodes with several shards: whatever their numbers are, programs see one node.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use toehold_node::Placement;
use toehold_node::control::{Connection, SocketState, SocketStatus};
use toehold_socket::{
    ConnectOptions, Events, Interest, Node, Poll, SocketOption, TcpListener, TcpStream, Token, Waker,
};

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

/// Accepts with a poll until all threads together have accepted so many, and says from whom.
fn accept_with_poll(
    server: &Node,
    listener: &TcpListener,
    ready: &Barrier,
    left: &AtomicUsize,
) -> Vec<(TcpStream, SocketAddr)> {
    listener.set_nonblocking(true).unwrap();
    let mut poll = Poll::new(server).unwrap();
    let registry = poll.registry().clone();
    registry.register(listener, Token(0), Interest::READABLE).unwrap();
    let mut events = Events::with_capacity(1);
    poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
    ready.wait();
    let mut accepted = Vec::new();
    while left.load(Relaxed) > 0 {
        while let Ok(connection) = listener.accept() {
            accepted.push(connection);
            left.fetch_sub(1, Relaxed);
        }
        poll.poll(&mut events, Some(Duration::from_millis(10))).unwrap();
    }
    accepted
}

/// Each thread had the connections of all shards, and so two of four shared each stack.
#[test]
fn listeners_at_one_port_have_the_connections_of_their_threads_shards() {
    within(60, || {
        let world = World::sharded(&[("server", 2), ("client", 1)], Placement::Adaptive);
        let (server, client) = (world.attach("server"), world.attach("client"));
        let mut settings = server.default_settings().unwrap();
        settings.apply(SocketOption::ReusePort(true)).unwrap();
        let bind = |port| {
            let at = SocketAddr::new(world.address(0).into(), port);
            TcpListener::bind_with_settings(&server, at, 100, &settings).unwrap()
        };
        let first = bind(0);
        let to = first.local_addr().unwrap();
        let listeners = [first, bind(to.port())];
        let (ready, left) = (Barrier::new(3), AtomicUsize::new(40));
        std::thread::scope(|scope| {
            let accepts = listeners
                .each_ref()
                .map(|listener| scope.spawn(|| accept_with_poll(&server, listener, &ready, &left)));
            ready.wait();
            let _streams = connect(&client, to, 40);
            let shards = accepts.map(|thread| {
                let accepted = thread.join().unwrap();
                let peers: Vec<SocketAddr> = accepted.iter().map(|(_, peer)| *peer).collect();
                let all = sockets(world.path(), "server", SocketState::Estab);
                all.iter()
                    .filter(|socket| socket.remote.is_some_and(|peer| peers.contains(&peer)))
                    .map(|socket| socket.shard)
                    .collect::<BTreeSet<_>>()
            });
            assert!(shards.iter().all(|used| used.len() == 1), "{shards:?}");
            assert_ne!(shards[0], shards[1]);
        });
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
        // Otherwise nobody is left who would hear the ends of the last ones.
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
fn a_poll_is_about_sockets_of_all_shards() {
    within(60, || {
        let world = World::sharded(&[("server", 3), ("client", 1)], Placement::Adaptive);
        let (server, client) = (world.attach("server"), world.attach("client"));
        let listener = TcpListener::bind(&server, (world.address(0), 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let to = listener.local_addr().unwrap();
        let mut poll = Poll::new(&server).unwrap();
        let registry = poll.registry().clone();
        registry
            .register(&listener, Token(usize::MAX), Interest::READABLE)
            .unwrap();
        let again = registry.register(&listener, Token(0), Interest::READABLE);
        assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
        let waker = Waker::new(&registry, Token(usize::MAX - 1)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut streams: Vec<TcpStream> = Vec::new();
                let mut events = Events::with_capacity(8);
                loop {
                    poll.poll(&mut events, None).unwrap();
                    for event in events.iter() {
                        match event.token() {
                            Token(usize::MAX) => {
                                while let Ok((stream, _)) = listener.accept() {
                                    stream.set_nonblocking(true).unwrap();
                                    let token = Token(streams.len());
                                    registry.register(&stream, token, Interest::READABLE).unwrap();
                                    streams.push(stream);
                                }
                            }
                            Token(number) if number == usize::MAX - 1 => return,
                            Token(number) => {
                                let mut bytes = [0; 1000];
                                if let Ok(len @ 1..) = streams[number].read(&mut bytes) {
                                    streams[number].write_all(&bytes[..len]).unwrap();
                                }
                            }
                        }
                    }
                }
            });
            let mut streams = connect(&client, to, 48);
            for _ in 0..5 {
                for stream in &mut streams {
                    echo(stream, &pattern(700)).unwrap();
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            assert_eq!(used(world.path(), "server").len(), 3);
            waker.wake().unwrap();
        });
    });
}

/// Whoever had not looked at the link for a while took what was ready, looked, and took it again.
#[test]
fn a_poll_tells_of_each_socket_once() {
    within(60, || {
        let world = World::sharded(&[("server", 3), ("client", 1)], Placement::Adaptive);
        let (server, client) = (world.attach("server"), world.attach("client"));
        let listener = TcpListener::bind(&server, (world.address(0), 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let mut streams = connect(&client, to, 8);
        let accepted: Vec<TcpStream> = (0..8).map(|_| listener.accept().unwrap().0).collect();
        for stream in &mut streams {
            stream.write_all(b"!").unwrap();
        }
        let mut poll = Poll::new(&server).unwrap();
        let registry = poll.registry().clone();
        registry
            .register(&listener, Token(8), Interest::READABLE)
            .unwrap();
        for (number, stream) in accepted.iter().enumerate() {
            registry
                .register(stream, Token(number), Interest::READABLE)
                .unwrap();
        }
        // In every shard there are connections for it.
        streams.extend(connect(&client, to, 40));
        let mut events = Events::with_capacity(100);
        let all: Vec<usize> = (0..9).collect();
        let mut told = || {
            poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
            let mut tokens: Vec<usize> = events.iter().map(|event| event.token().0).collect();
            tokens.sort_unstable();
            tokens
        };
        eventually("not all are told of", || (told() == all).then_some(()).ok_or(()));
        for _ in 0..200 {
            assert_eq!(told(), all);
            std::thread::sleep(Duration::from_micros(50));
        }
    });
}

/// A listener is in every shard, and was told of once in each.
#[test]
fn a_listener_that_is_to_be_told_of_once_is_told_of_once() {
    within(60, || {
        let world = World::sharded(&[("server", 3), ("client", 1)], Placement::Adaptive);
        let (server, client) = (world.attach("server"), world.attach("client"));
        let listener = TcpListener::bind(&server, (world.address(0), 0)).unwrap();
        let mut poll = Poll::new(&server).unwrap();
        let registry = poll.registry().clone();
        let once = Interest::READABLE | Interest::ONE_SHOT;
        registry.register(&listener, Token(1), once).unwrap();
        let mut events = Events::with_capacity(100);
        let mut streams = Vec::new();
        for _ in 0..3 {
            streams.extend(connect(&client, listener.local_addr().unwrap(), 20));
            poll.poll(&mut events, None).unwrap();
            assert_eq!(events.iter().count(), 1);
            for _ in 0..20 {
                poll.poll(&mut events, Some(Duration::from_millis(1))).unwrap();
                assert!(events.is_empty(), "{events:?}");
            }
            registry.reregister(&listener, Token(1), once).unwrap();
        }
    });
}

/// A poll waits for one shard, and somebody registers a socket of another one.
#[test]
fn who_polls_learns_of_sockets_of_other_shards() {
    within(60, || {
        let world = World::sharded(&[("server", 1), ("client", 4)], Placement::Adaptive);
        let (server, client) = (world.attach("server"), world.attach("client"));
        let to = serve_echoes(&server, world.address(0));
        let mut poll = Poll::new(&client).unwrap();
        let registry = poll.registry().clone();
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::from_millis(1))).unwrap();
        assert!(events.is_empty());
        let polling = std::thread::spawn(move || {
            poll.poll(&mut events, None).unwrap();
            events.iter().next().unwrap().token()
        });
        // Threads take turns at the shards; those of other tests do as well.
        let mut streams: Vec<TcpStream> = Vec::new();
        while used(world.path(), "client").len() < 4 {
            assert!(streams.len() < 1000);
            let connect = || connect(&client, to, 1).remove(0);
            streams.push(std::thread::scope(|scope| scope.spawn(connect).join().unwrap()));
        }
        for (number, stream) in streams.iter().enumerate() {
            registry
                .register(stream, Token(number), Interest::READABLE)
                .unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
        assert!(!polling.is_finished());
        let last = streams.len() - 1;
        streams[last].write_all(b"answer me").unwrap();
        assert_eq!(polling.join().unwrap(), Token(last));
        registry.deregister(&streams[0]).unwrap();
        let twice = registry.deregister(&streams[0]).unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::NotFound);
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
                // A new one, which somebody waits for in accept.
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
