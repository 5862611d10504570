//! A stack's state is the same at every address: connections made through one mapping of its region
//! continue through another.

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;

use toehold_link::{Capabilities, MIN_PRIVATE, Offload, Received, Transmit, TransmitError, Transmitter};
use toehold_shm::{Access, Carver, Gather, Region};
use toehold_stack::{
    Config, ConnectionId, Instant, ReceiveFlags, SendFlags, Shutdown, SocketError, Stack, State,
};

const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];

/// Bytes in each direction.
const STREAM: usize = 300_000;

/// Frames in flight, as the link carries them.
#[derive(Default)]
struct Wire(VecDeque<(Vec<u8>, Offload)>);

impl Transmitter for Wire {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let mut bytes = frame.headers.to_vec();
        let at = bytes.len();
        bytes.resize(frame.len(), 0);
        frame.payload.copy_to(0, &mut bytes[at..]);
        self.0.push_back((bytes, frame.offload));
        Ok(())
    }
}

/// One node's stack, through two mappings of the same memory. Only one of them is used at a time,
/// as under a lease.
struct Node {
    views: [Stack; 2],
    turn: usize,
    outgoing: Wire,
}

impl Node {
    fn new(host: usize) -> Self {
        let config = Config {
            ipv4: Some((HOSTS[host], 8)),
            ethernet: false,
            link: Capabilities {
                mtu: 1500,
                super_frame: if host == 0 { 65_535 } else { 1500 },
                checksum_offload: host == 0,
                local: true,
                any_thread: true,
            },
            secret: [host as u8; 16],
            connections: 64,
            listeners: 4,
            payload_blocks: 256,
            payload_block_len: 4096,
            ..Config::default()
        };
        let region = Region::create("position", Stack::region_len(&config)).expect("memory");
        let descriptor = region
            .fd()
            .expect("created with one")
            .try_clone_to_owned()
            .expect("a descriptor");
        let second = Region::open(descriptor, Access::ReadWrite).expect("the same memory");
        assert_ne!(region.base(), second.base(), "mapped at two addresses");
        let first = Stack::create(&mut Carver::new(region).expect("fresh"), &config).expect("room");
        // SAFETY: `second` stays mapped for both stacks' lives, and this one thread uses the two
        // views in turn.
        let mut carver = unsafe { Carver::attach(second) };
        let second = Stack::create(&mut carver, &config).expect("the same pieces");
        Self {
            views: [first, second],
            turn: 0,
            outgoing: Wire::default(),
        }
    }

    fn stack(&mut self) -> &mut Stack {
        &mut self.views[self.turn]
    }

    /// One round of a driver, through the mapping whose turn it is.
    fn round(&mut self, now: Instant, incoming: &mut Wire) {
        self.turn = 1 - self.turn;
        let stack = &mut self.views[self.turn];
        if stack.poll_timeout().is_some_and(|deadline| deadline <= now) {
            stack.handle_timeout(now);
        }
        for (bytes, offload) in incoming.0.drain(..) {
            let (private, rest) = bytes.split_at(bytes.len().min(MIN_PRIVATE));
            let rest = Gather::from_slice(rest);
            stack.handle_frame(
                now,
                &Received {
                    private,
                    rest,
                    offload,
                },
            );
        }
        stack.poll_transmit(now, &mut self.outgoing);
        while stack.next_event().is_some() {}
    }
}

fn byte(seed: usize, at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 7) as u8 ^ (seed * 91) as u8
}

/// A program's end of a connection, through the mapping whose turn it is.
struct End {
    connection: ConnectionId,
    seed: usize,
    sent: usize,
    received: usize,
    ended: bool,
}

impl End {
    fn new(connection: ConnectionId, seed: usize) -> Self {
        Self {
            connection,
            seed,
            sent: 0,
            received: 0,
            ended: false,
        }
    }

    fn run(&mut self, now: Instant, stack: &mut Stack) {
        while self.sent < STREAM {
            let bytes: Vec<u8> = (self.sent..STREAM.min(self.sent + 3000))
                .map(|at| byte(self.seed, at))
                .collect();
            match stack.send(self.connection, &bytes, SendFlags::default()) {
                Ok(taken) => self.sent += taken,
                Err(SocketError::WouldBlock | SocketError::InProgress) => break,
                Err(error) => panic!("{error}"),
            }
            if self.sent == STREAM {
                stack
                    .shutdown(now, self.connection, Shutdown::Write)
                    .expect("connected");
            }
        }
        let mut buffer = [0; 5000];
        while !self.ended {
            match stack.receive(self.connection, &mut buffer, ReceiveFlags::default()) {
                Ok(0) => self.ended = true,
                Ok(len) => {
                    let same = |(i, &found): (usize, &u8)| found == byte(1 - self.seed, self.received + i);
                    assert!(
                        buffer[..len].iter().enumerate().all(same),
                        "after {} bytes",
                        self.received
                    );
                    self.received += len;
                }
                Err(SocketError::WouldBlock | SocketError::InProgress) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn connection_continues_through_another_mapping() {
    let mut now = Instant(1_000_000_000);
    let mut nodes = [Node::new(0), Node::new(1)];
    let server = SocketAddr::new(HOSTS[1].into(), 80);
    let settings = nodes[1].stack().default_settings();
    let listener = nodes[1]
        .stack()
        .listen(now, server, 4, &settings)
        .expect("a free port");
    let settings = nodes[0].stack().default_settings();
    let client = nodes[0]
        .stack()
        .connect(now, None, server, &settings)
        .expect("an attempt");
    let mut ends = [Some(End::new(client, 0)), None];
    for round in 0..100_000 {
        let [a, b] = &mut nodes;
        a.round(now, &mut b.outgoing);
        b.round(now, &mut a.outgoing);
        if round % 50 == 49 {
            // A burst is lost now and then, so that repair crosses mappings too.
            a.outgoing.0.clear();
        }
        if ends[1].is_none() {
            ends[1] = nodes[1].stack().accept(listener).ok().map(|id| End::new(id, 1));
        }
        for (end, node) in ends.iter_mut().zip(&mut nodes) {
            if let Some(end) = end {
                end.run(now, node.stack());
            }
        }
        if ends.iter().all(|end| end.as_ref().is_some_and(|end| end.ended)) {
            break;
        }
        now = now + Duration::from_micros(700);
    }
    for (end, node) in ends.iter().zip(&mut nodes) {
        let end = end.as_ref().expect("connected");
        assert_eq!((end.sent, end.received, end.ended), (STREAM, STREAM, true));
        node.stack().close(now, end.connection).expect("held");
    }
    for _ in 0..1000 {
        now = now + Duration::from_millis(500);
        let [a, b] = &mut nodes;
        a.round(now, &mut b.outgoing);
        b.round(now, &mut a.outgoing);
    }
    for node in &nodes {
        for view in &node.views {
            assert_eq!(view.connections(), 0);
            assert_eq!(view.payload_blocks_used(), 0);
            assert!(view.counters().tcp_retransmits > 0 || view.counters().tcp_segments_received > 0);
        }
    }
}

#[test]
fn ids_are_equal_in_both_mappings() {
    let now = Instant(1_000_000_000);
    let mut node = Node::new(0);
    let settings = node.stack().default_settings();
    let local = SocketAddr::new(HOSTS[0].into(), 80);
    let listener = node.views[0]
        .listen(now, local, 4, &settings)
        .expect("a free port");
    assert_eq!(node.views[1].listener_addr(listener), Ok(local));
    assert_eq!(
        node.views[1].listen(now, local, 4, &settings),
        Err(SocketError::AddressInUse)
    );
    let remote = SocketAddr::new(HOSTS[1].into(), 81);
    let connection = node.views[1]
        .connect(now, None, remote, &settings)
        .expect("an attempt");
    assert_eq!(node.views[0].state(connection), Ok(State::SynSent));
    node.views[0].abort(connection).expect("held");
    assert_eq!(node.views[1].state(connection), Err(SocketError::NotFound));
    node.views[1].close_listener(listener).expect("open");
    assert_eq!(node.views[0].listener_addr(listener), Err(SocketError::NotFound));
}
