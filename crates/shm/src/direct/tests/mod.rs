//! Tests of direct connections on real memory: two nodes in one process.

mod ending;
mod hostile;
mod lifecycle;
mod memory;
mod neighbours;
mod property;
mod stream;
mod stress;
mod upkeep;
mod waiting;

use std::io::{IoSlice, IoSliceMut};

use super::*;

/// One node, with a thread and a waiter of it.
struct Node {
    waiters: Waiters,
    thread: ThreadNumber,
    waiter: WaiterNumber,
}

impl Node {
    fn new() -> Node {
        let directory = Directory::create("toehold-test", 1).unwrap();
        let journal = Journal::create("toehold-test", 2).unwrap();
        Node::of(Waiters::new(directory, journal))
    }

    fn of(waiters: Waiters) -> Node {
        Node {
            thread: waiters.journal().claim(1).unwrap(),
            waiter: waiters.claim(1, WaiterKind::Thread).unwrap(),
            waiters,
        }
    }

    fn peer_directory(&self) -> PeerDirectory {
        PeerDirectory::open(self.waiters.directory().read_only_fd().unwrap()).unwrap()
    }
}

/// A bank between two nodes, each side with the mappings that its node has.
struct Pair {
    client: Node,
    server: Node,
    opening: Bank,
    accepting: Bank,
    found: Found,
}

const BOUND: u64 = 64 << 20;

impl Pair {
    fn new() -> Pair {
        Pair::within(BOUND, Class::M4)
    }

    fn within(payload_bound: u64, class_limit: Class) -> Pair {
        Pair::between(Node::new(), Node::new(), payload_bound, class_limit)
    }

    fn between(client: Node, server: Node, payload_bound: u64, class_limit: Class) -> Pair {
        let halves = [1, 2].map(|incarnation| Half::create("toehold-test", incarnation).unwrap());
        let signals = [1, 2].map(|incarnation| Signals::create("toehold-test", incarnation).unwrap());
        let bank = |side: Side, node: &Node, peer: &Node| {
            let (ours, theirs) = (side as usize, 1 - side as usize);
            let open = |signals: &Signals| Signals::open(signals.fd().try_clone_to_owned().unwrap());
            Bank {
                number: 0,
                side,
                half: halves[ours].clone(),
                peer: PeerHalf::open(halves[theirs].read_only_fd().unwrap()).unwrap(),
                ends: Ends::create("toehold-test", 3).unwrap(),
                signals: open(&signals[ours]).unwrap(),
                peer_signals: open(&signals[theirs]).unwrap(),
                waiters: node.waiters.clone(),
                peer_directory: peer.peer_directory(),
                class_limit,
                payload_bound,
                ring_descriptor: Box::new(|_| ()),
                recorder: None,
            }
        };
        let opening = bank(Side::Opening, &client, &server);
        let accepting = bank(Side::Accepting, &server, &client);
        let address = "10.0.0.2:80".parse().unwrap();
        let listing = Listing {
            address,
            backlog: 4095,
            group: 0,
            options: 0,
            window: 1 << 20,
        };
        server.waiters.directory().publish(&listing).unwrap();
        let found = opening.peer_directory.find(address, 0).unwrap();
        Pair {
            client,
            server,
            opening,
            accepting,
            found,
        }
    }

    fn beginning(&self, generation: u32, side: Side, window: u64) -> Beginning {
        let addresses = ["10.0.0.1:4000", "10.0.0.2:80"].map(|address| address.parse().unwrap());
        let (ours, theirs) = (side as usize, 1 - side as usize);
        Beginning {
            record: Record {
                generation,
                local: addresses[ours],
                remote: addresses[theirs],
                listener: (side == Side::Opening).then_some(self.found.listener),
                options: 0,
                iss: 1,
                opened_ns: 0,
            },
            window,
        }
    }

    /// A connection that is not offered yet.
    fn begin(&self, window: u64) -> End<'_> {
        let ConnectionId { number, generation } = self.opening.ends.reserve(1).unwrap();
        let beginning = self.beginning(generation, Side::Opening, window);
        self.opening
            .begin(self.client.thread, number, &beginning)
            .unwrap()
    }

    fn accept(&self, window: u64) -> Option<End<'_>> {
        let (connection, record) = self.accepting.take(self.found.listener, 1)?;
        assert_eq!(record.remote, self.found.listing.address);
        let beginning = self.beginning(connection.generation, Side::Accepting, window);
        let end = self
            .accepting
            .begin(self.server.thread, connection.number, &beginning);
        Some(end.unwrap())
    }

    /// Both ends of a new connection.
    fn connect(&self) -> (End<'_>, End<'_>) {
        self.connect_with(MOST_WINDOW)
    }

    fn connect_with(&self, window: u64) -> (End<'_>, End<'_>) {
        let client = self.begin(window);
        self.opening.offer(client.id(), &self.found).unwrap();
        (client, self.accept(window).unwrap())
    }

    fn sends(&self, end: &End<'_>, bytes: &[u8]) -> Result<usize, SendError> {
        end.send(self.client.thread, &[IoSlice::new(bytes)])
    }

    fn receives(&self, end: &End<'_>, len: usize) -> Result<Vec<u8>, ReceiveError> {
        receive(end, self.server.thread, len, Take::Remove)
    }
}

fn receive(end: &End<'_>, thread: ThreadNumber, len: usize, take: Take) -> Result<Vec<u8>, ReceiveError> {
    let mut bytes = vec![0; len];
    let received = end.receive(thread, &mut [IoSliceMut::new(&mut bytes)], take, u64::MAX)?;
    bytes.truncate(received);
    Ok(bytes)
}

/// Sends all bytes, and sleeps while there is no room.
fn send_all(bank: &Bank, end: &End<'_>, node: &Node, bytes: &[u8]) -> Result<(), SendError> {
    let mut sent = 0;
    while sent < bytes.len() {
        match end.send(node.thread, &[IoSlice::new(&bytes[sent..])]) {
            Ok(len) => sent += len,
            Err(SendError::Full) => {
                let sleep = bank
                    .waiters
                    .begin_sleep(node.waiter, node.thread, [&bank.signals]);
                let wish = Wish {
                    read: None,
                    edge: false,
                    room: true,
                };
                let look = end.arm(node.thread, node.waiter, wish).unwrap();
                if !look.has_room && !look.is_peer_closed {
                    sleep.wait(None);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives bytes, and sleeps until `low` of them are there.
fn receive_some(
    bank: &Bank,
    end: &End<'_>,
    node: &Node,
    into: &mut [u8],
    low: u64,
) -> Result<usize, ReceiveError> {
    loop {
        match end.receive(node.thread, &mut [IoSliceMut::new(into)], Take::Remove, u64::MAX) {
            Err(ReceiveError::Empty) => {}
            other => return other,
        }
        let sleep = bank
            .waiters
            .begin_sleep(node.waiter, node.thread, [&bank.signals]);
        let wish = Wish {
            read: Some(low),
            edge: false,
            room: false,
        };
        let look = end.arm(node.thread, node.waiter, wish).unwrap();
        if look.readable < low && look.peer == StreamState::Open {
            sleep.wait(None);
        }
    }
}
