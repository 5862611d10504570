//! Ping-pong of messages of all sizes up to a largest one. There are as many of 1 to 2 bytes as of
//! 2 to 4, of 4 to 8, and so on. Both sides draw the same sizes.

use std::io;
use std::time::Instant;

use super::kind::Pace;
use super::meter::Meter;
use super::ping_pong::nanoseconds;
use super::reading::{read_end, read_whole};
use super::served::Served;
use crate::samples::{Recorder, Side};
use crate::testbed::Connection;

/// Length of the sequence of sizes, which repeats.
const SIZES: usize = 1021;

/// Least round trips before the measurement, however long they take.
const MIN_WARM_UP: u64 = 16;

/// Messages between two reads of the clock in the server's warm-up.
const CLOCK_EVERY: u64 = 16;

pub(super) fn serve(mut connection: impl Connection, largest: usize, pace: &Pace) -> io::Result<Side> {
    let sizes = sizes(largest);
    let mut message = vec![0; largest];
    let mut served = Served::begin(pace, CLOCK_EVERY);
    for size in sizes.iter().cycle() {
        if !read_whole(&mut connection, &mut message[..*size])? {
            break;
        }
        connection.write_all(&message[..*size])?;
        served.exchanged(2, 2 * *size as u64);
    }
    let side = served.end();
    connection.finish()?;
    Ok(side)
}

pub(super) fn drive(mut connection: impl Connection, largest: usize, pace: &Pace) -> io::Result<Side> {
    let sizes = sizes(largest);
    let (message, mut answer) = (vec![0x5a; largest], vec![0; largest]);
    let mut next = sizes.iter().copied().cycle();
    let mut exchange = || -> io::Result<u64> {
        let size = next.next().unwrap_or(1);
        connection.write_all(&message[..size])?;
        match read_whole(&mut connection, &mut answer[..size])? {
            true => Ok(2 * size as u64),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    };
    let began = Instant::now();
    let (mut warm, mut total) = (0, 0);
    while warm < MIN_WARM_UP || began.elapsed() < pace.warm_up {
        total += exchange()?;
        warm += 1;
    }
    let mut recorder = Recorder::new();
    let warm_bytes = total;
    let meter = Meter::start();
    let mut last = Instant::now();
    let end = last + pace.span;
    let mut exchanged = 0;
    while last < end {
        total += exchange()?;
        let now = Instant::now();
        recorder.record(nanoseconds(now - last));
        last = now;
        exchanged += 1;
    }
    let side = meter.stop(2 * exchanged, total - warm_bytes);
    connection.finish()?;
    read_end(&mut connection)?;
    Ok(Side {
        total_bytes: total,
        durations: Some(recorder.counts()),
        ..side
    })
}

/// A fixed sequence of sizes, evenly distributed on a logarithmic scale.
fn sizes(largest: usize) -> Vec<usize> {
    let mut random = fastrand::Rng::with_seed(0);
    let drawn = std::iter::repeat_with(|| (largest as f64).powf(random.f64()) as usize);
    drawn.map(|size| size.clamp(1, largest)).take(SIZES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_equally_likely() {
        let sizes = sizes(1 << 10);
        assert!(sizes.iter().all(|size| (1..=1 << 10).contains(size)));
        for power in 0..10 {
            let range = 1 << power..2 << power;
            let share = sizes.iter().filter(|size| range.contains(*size)).count();
            assert!((60..150).contains(&share), "{share} of 1021 in {range:?}");
        }
        assert!(super::sizes(1).iter().all(|size| *size == 1));
    }
}
