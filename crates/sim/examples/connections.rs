//! Measures the time of a segment and of a tick, with one connection and with a
//! million.
//!
//! ```text
//! cargo run --release -p toehold-sim --example connections [CONNECTIONS[:BUSY]…]
//! ```
//!
//! On the busy connections a request of 64 bytes arrives in turn, in an order that
//! no processor predicts. The others are idle. All connections are busy unless a
//! number is given. A segment is timed from the frame to the program's buffer:
//! alone, in bursts, and in bursts that the stack was shown before. The variants
//! take turns, and the fastest of several rounds counts.

use std::error::Error;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant as Clock};

use toehold_link::{Capabilities, Checksum, Offload, Received, Transmit, TransmitError, Transmitter};
use toehold_shm::Gather;
use toehold_sim::host::{BEGINNING, Host};
use toehold_sim::packet::Packet;
use toehold_stack::{Config, ConnectionId, FourTuple, Instant, LOOK_AHEAD, ReceiveFlags};
use toehold_wire::tcp::{Flags, Seq};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);
const ROUNDS: u32 = 9;
/// Segments and ticks timed in a round.
const SEGMENTS: u32 = 20_000;
/// Segments in a burst.
const BURST: usize = LOOK_AHEAD;
/// Stride over the connections: a prime above their number, so that its
/// multiples visit all.
const STRIDE: u64 = 2_654_435_761;

/// Arrival of segments: alone, in bursts, or in announced bursts.
#[derive(Clone, Copy)]
enum Arrival {
    Alone,
    Burst,
    ShownBurst,
}

const ARRIVALS: [Arrival; 3] = [Arrival::Alone, Arrival::Burst, Arrival::ShownBurst];

/// A request that is about to arrive.
struct Request {
    connection: ConnectionId,
    bytes: Vec<u8>,
}

/// A link that drops every frame.
struct NullLink;

impl Transmitter for NullLink {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        black_box(frame);
        Ok(())
    }
}

impl Request {
    fn frame(&self) -> Received<'_> {
        Received {
            private: &self.bytes,
            rest: Gather::EMPTY,
            offload: Offload {
                checksum: Checksum::Verified,
                segment_size: 0,
            },
        }
    }
}

struct Crowd {
    host: Host,
    connections: Vec<ConnectionId>,
    acks: Vec<Seq>,
    busy: u32,
    /// Number of requests so far, on all connections.
    requests: u32,
    best_segment_ns: [f64; ARRIVALS.len()],
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
            busy: busy.clamp(1, count),
            requests: 0,
            best_segment_ns: [f64::MAX; ARRIVALS.len()],
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

    fn next_requests(&mut self) -> Vec<Request> {
        let count = self.connections.len() as u64;
        let first = self.requests;
        self.requests += SEGMENTS;
        (first..self.requests)
            .map(|number| {
                let (turn, position) = (number / self.busy, number % self.busy);
                let spread = u64::from(position) * count / u64::from(self.busy);
                let index = (spread * STRIDE % count) as usize;
                let (seq, ack) = (Seq(1) + turn * 64, self.acks[index]);
                let flags = Flags::ACK | Flags::PSH;
                let mut packet = Packet::new(client(index as u32), SERVER, flags, seq, ack);
                packet.payload = vec![7; 64];
                Request {
                    connection: self.connections[index],
                    bytes: packet.bytes(),
                }
            })
            .collect()
    }

    fn time_segments(&mut self, arrival: Arrival) -> Result<(), Box<dyn Error>> {
        let requests = self.next_requests();
        let start = Clock::now();
        self.take(&requests, arrival)?;
        let elapsed = start.elapsed();
        let best = &mut self.best_segment_ns[arrival as usize];
        *best = best.min(elapsed.as_nanos() as f64 / f64::from(SEGMENTS));
        Ok(())
    }

    fn take(&mut self, requests: &[Request], arrival: Arrival) -> Result<(), Box<dyn Error>> {
        let now = self.host.now();
        let stack = &mut self.host.stack;
        let together = if matches!(arrival, Arrival::Alone) {
            1
        } else {
            BURST
        };
        for burst in requests.chunks(together) {
            if matches!(arrival, Arrival::ShownBurst) {
                let mut ends = [FourTuple::default(); BURST];
                for (ends, request) in ends.iter_mut().zip(burst) {
                    *ends = stack.probable_ends(&request.frame()).ok_or("no segment")?;
                }
                stack.prefetch(&ends[..burst.len()]);
            }
            for request in burst {
                stack.handle_frame(now, &request.frame());
            }
            for request in burst {
                let mut buffer = [0; 64];
                stack.receive(request.connection, &mut buffer, ReceiveFlags::default())?;
            }
            stack.poll_transmit(now, &mut NullLink);
            while stack.next_event().is_some() {}
        }
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
        let (count, busy) = argument.split_once(':').unwrap_or((&argument, &argument));
        let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is no number"));
        counts.push((number(count)?, number(busy)?));
    }
    if counts.is_empty() {
        counts = [1, 1 << 10, 1 << 16, 1 << 20]
            .map(|count| (count, count))
            .to_vec();
    }
    let mut crowds = Vec::new();
    for &(count, busy) in &counts {
        crowds.push(Crowd::new(count, busy)?);
    }
    for _ in 0..ROUNDS {
        for crowd in &mut crowds {
            for arrival in ARRIVALS {
                crowd.time_segments(arrival)?;
            }
            crowd.time_ticks()?;
        }
    }
    println!("nanoseconds a segment");
    println!(
        "{:>12} {:>10} {:>10} {:>10} {:>14} {:>10} {:>16}",
        "connections", "busy", "alone", "in bursts", "shown bursts", "tick, ns", "context, bytes"
    );
    for crowd in &crowds {
        let [alone, burst, shown] = crowd.best_segment_ns;
        println!(
            "{:>12} {:>10} {alone:>10.0} {burst:>10.0} {shown:>14.0} {:>10.1} {:>16}",
            crowd.connections.len(),
            crowd.busy,
            crowd.best_tick_ns,
            crowd.host.stack.context_bytes_per_connection()
        );
    }
    Ok(())
}
