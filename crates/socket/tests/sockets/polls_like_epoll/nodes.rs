//! Sockets of two nodes, and a poll for each of them.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use toehold_socket::{Events, Interest, Node, Poll, Registry, TcpListener, TcpStream, Token};

use super::{Bits, CONNECTIONS, End, LISTENER, Told, World};
use crate::support::inline_pair;

pub(super) struct Nodes {
    /// Of the server, of the clients.
    nodes: [Node; 2],
    polls: [Poll; 2],
    listener: TcpListener,
    ends: [Option<TcpStream>; 2 * CONNECTIONS],
    connections: usize,
    accepted: usize,
}

impl Nodes {
    pub(super) fn new() -> Nodes {
        let nodes = inline_pair();
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Nodes {
            polls: nodes.each_ref().map(|node| Poll::new(node).unwrap()),
            listener,
            nodes,
            ends: Default::default(),
            connections: 0,
            accepted: 0,
        }
    }

    fn registry(&self, token: u64) -> &Registry {
        let client = token != LISTENER && token.is_multiple_of(2);
        self.polls[usize::from(client)].registry()
    }
}

impl World for Nodes {
    fn connect(&mut self) {
        let addr = self.listener.local_addr().unwrap();
        let stream = TcpStream::connect_nonblocking(&self.nodes[1], &addr).unwrap();
        stream.set_nodelay(true).unwrap();
        self.ends[2 * self.connections] = Some(stream);
        self.connections += 1;
        self.settle();
    }

    fn accept(&mut self) -> bool {
        let Ok((stream, _)) = self.listener.accept() else {
            return false;
        };
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        self.ends[2 * self.accepted + 1] = Some(stream);
        self.accepted += 1;
        true
    }

    fn write(&mut self, end: End, len: usize) -> usize {
        self.ends[end].as_mut().unwrap().write(&vec![7; len]).unwrap_or(0)
    }

    fn read(&mut self, end: End, len: usize) -> usize {
        self.ends[end]
            .as_mut()
            .unwrap()
            .read(&mut vec![0; len])
            .unwrap_or(0)
    }

    fn shutdown(&mut self, end: End) {
        let _ = self.ends[end].as_ref().unwrap().shutdown(Shutdown::Write);
    }

    fn close(&mut self, end: End) {
        self.ends[end] = None;
    }

    fn watch(&mut self, token: u64, interest: Interest) {
        let (registry, name) = (self.registry(token), Token(token as usize));
        if token == LISTENER {
            let source = &self.listener;
            if registry.register(source, name, interest).is_err() {
                registry.reregister(source, name, interest).unwrap();
            }
        } else {
            let source = self.ends[token as End].as_ref().unwrap();
            if registry.register(source, name, interest).is_err() {
                registry.reregister(source, name, interest).unwrap();
            }
        }
    }

    fn unwatch(&mut self, token: u64) {
        let registry = self.registry(token);
        match token {
            LISTENER => registry.deregister(&self.listener).unwrap(),
            end => registry
                .deregister(self.ends[end as End].as_ref().unwrap())
                .unwrap(),
        }
    }

    fn wait(&mut self, told: &mut Told) {
        let mut events = Events::with_capacity(64);
        for poll in &mut self.polls {
            poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
            for event in &events {
                let bits = Bits([
                    event.is_readable(),
                    event.is_writable(),
                    event.is_read_closed(),
                    event.is_write_closed(),
                    event.is_error(),
                ]);
                let before = told.insert(event.token().0 as u64, bits);
                assert_eq!(before, None, "told twice at once");
            }
        }
    }

    fn settle(&mut self) {
        let mut idle = 0;
        while idle < 2 {
            let moved = self
                .nodes
                .each_ref()
                .map(|node| node.drive(Some(Duration::ZERO)).unwrap());
            idle = if moved == [false; 2] { idle + 1 } else { 0 };
        }
    }
}
