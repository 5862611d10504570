//! The cost of a pair of message queues between two spinning threads, by payload
//! length. The results are the one-way time of a frame, and time and rate of a
//! stream. Payload is either copied through the ring or referenced in place. As
//! stacks do, the sender writes every payload into payload memory and the receiver
//! copies it out.
//!
//! `cargo bench -p toehold-link`

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use toehold_link::mq::{Mesh, MeshSettings};
use toehold_link::steering::Flow;
use toehold_link::{Checksum, Link, Offload, Received, Transmit, Transmitter};
use toehold_shm::{Carver, Gather, Payload, Region};

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const BLOCK_LEN: u32 = 16 << 10;
const SAMPLES: usize = 100;

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(None, &set);
}

fn headers(to: usize) -> [u8; 66] {
    let mut headers = [0; 66];
    headers[..6].copy_from_slice(&MACS[to]);
    headers[6..12].copy_from_slice(&MACS[1 - to]);
    headers[12..14].copy_from_slice(&[0x08, 0x00]);
    headers
}

fn offload(len: usize) -> Offload {
    Offload {
        checksum: Checksum::Partial,
        segment_size: if len > 1448 { 1448 } else { 0 },
    }
}

fn copy_out(frame: &Received<'_>, into: &mut [u8]) -> usize {
    let (_, payload) = frame.private.split_at(66);
    into[..payload.len()].copy_from_slice(payload);
    payload.len() + frame.rest.copy_to(0, &mut into[payload.len()..])
}

/// Two meshes. `serve` drives the second one on the other core until it is
/// dropped.
struct Pair {
    here: Mesh,
    stop: Arc<AtomicBool>,
    there: Option<JoinHandle<()>>,
}

impl Pair {
    fn new(payload: Option<&Payload>, serve: fn(&mut Mesh, &mut [u8])) -> Pair {
        let fabric = std::env::temp_dir().join(format!("toehold-bench-{}", std::process::id()));
        let settings = |name: &str, mac| MeshSettings::new(&fabric, name.parse().expect("a name"), mac);
        let mut there = Mesh::join(&settings("there", MACS[1])).expect("join");
        let own = MeshSettings {
            payload: payload.map(|payload| payload.arenas().clone()),
            ..settings("here", MACS[0])
        };
        let mut here = Mesh::join(&own).expect("join");
        while here.connected() == 0 || there.connected() == 0 {
            here.settle(Duration::from_millis(1));
            there.settle(Duration::from_millis(1));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let there = std::thread::spawn(move || {
            pin(1);
            let mut buffer = vec![0; 1 << 17];
            while !stopped.load(Ordering::Relaxed) {
                serve(&mut there, &mut buffer);
            }
        });
        pin(0);
        Pair {
            here,
            stop,
            there: Some(there),
        }
    }

    /// Sends a frame, from which the link learns the best arena for payload.
    fn greet(&mut self) {
        let frame = Transmit {
            headers: &headers(1),
            payload: &Gather::EMPTY,
            offload: offload(0),
        };
        self.here.transmit(&frame).expect("room");
        self.here.flush();
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.there.take().map(JoinHandle::join);
    }
}

fn echo(mesh: &mut Mesh, buffer: &mut [u8]) {
    let mut len = None;
    mesh.receive(0, 1, &mut |frame| len = Some(copy_out(frame, buffer)));
    if let Some(len) = len {
        let payload = Gather::from_slice(&buffer[..len]);
        let _ = mesh.transmit(&Transmit {
            headers: &headers(0),
            payload: &payload,
            offload: offload(len),
        });
        mesh.flush();
    }
}

fn sink(mesh: &mut Mesh, buffer: &mut [u8]) {
    mesh.receive(0, 64, &mut |frame| {
        copy_out(frame, buffer);
    });
    mesh.flush();
}

/// Payload memory whose blocks are filled in turn, as by a program's writes.
struct Source {
    payload: Payload,
    blocks: Vec<u32>,
    bytes: Vec<u8>,
    next: u32,
}

impl Source {
    const BLOCKS: u32 = 128;

    fn new() -> Source {
        // An arena has a quarter of the blocks.
        let blocks = 4 * Self::BLOCKS;
        let len = Payload::bytes_needed_with(blocks, BLOCK_LEN, 1);
        let region = Region::create("bench", len).expect("memory");
        let mut carver = Carver::new(region).expect("fresh");
        let payload = carver.payload_with(blocks, BLOCK_LEN, 1).expect("room");
        Source {
            payload,
            blocks: Vec::new(),
            bytes: vec![7; 1 << 17],
            next: 0,
        }
    }

    /// Takes blocks that the last frame's receiver may read in place, if it
    /// may.
    fn take_blocks(&mut self, here: &Mesh) {
        let arena = here.payload_arena();
        let block = |_| self.payload.allocate_in(arena).expect("there are enough");
        self.blocks = (0..Self::BLOCKS).map(block).collect();
    }

    /// Copies `len` bytes into the next blocks. A later write reuses them once all
    /// others were used.
    fn write(&mut self, len: usize) -> Gather<'_> {
        let blocks = len.div_ceil(BLOCK_LEN as usize) as u32;
        if self.next + blocks > Self::BLOCKS {
            self.next = 0;
        }
        let range = self.next as usize..(self.next + blocks) as usize;
        self.next += blocks;
        let blocks = &self.blocks[range];
        for (&block, bytes) in blocks.iter().zip(self.bytes[..len].chunks(BLOCK_LEN as usize)) {
            self.payload.bytes_mut(block)[..bytes.len()].copy_from_slice(bytes);
        }
        let mut gather = Gather::EMPTY;
        for (&block, bytes) in blocks.iter().zip(self.bytes[..len].chunks(BLOCK_LEN as usize)) {
            gather.push(&self.payload.bytes(block)[..bytes.len()]);
        }
        gather
    }
}

/// One-way time of a frame with `len` bytes of payload, in nanoseconds.
fn ping_pong(len: usize, by_reference: bool, samples: usize) -> f64 {
    const ROUNDS: u32 = 500;
    let mut source = Source::new();
    let mut pair = Pair::new(by_reference.then_some(&source.payload), echo);
    pair.greet();
    source.take_blocks(&pair.here);
    while pair.here.receive(0, 1, &mut |_| {}) == 0 {}
    let mut buffer = vec![0; 1 << 17];
    let mut sample = || {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            let payload = source.write(len);
            let frame = Transmit {
                headers: &headers(1),
                payload: &payload,
                offload: offload(len),
            };
            while pair.here.transmit(&frame).is_err() {}
            pair.here.flush();
            while pair
                .here
                .receive(0, 1, &mut |frame| _ = copy_out(frame, &mut buffer))
                == 0
            {}
        }
        start.elapsed().as_nanos() as f64 / f64::from(ROUNDS) / 2.0
    };
    least((0..samples).map(|_| sample()))
}

/// Time of a frame with `len` bytes of payload in a stream, in nanoseconds.
fn stream(len: usize, by_reference: bool, samples: usize) -> f64 {
    let mut source = Source::new();
    let mut pair = Pair::new(by_reference.then_some(&source.payload), sink);
    pair.greet();
    source.take_blocks(&pair.here);
    let frames = (40_000_000 / (len + 2000)).clamp(1000, 10_000);
    // Blocks are reused only after the other side is done with them.
    let in_flight = Source::BLOCKS as usize / len.div_ceil(BLOCK_LEN as usize) - 1;
    let flow = Flow::between(([1; 16], 1), ([2; 16], 2));
    let mut fences = VecDeque::new();
    let mut sample = || {
        let start = Instant::now();
        for number in 1..=frames {
            if fences.len() >= in_flight
                && let Some(fence) = fences.pop_front()
            {
                while !pair.here.passed(fence) {
                    pair.here.flush();
                }
            }
            let payload = source.write(len);
            let frame = Transmit {
                headers: &headers(1),
                payload: &payload,
                offload: offload(len),
            };
            while pair.here.transmit(&frame).is_err() {
                pair.here.flush();
            }
            fences.push_back(pair.here.fence(MACS[1], &flow));
            if number % 16 == 0 {
                pair.here.flush();
            }
        }
        pair.here.flush();
        let end = pair.here.fence(MACS[1], &flow);
        while !pair.here.passed(end) {}
        start.elapsed().as_nanos() as f64 / frames as f64
    };
    least((0..samples).map(|_| sample()))
}

/// Returns the least disturbed sample: other programs only add time.
fn least(samples: impl Iterator<Item = f64>) -> f64 {
    samples.fold(f64::INFINITY, f64::min)
}

fn main() {
    // Cargo passes `--bench`. A test of the benchmarks passes nothing and
    // expects a short run.
    let samples = if std::env::args().any(|argument| argument == "--bench") {
        SAMPLES
    } else {
        1
    };
    println!("one way, ns:  copied  referenced");
    for len in [1, 64, 128, 256, 512, 1024, 1448, 4096] {
        let [copied, referenced] = [false, true].map(|by_reference| ping_pong(len, by_reference, samples));
        println!("{len:>8} B {copied:>9.0} {referenced:>11.0}");
    }
    println!("stream, ns a frame: copied  referenced      Gb/s: copied  referenced");
    for len in [64, 128, 256, 512, 1024, 1448, 2048, 4096, 16 << 10, 64_000] {
        let [copied, referenced] = [false, true].map(|by_reference| stream(len, by_reference, samples));
        let gbps = |time: f64| len as f64 * 8.0 / time;
        println!(
            "{len:>8} B {copied:>15.0} {referenced:>11.0} {:>17.1} {:>11.1}",
            gbps(copied),
            gbps(referenced)
        );
    }
}
