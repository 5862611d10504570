//! The cost of a mesh for its driver, by the number of peers. It covers an empty
//! round, a frame to a peer with its answer, and a sleep. All of it runs in one
//! thread. Equal arguments then mean equal instructions, and two builds can be
//! compared by counting them.
//!
//! `cargo bench -p toehold-link --bench mesh`, or, to count instructions,
//! `valgrind --tool=callgrind --toggle-collect='*measured*' BENCH exchange 16 10000`

use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use toehold_link::mq::{Mesh, MeshSettings};
use toehold_link::{Checksum, Link, Offload, Transmit, Transmitter};
use toehold_shm::Gather;

const ROUNDS: usize = 100_000;

fn mac(number: usize) -> [u8; 6] {
    [2, 0, 0, 0, (number >> 8) as u8, number as u8]
}

/// A node, and others that are each connected with that node alone.
struct Star {
    fabric: PathBuf,
    hub: Mesh,
    others: Vec<Mesh>,
}

impl Star {
    fn new(peers: usize) -> Star {
        let fabric = std::env::temp_dir().join(format!("toehold-star-{}", std::process::id()));
        let settings = |name: &str, number, max_peers| MeshSettings {
            max_peers,
            ..MeshSettings::new(&fabric, name.parse().expect("a name"), mac(number))
        };
        // The hub has the first name, so the others connect to it.
        let mut hub = Mesh::join(&settings("a", 0, peers.max(16))).expect("join");
        let mut others = Vec::new();
        for number in 1..=peers {
            let mut other = Mesh::join(&settings(&format!("n{number}"), number, 1)).expect("join");
            while other.connected() == 0 {
                other.settle(Duration::ZERO);
                hub.settle(Duration::ZERO);
            }
            others.push(other);
        }
        Star { fabric, hub, others }
    }

    /// Runs rounds without frames.
    #[inline(never)]
    fn measured_idle(&mut self, rounds: usize) {
        for _ in 0..rounds {
            black_box(self.hub.receive(0, 64, &mut |_| {}));
        }
    }

    /// Exchanges a frame and its answer, in turn with `among` of the peers.
    #[inline(never)]
    fn measured_exchange(&mut self, rounds: usize, among: usize) {
        for round in 0..rounds {
            let number = round % among;
            send(&mut self.hub, number + 1, 0);
            let other = &mut self.others[number];
            while other.receive(0, 64, &mut |_| {}) == 0 {}
            send(other, 0, number + 1);
            while self.hub.receive(0, 64, &mut |_| {}) == 0 {}
        }
    }

    /// Sleeps once without a wake-up and once with a frame that ends the sleep,
    /// each round.
    #[inline(never)]
    fn measured_sleep(&mut self, rounds: usize) {
        for _ in 0..rounds {
            while !self.hub.prepare_sleep() {}
            send(&mut self.others[0], 0, 1);
            self.hub.finish_sleep(0);
            while self.hub.receive(0, 64, &mut |_| {}) == 0 {}
        }
    }
}

impl Drop for Star {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.fabric);
    }
}

fn send(mesh: &mut Mesh, to: usize, from: usize) {
    let mut headers = [0; 66];
    headers[..6].copy_from_slice(&mac(to));
    headers[6..12].copy_from_slice(&mac(from));
    headers[12..14].copy_from_slice(&[0x08, 0x00]);
    let frame = Transmit {
        headers: &headers,
        payload: &Gather::from_slice(&[7; 64]),
        offload: Offload {
            checksum: Checksum::Partial,
            segment_size: 0,
        },
    };
    mesh.transmit(&frame).expect("there is room");
    mesh.flush();
}

/// Returns nanoseconds of a round of the measurement `what`.
fn measure(star: &mut Star, what: &str, rounds: usize) -> f64 {
    let start = Instant::now();
    match what {
        "idle" => star.measured_idle(rounds),
        "exchange" => star.measured_exchange(rounds, 1),
        "all" => star.measured_exchange(rounds, star.others.len()),
        _ => star.measured_sleep(rounds),
    }
    start.elapsed().as_nanos() as f64 / rounds as f64
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [what, peers, rounds] = &arguments[..] {
        let mut star = Star::new(peers.parse().expect("peers"));
        let rounds = rounds.parse().expect("rounds");
        println!("{what} {peers}: {:.1} ns", measure(&mut star, what, rounds));
        return;
    }
    // Cargo passes `--bench`. A test of the benchmarks passes nothing and
    // expects a short run.
    let is_short = !arguments.iter().any(|argument| argument == "--bench");
    println!("ns a round, peers:  idle  exchange with one  with all in turn  sleep and wake");
    for peers in [1, 4, 16, 64, 511] {
        let mut star = Star::new(peers);
        let rounds = if is_short { 100 } else { ROUNDS };
        let [idle, one, all, sleep] = ["idle", "exchange", "all", "sleep"].map(|what| {
            let samples = (0..5).map(|_| measure(&mut star, what, rounds / 5));
            samples.fold(f64::INFINITY, f64::min)
        });
        println!("{peers:>19} {idle:>5.0} {one:>18.0} {all:>17.0} {sleep:>15.0}");
    }
}
