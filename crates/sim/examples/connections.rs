//! How long a segment and a tick take, with a hundred connections and with a
//! hundred thousand.
//!
//! ```text
//! cargo run --release -p toehold-sim --example connections [CONNECTIONS[:BUSY]…]
//! ```
//!
//! The connections are idle but for one 64-byte request at a time, on 64 of them or as many as
//! are said to be busy. The numbers
//! of connections take turns, and the fastest of several rounds counts.

use std::error::Error;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant as Clock};

use toehold_link::{Capabilities, Offload, Received, Transmit, TransmitError, Transmitter};
use toehold_shm::Gather;
use toehold_sim::host::{BEGINNING, Host};
use toehold_sim::packet::Packet;
use toehold_stack::{Config, ConnectionId, Instant, ReceiveFlags};
use toehold_wire::tcp::{Flags, Seq};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);
const ROUNDS: u32 = 9;
/// Segments and ticks timed in a round.
const SEGMENTS: u32 = 20_000;
/// Connections that are busy in turn, if nobody says how many: few, so that it is the table
/// that is measured and not the cache's misses on control blocks.
const BUSY: u32 = 64;

/// A link that swallows everything.
struct Nowhere;

impl Transmitter for Nowhere {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        black_box(frame);
        Ok(())
    }
}

struct Crowd {
    host: Host,
    connections: Vec<ConnectionId>,
    acks: Vec<Seq>,
    busy: u32,
    /// Bytes received so far on each busy connection.
    received: u32,
    best_segment_ns: f64,
    best_tick_ns: f64,
}

fn client(number: u32) -> SocketAddr {
    let address = Ipv4Addr::from_bits(0x0a01_0000 + number / 50_000);
    SocketAddr::new(address.into(), 1024 + (number % 50_000) as u16)
}

impl Crowd {
    fn new(count: u32, busy: u32) -> Result<Self, Box<dyn Error>> {
        let config = Config {
            ipv4: Some((Ipv4Addr::new(10, 0, 0, 1), 8)),
            ethernet: false,
            link: Capabilities {
                mtu: 1500,
                super_frame: 65_535,
                checksum_offload: true,
                local: true,
                any_thread: true,
            },
            connections: count,
            payload_blocks: 256,
            ..Config::default()
        };
        let mut host = Host::new(&config, BEGINNING)?;
        let settings = host.stack.default_settings();
        let now = host.now();
        let listener = host.stack.listen(now, SERVER, 16, &settings)?;
        let mut crowd = Self {
            host,
            connections: Vec::new(),
            acks: Vec::new(),
            busy: busy.clamp(1, SEGMENTS.min(count)),
            received: 0,
            best_segment_ns: f64::MAX,
            best_tick_ns: f64::MAX,
        };
        for number in 0..count {
            let syn = Packet::new(client(number), SERVER, Flags::SYN, Seq(0), Seq(0));
            crowd.host.inject(&syn)?;
            let answer = crowd.host.sent.pop_front().ok_or("no answer to a SYN")?.packet;
            let ack = answer.header.seq + 1;
            crowd
                .host
                .inject(&Packet::new(client(number), SERVER, Flags::ACK, Seq(1), ack))?;
            crowd.connections.push(crowd.host.stack.accept(listener)?);
            crowd.acks.push(ack);
        }
        let later = crowd.host.now() + Duration::from_secs(10);
        crowd.host.advance(later)?;
        Ok(crowd)
    }

    /// A request for every busy connection, spread over all of them.
    fn requests(&self) -> Vec<(usize, Vec<u8>)> {
        let count = self.connections.len();
        let step = (count / self.busy as usize).max(1);
        (0..self.busy as usize)
            .map(|i| {
                let index = (i * step) % count;
                let seq = Seq(1) + self.received;
                let mut packet = Packet::new(
                    client(index as u32),
                    SERVER,
                    Flags::ACK | Flags::PSH,
                    seq,
                    self.acks[index],
                );
                packet.payload = vec![7; 64];
                (index, packet.bytes())
            })
            .collect()
    }

    fn time_segments(&mut self) -> Result<(), Box<dyn Error>> {
        let mut elapsed = Duration::ZERO;
        let now = self.host.now();
        let rounds = SEGMENTS / self.busy;
        for _ in 0..rounds {
            let requests = self.requests();
            let stack = &mut self.host.stack;
            let offload = Offload {
                checksum: toehold_link::Checksum::Verified,
                segment_size: 0,
            };
            let start = Clock::now();
            for (index, bytes) in &requests {
                let frame = Received {
                    private: bytes,
                    rest: Gather::EMPTY,
                    offload,
                };
                stack.handle_frame(now, &frame);
                let mut buffer = [0; 64];
                stack.receive(self.connections[*index], &mut buffer, ReceiveFlags::default())?;
                stack.poll_transmit(now, &mut Nowhere);
                while stack.next_event().is_some() {}
            }
            elapsed += start.elapsed();
            self.received += 64;
        }
        self.best_segment_ns = self
            .best_segment_ns
            .min(elapsed.as_nanos() as f64 / f64::from(rounds * self.busy));
        Ok(())
    }

    fn time_ticks(&mut self) -> Result<(), Box<dyn Error>> {
        let start_at = self.host.now();
        let stack = &mut self.host.stack;
        let start = Clock::now();
        for tick in 1..=SEGMENTS {
            let now = Instant(start_at.0 + u64::from(tick) * 10_000);
            stack.handle_timeout(now);
            black_box(stack.poll_timeout());
        }
        let each = start.elapsed().as_nanos() as f64 / f64::from(SEGMENTS);
        self.best_tick_ns = self.best_tick_ns.min(each);
        let end = Instant(start_at.0 + u64::from(SEGMENTS) * 10_000);
        self.host.advance(end)?;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut counts: Vec<(u32, u32)> = Vec::new();
    for argument in std::env::args().skip(1) {
        let (count, busy) = argument.split_once(':').unwrap_or((&argument, ""));
        let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is no number"));
        let busy = if busy.is_empty() { BUSY } else { number(busy)? };
        counts.push((number(count)?, busy));
    }
    if counts.is_empty() {
        counts = vec![(100, BUSY), (100_000, BUSY)];
    }
    let mut crowds = Vec::new();
    for &(count, busy) in &counts {
        crowds.push(Crowd::new(count, busy)?);
    }
    for _ in 0..ROUNDS {
        for crowd in &mut crowds {
            crowd.time_segments()?;
            crowd.time_ticks()?;
        }
    }
    println!(
        "{:>12} {:>16} {:>12} {:>16}",
        "connections", "segment, ns", "tick, ns", "context, bytes"
    );
    for crowd in &crowds {
        println!(
            "{:>12} {:>16.0} {:>12.1} {:>16}",
            crowd.connections.len(),
            crowd.best_segment_ns,
            crowd.best_tick_ns,
            crowd.host.stack.context_bytes_per_connection()
        );
    }
    Ok(())
}
