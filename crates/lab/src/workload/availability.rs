//! A stream at full rate whose receiver shares its core with a computing loop: the share of the
//! core that is left to the loop.
//!
//! The loop runs alone first, on the same core, in slices of which the best counts. Its progress
//! beside the stream is compared with that. The stream begins when the server announces it.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::kind::Pace;
use super::ping_pong::nanoseconds;
use super::reading::read_whole;
use super::stream::{self, Edge};
use crate::samples::{Computed, Side};
use crate::testbed::Connection;

/// Time for which the loop runs alone.
pub(super) const ALONE: Duration = Duration::from_millis(40);

/// Slices of that time.
const SLICES: u32 = 4;

/// Least duration of the measurement: the kernel's scheduler gives the core to one of two for some
/// milliseconds at a time.
const SHORTEST: Duration = Duration::from_millis(150);

/// The server's message when the stream may begin.
const GO: [u8; 1] = *b"G";

/// Duration of the measurement.
pub(super) fn span(pace: &Pace) -> Duration {
    pace.span.max(SHORTEST)
}

pub(super) fn serve(mut connection: impl Connection, size: usize, pace: &Pace) -> io::Result<Side> {
    let turns = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // On this thread's core, which all its children share.
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                turn();
                turns.fetch_add(1, Relaxed);
            }
        });
        let served = beside(&turns, &mut connection, size, pace);
        stop.store(true, Relaxed);
        served
    })
}

fn beside(turns: &AtomicU64, connection: &mut impl Connection, size: usize, pace: &Pace) -> io::Result<Side> {
    let (alone, alone_ns) = alone(turns);
    connection.write_all(&GO)?;
    connection.flush()?;
    let pace = Pace {
        span: span(pace),
        ..*pace
    };
    let (mut began, mut computed) = (None, None);
    let side = stream::serve_with(connection, size, &pace, |edge| match edge {
        Edge::Begin => began = Some((Instant::now(), turns.load(Relaxed))),
        Edge::End => {
            computed = began.map(|(at, before)| Computed {
                alone,
                alone_ns,
                beside: turns.load(Relaxed) - before,
                beside_ns: nanoseconds(at.elapsed()),
            });
        }
    })?;
    Ok(Side {
        computed: computed.map(Box::new),
        ..side
    })
}

/// The loop's turns in its best slice alone, and the slice's length.
fn alone(turns: &AtomicU64) -> (u64, u64) {
    let slice = |_| {
        let (began, before) = (Instant::now(), turns.load(Relaxed));
        std::thread::sleep(ALONE / SLICES);
        (turns.load(Relaxed) - before, nanoseconds(began.elapsed()))
    };
    let rate = |&(turns, ns): &(u64, u64)| turns as f64 / ns as f64;
    let slices = (0..SLICES).map(slice);
    let best = slices.max_by(|one, other| rate(one).total_cmp(&rate(other)));
    best.unwrap_or_default()
}

pub(super) fn drive(mut connection: impl Connection, size: usize, pace: &Pace) -> io::Result<Side> {
    if !read_whole(&mut connection, &mut [0; GO.len()])? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let pace = Pace {
        span: span(pace),
        ..*pace
    };
    stream::drive(connection, size, &pace)
}

/// One turn of the loop: about a microsecond of arithmetic, without memory accesses.
pub(super) fn turn() {
    let mut value = 1_u64;
    for _ in 0..1000 {
        value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}
