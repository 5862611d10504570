//! Compares direct connections with bare shared memory, in one run: `cargo bench -p toehold-shm
//! --bench direct`.
//!
//! Each row has a floor: the time of the same two threads with words and copies alone. The floor of
//! a stream copies through the caches. Where two processors share no cache, direct connections copy
//! past the caches, and may be faster than the floor. Floor and row alternate, round by round. A
//! row prints the medians, and the median of the rounds' ratios. The rows of two threads need two
//! processors that nothing else uses.

use std::hint::{black_box, spin_loop};
use std::io::{IoSlice, IoSliceMut};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use toehold_shm::Cells;
use toehold_shm::direct::{
    Bank, Beginning, Class, Directory, End, Ends, Half, Journal, Listing, MOST_WINDOW, PeerDirectory,
    PeerHalf, ReceiveError, Record, SendError, Side, Signals, Take, ThreadNumber, Waiters,
};

const ROUNDS: usize = 15;

struct Node {
    waiters: Waiters,
    thread: ThreadNumber,
}

fn node() -> Node {
    let directory = Directory::create("bench-directory", 1).expect("memory");
    let journal = Journal::create("bench-journal", 1).expect("memory");
    let thread = journal.claim(1).expect("a line");
    let waiters = Waiters::new(directory, journal);
    Node { waiters, thread }
}

/// A bank between two nodes in this process.
fn banks(nodes: &[Node; 2]) -> [Bank; 2] {
    let halves = [1, 2].map(|incarnation| Half::create("bench-half", incarnation).expect("memory"));
    let signals = [1, 2].map(|incarnation| Signals::create("bench-signals", incarnation).expect("memory"));
    [Side::Opening, Side::Accepting].map(|side| {
        let (ours, theirs) = (side as usize, 1 - side as usize);
        let peer = halves[theirs].read_only_fd().expect("a descriptor");
        let directory = nodes[theirs].waiters.directory().read_only_fd();
        Bank {
            number: 0,
            side,
            half: halves[ours].clone(),
            peer: PeerHalf::open(peer).expect("a half"),
            ends: Ends::create("bench-ends", 1).expect("memory"),
            signals: signals[ours].clone(),
            peer_signals: signals[theirs].clone(),
            waiters: nodes[ours].waiters.clone(),
            peer_directory: PeerDirectory::open(directory.expect("a descriptor")).expect("a directory"),
            class_limit: Class::M4,
            payload_bound: 64 << 20,
            ring_descriptor: Box::new(|_| ()),
            recorder: None,
        }
    })
}

/// Both ends of a connection.
fn connect<'a>(nodes: &[Node; 2], banks: &'a [Bank; 2]) -> [End<'a>; 2] {
    let addresses = ["10.0.0.1:4000", "10.0.0.2:80"].map(|address| address.parse().expect("an address"));
    let listing = Listing {
        address: addresses[1],
        backlog: 1,
        group: 0,
        options: 0,
        window: MOST_WINDOW,
    };
    let listener = nodes[1].waiters.directory().publish(&listing).expect("room");
    let found = banks[0]
        .peer_directory
        .find(listing.address, 0)
        .expect("published");
    let id = banks[0].ends.reserve(1).expect("a number");
    let begin = |side: Side| {
        let (ours, theirs) = (side as usize, 1 - side as usize);
        let record = Record {
            generation: id.generation,
            local: addresses[ours],
            remote: addresses[theirs],
            listener: (side == Side::Opening).then_some(listener),
            options: 0,
            iss: 0,
            opened_ns: 0,
        };
        let window = MOST_WINDOW;
        let end = banks[ours].begin(nodes[ours].thread, id.number, &Beginning { record, window });
        end.expect("memory")
    };
    let opening = begin(Side::Opening);
    banks[0].offer(id, &found).expect("room");
    banks[1].take(listener, 1).expect("offered");
    [opening, begin(Side::Accepting)]
}

fn send_all(end: &End<'_>, thread: ThreadNumber, bytes: &[u8]) {
    let mut sent = 0;
    while sent < bytes.len() {
        match end.send(thread, &[IoSlice::new(&bytes[sent..])]) {
            Ok(len) => sent += len,
            Err(SendError::Full) => spin_loop(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn receive_all(end: &End<'_>, thread: ThreadNumber, into: &mut [u8]) {
    let mut received = 0;
    while received < into.len() {
        let mut buffer = [IoSliceMut::new(&mut into[received..])];
        match end.receive(thread, &mut buffer, Take::Remove, u64::MAX) {
            Ok(len) => received += len,
            Err(ReceiveError::Empty) => spin_loop(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The processors that the process may use, before it pinned any thread.
static ALLOWED: OnceLock<Vec<usize>> = OnceLock::new();

fn allowed() -> &'static [usize] {
    ALLOWED.get_or_init(|| {
        let allowed = sched_getaffinity(None).expect("an affinity");
        (0..CpuSet::MAX_CPU)
            .filter(|&processor| allowed.is_set(processor))
            .collect()
    })
}

/// Pins this thread to one of the allowed processors.
fn pin(which: usize) {
    if let Some(&processor) = allowed().get(which) {
        let mut one = CpuSet::new();
        one.set(processor);
        sched_setaffinity(None, &one).expect("a processor of its own");
    }
}

/// Nanoseconds for each of `count` operations of the first thread, while the second one runs.
fn timed(count: usize, first: impl FnOnce(), second: impl FnOnce() + Send) -> f64 {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            second();
        });
        pin(0);
        let start = Instant::now();
        first();
        start.elapsed().as_nanos() as f64 / count as f64
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn row(name: &str, mut floor: impl FnMut() -> f64, mut direct: impl FnMut() -> f64) {
    let rounds: Vec<[f64; 2]> = (0..ROUNDS).map(|_| [floor(), direct()]).collect();
    let all = |which: usize| median(rounds.iter().map(|round| round[which]).collect());
    let ratio = median(rounds.iter().map(|round| round[1] / round[0]).collect());
    println!(
        "{name:<40} floor {:>9.1} ns   direct {:>9.1} ns   ratio {ratio:>5.2}",
        all(0),
        all(1)
    );
}

/// The one-way time of 64 bytes: half of a round trip between two threads that spin.
fn ping_pong(nodes: &[Node; 2], ends: &[End<'_>; 2]) {
    const TRIPS: usize = 20_000;
    let floor = || {
        let cells = Cells::create("bench-cells", 2, 1).expect("memory");
        let wait = |cell: usize, value: u64| {
            while cells.cell(cell).words[0].load(Acquire) != value {
                spin_loop();
            }
        };
        let say = |cell: usize, value: u64| cells.cell(cell).words[0].store(value, Release);
        let there = || {
            for trip in 1..=TRIPS as u64 {
                wait(0, trip);
                say(1, trip);
            }
        };
        let here = || {
            for trip in 1..=TRIPS as u64 {
                say(0, trip);
                wait(1, trip);
            }
        };
        timed(2 * TRIPS, here, there)
    };
    let direct = || {
        let trips = |side: usize| {
            let mut bytes = [7; 64];
            for _ in 0..TRIPS {
                if side == 0 {
                    send_all(&ends[0], nodes[0].thread, &bytes);
                }
                receive_all(&ends[side], nodes[side].thread, &mut bytes);
                if side == 1 {
                    send_all(&ends[1], nodes[1].thread, &bytes);
                }
            }
            black_box(&bytes);
        };
        timed(2 * TRIPS, || trips(0), || trips(1))
    };
    row("64 B one way", floor, direct);
}

/// Messages of one size in a row, to a thread that receives them.
fn stream(nodes: &[Node; 2], ends: &[End<'_>; 2], size: usize) {
    const RING: usize = 256 << 10;
    let count = (64 << 20) / size.max(1 << 10);
    let floor = || {
        let mut writer = Cells::create("bench-cells", 2, RING).expect("memory");
        let fd = writer.fd().try_clone_to_owned().expect("a descriptor");
        let mut reader = Cells::open(fd, 2).expect("memory");
        let slots = RING / size;
        let there = move || {
            let mut into = vec![0; size];
            for message in 0..count {
                while reader.cell(0).words[0].load(Acquire) <= message as u64 {
                    spin_loop();
                }
                reader.copy_out(message % slots * size, &mut into);
                reader.cell(1).words[0].store(message as u64 + 1, Release);
            }
            black_box(&into);
        };
        let here = move || {
            let from = vec![7; size];
            for message in 0..count {
                while writer.cell(1).words[0].load(Acquire) + (slots as u64) <= message as u64 {
                    spin_loop();
                }
                writer.copy_in(message % slots * size, black_box(&from));
                writer.cell(0).words[0].store(message as u64 + 1, Release);
            }
        };
        timed(count, here, there)
    };
    let direct = || {
        let there = || {
            let mut into = vec![0; size];
            (0..count).for_each(|_| receive_all(&ends[1], nodes[1].thread, &mut into));
            black_box(&into);
        };
        let here = || {
            let from = vec![7; size];
            (0..count).for_each(|_| send_all(&ends[0], nodes[0].thread, black_box(&from)));
        };
        timed(count, here, there)
    };
    row(&format!("stream of {size} B messages"), floor, direct);
}

/// The processor time of the calls when no data comes from another processor.
fn alone(nodes: &[Node; 2], ends: &[End<'_>; 2]) {
    const COUNT: usize = 200_000;
    let measured = |mut operation: Box<dyn FnMut() + '_>| {
        let start = Instant::now();
        (0..COUNT).for_each(|_| operation());
        start.elapsed().as_nanos() as f64 / COUNT as f64
    };
    let floor = || {
        let (from, mut ring, mut into) = ([7_u8; 64], [0_u8; 64], [0_u8; 64]);
        measured(Box::new(move || {
            ring.copy_from_slice(black_box(&from));
            into.copy_from_slice(black_box(&ring));
            black_box(&into);
        }))
    };
    let direct = || {
        let (from, mut into) = ([7; 64], [0; 64]);
        measured(Box::new(move || {
            send_all(&ends[0], nodes[0].thread, black_box(&from));
            receive_all(&ends[1], nodes[1].thread, &mut into);
            black_box(&into);
        }))
    };
    row("send and receive 64 B, one thread", floor, direct);
}

fn main() {
    let nodes = [node(), node()];
    let banks = banks(&nodes);
    let ends = connect(&nodes, &banks);
    pin(0);
    alone(&nodes, &ends);
    if allowed().len() < 2 {
        println!("one processor: rows of two threads are left out");
        return;
    }
    ping_pong(&nodes, &ends);
    stream(&nodes, &ends, 64);
    stream(&nodes, &ends, 4 << 10);
    stream(&nodes, &ends, 64 << 10);
}
