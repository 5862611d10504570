//! The cost of a capture for a driver, per frame. Without a recording it is one
//! load of a word. With one, a thread on the other core writes the frames to
//! nowhere.
//!
//! `cargo bench -p toehold-link --bench capture`

use std::hint::black_box;
use std::io::sink;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use toehold_link::capture::{CaptureFile, Player, Tap};
use toehold_link::{Checksum, Offload, Transmit};
use toehold_shm::{Carver, Gather, Region};

const HEADERS: [u8; 66] = [7; 66];
const RUNS: usize = 50;
const BURST: usize = 32;

/// Pause between two bursts, so that the tape is never full: a lost frame would
/// cost less.
const PAUSE: Duration = Duration::from_millis(5);

/// The work of a link for a sent frame.
#[inline]
fn pass(tap: &mut Tap, now_ns: u64, frame: &Transmit<'_>) {
    if tap.is_open() {
        tap.record_sent(now_ns, frame);
    }
}

/// Nanoseconds a frame: the best of many runs, since other programs only add
/// time.
fn time(name: &str, frames: usize, pause: Duration, tap: &mut Tap, frame: &Transmit<'_>) {
    let once = |_| {
        std::thread::sleep(pause);
        let began = Instant::now();
        for now_ns in 0..frames as u64 {
            pass(black_box(tap), now_ns, black_box(frame));
        }
        began.elapsed().as_nanos() as f64 / frames as f64
    };
    let best = (0..RUNS).map(once).fold(f64::MAX, f64::min);
    println!("{name:40} {best:8.1} ns");
}

/// Plays the recording while `work` runs.
fn recorded(mut player: Player, snap_len: u32, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let mut file = CaptureFile::new(Box::new(sink()), snap_len, "bench", [2, 0, 0, 0, 0, 1]);
    player.start(snap_len);
    std::thread::scope(|scope| {
        let played = scope.spawn(|| {
            while !stop.load(Relaxed) {
                player.play(&mut file, 0);
                std::thread::sleep(Duration::from_millis(1));
            }
            player.stop();
            player.play(&mut file, 0);
            player.settle(&mut file);
            file.statistics().lost
        });
        work();
        stop.store(true, Relaxed);
        assert_eq!(played.join().expect("played"), 0, "the tape was full");
    });
}

fn main() {
    let region = Region::private(Tap::bytes_needed()).expect("memory");
    let mut tap = Tap::create(&mut Carver::new(region).expect("fresh")).expect("room");
    let bytes = vec![7; 65_000];
    let payloads = [("64 B", 64), ("1448 B", 1448), ("65000 B", 65_000)];
    let payloads = payloads.map(|(name, len)| (name, Gather::from_slice(&bytes[..len])));
    let frame = |payload| Transmit {
        headers: &HEADERS,
        payload,
        offload: Offload {
            checksum: Checksum::Partial,
            segment_size: 1448,
        },
    };
    time(
        "nothing is recorded",
        1_000_000,
        Duration::ZERO,
        &mut tap,
        &frame(&payloads[2].1),
    );
    for (name, payload) in &payloads {
        for snap_len in [96, 262_144] {
            let name = format!("recorded, {name}, at most {snap_len} B kept");
            recorded(tap.player(), snap_len, || {
                time(&name, BURST, PAUSE, &mut tap, &frame(payload));
            });
        }
    }
}
