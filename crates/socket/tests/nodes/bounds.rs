//! Bounds are reached: errors that say so, and nothing else.

use rustix::io::Errno;
use toehold_node::Placement;
use toehold_socket::{Node, Poll, TcpStream};

use crate::processes::{Part, Process};
use crate::programs::echo_once;
use crate::support::{World, assert_empty, fabric, serve_echoes, within};

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
        // Nobody has this address: attempts that last.
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
