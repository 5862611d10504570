//! Polls that watch polls.

use std::io::{Read, Write};
use std::time::Duration;

use toehold_socket::{Events, Interest, Node, NodeConfig, Poll, Token};

use crate::support::{connect, pair, within};

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// What a poll tells of at once.
fn told(poll: &mut Poll) -> Vec<usize> {
    let mut events = Events::with_capacity(8);
    poll.poll(&mut events, AT_ONCE).unwrap();
    assert!(
        events
            .iter()
            .all(|event| event.is_readable() && !event.is_error())
    );
    events.iter().map(|event| event.token().0).collect()
}

fn watching(node: &Node, inner: &Poll, token: usize, interest: Interest) -> Poll {
    let outer = Poll::new(node).unwrap();
    outer.registry().register(inner, Token(token), interest).unwrap();
    outer
}

#[test]
fn a_poll_is_readable_as_long_as_it_has_something_to_tell() {
    within(20, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        let mut inner = Poll::new(&nodes[0]).unwrap();
        let mut outer = watching(&nodes[0], &inner, 7, Interest::READABLE);
        let mut outermost = watching(&nodes[0], &outer, 8, Interest::READABLE);
        inner
            .registry()
            .register(&server, Token(1), Interest::READABLE)
            .unwrap();
        assert_eq!(told(&mut outermost), [0; 0]);
        client.write_all(b"x").unwrap();
        let mut events = Events::with_capacity(1);
        outermost.poll(&mut events, None).unwrap();
        for _ in 0..2 {
            assert_eq!([told(&mut outermost), told(&mut outer)], [[8], [7]]);
        }
        assert_eq!(told(&mut inner), [1]);
        server.read_exact(&mut [0]).unwrap();
        assert_eq!(told(&mut outermost), [0; 0]);
        client.write_all(b"x").unwrap();
        outermost.poll(&mut events, None).unwrap();
        drop(inner);
        assert_eq!([told(&mut outermost), told(&mut outer)], [[0; 0]; 2]);
    });
}

/// A change is reported as an edge even if the program has not looked at what was there before.
#[test]
fn a_poll_has_an_edge_for_each_change_in_it() {
    within(20, || {
        let nodes = pair();
        let (mut client, server) = connect(&nodes);
        let inner = Poll::new(&nodes[0]).unwrap();
        let mut edges = watching(&nodes[0], &inner, 1, Interest::READABLE | Interest::EDGE);
        let once = Interest::READABLE | Interest::ONE_SHOT;
        let mut once_only = watching(&nodes[0], &inner, 2, once);
        inner
            .registry()
            .register(&server, Token(0), Interest::READABLE)
            .unwrap();
        let mut events = Events::with_capacity(1);
        for _ in 0..2 {
            client.write_all(b"x").unwrap();
            edges.poll(&mut events, None).unwrap();
            assert_eq!(told(&mut edges), [0; 0]);
        }
        assert_eq!(told(&mut once_only), [2]);
        assert_eq!(told(&mut once_only), [0; 0]);
        once_only.registry().reregister(&inner, Token(3), once).unwrap();
        assert_eq!(told(&mut once_only), [3]);
        let twice = edges.registry().register(&inner, Token(1), Interest::READABLE);
        assert_eq!(twice.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
        edges.registry().deregister(&inner).unwrap();
        client.write_all(b"x").unwrap();
        assert_eq!(told(&mut edges), [0; 0]);
    });
}

#[test]
fn a_thread_is_woken_by_a_poll_in_a_poll_in_any_shard() {
    within(60, || {
        let fabric = tempfile::tempdir().unwrap();
        let join = |host: u8| {
            let config = NodeConfig::new(fabric.path(), format!("n{host}"));
            Node::join(config.ipv4([10, 0, 0, host], 24).shards(3)).unwrap()
        };
        let nodes = [join(1), join(2)];
        let inner = Poll::new(&nodes[0]).unwrap();
        let mut outer = watching(&nodes[0], &inner, 7, Interest::READABLE);
        let streams: Vec<_> = (0..6).map(|_| connect(&nodes)).collect();
        for (_, server) in &streams {
            inner
                .registry()
                .register(server, Token(0), Interest::READABLE)
                .unwrap();
        }
        for (client, server) in &streams {
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    let mut events = Events::with_capacity(8);
                    outer.poll(&mut events, None).unwrap();
                    events.iter().all(|event| event.token() == Token(7))
                });
                (&mut &*client).write_all(b"x").unwrap();
                assert!(waits.join().unwrap());
            });
            (&mut &*server).read_exact(&mut [0]).unwrap();
        }
    });
}

/// Polls that watch each other find nothing in the circle, and no end of it neither.
#[test]
fn polls_in_a_circle_tell_of_what_they_watch_besides() {
    within(20, || {
        let nodes = pair();
        let (mut client, server) = connect(&nodes);
        let mut first = Poll::new(&nodes[0]).unwrap();
        let mut second = watching(&nodes[0], &first, 1, Interest::READABLE);
        first
            .registry()
            .register(&second, Token(2), Interest::READABLE)
            .unwrap();
        assert_eq!([told(&mut first), told(&mut second)], [[0; 0]; 2]);
        first
            .registry()
            .register(&server, Token(3), Interest::READABLE)
            .unwrap();
        client.write_all(b"x").unwrap();
        let mut events = Events::with_capacity(1);
        second.poll(&mut events, None).unwrap();
        assert_eq!(told(&mut second), [1]);
    });
}
