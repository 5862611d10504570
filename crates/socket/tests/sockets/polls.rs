//! Waiting for many.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use toehold_socket::{Events, Interest, Node, Poll, TcpListener, TcpStream, Token, Waker};

use crate::support::{connect, pair, pattern, stepwise_pair, within};

fn tokens(events: &Events) -> Vec<usize> {
    events.iter().map(|event| event.token().0).collect()
}

#[test]
fn a_hundred_connections() {
    within(60, || {
        let nodes = pair();
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let node = nodes[0].clone();
        let server = std::thread::spawn(move || serve(&node, &listener, 100));
        let mut clients: Vec<_> = (0..100)
            .map(|_| TcpStream::connect(&nodes[1], addr).unwrap())
            .collect();
        for round in 0..3 {
            for (name, client) in clients.iter_mut().enumerate() {
                client.write_all(&[name as u8, round]).unwrap();
            }
            for (name, client) in clients.iter_mut().enumerate() {
                let mut answer = [0; 2];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(answer, [name as u8, round]);
            }
        }
        drop(clients);
        drop(nodes);
        assert_eq!(server.join().unwrap(), 100 * 3 * 2);
    });
}

/// Echoes until all of `count` connections have come and gone; one thread.
fn serve(node: &Node, listener: &TcpListener, count: usize) -> usize {
    const LISTENER: Token = Token(usize::MAX);
    let mut poll = Poll::new(node).unwrap();
    let mut events = Events::with_capacity(16);
    listener.set_nonblocking(true).unwrap();
    poll.registry()
        .register(listener, LISTENER, Interest::READABLE)
        .unwrap();
    let mut streams: Vec<Option<TcpStream>> = Vec::new();
    let (mut open, mut echoed) = (0, 0);
    while streams.len() < count || open > 0 {
        poll.poll(&mut events, Some(Duration::from_secs(20))).unwrap();
        assert!(!events.is_empty(), "{open} open of {}", streams.len());
        for event in &events {
            if event.token() == LISTENER {
                let Ok((stream, _)) = listener.accept() else {
                    continue;
                };
                stream.set_nonblocking(true).unwrap();
                poll.registry()
                    .register(&stream, Token(streams.len()), Interest::READABLE)
                    .unwrap();
                streams.push(Some(stream));
                open += 1;
                continue;
            }
            let stream = &mut streams[event.token().0];
            let mut buf = [0; 8];
            match stream.as_mut().unwrap().read(&mut buf) {
                Ok(0) => {
                    *stream = None;
                    open -= 1;
                }
                Ok(len) => {
                    stream.as_mut().unwrap().write_all(&buf[..len]).unwrap();
                    echoed += len;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
    }
    echoed
}

#[test]
fn readiness_is_a_level() {
    within(20, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        let mut poll = Poll::new(&nodes[0]).unwrap();
        let mut events = Events::with_capacity(8);
        poll.registry()
            .register(&server, Token(3), Interest::READABLE | Interest::READ_CLOSED)
            .unwrap();
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty());
        client.write_all(b"abc").unwrap();
        for _ in 0..3 {
            poll.poll(&mut events, None).unwrap();
            assert_eq!(tokens(&events), [3]);
            assert!(
                events
                    .iter()
                    .all(|event| event.is_readable() && !event.is_writable())
            );
        }
        server.read_exact(&mut [0; 2]).unwrap();
        poll.poll(&mut events, None).unwrap();
        assert_eq!(tokens(&events), [3]);
        server.read_exact(&mut [0; 1]).unwrap();
        let before = Instant::now();
        poll.poll(&mut events, Some(Duration::from_millis(20))).unwrap();
        assert!(events.is_empty());
        assert!(before.elapsed() >= Duration::from_millis(20));
        drop(client);
        poll.poll(&mut events, None).unwrap();
        assert!(
            events
                .iter()
                .all(|event| event.is_readable() && event.is_read_closed())
        );
        assert_eq!(tokens(&events), [3]);
    });
}

#[test]
fn writable_until_full_and_again_when_there_is_room() {
    within(30, || {
        let nodes = stepwise_pair();
        let (mut client, mut server) = connect(&nodes);
        client.set_nonblocking(true).unwrap();
        let mut poll = Poll::new(&nodes[1]).unwrap();
        let mut events = Events::with_capacity(8);
        poll.registry()
            .register(&client, Token(1), Interest::WRITABLE | Interest::READABLE)
            .unwrap();
        poll.poll(&mut events, None).unwrap();
        assert!(
            events
                .iter()
                .all(|event| event.is_writable() && !event.is_readable())
        );
        assert_eq!(tokens(&events), [1]);
        let data = pattern(1 << 18);
        let mut written = 0;
        while let Ok(len) = client.write(&data) {
            written += len;
        }
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut got = vec![0; written];
                server.read_exact(&mut got).unwrap();
            });
            poll.poll(&mut events, Some(Duration::from_secs(10))).unwrap();
            assert_eq!(tokens(&events), [1]);
            assert!(client.write(b"more").is_ok());
            // The reader may need what this side still has to send.
            client.set_nonblocking(false).unwrap();
            while client.unacknowledged_bytes().unwrap() > 4 {
                nodes[1].drive(Some(Duration::from_millis(1))).unwrap();
            }
        });
    });
}

#[test]
fn the_end_of_a_connection_attempt_is_told() {
    within(20, || {
        let nodes = pair();
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
        let good = TcpStream::connect_nonblocking(&nodes[1], &listener.local_addr().unwrap()).unwrap();
        let bad = TcpStream::connect_nonblocking(&nodes[1], &"10.0.0.1:9".parse().unwrap()).unwrap();
        let mut poll = Poll::new(&nodes[1]).unwrap();
        let mut events = Events::with_capacity(8);
        poll.registry()
            .register(&good, Token(1), Interest::WRITABLE)
            .unwrap();
        poll.registry()
            .register(&bad, Token(2), Interest::WRITABLE)
            .unwrap();
        let mut seen = HashSet::new();
        while seen.len() < 2 {
            nodes[0].drive(Some(Duration::ZERO)).unwrap();
            poll.poll(&mut events, Some(Duration::from_millis(1))).unwrap();
            for event in &events {
                assert!(event.is_writable());
                assert_eq!(event.is_error(), event.token() == Token(2));
                seen.insert(event.token());
            }
        }
        assert!(good.take_error().unwrap().is_none());
        assert_eq!(
            bad.take_error().unwrap().unwrap().kind(),
            ErrorKind::ConnectionRefused
        );
    });
}

#[test]
fn urgent_data_are_a_priority() {
    within(20, || {
        let nodes = pair();
        let (client, server) = connect(&nodes);
        let mut poll = Poll::new(&nodes[0]).unwrap();
        let mut events = Events::with_capacity(8);
        poll.registry()
            .register(&server, Token(1), Interest::PRIORITY)
            .unwrap();
        (&mut &client).write_all(b"plain").unwrap();
        poll.poll(&mut events, Some(Duration::from_millis(5))).unwrap();
        assert!(events.is_empty());
        client.send_out_of_band(b"!").unwrap();
        poll.poll(&mut events, None).unwrap();
        assert!(events.iter().all(|event| event.is_priority()));
        assert_eq!(tokens(&events), [1]);
    });
}

#[test]
fn more_are_ready_than_there_is_room_for() {
    within(20, || {
        let nodes = stepwise_pair();
        let mut poll = Poll::new(&nodes[0]).unwrap();
        let streams: Vec<_> = (0..10).map(|_| connect(&nodes)).collect();
        for (name, (client, server)) in streams.iter().enumerate() {
            poll.registry()
                .register(server, Token(name), Interest::READABLE)
                .unwrap();
            (&mut &*client).write_all(b"x").unwrap();
        }
        let mut events = Events::with_capacity(3);
        let mut seen = HashSet::new();
        for _ in 0..5 {
            poll.poll(&mut events, Some(Duration::from_millis(100))).unwrap();
            seen.extend(tokens(&events));
        }
        assert_eq!(seen.len(), 10, "everyone gets a turn");
        let none = poll.poll(&mut Events::with_capacity(0), None).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn registrations_change_and_end() {
    within(20, || {
        let nodes = pair();
        let (mut client, server) = connect(&nodes);
        let mut poll = Poll::new(&nodes[0]).unwrap();
        let mut events = Events::with_capacity(8);
        let registry = poll.registry().clone();
        assert_eq!(
            registry.deregister(&server).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        assert_eq!(
            registry
                .reregister(&server, Token(1), Interest::READABLE)
                .unwrap_err()
                .kind(),
            ErrorKind::NotFound
        );
        registry.register(&server, Token(1), Interest::WRITABLE).unwrap();
        let twice = registry
            .register(&server, Token(2), Interest::READABLE)
            .unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::AlreadyExists);
        let foreign = registry
            .register(&client, Token(1), Interest::READABLE)
            .unwrap_err();
        assert_eq!(foreign.kind(), ErrorKind::InvalidInput);
        client.write_all(b"x").unwrap();
        registry
            .reregister(&server, Token(7), Interest::READABLE)
            .unwrap();
        poll.poll(&mut events, None).unwrap();
        assert_eq!(tokens(&events), [7]);
        assert!(events.iter().all(|event| !event.is_writable()));
        registry.deregister(&server).unwrap();
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty());
        // A stream that is dropped leaves by itself, though its bytes wait.
        registry.register(&server, Token(9), Interest::READABLE).unwrap();
        drop(server);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty());
    });
}

#[test]
fn two_polls_may_watch_one_stream() {
    within(20, || {
        let nodes = pair();
        let (mut client, server) = connect(&nodes);
        let mut polls = [Poll::new(&nodes[0]).unwrap(), Poll::new(&nodes[0]).unwrap()];
        for poll in &polls {
            poll.registry()
                .register(&server, Token(4), Interest::READABLE)
                .unwrap();
        }
        client.write_all(b"x").unwrap();
        let mut events = Events::with_capacity(8);
        for poll in &mut polls {
            poll.poll(&mut events, None).unwrap();
            assert_eq!(tokens(&events), [4]);
        }
    });
}

#[test]
fn a_waker_wakes() {
    within(20, || {
        let nodes = pair();
        let mut poll = Poll::new(&nodes[0]).unwrap();
        let waker = Waker::new(poll.registry(), Token(5)).unwrap();
        let mut events = Events::with_capacity(8);
        for pause in [0, 1, 0, 3] {
            let other = std::thread::spawn({
                let waker = waker.clone();
                move || {
                    std::thread::sleep(Duration::from_millis(pause));
                    waker.wake().unwrap();
                }
            });
            poll.poll(&mut events, None).unwrap();
            assert_eq!(tokens(&events), [5]);
            other.join().unwrap();
        }
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty());
    });
}

/// A call that reads more than has come goes on with what the link has. The bytes are those that
/// come next, and the end and errors are told after them.
#[test]
fn a_poll_has_a_long_stream_whole_by_long_reads() {
    for resets in [false, true] {
        within(60, move || {
            let nodes = pair();
            let (mut client, server) = connect(&nodes);
            let data = pattern(24 << 20);
            let sent = data.clone();
            let writer = std::thread::spawn(move || {
                client.write_all(&sent).unwrap();
                if resets {
                    client.set_linger(Some(Duration::ZERO)).unwrap();
                    // What is not read by then would be lost.
                    client.read_exact(&mut [0]).unwrap();
                }
            });
            server.set_nonblocking(true).unwrap();
            let mut poll = Poll::new(&nodes[0]).unwrap();
            poll.registry()
                .register(&server, Token(0), Interest::READABLE)
                .unwrap();
            let (mut got, mut events) = (Vec::new(), Events::with_capacity(1));
            let mut buffer = vec![0; 300 << 10];
            let end = loop {
                poll.poll(&mut events, None).unwrap();
                let room = 1 + got.len() * 7 % buffer.len();
                match (&server).read(&mut buffer[..room]) {
                    Ok(0) => break None,
                    Ok(len) => {
                        got.extend_from_slice(&buffer[..len]);
                        if resets && got.len() == data.len() {
                            (&server).write_all(b"!").unwrap();
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => break Some(error.kind()),
                }
            };
            assert!(got == data, "{} of {} bytes, or others", got.len(), data.len());
            assert_eq!(end, resets.then_some(ErrorKind::ConnectionReset));
            writer.join().unwrap();
        });
    }
}
