//! Endpoints in one thread under virtual time, over a link that loses, repeats and
//! reorders. A run follows from its seed alone. `TOEHOLD_SEED=n` runs one seed.
#![allow(dead_code, unreachable_pub, unused_imports)] // each test program uses a part

mod memory;
mod random;
mod traffic;

pub use memory::TestMemory;
pub use random::Random;
pub use traffic::{Book, LENGTHS};

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use toehold_msg::FlowId;
use toehold_msg::endpoint::{Completion, EndpointConfig, EndpointState, PacketOrigin, PacketSink, SinkFull};
use toehold_msg::{FlowPath, Moment};
use toehold_wire::Mac;

/// Runs `test` with `count` seeds, and prints the seed that fails.
pub fn for_each_seed(count: u64, test: impl Fn(u64)) {
    let only = std::env::var("TOEHOLD_SEED").ok();
    let seeds = match only {
        Some(seed) => {
            let seed = seed.parse().expect("a number");
            seed..seed + 1
        }
        None => 0..count,
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("seed {seed} fails; repeat it alone with TOEHOLD_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// What the link does to packets. Shares are in thousandths.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    pub path: FlowPath,
    pub loss: u64,
    pub repeat: u64,
    /// Packets that take up to ten times as long.
    pub detour: u64,
    /// Packets that the link refuses for now.
    pub refusal: u64,
    pub delay_ns: u64,
}

impl Weather {
    pub const HOST: Self = Self {
        path: FlowPath::Lossless,
        loss: 0,
        repeat: 0,
        detour: 0,
        refusal: 0,
        delay_ns: 1_000,
    };

    pub const FAIR: Self = Self {
        path: FlowPath::Lossy,
        delay_ns: 50_000,
        ..Self::HOST
    };

    pub const STORM: Self = Self {
        loss: 50,
        repeat: 50,
        detour: 100,
        refusal: 100,
        ..Self::FAIR
    };
}

/// An endpoint with its program.
pub struct Host {
    pub state: EndpointState,
    pub memory: TestMemory,
    pub mac: Mac,
    pub incarnation: u64,
}

type Flight = Reverse<(u64, u64, usize, Mac, Vec<u8>)>;

/// Hosts, and the packets between them.
pub struct World {
    pub now: Moment,
    pub hosts: Vec<Host>,
    pub weather: Weather,
    pub random: Random,
    flights: BinaryHeap<Flight>,
    sent: u64,
    /// When the last packet of a path without loss arrives: they keep their order.
    last_ns: u64,
    pub is_cut: bool,
}

impl World {
    pub fn new(seed: u64, count: usize, weather: Weather, adapt: impl Fn(&mut EndpointConfig)) -> Self {
        let mut world = Self {
            now: Moment(1),
            hosts: Vec::new(),
            weather,
            random: Random::new(seed),
            flights: BinaryHeap::new(),
            sent: 0,
            last_ns: 0,
            is_cut: false,
        };
        for number in 0..count {
            let host = world.host(number, &adapt);
            world.hosts.push(host);
        }
        world
    }

    fn host(&mut self, number: usize, adapt: &impl Fn(&mut EndpointConfig)) -> Host {
        let mac = Mac([2, 0, 0, 0, 0, number as u8 + 1]);
        let incarnation = self.random.next();
        let mut config = EndpointConfig::new(mac, incarnation, [self.random.next(), self.random.next()]);
        adapt(&mut config);
        Host {
            state: EndpointState::new(config),
            memory: TestMemory::default(),
            mac,
            incarnation,
        }
    }

    /// Ends a host's life and begins another at its address. Packets under way stay so.
    pub fn restart(&mut self, number: usize, adapt: impl Fn(&mut EndpointConfig)) {
        self.hosts[number] = self.host(number, &adapt);
    }

    /// The flow from one host to another's present life.
    pub fn connect(&mut self, from: usize, to: usize) -> FlowId {
        let (mac, incarnation) = (self.hosts[to].mac, self.hosts[to].incarnation);
        let (now, path) = (self.now, self.weather.path);
        self.hosts[from]
            .state
            .connect(now, mac, incarnation, path)
            .expect("room")
    }

    /// Lets all hosts send.
    pub fn flush(&mut self) {
        for number in 0..self.hosts.len() {
            let mut sink = Sink {
                packets: Vec::new(),
                refusal: self.weather.refusal,
                random: &mut self.random,
            };
            let host = &mut self.hosts[number];
            host.state.poll_transmit(self.now, &mut host.memory, &mut sink);
            for (to, packet) in sink.packets {
                self.launch(number, to, packet);
            }
        }
    }

    fn launch(&mut self, from: usize, to: Mac, packet: Vec<u8>) {
        if self.is_cut || self.random.thousandth() < self.weather.loss {
            return;
        }
        let copies = if self.random.thousandth() < self.weather.repeat {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let mut at =
                self.now.0 + self.weather.delay_ns + self.random.below(self.weather.delay_ns / 4 + 1);
            if self.random.thousandth() < self.weather.detour {
                at += self.random.below(self.weather.delay_ns * 10);
            }
            if self.weather.path == FlowPath::Lossless {
                at = at.max(self.last_ns);
                self.last_ns = at;
            }
            self.sent += 1;
            self.flights
                .push(Reverse((at, self.sent, from, to, packet.clone())));
        }
    }

    /// Goes on to the next packet or deadline. Returns `false` if there is none.
    pub fn step(&mut self) -> bool {
        self.flush();
        let arrival = self.flights.peek().map(|Reverse((at, ..))| Moment(*at));
        let deadline = self
            .hosts
            .iter()
            .filter_map(|host| host.state.poll_timeout())
            .min();
        // A refused packet is tried again after a while.
        let retry = (self.weather.refusal > 0).then(|| self.now.plus_ns(100_000));
        let Some(next) = [arrival, deadline, retry].into_iter().flatten().min() else {
            return false;
        };
        self.now = next.max(self.now);
        for host in &mut self.hosts {
            host.state.handle_timeout(self.now);
        }
        if arrival.is_some_and(|at| at <= self.now) {
            self.land();
        }
        true
    }

    fn land(&mut self) {
        if let Some(Reverse((_, _, from, to, packet))) = self.flights.pop() {
            let origin = PacketOrigin {
                mac: self.hosts[from].mac,
                path: self.weather.path,
            };
            for host in self.hosts.iter_mut().filter(|host| host.mac == to) {
                host.state
                    .handle_frame(self.now, origin, &packet, &mut host.memory);
            }
        }
    }

    /// Steps until the condition holds.
    pub fn run_until(&mut self, most_steps: u64, mut is_done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..most_steps {
            if is_done(self) {
                return;
            }
            assert!(self.step() || is_done(self), "nothing happens any more");
        }
        panic!("not done after {most_steps} steps at {:?}", self.now);
    }

    /// Steps until all endpoints are idle: nothing stored, nothing unacknowledged.
    pub fn settle(&mut self, most_steps: u64) {
        self.run_until(most_steps, |world| {
            world.hosts.iter().all(|host| host.state.is_idle())
        });
    }

    pub fn completions(&mut self, number: usize) -> Vec<Completion> {
        std::iter::from_fn(|| self.hosts[number].state.next_completion()).collect()
    }

    /// Loses all packets under way.
    pub fn drop_flights(&mut self) {
        self.flights.clear();
    }

    /// The next packet under way from a host.
    pub fn next_packet(&self, from: usize) -> Option<&[u8]> {
        let flights = self.flights.iter().map(|Reverse(flight)| flight);
        let next = flights
            .filter(|flight| flight.2 == from)
            .min_by_key(|flight| flight.1)?;
        Some(&next.4)
    }

    /// The packets under way, the next one first.
    pub fn packets(&self) -> Vec<(usize, Mac, Vec<u8>)> {
        let mut flights: Vec<_> = self.flights.iter().map(|Reverse(flight)| flight).collect();
        flights.sort();
        let flights = flights.into_iter();
        flights
            .map(|(_, _, from, to, packet)| (*from, *to, packet.clone()))
            .collect()
    }
}

struct Sink<'a> {
    packets: Vec<(Mac, Vec<u8>)>,
    refusal: u64,
    random: &'a mut Random,
}

impl PacketSink for Sink<'_> {
    fn transmit(&mut self, to: Mac, segments: [&[u8]; 3]) -> Result<(), SinkFull> {
        if self.random.thousandth() < self.refusal {
            return Err(SinkFull);
        }
        self.packets.push((to, segments.concat()));
        Ok(())
    }
}
