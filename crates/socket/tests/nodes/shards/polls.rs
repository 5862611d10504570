//! Polls of nodes with several shards.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use toehold_node::Placement;
use toehold_node::control::SocketState;
use toehold_socket::{Events, Interest, Node, Poll, SocketOption, TcpListener, TcpStream, Token, Waker};

use super::{connect, sockets, used};
use crate::programs::echo;
use crate::support::{World, eventually, pattern, serve_echoes, within};

/// Two listeners that share a port.
fn at_one_port(world: &World, server: &Node) -> [TcpListener; 2] {
    let mut settings = server.default_settings().unwrap();
    settings.apply(SocketOption::ReusePort(true)).unwrap();
    let bind = |port| {
        let at = SocketAddr::new(world.address(0).into(), port);
        TcpListener::bind_with_settings(server, at, 100, &settings).unwrap()
    };
    let first = bind(0);
    let port = first.local_addr().unwrap().port();
    [first, bind(port)]
}

/// Accepts with a poll until all threads together have accepted so many. Returns the addresses of
/// the peers.
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

/// Half of the connections waited at the listener of a program that had given its copy away.
#[test]
fn what_comes_to_a_port_comes_to_listeners_that_somebody_waits_for() {
    within(60, || {
        let world = World::sharded(&[("server", 1), ("client", 1)], Placement::Adaptive);
        let (server, client) = (world.attach("server"), world.attach("client"));
        let [unattended, listener] = at_one_port(&world, &server);
        let to = unattended.local_addr().unwrap();
        let (ready, left) = (Barrier::new(2), AtomicUsize::new(20));
        std::thread::scope(|scope| {
            let accepts = scope.spawn(|| accept_with_poll(&server, &listener, &ready, &left));
            ready.wait();
            let streams = connect(&client, to, 20);
            assert_eq!(accepts.join().unwrap().len(), streams.len());
        });
    });
}

/// Each thread had the connections of all shards, and so two of four shared each stack.
#[test]
fn listeners_at_one_port_have_the_connections_of_their_threads_shards() {
    within(60, || {
        let world = World::sharded(&[("server", 2), ("client", 1)], Placement::Adaptive);
        let (server, client) = (world.attach("server"), world.attach("client"));
        let listeners = at_one_port(&world, &server);
        let to = listeners[0].local_addr().unwrap();
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

/// A thread that had not looked at the link for a while took what was ready, looked, and took it
/// again.
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

/// A poll waits for one shard, and another thread registers a socket of another one.
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
