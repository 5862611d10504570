//! A peer that is a bare socket. It sends arbitrary datagrams for a test.

use std::net::UdpSocket;

use zerocopy::IntoBytes;

use super::*;
use crate::udp::header::{Envelope, HELLO_LEN, Hello, Kind, Record};
use crate::udp::outbox::lead;
use crate::udp::seal::Seal;

pub(super) struct FakePeer {
    pub(super) socket: UdpSocket,
    pub(super) link: Vec<UdpLink>,
    pub(super) envelope: Envelope,
    seal: Option<Seal>,
}

impl FakePeer {
    /// Creates a peer of a link with this key.
    pub(super) fn new(key: Option<[u8; 32]>) -> FakePeer {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut link = lone(1, |settings| settings.key = key);
        link.add_peer(socket.local_addr().unwrap()).unwrap();
        socket.connect(link.local_address().unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let sealed = key.is_some();
        FakePeer {
            socket,
            link: vec![link],
            envelope: Envelope {
                kind: Kind::Hello,
                sealed,
                fabric: 0,
                token: 0,
                sequence: 0,
                sender: 77,
            },
            seal: key.as_ref().map(Seal::new),
        }
    }

    /// Returns a datagram with this body.
    pub(super) fn datagram(&self, envelope: &Envelope, body: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0; lead(envelope.sealed)];
        datagram.extend_from_slice(body);
        envelope.emit(&mut datagram);
        if let Some(seal) = &self.seal {
            seal.close(&mut datagram);
        }
        datagram
    }

    pub(super) fn send(&self, datagram: &[u8]) {
        self.socket.send(datagram).unwrap();
    }

    /// Sends a datagram and drives the link until `done` returns true.
    pub(super) fn send_until(
        &mut self,
        datagram: &[u8],
        done: impl Fn(&UdpStatistics) -> bool,
    ) -> Vec<Vec<u8>> {
        self.send(datagram);
        let arrived = until(&mut self.link, 0, |links, _| done(&links[0].statistics()));
        arrived.into_iter().flatten().map(|(frame, _)| frame).collect()
    }

    pub(super) fn frames(&self, frames: &[Vec<u8>]) -> Vec<u8> {
        let mut body = Vec::new();
        for frame in frames {
            Record {
                fragment: None,
                checksum: crate::Checksum::Complete,
                len: frame.len(),
            }
            .emit(&mut body);
            body.extend_from_slice(frame);
        }
        body
    }

    /// Returns the next hello of the link.
    fn hello(&self) -> (Envelope, Hello) {
        loop {
            let mut datagram = [0; 2000];
            let len = self.socket.recv(&mut datagram).unwrap();
            let (envelope, _) = Envelope::parse(&datagram[..len]).unwrap();
            if envelope.kind == Kind::Hello {
                let body = &datagram[lead(envelope.sealed)..len];
                assert_eq!(body.len(), HELLO_LEN);
                return (envelope, Hello::parse(body).unwrap());
            }
        }
    }

    /// Introduces itself as another life, with a token of its own for the link to
    /// use.
    pub(super) fn connect(&mut self, ours: u64) {
        let before = self.link[0].peers().next().unwrap().statistics.introductions;
        let stranger = Envelope {
            kind: Kind::Hello,
            token: 0,
            sequence: 0,
            sender: self.envelope.sender + 1,
            ..self.envelope
        };
        let hello = Hello::new(ours, address(2), true);
        self.send(&self.datagram(&stranger, hello.as_bytes()));
        let theirs = loop {
            until(&mut self.link, 0, |_, _| true);
            self.socket.set_nonblocking(true).unwrap();
            let waiting = self.socket.peek(&mut [0; 10]).is_ok();
            self.socket.set_nonblocking(false).unwrap();
            if waiting {
                let (envelope, hello) = self.hello();
                if envelope.token == ours {
                    break hello.token();
                }
            }
        };
        self.envelope = Envelope {
            token: theirs,
            ..stranger
        };
        let answer = Hello::new(ours, address(2), false);
        self.send(&self.datagram(&self.envelope, answer.as_bytes()));
        until(&mut self.link, 0, |links, _| {
            links[0].peers().next().unwrap().statistics.introductions == before + 1
        });
        self.envelope = Envelope {
            kind: Kind::Frames,
            sequence: 1,
            ..self.envelope
        };
    }
}
