//! Bounds are reached: errors that say so, and nothing else.

use std::io::Write;

use rustix::io::Errno;
use toehold_node::Placement;
use toehold_socket::{Events, Interest, Node, Poll, TcpListener, TcpStream, Token, Waker};

use crate::processes::{Part, Process};
use crate::programs::echo_once;
use crate::support::{World, assert_empty, eventually, fabric, serve_echoes, status, within};

/// Makes things until one is refused, for want of room.
fn exhaust<T>(what: &str, bound: usize, mut make: impl FnMut() -> std::io::Result<T>) -> Vec<T> {
    let mut made = Vec::new();
    let error = loop {
        match make() {
            Ok(thing) => made.push(thing),
            Err(error) => break error,
        }
        assert!(made.len() <= bound, "more than {bound} {what}");
    };
    assert_eq!(
        Errno::from_io_error(&error),
        Some(Errno::NOBUFS),
        "{what}: {error}"
    );
    println!("{} {what}", made.len());
    made
}

#[test]
fn as_many_polls_and_connections_as_there_may_be() {
    within(300, || {
        let world = World::new(&["server", "busy"], Placement::Adaptive);
        let peer = serve_echoes(&world.attach("server"), world.address(0));
        let node = world.attach("busy");
        let polls = exhaust("polls", 1 << 14, || Poll::new(&node));
        echo_once(&node, peer);
        drop(polls);
        // No host has this address, so attempts last.
        let [a, b, c, _] = world.address(0).octets();
        let nobody = ([a, b, c, 250], 7).into();
        let streams = exhaust("connections", 4096, || {
            TcpStream::connect_nonblocking(&node, &nobody)
        });
        assert!(streams.len() > 4000);
        drop((streams, node));
        assert_empty(world.path(), "busy");
        echo_once(&world.attach("busy"), peer);
    });
}

#[test]
fn a_program_without_descriptors_is_told_so() {
    within(120, || {
        let world = World::new(&["server", "busy"], Placement::Adaptive);
        let peer = serve_echoes(&world.attach("server"), world.address(0));
        let process = Process::start(Part {
            role: "starved",
            fabric: world.path(),
            node: "busy",
            peer: Some(peer),
            seed: 0,
        });
        process.says("done");
        assert!(process.succeeds());
        assert_empty(world.path(), "busy");
    });
}

#[test]
fn as_many_processes_as_there_may_be() {
    within(300, || {
        let world = World::new(&["server"], Placement::Adaptive);
        let path = world.path();
        let peer = serve_echoes(&world.attach("server"), world.address(0));
        let engine = Process::start(Part {
            role: "engine",
            fabric: path,
            node: "busy",
            peer: None,
            seed: 0,
        });
        // The engine of a test may have fewer descriptors than one of its own.
        let mut nodes = Vec::new();
        let error = loop {
            match Node::attach(&fabric(path), "busy") {
                Ok(node) => nodes.push(node),
                Err(error) => break error,
            }
            assert!(nodes.len() < 5000);
        };
        println!("{} attached: {error}", nodes.len());
        assert!(nodes.len() > 10, "{error}");
        let last = nodes.pop().unwrap();
        drop(nodes);
        echo_once(&last, peer);
        drop(last);
        assert_empty(path, "busy");
        drop(engine);
    });
}

/// Wakers and registrations share their room with the threads that wait. A thread that gets no room
/// looks again and again instead.
#[test]
fn as_many_wakers_and_registrations_as_there_may_be() {
    within(300, || {
        let world = World::new(&["server", "busy"], Placement::Adaptive);
        let peer = serve_echoes(&world.attach("server"), world.address(0));
        let node = world.attach("busy");
        let mut poll = Poll::new(&node).unwrap();
        let stream = TcpStream::connect(&node, peer).unwrap();
        let wakers = exhaust("wakers", 1 << 15, || Waker::new(poll.registry(), Token(0)));
        let register = || poll.registry().register(&stream, Token(1), Interest::WRITABLE);
        let refused = register().unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::NOBUFS));
        echo_once(&node, peer);
        wakers[0].wake().unwrap();
        let mut events = Events::with_capacity(8);
        poll.poll(&mut events, None).unwrap();
        assert_eq!(
            events.iter().map(|event| event.token()).collect::<Vec<_>>(),
            [Token(0)]
        );
        drop(wakers);
        poll.registry()
            .register(&stream, Token(1), Interest::WRITABLE)
            .unwrap();
        poll.poll(&mut events, None).unwrap();
        assert_eq!(
            events.iter().map(|event| event.token()).collect::<Vec<_>>(),
            [Token(1)]
        );
        drop((stream, poll, node));
        assert_empty(world.path(), "busy");
    });
}

/// Threads of a node that can be told to wake up.
const WAITERS: usize = 1 << 12;

/// Threads beyond the bound look again and again, and get what they wait for like the others. All
/// are woken at once. Where other tests run as well, the thread with the lease may not get a
/// processor for a long time. The engine then takes the node to be lost.
#[test]
#[ignore = "slow: four thousand threads want the processors at once, and need them for themselves"]
fn more_threads_wait_than_can_rest() {
    within(300, || {
        let world = World::new(&["server", "busy"], Placement::Adaptive);
        let (server, node) = (world.attach("server"), world.attach("busy"));
        let listener = TcpListener::bind(&server, (world.address(0), 0)).unwrap();
        let stream = TcpStream::connect(&node, listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        std::thread::scope(|scope| {
            let wait = || assert_eq!(stream.peek(&mut [0]).unwrap(), 1);
            for _ in 0..WAITERS + 20 {
                let thread = std::thread::Builder::new().stack_size(64 << 10);
                thread.spawn_scoped(scope, wait).unwrap();
            }
            eventually("not all rest that can", || {
                let waiters = status(world.path(), "busy").stack.waiters;
                // One of them drives now and then.
                (waiters as usize + 1 >= WAITERS).then_some(()).ok_or(waiters)
            });
            peer.write_all(&[7]).unwrap();
        });
        drop((stream, peer));
        echo_once(&node, serve_echoes(&server, world.address(0)));
        drop(node);
        assert_empty(world.path(), "busy");
    });
}
