//! The demux paper's §4: thousands of connections that are set up as nearly at once as can be,
//! with five messages of 100 bytes on each, 13 packets a connection. Protocol control blocks
//! examined, as both ends' stacks count them, beside a simulation in which strategies do
//! nothing but find, and beside what the paper prints.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;

use toehold_link::Capabilities;
use toehold_shm::{Carver, Region};
use toehold_sim::host::{BEGINNING, Host, Sent};
use toehold_stack::demux::{Chosen, Demux};
use toehold_stack::{Config, ConnectionId, DemuxCounters, DemuxStrategy, FourTuple, ReceiveFlags, SendFlags};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

const MESSAGES: u32 = 5;
const MESSAGE: [u8; 100] = [7; 100];

/// Packets of a connection: three to set it up, each message and its acknowledgement.
const PACKETS: u32 = 13;

fn client(number: u32) -> SocketAddr {
    SocketAddr::new(CLIENT.into(), 10_000 + number as u16)
}

fn host(address: Ipv4Addr, strategy: DemuxStrategy, connections: u32) -> Host {
    let config = Config {
        ipv4: Some((address, 8)),
        ethernet: false,
        link: Capabilities {
            mtu: 1500,
            super_frame: 1500,
            checksum_offload: false,
            local: false,
            any_thread: true,
        },
        demux: strategy,
        demux_counters: true,
        connections,
        payload_blocks: 2 * connections,
        payload_block_len: 2048,
        ..Config::default()
    };
    Host::new(&config, BEGINNING).expect("memory")
}

/// Both ends.
struct Ends {
    client: Host,
    server: Host,
    packets: u32,
}

impl Ends {
    fn cross(packets: &mut u32, sent: &mut VecDeque<Sent>, to: &mut Host) {
        for Sent { packet, .. } in sent.drain(..) {
            *packets += 1;
            to.inject(&packet).expect("well-behaved");
        }
    }

    fn reach_server(&mut self) {
        Self::cross(&mut self.packets, &mut self.client.sent, &mut self.server);
    }

    fn reach_client(&mut self) {
        Self::cross(&mut self.packets, &mut self.server.sent, &mut self.client);
    }

    /// Until the server has acknowledged what it took its time with.
    fn wait(&mut self) {
        let later = self.server.now() + Duration::from_millis(100);
        self.server.advance(later).expect("well-behaved");
        self.reach_client();
        self.client.advance(later).expect("well-behaved");
    }
}

fn examined(host: &Host) -> u64 {
    let counters = host.stack.demux_counters().expect("counted");
    counters.demux_examined
}

/// What the stacks of both ends examine: in all, and to answer packets. The rest is that
/// `connect` asks whether its port is free.
fn in_the_engine(strategy: DemuxStrategy, count: u32) -> (u64, u64) {
    let mut ends = Ends {
        client: host(CLIENT, strategy, count),
        server: host(Ipv4Addr::new(10, 0, 0, 1), strategy, count),
        packets: 0,
    };
    let settings = ends.server.stack.default_settings();
    let now = ends.server.now();
    let listener = ends.server.stack.listen(now, SERVER, count, &settings);
    let listener = listener.expect("a free port");
    let connect = |number| {
        let stack = &mut ends.client.stack;
        stack.connect(now, Some(client(number)), SERVER, &settings)
    };
    let opened: Vec<_> = (0..count)
        .map(connect)
        .map(|id| id.expect("a free port"))
        .collect();
    let asked = examined(&ends.client);
    ends.client.settle().expect("well-behaved");
    ends.reach_server();
    ends.reach_client();
    ends.reach_server();
    let accept = |_| ends.server.stack.accept(listener).expect("established");
    let accepted: Vec<ConnectionId> = (0..count).map(accept).collect();
    for _ in 0..MESSAGES {
        for &id in &opened {
            let sent = ends.client.stack.send(id, &MESSAGE, SendFlags::default());
            assert_eq!(sent, Ok(MESSAGE.len()));
        }
        ends.client.settle().expect("well-behaved");
        ends.reach_server();
        for &id in &accepted {
            let mut message = [0; 100];
            let received = ends
                .server
                .stack
                .receive(id, &mut message, ReceiveFlags::default());
            assert_eq!((received, message), (Ok(MESSAGE.len()), MESSAGE));
        }
        ends.wait();
    }
    assert_eq!(ends.packets, PACKETS * count);
    let all = examined(&ends.client) + examined(&ends.server);
    (all, all - asked)
}

/// One end as the simulation has it.
struct End {
    demux: Chosen,
    tuples: Vec<FourTuple>,
    counters: DemuxCounters,
}

impl End {
    fn new(strategy: DemuxStrategy, tuples: Vec<FourTuple>) -> Self {
        let count = tuples.len() as u32;
        let region = Region::private(Chosen::bytes_needed(strategy, count)).expect("memory");
        let mut carver = Carver::new(region).expect("memory");
        Self {
            demux: Chosen::create(&mut carver, strategy, count, &[9; 16]).expect("room"),
            tuples,
            counters: DemuxCounters::default(),
        }
    }

    fn find(&mut self, number: usize) -> Option<u32> {
        let tuple = self.tuples[number];
        self.demux.lookup(&tuple, &self.tuples[..], &mut self.counters)
    }

    /// Looks for what is not there, and enters it.
    fn enter(&mut self, number: usize) {
        assert_eq!(self.find(number), None);
        self.demux.insert(number as u32, &self.tuples[..]).expect("room");
    }
}

fn in_simulation(strategy: DemuxStrategy, count: u32) -> u64 {
    let tuples = |from: fn(u32) -> (SocketAddr, SocketAddr)| {
        let tuple = |number| {
            let (local, remote) = from(number);
            FourTuple::new(local, remote)
        };
        (0..count).map(tuple).collect()
    };
    let mut at_client = End::new(strategy, tuples(|number| (client(number), SERVER)));
    let mut at_server = End::new(strategy, tuples(|number| (SERVER, client(number))));
    let numbers = || 0..count as usize;
    // `connect` asks whether the port is free, and a SYN begins a connection.
    numbers().for_each(|number| at_client.enter(number));
    numbers().for_each(|number| at_server.enter(number));
    assert!(numbers().all(|number| at_client.find(number).is_some()));
    assert!(numbers().all(|number| at_server.find(number).is_some()));
    for _ in 0..MESSAGES {
        assert!(numbers().all(|number| at_server.find(number).is_some()));
        assert!(numbers().all(|number| at_client.find(number).is_some()));
    }
    at_client.counters.demux_examined + at_server.counters.demux_examined
}

/// With BSD's list 3600 connections and with Sequent's chains 5040, as printed, and each with as
/// many as the other.
#[test]
fn setting_up_connections_costs_what_the_paper_says() {
    for (strategy, count, printed) in [
        ("bsd", 3600, Some(84e6)),
        ("bsd", 5040, None),
        ("sequent:19", 5040, Some(8.7e6)),
        ("sequent:19", 3600, None),
        ("flow-table", 5040, None),
    ] {
        let strategy: DemuxStrategy = strategy.parse().expect("a strategy");
        let (engine, by_packets) = in_the_engine(strategy, count);
        let simulated = in_simulation(strategy, count);
        println!("{strategy}, {count}: {engine} examined, {by_packets} for packets, simulated {simulated}");
        let ratio = engine as f64 / simulated as f64;
        assert!((0.98..1.02).contains(&ratio), "{strategy}, {count}: {ratio}");
        // The paper says 84 million at least: 13 packets, half of a list each.
        let printed: Option<f64> = printed;
        if let Some(printed) = printed {
            let ratio = by_packets as f64 / printed;
            assert!(
                (0.9..1.1).contains(&ratio),
                "{strategy}: {ratio} of what is printed"
            );
        }
    }
}
