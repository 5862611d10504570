//! Cost of a message between two endpoints in one thread, in nanoseconds:
//! `cargo bench -p toehold-msg --bench messages`.
//!
//! One message goes from send to both completions: matched, framed, parsed, placed. The
//! path is lossless, so no packet is acknowledged alone. Nothing of a real link is in it.

use std::hint::black_box;
use std::time::Instant;
use toehold_msg::endpoint::{
    EndpointConfig, EndpointState, OutgoingMessage, PacketOrigin, PacketSink, ProgramBuffer, ProgramMemory,
    SinkFull,
};
use toehold_msg::matching::{MatchStrategy, Selector};
use toehold_msg::{FlowId, FlowPath, Moment};
use toehold_wire::Mac;

const LENGTHS: [usize; 6] = [8, 64, 512, 4096, 65_536, 1 << 20];
const ROUNDS: usize = 21;

/// One buffer for all sends and receives of an endpoint.
struct Arena(Vec<u8>);

impl ProgramMemory for Arena {
    fn fetch(&mut self, _: ProgramBuffer, offset: u64, into: &mut [u8]) -> bool {
        into.copy_from_slice(&self.0[offset as usize..][..into.len()]);
        true
    }

    fn place(&mut self, _: ProgramBuffer, offset: u64, bytes: &[u8]) -> bool {
        self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        true
    }
}

/// Packets on their way, in buffers that are used again.
#[derive(Default)]
struct PacketBuffers {
    packets: Vec<Vec<u8>>,
    len: usize,
}

impl PacketSink for PacketBuffers {
    fn transmit(&mut self, _: Mac, segments: [&[u8]; 3]) -> Result<(), SinkFull> {
        if self.packets.len() == self.len {
            self.packets.push(Vec::new());
        }
        let packet = &mut self.packets[self.len];
        packet.clear();
        segments
            .iter()
            .for_each(|segment| packet.extend_from_slice(segment));
        self.len += 1;
        Ok(())
    }
}

struct BenchEnd {
    state: EndpointState,
    memory: Arena,
    wire: PacketBuffers,
    mac: Mac,
}

impl BenchEnd {
    fn new(number: u8, strategy: MatchStrategy) -> Self {
        let mac = Mac([2, 0, 0, 0, 0, number]);
        let mut config = EndpointConfig::new(mac, number.into(), [1, 2]);
        config.strategy = strategy;
        Self {
            state: EndpointState::new(config),
            memory: Arena(vec![7; 1 << 20]),
            wire: PacketBuffers::default(),
            mac,
        }
    }

    /// Gives all packets to the other side. Returns `false` if there were none.
    fn pass(&mut self, other: &mut Self) -> bool {
        self.state
            .poll_transmit(Moment(1), &mut self.memory, &mut self.wire);
        let origin = PacketOrigin {
            mac: self.mac,
            path: FlowPath::Lossless,
        };
        let count = std::mem::take(&mut self.wire.len);
        for packet in &self.wire.packets[..count] {
            other
                .state
                .handle_frame(Moment(1), origin, packet, &mut other.memory);
        }
        count > 0
    }
}

/// Sends one message from `a` to `b`, until both sides have their completion.
fn message(a: &mut BenchEnd, b: &mut BenchEnd, flow: FlowId, len: usize, is_posted: bool) {
    let buffer = ProgramBuffer {
        address: 0,
        len: len as u64,
    };
    let selector = Selector::tagged(black_box(5)).ignoring(1 << 63);
    let post = |b: &mut BenchEnd| {
        b.state
            .post(Moment(1), selector, buffer, 1, &mut b.memory)
            .expect("room")
    };
    if is_posted {
        post(b);
    }
    let outgoing = OutgoingMessage::tagged(5, buffer, 2);
    a.state
        .send(Moment(1), flow, &outgoing, &mut a.memory)
        .expect("room");
    while a.pass(b) | b.pass(a) {}
    if !is_posted {
        post(b);
        while b.pass(a) | a.pass(b) {}
    }
    let ends = (a.state.next_completion(), b.state.next_completion());
    assert!(matches!(black_box(ends), (Some(_), Some(_))));
}

fn main() {
    println!("one message from send to both completions, median of {ROUNDS} rounds, ns");
    println!(
        "{:>8}{:>12}{:>12}{:>12}{:>12}",
        "bytes", "list", "bins", "list, late", "bins, late"
    );
    for len in LENGTHS {
        let operations = (1 << 20) / (len + 1000);
        let mut rounds = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            for (column, rounds) in rounds.iter_mut().enumerate() {
                let strategy = MatchStrategy::ALL[column % 2];
                let (mut a, mut b) = (BenchEnd::new(1, strategy), BenchEnd::new(2, strategy));
                let flow = a
                    .state
                    .connect(Moment(1), b.mac, 2, FlowPath::Lossless)
                    .expect("room");
                message(&mut a, &mut b, flow, len, true);
                let start = Instant::now();
                for _ in 0..operations {
                    message(&mut a, &mut b, flow, len, column < 2);
                }
                rounds.push(start.elapsed().as_nanos() as f64 / operations as f64);
            }
        }
        let medians = rounds.map(|mut rounds| {
            rounds.sort_by(f64::total_cmp);
            rounds[ROUNDS / 2]
        });
        let [list, bins, list_late, bins_late] = medians;
        println!("{len:>8}{list:>12.0}{bins:>12.0}{list_late:>12.0}{bins_late:>12.0}");
    }
}
