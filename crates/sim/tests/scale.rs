//! A hundred thousand connections: the cost of each does not depend on the
//! others. Costs are counted, not timed. The example `connections` measures
//! times.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use toehold_link::Capabilities;
use toehold_sim::host::{BEGINNING, Host};
use toehold_sim::packet::Packet;
use toehold_stack::{Config, ConnectionId, DemuxStrategy, ReceiveFlags, SendFlags, SocketOption, Work};
use toehold_wire::tcp::{Flags, Seq};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);

/// Most bytes of context memory a connection.
const CONTEXT_BYTES: usize = 512;

fn config(connections: u32) -> Config {
    Config {
        ipv4: Some((Ipv4Addr::new(10, 0, 0, 1), 8)),
        ethernet: false,
        link: Capabilities {
            mtu: 1500,
            super_frame: 1500,
            checksum_offload: false,
            local: false,
            any_thread: true,
        },
        connections,
        demux_counters: true,
        listeners: 4,
        time_wait_records: 16,
        payload_blocks: 64,
        ..Config::default()
    }
}

fn client(number: u32) -> SocketAddr {
    let address = Ipv4Addr::from_bits(0x0a01_0000 + number / 50_000);
    SocketAddr::new(address.into(), 1024 + (number % 50_000) as u16)
}

/// A host with many established connections that all have a running timer.
struct Crowd {
    host: Host,
    connections: Vec<ConnectionId>,
    /// Sequence number of the host's next byte to each client.
    acks: Vec<Seq>,
}

impl Crowd {
    fn new(count: u32) -> Self {
        let mut host = Host::new(&config(count), BEGINNING).expect("memory");
        let mut settings = host.stack.default_settings();
        settings.apply(SocketOption::Keepalive(true)).expect("in range");
        let now = host.now();
        let listener = host
            .stack
            .listen(now, SERVER, 16, &settings)
            .expect("a free port");
        let mut crowd = Self {
            host,
            connections: Vec::new(),
            acks: Vec::new(),
        };
        for number in 0..count {
            let ack = crowd.handshake(number);
            let connection = crowd.host.stack.accept(listener).expect("established");
            crowd.connections.push(connection);
            crowd.acks.push(ack);
            if number % 100 == 0 {
                // Connections do not all begin at one moment.
                let later = crowd.host.now() + Duration::from_micros(50);
                crowd.host.advance(later).expect("well-behaved");
            }
        }
        // The handshakes' timers fire once more without effect.
        let later = crowd.host.now() + Duration::from_secs(10);
        crowd.host.advance(later).expect("well-behaved");
        crowd
    }

    fn handshake(&mut self, number: u32) -> Seq {
        let mut syn = Packet::new(client(number), SERVER, Flags::SYN, Seq(0), Seq(0));
        syn.header.options.mss = Some(1460);
        self.host.inject(&syn).expect("well-behaved");
        let answer = self.host.sent.pop_front().expect("an answer").packet;
        let ack = answer.header.seq + 1;
        let done = Packet::new(client(number), SERVER, Flags::ACK, Seq(1), ack);
        self.host.inject(&done).expect("well-behaved");
        ack
    }

    /// Exchanges a request and its answer on one connection.
    fn exchange(&mut self, number: u32) {
        let index = number as usize;
        let mut request = Packet::new(
            client(number),
            SERVER,
            Flags::ACK | Flags::PSH,
            Seq(1),
            self.acks[index],
        );
        request.payload = vec![7; 64];
        self.host.inject(&request).expect("well-behaved");
        let stack = &mut self.host.stack;
        let mut buffer = [0; 64];
        let id = self.connections[index];
        assert_eq!(stack.receive(id, &mut buffer, ReceiveFlags::default()), Ok(64));
        assert_eq!(stack.send(id, &buffer, SendFlags::default()), Ok(64));
        self.host.settle().expect("well-behaved");
        self.acks[index] += 64;
        let ack = Packet::new(client(number), SERVER, Flags::ACK, Seq(65), self.acks[index]);
        self.host.inject(&ack).expect("well-behaved");
        self.host.sent.clear();
    }

    /// Returns the cost of `count` exchanges, spread over the connections.
    fn cost_of_exchanges(&mut self, count: u32) -> Work {
        let before = self.host.stack.work();
        let step = self.connections.len() as u32 / count;
        for i in 0..count {
            self.exchange(i * step);
        }
        difference(self.host.stack.work(), before)
    }

    /// Returns the cost of a second of ticks without a due timer.
    fn cost_of_ticks(&mut self) -> Work {
        let before = self.host.stack.work();
        for _ in 0..1000 {
            let later = self.host.now() + Duration::from_millis(1);
            self.host.advance(later).expect("well-behaved");
            self.host.stack.handle_timeout(later);
        }
        difference(self.host.stack.work(), before)
    }
}

fn difference(after: Work, before: Work) -> Work {
    Work {
        lookups: after.lookups - before.lookups,
        tuples_examined: after.tuples_examined - before.tuples_examined,
        timers_examined: after.timers_examined - before.timers_examined,
    }
}

#[test]
fn hundred_thousand_idle_connections_hold_context_memory_only() {
    let crowd = Crowd::new(100_000);
    let stack = &crowd.host.stack;
    assert_eq!(stack.connections(), 100_000);
    let each = stack.context_bytes_per_connection();
    println!("{each} bytes of context memory a connection");
    assert!(each <= CONTEXT_BYTES, "{each} bytes");
    assert_eq!(
        stack.payload_blocks_used(),
        0,
        "payload memory only where data wait"
    );
}

#[test]
fn cost_of_segment_and_tick_is_independent_of_connections() {
    let mut few = Crowd::new(100);
    let mut many = Crowd::new(100_000);
    let (a, b) = (few.cost_of_exchanges(100), many.cost_of_exchanges(100));
    println!("100 exchanges among 100 connections {a:?}, among 100000 {b:?}");
    assert_eq!(a.lookups, b.lookups);
    // An exchange has two segments. Each compares with its connection, with the
    // last one found, and rarely with one of an equal tag.
    assert!(a.tuples_examined <= 400 && b.tuples_examined <= 420);
    let (a, b) = (few.cost_of_ticks(), many.cost_of_ticks());
    println!("1000 ticks with 100 connections {a:?}, with 100000 {b:?}");
    assert!(a.timers_examined <= 1100);
    // A timer moves down a level as it comes nearer: at most eleven times in its
    // life, here of two hours.
    assert!(b.timers_examined <= 1100, "{b:?}");
    assert_eq!((few.host.sent.len(), many.host.sent.len()), (0, 0));
    // Idle connections still hold no payload memory.
    assert_eq!(few.host.stack.payload_blocks_used(), 0);
    assert_eq!(many.host.stack.payload_blocks_used(), 0);
}

#[test]
fn chains_cost_more_with_more_connections() {
    // A test of the measure itself: with chains, more connections do cost more.
    let examined = |count: u32| {
        let mut config = config(count);
        config.demux = DemuxStrategy::Sequent { chains: 19 };
        let mut host = Host::new(&config, BEGINNING).expect("memory");
        let settings = host.stack.default_settings();
        let now = host.now();
        host.stack
            .listen(now, SERVER, count, &settings)
            .expect("a free port");
        for number in 0..count {
            let syn = Packet::new(client(number), SERVER, Flags::SYN, Seq(0), Seq(0));
            host.inject(&syn).expect("well-behaved");
            host.sent.clear();
        }
        let before = host.stack.work();
        for number in 0..count {
            let reset = Packet::new(client(number), SERVER, Flags::ACK, Seq(500), Seq(0));
            host.inject(&reset).expect("well-behaved");
            host.sent.clear();
        }
        difference(host.stack.work(), before).tuples_examined / u64::from(count)
    };
    assert!(examined(4000) > 5 * examined(400));
}
